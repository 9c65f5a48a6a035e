package gateway

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func TestMetricsTellTheCopyItsHistoryAndItsSubscribers(t *testing.T) {
	f := cluster()
	g := newGateway(t, Config{}, f)
	before, kept := f.Latest().Revision(), f.Changes().Len(wire.KindTask)
	f.put(taskIn(0, plimsoll.TaskPending, ""), taskIn(1, plimsoll.TaskPending, ""))
	f.put(taskIn(0, plimsoll.TaskRunning, "n1"))
	for _, rpc := range []string{"WatchTasks", "WatchEvents", "WatchAssignments", "ReadLogs"} {
		defer g.metrics.watching(rpc)()
	}
	g.metrics.watching("WatchJobs")() // it has ended
	view, err := g.viewAt(t.Context(), plimsoll.Consistency{Level: plimsoll.FreshnessEventual})
	if err != nil {
		t.Fatal(err)
	}
	if before == 0 || view.Revision() != before+2 {
		t.Fatalf("revisions %d and %d", before, view.Revision())
	}
	text := ask(g.Handler(), http.MethodGet, "/metrics").Body.String()
	for _, line := range []string{
		`plimsoll_gateway_subscribers{kind="user"} 2`, `plimsoll_gateway_subscribers{kind="agent"} 1`,
		`plimsoll_gateway_subscribers{kind="gateway"} 0`, `plimsoll_gateway_streams_open{rpc="ReadLogs"} 1`,
		fmt.Sprintf(`plimsoll_gateway_watch_history_changes{kind="task"} %d`, kept+3),
		`plimsoll_gateway_watch_history_oldest_revision{kind="task"} 0`,
		`plimsoll_gateway_read_age_seconds_count 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
	for _, kind := range replica.HistoryKinds() {
		if objectNames[kind] == "" {
			t.Errorf("objects of kind %d have no name in metrics", kind)
		}
	}
	for _, name := range []string{`copy_bytes`, `copy_objects{kind="task"}`, `copy_objects{kind="node"}`} {
		line := "\nplimsoll_gateway_" + name + " "
		if !strings.Contains(text, line) || strings.Contains(text, line+"0\n") {
			t.Errorf("%s is 0", name)
		}
	}
}

func TestACopyThatWasNeverConfirmedHasNoAge(t *testing.T) {
	f := cluster()
	g := newGateway(t, Config{}, f)
	age := func() float64 { return gaugeOf(t, g, "plimsoll_gateway_copy_age_seconds") }
	if got := age(); math.IsNaN(got) {
		t.Error("a copy that was confirmed has no age")
	}
	f.behind = replica.NewTables().Snapshot() // nothing was ever confirmed of it
	if got := age(); !math.IsNaN(got) {
		t.Errorf("the age is %v, want NaN", got)
	}
}

// gaugeOf returns a gauge of a gateway that has no label.
func gaugeOf(t testing.TB, g *Gateway, name string) float64 {
	t.Helper()
	families, err := g.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
