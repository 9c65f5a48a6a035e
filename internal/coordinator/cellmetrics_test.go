package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/store"
)

// scrape reads the values of a collector, by their names and labels, such as
// plimsoll_jobs{state=Running}. A histogram has its count. Zeros are left out.
func scrape(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if v := valueOf(m); v != 0 {
				values[f.GetName()+metricLabels(m)] = v
			}
		}
	}
	return values
}

func valueOf(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

func metricLabels(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, l.GetName()+"="+l.GetValue())
	}
	if labels == nil {
		return ""
	}
	return "{" + strings.Join(labels, ",") + "}"
}

// wantValues compares the values of a collector with those wanted.
func wantValues(t *testing.T, c prometheus.Collector, want map[string]float64) {
	t.Helper()
	got := scrape(t, c)
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s is %v, want %v", name, got[name], v)
		}
	}
	for name, v := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is %v, want nothing", name, v)
		}
	}
}

func TestMetricsOfTheCell(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	cell := l.term.metrics.cell
	wantValues(t, cell, nil)

	l.must(setQueues(&plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true, Queues: []plimsoll.QueueConfig{
		{Name: "batch", MaxJobs: 1},
	}}))
	l.must(register("n1", 1))
	l.must(register("n2", 1))
	l.must(&pb.Command{Kind: &pb.Command_SetNodeMode{SetNodeMode: &pb.SetNodeModeRequest{
		Id: "n2", Mode: pb.NodeMode_NODE_MODE_CORDONED,
	}}})
	l.must(submit(job("large", 45))) // the node that takes tasks has room for 40 of them
	l.must(submit(job("next", 2)))
	l.must(reportTasks(
		"n1", &pb.TaskReport{Task: "large.work.0", Attempt: 1, State: pb.TaskState_TASK_STATE_RUNNING},
		&pb.TaskReport{
			Task: "large.work.1", Attempt: 1, State: pb.TaskState_TASK_STATE_FINISHED,
			Result: pb.TaskResult_TASK_RESULT_FAILED, ExitCode: 3,
		},
	))
	l.until("the room of the task that has failed is taken", func() bool {
		return scrape(t, cell)["plimsoll_queue_pending{queue=root.batch}"] == 6
	})
	wantValues(t, cell, map[string]float64{
		"plimsoll_jobs{state=Running}": 1, "plimsoll_jobs{state=Accepted}": 1,
		"plimsoll_tasks{state=Pending}": 6, "plimsoll_tasks{state=Bound}": 39, "plimsoll_tasks{state=Running}": 1,
		"plimsoll_tasks{state=Finished}": 1,
		"plimsoll_nodes{state=ready}":    1, "plimsoll_nodes{state=cordoned}": 1,
		"plimsoll_task_ends_total{result=failed}": 1, "plimsoll_task_wait_seconds": 41,
		"plimsoll_queue_pending{queue=root.batch}":      6,
		"plimsoll_queue_running{queue=root.batch}":      40,
		"plimsoll_queue_jobs_waiting{queue=root.batch}": 1,
	})
}

// A standby shows nothing of the cell, so that it does not count twice, and no archive that is
// down.
func TestOnlyTheLeaderShowsTheCell(t *testing.T) {
	m := newMetrics(newStatus(), func() uint64 { return 0 })
	for _, c := range []prometheus.Collector{m.cell, m.archive} {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetType() == dto.MetricType_GAUGE {
				t.Errorf("a process that does not lead shows %s", f.GetName())
			}
		}
	}
}

func TestQueuesWithSeriesAreBounded(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	tree := plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true}
	const leaves = shownQueues + 7
	for i := range leaves {
		tree.Queues = append(tree.Queues, plimsoll.QueueConfig{Name: fmt.Sprintf("q%04d", i)})
	}
	l.must(setQueues(&tree))
	for i := shownQueues - 2; i < leaves; i++ {
		spec := job(fmt.Sprintf("j%d", i), 2)
		spec.Queue = fmt.Sprintf("root.q%04d", i)
		l.must(submit(spec))
	}
	l.settle()
	depths, err := queueDepths(l.term.source.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(depths) != shownQueues+1 || !slices.IsSortedFunc(depths[:shownQueues], func(a, b queueDepth) int {
		return strings.Compare(a.path, b.path)
	}) {
		t.Fatalf("%d queues are shown, want %d", len(depths), shownQueues+1)
	}
	if last := depths[shownQueues-1]; last != (queueDepth{path: fmt.Sprintf("root.q%04d", shownQueues-1), pending: 2}) {
		t.Errorf("the last one with series of its own is %+v", last)
	}
	if other := depths[shownQueues]; other != (queueDepth{path: otherQueues, pending: 2 * 7}) {
		t.Errorf("the others are %+v", other)
	}
}

// While the archive fails, the jobs that wait for it and their age are shown.
func TestMetricsOfTheArchive(t *testing.T) {
	f := newFaulty()
	f.mu.write = plimsoll.Errorf(plimsoll.CodeExhausted, "no space left")
	l := archivingLeader(t, f, vfs.NewMem(), func(c *Config) { c.State.MaxToArchive = 9 })
	defer l.stop()
	value := func(name string) float64 { return scrape(t, l.term.metrics.archive)["plimsoll_archive_"+name] }
	l.end("a", 1)
	l.end("b", 1)
	l.until("the trouble is known", func() bool { return l.archiveStatus().Trouble != "" })
	waiting, most := value("jobs_waiting"), value("jobs_waiting_limit")
	if up, lag := value("up"), value("lag_seconds"); up != 0 || waiting != 2 || most != 9 || lag <= 0 {
		t.Errorf("up %v, %v jobs of %v wait, the first for %v s", up, waiting, most, lag)
	}
	if value("errors_total") == 0 {
		t.Error("no error is counted")
	}
	f.set(func() { f.mu.write = nil })
	l.until("all jobs have gone", func() bool { return l.jobs() == 0 })
	l.until("none waits", func() bool { return value("jobs_waiting") == 0 })
	if up, lag, jobs, written := value("up"), value("lag_seconds"), value("jobs"), value("written_total"); up != 1 ||
		lag != 0 || jobs != 2 || written != 2 {
		t.Errorf("up %v, lag %v, %v jobs, %v written", up, lag, jobs, written)
	}
}
