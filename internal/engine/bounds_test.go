package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// wantRefused fails unless a command was refused with all of some words.
func (b *bench) wantRefused(id uint64, code plimsoll.Code, words ...string) {
	b.t.Helper()
	b.wantCode(id, code)
	for _, word := range words {
		if err := b.reply(id); !strings.Contains(err.Error(), word) {
			b.t.Fatalf("refused with %q, which does not say %q", err, word)
		}
	}
}

// wantHeld fails unless the state counts so many tasks.
func (b *bench) wantHeld(want int) {
	b.t.Helper()
	if tasks, _ := b.engine.State().Usage(); tasks != want {
		b.t.Fatalf("%d tasks are counted, want %d", tasks, want)
	}
}

// large returns a job of one group with so many bytes of arguments.
func large(id string, bytes int) *engine.SubmitJob {
	do := job(id, 1, 100)
	do.Spec.Groups[0].Command = []string{"true", strings.Repeat("x", bytes)}
	return do
}

// A submit that would bring the tasks over their bound is refused and changes nothing. The error
// has the name of the bound, the numbers and the flag that raises it. A smaller submit is taken.
func TestASubmitOverTheTaskBoundIsRefusedWithItsName(t *testing.T) {
	b := newBench(t, state.Config{MaxTasks: 100}, state.Limits{})
	b.send(job("a", 60, 100))
	b.settle()
	before, err := dump(b.engine.State())
	if err != nil {
		t.Fatal(err)
	}
	refused := b.send(job("b", 41, 100))
	b.settle()
	b.wantRefused(
		refused, plimsoll.CodeExhausted, "state-tasks: ", "have 60 tasks", "make it 101", "at most 100",
		"--state-tasks",
	)
	if after, _ := dump(b.engine.State()); after != before {
		t.Fatal("the submit that was refused has changed the state:\n" + firstDifference(before, after))
	}
	taken := b.send(job("c", 40, 100))
	b.settle()
	if err := b.reply(taken); err != nil {
		t.Fatal(err)
	}
	b.wantHeld(100)
}

// All tasks of a submit count at once, however many turns it takes to create them.
func TestTasksThatAreStillToBeCreatedCount(t *testing.T) {
	b := newBench(t, state.Config{MaxTasks: 1000}, state.Limits{Ops: 64, Bytes: 1 << 20})
	b.send(job("a", 900, 100))
	refused := b.send(job("b", 101, 100))
	b.turn()
	b.wantHeld(900)
	b.wantRefused(refused, plimsoll.CodeExhausted, "state-tasks")
	b.send(&engine.KillJob{ID: "a"}) // what is not created by now never will be
	b.turn()
	if tasks, _ := b.engine.State().Usage(); tasks >= 900 {
		t.Fatalf("a job that was killed while its tasks were created counts %d", tasks)
	}
}

// Scaling up has the same bounds as a submit, and scaling down has none.
func TestAScalingOverTheTaskBoundIsRefused(t *testing.T) {
	tree := plimsoll.DefaultQueues()
	tree.Queues[0].MaxTasks = 70
	b := newBench(t, state.Config{MaxTasks: 100}, state.Limits{})
	b.send(&engine.SetQueueConfig{Config: tree}, job("a", 50, 100))
	b.settle()
	up := b.send(&engine.ScaleJob{ID: "a", Count: 101})
	more := b.send(&engine.ScaleJob{ID: "a", Count: 71})
	b.settle()
	b.wantRefused(up, plimsoll.CodeExhausted, "state-tasks")
	b.wantRefused(more, plimsoll.CodeExhausted, "maxtasks", "root.default", "at most 70")
	b.wantHeld(50)
	down := b.send(&engine.ScaleJob{ID: "a", Count: 1})
	b.settle()
	if err := b.reply(down); err != nil {
		t.Fatal(err)
	}
}

// maxtasks of a queue bounds the tasks of all jobs below it that have not ended. The refusal names
// the full queue.
func TestASubmitOverMaxTasksOfAQueueAboveIsRefused(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	tree := plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{
		{Name: "team", MaxTasks: 10, Queues: []plimsoll.QueueConfig{{Name: "x"}, {Name: "y"}}},
	}}
	in := func(queue string, do *engine.SubmitJob) *engine.SubmitJob {
		do.Spec.Queue = queue
		return do
	}
	b.send(&engine.SetQueueConfig{Config: tree}, in("root.team.x", job("a", 6, 100)))
	refused := b.send(in("root.team.y", job("b", 5, 100)))
	b.send(in("root.team.y", job("c", 4, 100)))
	b.settle()
	b.wantRefused(
		refused, plimsoll.CodeExhausted, "maxtasks: ", "root.team have 6 tasks", "make it 11", "at most 10",
		"queue file",
	)
	if q := b.engine.State().Queue("root.team"); q.Tasks != 10 {
		t.Fatalf("%s has %d tasks, want 10", q.Path, q.Tasks)
	}
	b.crash()
	b.settle()
	b.send(&engine.KillJob{ID: "a"})
	b.settle()
	if q := b.engine.State().Queue("root.team"); q.Tasks != 4 || q.MaxTasks != 10 {
		t.Fatalf("after a load and a kill %s has %d tasks of %d, want 4 of 10", q.Path, q.Tasks, q.MaxTasks)
	}
}

// The specifications of jobs are bounded by their bytes in memory.
func TestASubmitOverTheBoundOfBytesIsRefusedWithItsName(t *testing.T) {
	b := newBench(t, state.Config{MaxBytes: 1 << 20}, state.Limits{})
	b.send(large("a", 100_000), large("b", 100_000), large("c", 100_000), large("d", 100_000), large("e", 100_000))
	refused := b.send(large("f", 100_000))
	b.settle()
	b.wantRefused(refused, plimsoll.CodeExhausted, "state-bytes: ", "at most 1048576", "--state-bytes")
	if b.engine.State().Job("e") == nil || b.engine.State().Job("f") != nil {
		t.Fatal("five jobs of twice 100 kB fit into 1 MiB, and no sixth")
	}
}

// Many small texts take much more memory than their record, and the memory is counted.
func TestSmallTextsCountAsWhatTheyTakeInMemory(t *testing.T) {
	b := newBench(t, state.Config{MaxBytes: 1 << 20}, state.Limits{})
	do := job("a", 1, 100)
	do.Spec.Groups[0].Command = make([]string, 50_000)
	for i := range do.Spec.Groups[0].Command {
		do.Spec.Groups[0].Command[i] = "x"
	}
	refused := b.send(do)
	b.settle()
	b.wantRefused(refused, plimsoll.CodeExhausted, "state-bytes")
}

// A store that is over the bounds loads. Then submits are refused until there is room, and
// everything else goes on: kills, reports, scaling down.
func TestAStoreOverTheBoundLoads(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(machine("n", 4000), job("a", 50, 1000), job("b", 50, 1000), large("c", 10_000))
	b.settle()
	b.cfg.MaxTasks, b.cfg.MaxBytes = 20, 2500
	b.crash()
	b.settle()
	b.wantHeld(101)
	refused := b.send(job("d", 1, 100))
	report := b.send(finished("n", "a", 0))
	b.settle()
	b.wantRefused(refused, plimsoll.CodeExhausted, "state-tasks")
	if err := b.reply(report); err != nil {
		t.Fatal(err)
	}
	b.send(&engine.KillJob{ID: "b"}, &engine.KillJob{ID: "c"}, &engine.ScaleJob{ID: "a", Count: 10})
	b.settle()
	b.send(&engine.KillJob{ID: "a"})
	b.settle()
	for i := range int32(5) { // those that run
		b.send(finished("n", "a", i))
		b.settle()
	}
	taken := b.send(job("d", 1, 100))
	b.settle()
	if err := b.reply(taken); err != nil {
		t.Fatalf("a submit is refused although there is room again: %v", err)
	}
	b.wantHeld(1)
}

// Ended jobs take no room from new ones: the oldest are deleted first, and only as many as needed.
func TestEndedJobsGiveWayToNewOnesOldestFirst(t *testing.T) {
	b := newBench(t, state.Config{MaxTasks: 100}, state.Limits{Ops: 64, Bytes: 1 << 20})
	for i := range 4 {
		id := fmt.Sprintf("old%d", i)
		b.send(job(id, 20, 100))
		b.settle()
		b.send(&engine.KillJob{ID: id})
		b.settle()
		b.now++
	}
	b.wantHeld(80)
	taken := b.send(job("new", 50, 100))
	for b.turn() {
		made := 0
		for _, id := range []string{"old0", "old1", "old2", "old3", "new"} {
			if j := b.engine.State().Job(id); j != nil {
				made += len(j.Groups[0].Tasks)
			}
		}
		if made > 100 {
			t.Fatalf("%d tasks are there while ended jobs give way; at most 100 are possible", made)
		}
	}
	if err := b.reply(taken); err != nil {
		t.Fatal(err)
	}
	s := b.engine.State()
	if s.Job("old0") != nil || s.Job("old1") != nil || s.Job("old2") == nil || s.Job("old3") == nil {
		t.Fatal("the two oldest jobs are to go, and no other")
	}
	b.wantHeld(90)
}

// Ended jobs keep at most half of the bytes: those that ended last.
func TestEndedJobsAreBoundedByBytes(t *testing.T) {
	b := newBench(t, state.Config{MaxBytes: 1 << 20}, state.Limits{})
	for i := range 10 {
		id := fmt.Sprintf("j%d", i)
		b.send(large(id, 50_000))
		b.settle()
		b.send(&engine.KillJob{ID: id})
		b.settle()
		b.now++
	}
	s := b.engine.State()
	if s.Job("j4") != nil || s.Job("j5") == nil || s.Job("j9") == nil {
		t.Fatal("of ten ended jobs of twice 50 kB, the last five fit into half a MiB")
	}
}

// The message of a task is short while the bytes are over their bound: a report is never refused,
// and a million of them do not end the process.
func TestMessagesAreCutWhileTheBytesAreOverTheirBound(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(machine("n", 4000), job("a", 2, 1000))
	b.settle()
	b.cfg.MaxBytes = 1000
	b.crash()
	b.settle()
	do := finished("n", "a", 0)
	do.Reports[0].Message = strings.Repeat("x", 500)
	b.send(do)
	b.settle()
	if ref, _ := b.engine.State().FindTask("a", "g", 0); len(ref.Task().Message) != 64 {
		t.Fatalf("the message has %d bytes, want 64", len(ref.Task().Message))
	}
}
