package engine_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// goTo ends the attempt of j.g.0 and lets the next one be placed on a node.
func (b *bench) goTo(node string) {
	b.t.Helper()
	ref, _ := b.engine.State().FindTask("j", "g", 0)
	for i := range 2 {
		id, mode := fmt.Sprintf("n%d", i), plimsoll.NodeCordoned
		if id == node {
			mode = plimsoll.NodeActive
		}
		b.send(&engine.SetNodeMode{ID: id, Mode: mode})
	}
	r := engine.Report{Job: "j", Group: "g"}
	r.Attempt, r.State, r.Result = ref.Task().Attempt, plimsoll.TaskFinished, plimsoll.ResultPreempted
	b.send(&engine.ReportTasks{Node: ref.Task().Node, Incarnation: 1, Reports: []engine.Report{r}})
	b.settle()
}

// record returns the record of j.g.0.
func (b *bench) record() plimsoll.Task {
	b.t.Helper()
	ref, ok := b.engine.State().FindTask("j", "g", 0)
	if !ok {
		b.t.Fatal("there is no task")
	}
	return b.engine.State().TaskRecord(ref)
}

func TestATaskRemembersTheNodesOfItsAttempts(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(machine("n0", 1000), &engine.SetNodeMode{ID: "n0", Mode: plimsoll.NodeActive})
	b.send(job("j", 1, 1000))
	b.settle()
	b.send(machine("n1", 1000))
	for _, node := range []string{"n0", "n1", "n1", "n0"} { // attempts 2 to 5
		b.goTo(node)
	}
	b.crash()
	b.same()
	task := b.record()
	for attempt, want := range []string{"", "n0", "n0", "n1", "n1", "n0", ""} {
		if node, ok := task.NodeOf(int32(attempt)); node != want || ok != (want != "") {
			t.Errorf("attempt %d was on %q (%t), want %q; the task is %+v", attempt, node, ok, want, task)
		}
	}
}

// A task that moves from node to node remembers the last few. Its bytes in the store and in memory
// are bounded.
func TestATaskRemembersABoundedNumberOfNodes(t *testing.T) {
	b := newBench(t, state.Config{KeepEnded: 1e9}, state.Limits{})
	b.send(machine("n0", 1000))
	b.send(job("j", 1, 1000))
	b.settle()
	b.send(machine("n1", 1000))
	const attempts = 2*plimsoll.MaxEarlier + 1
	for i := range attempts - 1 {
		b.goTo(fmt.Sprintf("n%d", (i+1)%2))
	}
	task := b.record()
	if len(task.Earlier) != plimsoll.MaxEarlier || task.Attempt != attempts {
		t.Fatalf("%+v", task)
	}
	for attempt := int32(1); attempt <= attempts; attempt++ {
		want, known := fmt.Sprintf("n%d", (attempt-1)%2), attempt >= attempts-plimsoll.MaxEarlier
		if node, ok := task.NodeOf(attempt); ok != known || ok && node != want {
			t.Errorf("attempt %d was on %q (%t), want %q (%t)", attempt, node, ok, want, known)
		}
	}
	b.send(&engine.KillJob{ID: "j"})
	b.goTo("n0")
	b.now += 2e9
	b.settle() // the job is forgotten; Check finds what would be left of its sums
	if _, ok := b.engine.State().FindTask("j", "g", 0); ok {
		t.Error("the job is still there")
	}
}
