package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	const held = plimsoll.MaxEarlier + plimsoll.MaxAttempts
	const attempts = held + 10
	for i := range attempts - 1 {
		b.goTo(fmt.Sprintf("n%d", (i+1)%2))
	}
	task := b.record()
	if len(task.Earlier) != plimsoll.MaxEarlier || len(task.Attempts) != plimsoll.MaxAttempts ||
		task.Attempt != attempts {
		t.Fatalf("%+v", task)
	}
	if all := task.AllAttempts(); all[0].Number != attempts-plimsoll.MaxAttempts ||
		all[plimsoll.MaxAttempts].Number != attempts {
		t.Errorf("the attempts are %+v", all)
	}
	for attempt := int32(1); attempt <= attempts; attempt++ {
		want, known := fmt.Sprintf("n%d", (attempt-1)%2), attempt >= attempts-held
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

// A task keeps what became of its attempts, with the times of their states. An attempt that a stop
// finds between two attempts keeps its own result.
func TestATaskKeepsItsAttempts(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(machine("n0", 1000))
	submit := job("j", 1, 1000)
	submit.Spec.Groups[0].Retry = plimsoll.RetryPolicy{Kind: plimsoll.RetryDelayed, Limit: 5, InitialDelay: time.Minute}
	b.send(submit)
	b.settle()
	tell := func(state plimsoll.TaskState, result plimsoll.TaskResult, code int32) {
		b.now += 1e9
		r := engine.Report{Job: "j", Group: "g"}
		r.Attempt, r.State, r.Result, r.ExitCode, r.At = b.record().Attempt, state, result, code, b.now
		b.send(&engine.ReportTasks{Node: "n0", Incarnation: 1, Reports: []engine.Report{r}})
		b.settle()
	}
	tell(plimsoll.TaskStarting, 0, 0)
	tell(plimsoll.TaskRunning, 0, 0)
	tell(plimsoll.TaskFinished, plimsoll.ResultFailed, 3)
	b.now += 60e9
	b.settle()
	tell(plimsoll.TaskRunning, 0, 0)
	tell(plimsoll.TaskFinished, plimsoll.ResultOutOfMemory, 137)
	b.send(&engine.KillJob{ID: "j"})
	b.now += 1e9
	b.settle()
	b.crash()
	b.same()
	task := b.record()
	var got []string
	for _, s := range task.Steps() {
		got = append(got, fmt.Sprintf("%d %s %d %s", (s.At-1e15)/1e9, s.State, s.Attempt, s.Reason))
	}
	want := []string{
		"0 Pending 0 created", "0 Bound 1 bound", "1 Starting 1 prepared", "2 Running 1 started", "3 Pending 1 failed",
		"63 Bound 2 bound", "64 Running 2 started", "65 Pending 2 out_of_memory", "66 Finished 2 killed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the steps are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if all := task.AllAttempts(); len(all) != 2 || all[0].ExitCode != 3 || all[1].ExitCode != 137 ||
		all[1].Pending != all[0].Finished {
		t.Errorf("the attempts are %+v", all)
	}
	status := b.engine.State().JobStatus(b.engine.State().Job("j"))
	got = got[:0]
	for _, s := range status.History {
		got = append(got, fmt.Sprintf("%s %s", s.State, s.Reason))
	}
	want = []string{
		"New submitted", "Accepted created", "Starting bound", "Running started", "Failing killed", "Failed killed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the history is %q, want %q", got, want)
	}
}
