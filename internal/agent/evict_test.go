package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// evictNow begins an eviction of attempt 1 of a task and checks whether the supervisor must be
// asked.
func (b *book) evictNow(task string, needed bool, code plimsoll.Code) op {
	b.Helper()
	o, got, err := b.beginEviction(task, 1, eviction{2 * time.Second, "over the line"})
	if got != needed || err != nil && plimsoll.CodeOf(err) != code || err == nil && code != 0 {
		b.Fatalf("eviction of %s: needed %v, %v; want %v and code %v", task, got, err, needed, code)
	}
	return o
}

// noted lists each live attempt as "task class queue", with ! if it is being stopped.
func (b *book) noted() (all []string) {
	for _, t := range b.liveTasks() {
		s := t.ID + " " + t.Class.String() + " " + t.Queue
		if t.Stopping {
			s += " !"
		}
		all = append(all, s)
	}
	return all
}

func (b *book) living(want ...string) {
	b.Helper()
	if diff := cmp.Diff(want, b.noted()); diff != "" {
		b.Errorf("what lives here (-want +got):\n%s", diff)
	}
}

// owned is an assignment with a class, an owner and a queue.
func owned(id string, attempt int32, state plimsoll.TaskState) assignmentOf {
	a := task(id, attempt, state)
	a.owner, a.queue, a.labels = "ann", "root.a", map[string]string{"app": "web"}
	a.spec.Resources, a.spec.Priority = plimsoll.Resources{plimsoll.CPU: 500}, 7
	return a
}

// An evicted attempt is reported with the reason. It is not started again although it is still
// assigned, until the coordinator has the report.
func TestAnEvictedAttemptIsNotStartedAgain(t *testing.T) {
	b := newBook(t)
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	b.list(owned("j.g.0", 1, plimsoll.TaskRunning))
	b.expect()
	o := b.evictNow("j.g.0", true, 0)
	if want := (Stop{
		Task: "j.g.0", Attempt: 1, Grace: 2 * time.Second, Result: plimsoll.ResultEvicted, Message: "over the line",
	}); o.stop != want {
		t.Errorf("it is stopped by %+v, want %+v", o.stop, want)
	}
	b.doneAll([]op{o}, nil)
	b.expect()
	b.living("j.g.0 burstable root.a !")
	// The coordinator wants it stopped too, but it is already being stopped.
	b.assign([]assignmentOf{owned("j.g.0", 1, plimsoll.TaskStopping)}, nil, false)
	b.expect()
	ended := live("j.g.0", 1, plimsoll.TaskFinished)
	ended.Result, ended.Message = plimsoll.ResultEvicted, "over the line"
	b.attempts([]executor.Status{ended}, false)
	for _, state := range []plimsoll.TaskState{
		plimsoll.TaskBound, plimsoll.TaskStarting, plimsoll.TaskRunning, plimsoll.TaskStopping,
	} {
		b.list(owned("j.g.0", 1, state))
		b.expect()
	}
	b.living()
	b.waiting("j.g.0 1 Running", "j.g.0 1 Finished evicted")
	if reports := b.out.next(10); reports[1].Message != "over the line" {
		t.Errorf("the reason is told as %q", reports[1].Message)
	}
	b.ack()
	b.list(owned("j.g.0", 2, plimsoll.TaskBound)) // the next attempt may start
	b.expect("forget j.g.0 1", "start j.g.0 2")
}

// An eviction does not wait for the network, even if the agent has been restarted meanwhile.
func TestEvictionsNeedNoGateway(t *testing.T) {
	b := newBook(t)
	key := attemptKey{"j.g.0", 1}
	b.keep(key, 1)
	n := note{key, (&assignment{spec: plimsoll.GroupSpec{Class: plimsoll.ClassBestEffort}, queue: "root.a"}).worth()}
	if err := n.write(b.attemptDir(key)); err != nil {
		t.Fatal(err)
	}
	dirs, err := scanDirs(b.root, b.trouble)
	if err != nil {
		t.Fatal(err)
	}
	b.restore(dirs, nil)
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	b.living("j.g.0 best-effort root.a")
	b.doneAll([]op{b.evictNow("j.g.0", true, 0)}, nil)
	// A new supervisor, which does not know of the stop.
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	ops := b.expect("stop j.g.0 1")
	if ops[0].stop.Result != plimsoll.ResultEvicted || ops[0].stop.Message != "over the line" {
		t.Errorf("it is stopped again by %+v", ops[0].stop)
	}
	// The new supervisor is lost too.
	b.doneAll(ops, plimsoll.Errorf(plimsoll.CodeUnavailable, "gone"))
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	b.doneAll(b.expect("stop j.g.0 1"), nil)
	ended := live("j.g.0", 1, plimsoll.TaskFinished)
	ended.Result = plimsoll.ResultEvicted
	b.attempts([]executor.Status{ended}, false)
	b.expect()
	if len(b.mu.evicting) != 0 {
		t.Errorf("it remembers evictions that are over: %v", b.mu.evicting)
	}
	b.list(owned("j.g.0", 1, plimsoll.TaskRunning))
	b.expect()
	b.waiting("j.g.0 1 Running", "j.g.0 1 Finished evicted")
}

// The ledger does not repeat a failed eviction. The loop decides, because it knows whether the
// eviction is still needed.
func TestAnEvictionThatFailed(t *testing.T) {
	b := newBook(t)
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	b.list(owned("j.g.0", 1, plimsoll.TaskRunning))
	b.expect()
	b.doneAll([]op{b.evictNow("j.g.0", true, 0)}, plimsoll.Errorf(plimsoll.CodeUnavailable, "gone"))
	b.expect()
	b.living("j.g.0 burstable root.a")
	b.evictNow("j.g.0", true, 0)
}

func TestAttemptsThatCannotBeEvicted(t *testing.T) {
	b := newBook(t)
	stopping := live("j.stopping.0", 1, plimsoll.TaskStopping)
	b.hold(
		live("j.ended.0", 1, plimsoll.TaskFinished), live("j.killed.0", 1, plimsoll.TaskRunning), stopping,
		live("j.unknown.0", 1, plimsoll.TaskRunning),
	)
	b.living("j.killed.0 guaranteed ?", "j.stopping.0 guaranteed ? !", "j.unknown.0 guaranteed ?")
	b.evictNow("j.unknown.0", false, plimsoll.CodeConflict) // nothing is assigned yet
	b.evictNow("j.stopping.0", false, 0)                    // a stop is under way already
	b.evictNow("j.ended.0", false, plimsoll.CodeNotFound)
	b.evictNow("j.never.0", false, plimsoll.CodeNotFound)
	b.list(owned("j.killed.0", 1, plimsoll.TaskStopping), owned("j.stopping.0", 1, plimsoll.TaskRunning))
	b.expect("stop j.killed.0 1", "stop j.unknown.0 1")
	b.evictNow("j.killed.0", false, 0)
	if len(b.mu.evicting) != 0 {
		t.Errorf("evictions are remembered: %v", b.mu.evicting)
	}
}

// The list of live tasks, which the loop reads every second, is rebuilt only after a change.
func TestLiveTasks(t *testing.T) {
	b := newBook(t)
	b.hold(
		live("j.g.1", 1, plimsoll.TaskRunning), live("j.g.0", 3, plimsoll.TaskRunning),
		live("j.g.2", 1, plimsoll.TaskFinished),
	)
	b.list(owned("j.g.0", 3, plimsoll.TaskRunning), owned("j.g.1", 1, plimsoll.TaskRunning))
	b.expect()
	first := b.liveTasks()
	want := nodeqos.Task{
		ID: "j.g.0", Attempt: 3, Group: "j.g.0-3", Class: plimsoll.ClassBurstable, Priority: 7, Owner: "ann",
		Queue:  "root.a",
		Labels: map[string]string{"app": "web"}, Started: 10, Resources: plimsoll.Resources{plimsoll.CPU: 500},
	}
	if diff := cmp.Diff(want, first[0]); diff != "" || len(first) != 2 {
		t.Errorf("%d live here; the first (-want +got):\n%s", len(first), diff)
	}
	if again := b.liveTasks(); &again[0] != &first[0] {
		t.Error("it was made anew although nothing has changed")
	}
	b.attempts([]executor.Status{live("j.g.1", 1, plimsoll.TaskStopping)}, false)
	b.living("j.g.0 burstable root.a", "j.g.1 burstable root.a !")
	b.attempts([]executor.Status{live("j.g.0", 3, plimsoll.TaskFinished)}, false)
	b.living("j.g.1 burstable root.a !")
	b.beginAttempts() // without the supervisor, live attempts count as live
	b.living("j.g.1 burstable root.a !")
	if again := b.liveTasks(); cap(again) > 0 && testing.AllocsPerRun(100, func() { b.liveTasks() }) > 0 {
		t.Error("asking costs memory although nothing has changed")
	}
}

// The worth of an attempt is noted once: at its start, or with the assignment of an attempt that
// was found.
func TestTheWorthOfAnAttemptIsNoted(t *testing.T) {
	b := newBook(t)
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	if n := b.takeNotes(); len(n) != 0 {
		t.Errorf("noted before anything is known: %v", n)
	}
	b.list(owned("j.g.0", 1, plimsoll.TaskRunning), owned("j.g.1", 1, plimsoll.TaskBound))
	b.doneAll(b.expect("start j.g.1 1"), nil)
	b.expect()
	notes := b.takeNotes()
	if len(notes) != 2 || notes[0].key.task != "j.g.0" || notes[1].key.task != "j.g.1" {
		t.Fatalf("notes %+v, want one of each", notes)
	}
	b.assign([]assignmentOf{owned("j.g.0", 1, plimsoll.TaskStopping)}, nil, false)
	b.expect("stop j.g.0 1")
	if n := b.takeNotes(); len(n) != 0 {
		t.Errorf("noted again: %v", n)
	}
	dir := t.TempDir()
	if err := notes[1].write(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(notes[1].worth, readWorth(dir)); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for _, torn := range []string{"", `{"class":"guaranteed"`, `{"class":"royal"}`, `[]`} {
		write(t, filepath.Join(dir, worthFile), []byte(torn))
		if w := readWorth(dir); w != nil {
			t.Errorf("%q is read as %+v", torn, w)
		}
	}
}
