package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// leaving is the configuration of an agent that leaves when ctx ends.
func (w *world) leaving() Config {
	cfg := w.config()
	cfg.LeaveTimeout = patience
	return cfg
}

// stopped runs stop and returns the message of the agent that left.
func (w *world) stopped(stop func() error) (left *pb.LeaveNodeRequest) {
	w.Helper()
	if err := stop(); err != nil {
		w.Fatal(err)
	}
	w.cluster.look(func() {
		if len(w.cluster.left) == 1 {
			left = w.cluster.left[0]
		}
	})
	if left == nil {
		w.Fatalf("the cluster was not told, or more than once:\n%s", w.log.String())
	}
	return left
}

func TestAStoppedAgentLeavesAndEndsItsIdleSupervisor(t *testing.T) {
	w := newWorld(t)
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	stop, _ := w.run(w.leaving())
	w.await("j.g.0 runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	w.super.finish("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	w.awaitEnd("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	w.awaitSupervisor("the end is acknowledged", func() bool { return len(w.super.attempts) == 0 })
	left := w.stopped(stop)
	of := left.GetNode() == "n1" && left.GetIncarnation() == w.cluster.incarnation
	if !of || left.GetRunning() != 0 || !left.GetEmpty() {
		t.Errorf("the cluster was told %v; want an empty node", left)
	}
	if session := w.cluster.sessions["LeaveNode"]; !w.super.retired || session == "" {
		t.Errorf("the supervisor goes on: %t; the call came with the session %q", !w.super.retired, session)
	}
}

func TestAStoppedAgentLeavesItsTasksToTheSupervisor(t *testing.T) {
	w := newWorld(t)
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	w.cluster.assign("j.g.1", 1, plimsoll.TaskBound)
	stop, _ := w.run(w.leaving())
	for _, task := range []string{"j.g.0", "j.g.1"} {
		w.await(task+" runs", func() bool { return w.cluster.has(task, 1, plimsoll.TaskRunning) > 0 })
	}
	if left := w.stopped(stop); left.GetRunning() != 2 || left.GetEmpty() {
		t.Errorf("the cluster was told %v; want two attempts that go on", left)
	}
	if w.super.retired {
		t.Error("the supervisor was ended under its tasks")
	}
	if log := w.log.String(); !strings.Contains(log, "left 2 <nil>") {
		t.Errorf("the log says\n%s", log)
	}
}

// A node with an end that is not acknowledged is not empty, so the end is not lost.
func TestANodeWithAnUnreportedEndIsNotEmpty(t *testing.T) {
	w := newWorld(t)
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	stop, _ := w.run(w.leaving())
	w.await("j.g.0 runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	w.cluster.change(func() { w.cluster.noReports = plimsoll.Errorf(plimsoll.CodeUnavailable, "not now") })
	w.super.finish("j.g.0", 1, plimsoll.ResultFailed, 3)
	if left := w.stopped(stop); left.GetRunning() != 0 || left.GetEmpty() || !w.super.retired {
		t.Errorf("the cluster was told %v, and the supervisor goes on: %t", left, !w.super.retired)
	}
}

// A node does not claim to be empty while it may have an unknown attempt. Such are an attempt whose
// start was not answered, and all attempts before the supervisor's first list.
func TestANodeIsEmptyOnlyIfThatIsKnown(t *testing.T) {
	b := newBook(t)
	if b.empty() {
		t.Error("it is empty before the supervisor has said what it holds")
	}
	b.hold()
	if !b.empty() {
		t.Error("it is not empty although the supervisor holds nothing")
	}
	b.list(task("j.g.0", 1, plimsoll.TaskBound))
	ops := b.expect("start j.g.0 1")
	if b.empty() || b.live() != 1 {
		t.Error("it is empty while an attempt is started")
	}
	b.doneAll(ops, plimsoll.Errorf(plimsoll.CodeUnavailable, "gone"))
	if b.empty() {
		t.Error("it is empty although an attempt may have been started")
	}
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	if b.empty() || b.live() != 1 {
		t.Error("it is empty while an attempt runs")
	}
	b.attempts([]executor.Status{{
		Task: "j.g.0", Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultSucceeded,
	}}, false)
	if b.empty() {
		t.Error("it is empty before the end is acknowledged")
	}
	b.ack()
	if !b.empty() {
		t.Error("it is not empty although all is over")
	}
}

// The agent tells the gateway of the last session, or another one. A hanging gateway does not use
// up the others' time. Without any gateway the agent stops all the same.
func TestAnAgentLeavesThroughAnyGateway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.sessions.gateways, b.sessions.lastGateway = []string{"x", "hangs", "a"}, "hangs"
		b.gateways["a"], b.gateways["hangs"] = local{c}, hanging{local{newCluster()}}
		began := time.Now()
		if err := b.sessions.leave(t.Context(), 6*time.Second, 3, false); err != nil {
			t.Error(err)
		}
		if want := []string{"hangs", "x", "a"}; !slices.Equal(b.dialed, want) || time.Since(began) != 2*time.Second {
			t.Errorf("dialed %v in %v, want %v in 2 s", b.dialed, time.Since(began), want)
		}
		if len(c.left) != 1 || c.left[0].GetRunning() != 3 || c.left[0].GetIncarnation() != 7 {
			t.Errorf("told %v", c.left)
		}
		delete(b.gateways, "a")
		if err := b.sessions.leave(t.Context(), 6*time.Second, 0, true); err == nil {
			t.Error("nobody was told, and that is no error")
		}
		b.sessions.lastGateway = ""
		if err := b.sessions.leave(t.Context(), 6*time.Second, 0, true); err != nil || len(b.dialed) != 6 {
			t.Errorf("an agent that was never registered dialed %v (%v)", b.dialed, err)
		}
	})
}

// The real supervisor ends when the agent leaves, and stays while a task runs.
func TestARealSupervisorEndsWithItsAgent(t *testing.T) {
	w := newWorld(t)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := []string{binary, "supervisor", "--dir", w.dir}
	w.executor, err = NewSupervised(executor.ClientConfig{Dir: w.dir, Command: command})
	if err != nil {
		t.Fatal(err)
	}
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound, waiter(0)...)
	stop, _ := w.run(w.leaving())
	w.await("j.g.0 runs", func() bool { return w.cluster.has("j.g.0", 1, plimsoll.TaskRunning) > 0 })
	w.awaitLog("j.g.0", "began\n")
	if left := w.stopped(stop); left.GetRunning() != 1 || left.GetEmpty() {
		t.Errorf("the cluster was told %v; want an attempt that goes on", left)
	}
	var caps executor.Capabilities
	data, err := os.ReadFile(filepath.Join(w.dir, "supervisor.json"))
	if err := errors.Join(err, json.Unmarshal(data, &caps), syscall.Kill(caps.PID, 0)); err != nil {
		t.Fatalf("the supervisor does not go on: %v", err)
	}
	w.cluster.change(func() { w.cluster.left = nil })
	stop, _ = w.run(w.leaving())
	write(t, w.taskFile("j.g.0", "go"), nil)
	w.awaitEnd("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	if left := w.stopped(stop); left.GetRunning() != 0 {
		t.Errorf("the cluster was told %v; want none that goes on", left)
	}
	w.awaitExit(strconv.Itoa(caps.PID))
}
