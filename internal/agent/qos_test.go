package agent

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

func (w *world) awaitQOS(what string, so func() bool) {
	w.Helper()
	if !w.qos.until(w.ctx, so) {
		w.Fatalf("%s: it did not come\n%s", what, w.log.String())
	}
}

// policies waits until the loop has these policies, and the one that is always there.
func (w *world) policies(names ...string) {
	w.Helper()
	names = append(names, unknownTaskPolicy().TaskQOS.Name)
	w.awaitQOS("policies "+strings.Join(names, ", "), func() bool { return slices.Equal(w.qos.names(), names) })
}

// runs assigns a task and waits until it runs.
func (w *world) runs(task string) {
	w.Helper()
	w.cluster.assign(task, 1, plimsoll.TaskBound)
	w.await(task+" runs", func() bool { return w.cluster.has(task, 1, plimsoll.TaskRunning) > 0 })
}

// qosTask waits until the loop has a task with its worth.
func (w *world) qosTask(task string) nodeqos.Task {
	w.Helper()
	var found nodeqos.Task
	w.awaitSupervisor(task+" is known to the loop", func() bool {
		w.qos.mu.Lock()
		tasks := w.qos.deps.Tasks
		w.qos.mu.Unlock()
		for _, t := range tasks() {
			if t.ID == task && t.Queue != unknownQueue {
				found = t
				return true
			}
		}
		return false
	})
	return found
}

// awaitNote waits until the worth of attempt 1 of a task is on disk.
func (w *world) awaitNote(task string) {
	w.Helper()
	ticker := time.NewTicker(logPoll / 10)
	defer ticker.Stop()
	for readWorth(filepath.Join(w.dir, "tasks", task, "1")) == nil {
		select {
		case <-w.ctx.Done():
			w.Fatalf("what %s is worth is not noted", task)
		case <-ticker.C:
		}
	}
}

// The loop gets the policies, the tasks with their worth, and the registered node. Its reports
// reach the coordinator.
func TestTheLoopGetsItsInputs(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Capacity = plimsoll.Resources{plimsoll.CPU: 8000}
	cfg.Facts.Reserve = map[string]float64{plimsoll.CPU: 0.25}
	measure := func(context.Context, *nodeqos.Task) (float64, bool, error) { return 0, true, nil }
	cfg.QOS = QOSConfig{
		Interval: 2 * time.Second, Extended: nodeqos.ExtendedConfig{Enabled: true, CPUReserve: 10},
		Metrics: []nodeqos.Metric{
			{Metric: qos.Metric{Name: "zebras"}, Measure: measure},
			{Metric: qos.Metric{Name: "queue_length"}, Measure: measure},
		},
	}
	w.cluster.policy("a", closing("a").Action)
	w.run(cfg)
	w.policies("a")
	w.cluster.policy("b", closing("b").Action)
	w.cluster.policy("a", nil)
	w.policies("b")
	w.runs("j.g.0")
	if r := w.qosTask("j.g.0"); r.Owner != "ann" || r.Queue != "root.batch" ||
		r.Labels["app"] != "j" || r.Class != plimsoll.ClassBurstable {
		t.Errorf("the loop is told %+v", r)
	}
	got := w.qos.cfg
	if got.Node != "n1" || got.Dir != w.dir || got.Interval != 2*time.Second || !got.Extended.Enabled ||
		got.Allocatable[plimsoll.CPU] != 6000 || len(got.Metrics) != 2 {
		t.Errorf("the loop is made with %+v", got)
	}
	if got.Attributes["rack"] != "r7" || got.Attributes["cgroup"] != CgroupNone {
		t.Errorf("policies select it by %v", got.Attributes)
	}
	w.cluster.look(func() {
		if m := w.cluster.node.Facts.Metrics; !slices.Equal(m, []string{"queue_length", "zebras"}) {
			t.Errorf("it announces the metrics %v", m)
		}
	})
	w.qos.deps.Report(closed("busy", "1"))
	w.await("what it says", func() bool { told, closed := w.cluster.told(); return closed && len(told) == 1 })
	w.awaitQOS("that it is asked to tell its condition", func() bool { return w.qos.resends > 0 })
}

// Without a coordinator an eviction is carried out, and a restarted agent continues with the
// policies and tasks that it knew. The coordinator later gets both ends, and no task was started
// twice.
func TestAnHourWithoutACoordinator(t *testing.T) {
	w := newWorld(t)
	w.cluster.policy("a", closing("a").Action)
	stop, _ := w.run(w.config())
	w.policies("a")
	tasks := []string{"j.g.0", "j.g.1", "j.g.2"}
	for _, task := range tasks {
		w.runs(task)
		w.awaitNote(task)
	}
	evict := func(task string) {
		t.Helper()
		if err := w.qos.deps.Evict(w.ctx, task, 1, time.Second, "over the line"); err != nil {
			t.Fatal(err)
		}
		w.awaitSupervisor(task+" is over", func() bool {
			a := w.super.attempts[attemptKey{task, 1}]
			return a == nil || a.State == plimsoll.TaskFinished
		})
	}
	w.cluster.disconnect(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"))
	evict("j.g.0")
	w.qos.deps.Report(closed("busy", "evicting"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	w.qos.change(func() { w.qos.policies, w.qos.deps = nil, nodeqos.Deps{Tasks: func() []nodeqos.Task { return nil }} })
	w.run(w.config())
	w.policies("a")
	if r := w.qosTask("j.g.1"); r.Owner != "ann" || r.Labels["app"] != "j" {
		t.Errorf("after the restart the loop is told %+v", r)
	}
	evict("j.g.1")
	w.qos.deps.Report(closed("busy", "evicting again"))
	w.cluster.disconnect(nil)
	for _, task := range tasks[:2] {
		w.awaitEnd(task, 1, plimsoll.ResultEvicted, 143)
	}
	w.await(
		"what the new agent has to say",
		func() bool { told, closed := w.cluster.told(); return closed && len(told) == 1 },
	)
	w.cluster.look(func() {
		if r, _ := w.cluster.end("j.g.0", 1); r.Message != "over the line" {
			t.Errorf("the reason is told as %q", r.Message)
		}
	})
	w.super.look(func() {
		for key, n := range w.super.starts {
			if n != 1 {
				t.Errorf("%v was started %d times", key, n)
			}
		}
		if w.super.stopped("j.g.2", 1) {
			t.Error("a task that nobody evicted was stopped")
		}
	})
}

// A supervisor that cannot stop a task is the loop's concern. A loop that fails does not end the
// agent.
func TestAFailingLoopDoesNotEndTheAgent(t *testing.T) {
	w := newWorld(t)
	w.qos.fails = errors.New("out of files")
	w.run(w.config())
	w.runs("j.g.0")
	w.qosTask("j.g.0")
	w.super.change(func() { w.super.failing = plimsoll.Errorf(plimsoll.CodeUnavailable, "the supervisor is away") })
	if err := w.qos.deps.Evict(
		w.ctx, "j.g.0", 1, 0, "over the line",
	); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("evicting without a supervisor: %v", err)
	}
	w.super.change(func() { w.super.failing = nil })
	w.super.finish("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	w.awaitEnd("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	if !strings.Contains(w.log.String(), "out of files") {
		t.Errorf("that the loop has ended is not said:\n%s", w.log)
	}
}

func TestWatchingTheLoop(t *testing.T) {
	w := newWorld(t)
	w.run(w.config())
	w.await("it has registered", func() bool { return w.cluster.registers > 0 })
	var address string
	w.cluster.look(func() { address = w.cluster.node.Address })
	client, base, err := transport.Client(address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	service := plimsollv1connect.NewQOSServiceClient(client, base)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	watch := func(m *pb.WatchQOSRequest) (*connect.ServerStreamForClient[pb.WatchQOSResponse], error) {
		stream, err := service.WatchQOS(ctx, connect.NewRequest(m))
		if err == nil && !stream.Receive() {
			err = errors.Join(stream.Err(), stream.Close())
		}
		return stream, wire.FromConnectError(err)
	}
	for _, c := range []struct {
		req  *pb.WatchQOSRequest
		code plimsoll.Code
	}{
		{&pb.WatchQOSRequest{Node: "n2"}, plimsoll.CodeNotFound},
		{&pb.WatchQOSRequest{Node: "n1", IntervalNanos: -1}, plimsoll.CodeInvalid},
	} {
		if _, err := watch(c.req); plimsoll.CodeOf(err) != c.code {
			t.Errorf("%v: %v, want %v", c.req, err, c.code)
		}
	}
	for range maxQOSWatchers {
		stream, err := watch(&pb.WatchQOSRequest{Node: "n1", IntervalNanos: 5})
		if err != nil {
			t.Fatal(err)
		}
		if s := stream.Msg().GetStatus(); s.GetNode() != "n1" || s.GetAt() != 5 {
			t.Errorf("it sends %v", s)
		}
	}
	if _, err := watch(&pb.WatchQOSRequest{Node: "n1"}); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("one watcher too many: %v", err)
	}
	cancel()
	w.awaitQOS("the end of all watches", func() bool { return w.qos.watching == 0 })
}

// Before the supervisor's first list the loop has no status.
func TestWatchingTooEarly(t *testing.T) {
	h := &qosHandler{node: "n1"}
	err := h.WatchQOS(t.Context(), connect.NewRequest(&pb.WatchQOSRequest{Node: "n1"}), nil)
	if plimsoll.CodeOf(wire.FromConnectError(err)) != plimsoll.CodeUnavailable {
		t.Errorf("watching before there is a loop: %v", err)
	}
}

// /metrics has the node's usage and waterlines, and counts actions. A missing metric has no usage.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.run(w.config())
	w.await("it has registered", func() bool { return w.cluster.registers > 0 })
	w.qos.deps.Report(closed("busy", "1", "2"))
	w.await("the report", func() bool { told, _ := w.cluster.told(); return len(told) == 2 })
	var address string
	w.cluster.look(func() { address = w.cluster.node.Address })
	client, base, err := transport.Client(address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	res, err := client.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`plimsoll_agent_qos_events_total{kind="throttled"} 2`, `plimsoll_agent_qos_events_total{kind="evicting"} 0`,
		`plimsoll_agent_qos_sample_seconds 0.001`, `plimsoll_agent_qos_sample_timestamp_seconds 5`,
		`plimsoll_agent_qos_scheduling_disabled 1`,
		`plimsoll_agent_qos_tasks 3`, `plimsoll_agent_qos_tasks_held{rung="throttle"} 2`,
		`plimsoll_agent_qos_offered{resource="ext-cpu"} 1.5`,
		`plimsoll_agent_qos_line_usage{metric="cpu_total_usage",rule="busy/cpu"} 2.5`,
		`plimsoll_agent_qos_line_waterline{metric="gauge",rule="busy/gauge"} 7`,
		`plimsoll_agent_qos_line_triggered{metric="cpu_total_usage",rule="busy/cpu"} 1`,
		`# TYPE plimsoll_agent_qos_events_waiting gauge`,
	} {
		if !strings.Contains(string(body), line+"\n") {
			t.Errorf("there is no line %s", line)
		}
	}
	if strings.Contains(string(body), `line_usage{metric="gauge"`) || t.Failed() {
		t.Errorf("the page:\n%s", body)
	}
}
