package nodeqos

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/plimsoll-dev/plimsoll/qos"
)

// A value is kept in fixed point. A value that cannot be compared with a line is refused.
func TestValuesAreFixed(t *testing.T) {
	for _, c := range []struct {
		value float64
		scale int64
		want  int64
		ok    bool
	}{
		{1.2345, 0, 1235, true},
		{0, 0, 0, true},
		{4096, 1, 4096, true},
		{1.5, qos.Core, 1_500_000_000, true},
		{math.NaN(), 0, 0, false},
		{math.Inf(1), 0, 0, false},
		{math.Inf(-1), 0, 0, false},
		{-0.001, 0, 0, false},
		{1e300, 0, 0, false},
		{math.MaxFloat64, 1, 0, false},
	} {
		got, err := fixed(c.value, &qos.Metric{Scale: c.scale})
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%v: %d, %v; want %d", c.value, got, err, c.want)
		}
	}
}

// Each task is measured. A task without the metric does not count, and a task that fails is
// missing. When all tasks with the metric fail, the node's value is missing.
func TestAMetricIsMeasuredOfEachTask(t *testing.T) {
	n := newNode(t, nil)
	n.cfg.Metrics = []Metric{{
		Metric: qos.Metric{Name: "connections", Evictable: true, EvictQuantified: true}, PerTask: true, Sum: true,
		Measure: func(_ context.Context, task *Task) (float64, bool, error) {
			switch task.ID {
			case "none":
				return 0, false, nil
			case "silent":
				return 0, true, errors.New("connection refused")
			}
			return float64(task.Priority), true, nil
		},
	}}
	n.loop = n.start()
	n.add(Task{ID: "a", Priority: 10})
	n.add(Task{ID: "b", Priority: 25})
	n.add(Task{ID: "none"})
	n.add(Task{ID: "silent"})
	n.steps(2)
	snap := n.loop.state.snapshot
	values := map[string]int64{}
	for i := range snap.Tasks {
		if v, ok := snap.Tasks[i].Values["connections"]; ok {
			values[snap.Tasks[i].ID] = v
		}
	}
	same(t, "tasks", values, map[string]int64{"a": 10_000, "b": 25_000})
	if got := snap.Values["connections"]; got != 35_000 {
		t.Errorf("the node has %d", got)
	}
	if trouble := n.loop.gauges.trouble("connections"); trouble == "" {
		t.Error("nothing is said of the task that failed")
	}
	n.tasks = n.tasks[:0]
	n.add(Task{ID: "silent"})
	n.steps(2)
	if v, ok := n.loop.state.snapshot.Values["connections"]; ok {
		t.Errorf("nobody answers, and the node has %d", v)
	}
	n.tasks = n.tasks[:0]
	n.steps(2)
	if v, ok := n.loop.state.snapshot.Values["connections"]; !ok || v != 0 {
		t.Errorf("nobody is there who could tell it, and the node has %d, %v", v, ok)
	}
}
