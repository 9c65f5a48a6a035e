package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// book is a ledger whose operations the test performs.
type book struct {
	*testing.T
	*ledger
}

func newBook(t *testing.T) *book {
	t.Helper()
	dir := t.TempDir()
	out, _ := mustOpenOutbox(t, filepath.Join(dir, "reports"))
	b := &book{t, newLedger("n1", dir, out, func(Trouble) {})}
	for _, d := range []string{b.root, b.trash} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func task(id string, attempt int32, state plimsoll.TaskState) assignmentOf {
	return assignmentOf{task: id, node: "n1", assignment: assignment{
		want: want{attempt: attempt, state: state}, job: "j", spec: plimsoll.GroupSpec{Command: []string{"true"}},
	}}
}

func live(id string, attempt int32, state plimsoll.TaskState) executor.Status {
	a := executor.Status{Task: id, Attempt: attempt, State: state, Started: 10}
	if state == plimsoll.TaskFinished {
		a.Result, a.Finished = plimsoll.ResultSucceeded, 20
	}
	return a
}

// list gives all assignments, hold all attempts of the supervisor.
func (b *book) list(tasks ...assignmentOf)   { b.beginList(); b.assign(tasks, nil, true) }
func (b *book) hold(list ...executor.Status) { b.beginAttempts(); b.attempts(list, true) }

// expect settles and checks the operations.
func (b *book) expect(want ...string) []op {
	b.Helper()
	ops := b.settle(time.Unix(0, 100))
	var got []string
	for _, o := range ops {
		switch o.kind {
		case opStart:
			got = append(got, "start "+o.task+" "+strconv.Itoa(int(o.start.Attempt)))
		case opStop:
			got = append(got, "stop "+o.task+" "+strconv.Itoa(int(o.stop.Attempt)))
		case opForget:
			got = append(got, "forget "+o.task+" "+strconv.Itoa(int(o.end.Attempt)))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Fatalf("to do (-want +got):\n%s", diff)
	}
	return ops
}

// waiting checks the waiting reports, as "task attempt state".
func (b *book) waiting(want ...string) {
	b.Helper()
	var got []string
	for _, r := range b.out.next(1000) {
		s := r.Task + " " + strconv.Itoa(int(r.Attempt)) + " " + r.State.String()
		if r.State == plimsoll.TaskFinished {
			s += " " + r.Result.String()
		}
		got = append(got, s)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Fatalf("reports that wait (-want +got):\n%s", diff)
	}
}

func (b *book) ack() {
	reports := b.out.next(1000)
	b.out.ack(reports)
	b.acknowledged(reports)
}

func (b *book) doneAll(ops []op, err error) {
	for i := range ops {
		b.done(&ops[i], executor.Status{State: plimsoll.TaskRunning, Started: 10}, err, time.Unix(0, 100))
	}
}

func TestNothingIsDecidedBeforeBothListsAreComplete(t *testing.T) {
	b := newBook(t)
	b.beginAttempts()
	b.attempts([]executor.Status{live("j.g.0", 1, plimsoll.TaskRunning)}, false)
	b.beginList()
	b.assign([]assignmentOf{task("j.g.1", 1, plimsoll.TaskBound)}, nil, false)
	b.expect()
	b.attempts(nil, true)
	b.expect() // the running task is not assigned yet: it may be in a later part of the list
	b.assign([]assignmentOf{task("j.g.0", 1, plimsoll.TaskRunning)}, nil, true)
	b.expect("start j.g.1 1")
}

func TestNothingIsStartedWhileDisconnected(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list(task("j.g.0", 1, plimsoll.TaskBound))
	b.disconnect()
	b.expect()
	b.list(task("j.g.0", 1, plimsoll.TaskBound))
	b.expect("start j.g.0 1")
}

func TestAListReplacesTheAssignments(t *testing.T) {
	b := newBook(t)
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning), live("j.g.1", 1, plimsoll.TaskRunning))
	b.list(task("j.g.0", 1, plimsoll.TaskRunning), task("j.g.1", 1, plimsoll.TaskRunning))
	b.expect()
	b.disconnect()
	b.beginList()
	b.assign([]assignmentOf{task("j.g.1", 1, plimsoll.TaskRunning)}, nil, false)
	b.expect()
	b.assign(nil, nil, true)
	b.expect("stop j.g.0 1")
}

func TestStartsAreBounded(t *testing.T) {
	b := newBook(t)
	b.hold()
	var tasks []assignmentOf
	for i := range int32(maxOps + 3) {
		tasks = append(tasks, task(plimsoll.TaskID("j", "g", i), 1, plimsoll.TaskBound))
	}
	b.list(tasks...)
	first := b.settle(time.Unix(0, 1))
	if len(first) != maxOps || len(b.settle(time.Unix(0, 1))) != 0 {
		t.Fatalf("%d starts at once, want %d", len(first), maxOps)
	}
	// No longer wanted when its turn comes.
	b.assign([]assignmentOf{task(tasks[maxOps].task, 1, plimsoll.TaskStopping)}, nil, false)
	b.doneAll(first, nil)
	if got := len(b.settle(time.Unix(0, 1))); got != 2 {
		t.Errorf("%d starts followed, want 2", got)
	}
}

func TestAStartWithAnUnknownOutcome(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list(task("j.g.0", 1, plimsoll.TaskBound))
	ops := b.expect("start j.g.0 1")
	b.beginAttempts() // the connection broke
	b.doneAll(ops, plimsoll.Errorf(plimsoll.CodeUnavailable, "gone"))
	b.expect()
	// It had been started.
	b.attempts([]executor.Status{live("j.g.0", 1, plimsoll.TaskRunning)}, true)
	b.expect()
	b.waiting("j.g.0 1 Running")
}

func TestAStartIsRepeatedIfItWasNotHeard(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list(task("j.g.0", 1, plimsoll.TaskBound))
	ops := b.expect("start j.g.0 1")
	b.doneAll(ops, plimsoll.Errorf(plimsoll.CodeUnavailable, "gone"))
	b.expect("start j.g.0 1")
}

func TestAStartThatFailedAfterTheWatchReportedIt(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list(task("j.g.0", 1, plimsoll.TaskBound))
	ops := b.expect("start j.g.0 1")
	b.attempts([]executor.Status{{Task: "j.g.0", Attempt: 1, State: plimsoll.TaskStarting}}, false)
	b.doneAll(ops, plimsoll.Errorf(plimsoll.CodeInternal, "no space left"))
	b.expect()
	b.waiting("j.g.0 1 Starting", "j.g.0 1 Finished node fault")
}

// A stop of an attempt that the supervisor does not hold is not repeated.
func TestAStopOfAnAttemptThatIsNotHeld(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list(task("j.g.0", 1, plimsoll.TaskBound))
	b.doneAll(b.expect("start j.g.0 1"), plimsoll.Errorf(plimsoll.CodeInternal, "no space left"))
	b.waiting("j.g.0 1 Starting", "j.g.0 1 Finished node fault")
	// The watch reports the attempt before the start fails.
	b.attempts([]executor.Status{{Task: "j.g.0", Attempt: 1, State: plimsoll.TaskStarting}}, false)
	b.doneAll(b.expect("stop j.g.0 1"), plimsoll.Errorf(plimsoll.CodeNotFound, "there is no attempt 1"))
	b.expect()
}

// The answer of a start and the watch may overtake each other.
func TestAStartAnsweredAfterItsEnd(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list(task("j.g.0", 1, plimsoll.TaskBound))
	ops := b.expect("start j.g.0 1")
	b.attempts([]executor.Status{live("j.g.0", 1, plimsoll.TaskFinished)}, false)
	b.doneAll(ops, nil)
	b.expect()
	b.waiting("j.g.0 1 Running", "j.g.0 1 Finished succeeded")
	b.ack()
	b.expect("forget j.g.0 1")
}

func TestAnAttemptThatTheSupervisorNoLongerHoldsIsLost(t *testing.T) {
	b := newBook(t)
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	b.list(task("j.g.0", 1, plimsoll.TaskRunning))
	b.expect()
	b.hold() // a new supervisor
	b.expect()
	b.waiting("j.g.0 1 Running", "j.g.0 1 Finished lost")
	// It lives after all. Its end was reported, so it must not live.
	b.attempts([]executor.Status{live("j.g.0", 1, plimsoll.TaskRunning)}, false)
	b.expect("stop j.g.0 1")
	b.ack()
	b.attempts([]executor.Status{live("j.g.0", 1, plimsoll.TaskFinished)}, false)
	b.waiting()
	b.expect("forget j.g.0 1")
}

func TestAStopIsRepeatedToAnotherSupervisor(t *testing.T) {
	b := newBook(t)
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	b.list(task("j.g.0", 1, plimsoll.TaskStopping))
	b.doneAll(b.expect("stop j.g.0 1"), nil)
	b.expect()
	b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
	b.expect("stop j.g.0 1")
}

// A coordinator that asks for an acknowledged report does not have it, and gets it again.
func TestReportsThatTheCoordinatorLacksAreRepeated(t *testing.T) {
	b := newBook(t)
	b.hold(live("j.g.0", 1, plimsoll.TaskFinished), live("j.g.1", 1, plimsoll.TaskRunning))
	b.list(task("j.g.0", 1, plimsoll.TaskRunning), task("j.g.1", 1, plimsoll.TaskRunning))
	b.ack()
	b.waiting()
	b.list(task("j.g.0", 1, plimsoll.TaskBound), task("j.g.1", 1, plimsoll.TaskBound))
	b.waiting("j.g.0 1 Finished succeeded", "j.g.1 1 Running")
	b.ack()
	b.list()
	b.waiting()
}

func TestForgettingIsRepeated(t *testing.T) {
	b := newBook(t)
	b.hold(live("j.g.0", 1, plimsoll.TaskFinished))
	b.list()
	b.ack()
	b.doneAll(b.expect("forget j.g.0 1"), plimsoll.Errorf(plimsoll.CodeUnavailable, "gone"))
	b.doneAll(b.expect("forget j.g.0 1"), nil)
	b.expect()
	b.hold(live("j.g.0", 1, plimsoll.TaskFinished)) // a supervisor that still holds it
	b.expect("forget j.g.0 1")
}

func TestAssignmentsThatCannotBeAreLeftOut(t *testing.T) {
	b := newBook(t)
	b.hold()
	other := task("j.g.0", 1, plimsoll.TaskBound)
	other.node = "n2"
	empty := task("j.g.1", 1, plimsoll.TaskBound)
	empty.spec.Command = nil
	b.list(
		other, empty, task("j.g.2", 0, plimsoll.TaskBound), task("../../up", 1, plimsoll.TaskBound),
		task("a/b.g.0", 1, plimsoll.TaskBound),
		task("j.g/h.0", 1, plimsoll.TaskBound), task("..g.0", 1, plimsoll.TaskBound),
		task("j.g.00", 1, plimsoll.TaskBound),
		task("j."+strings.Repeat("g", 64)+".0", 1, plimsoll.TaskBound), task("j.g.4", 1, plimsoll.TaskBound),
	)
	b.expect("start j.g.4 1")
}

// keep makes the directory of an attempt.
func (b *book) keep(key attemptKey, bytes int) {
	b.Helper()
	write(b.T, filepath.Join(b.attemptDir(key), "stdout"), make([]byte, bytes))
	write(b.T, filepath.Join(b.root, key.task, workDir, "out"), []byte("x"))
}

func (b *book) dirs() []string {
	b.Helper()
	found, err := filepath.Glob(filepath.Join(b.root, "*", "[0-9]*"))
	if err != nil {
		b.Fatal(err)
	}
	for i, path := range found {
		if found[i], err = filepath.Rel(b.root, path); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(found)
	return found
}

func TestMarksSurviveARestart(t *testing.T) {
	b := newBook(t)
	key, other := attemptKey{"j.g.0", 2}, attemptKey{"j.g.0", 1}
	b.keep(key, 1)
	b.keep(other, 1)
	end := plimsoll.TaskReport{
		Task: "j.g.0", Attempt: 2, State: plimsoll.TaskFinished, Result: plimsoll.ResultOutOfMemory, ExitCode: 137,
		Message: "m", At: 7,
	}
	if err := writeMark(b.attemptDir(key), &end); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(b.root, "not-a-task", "1", "x"), nil)
	write(t, filepath.Join(b.attemptDir(other), markFile), []byte(`{"result":"torn`))
	dirs, err := scanDirs(b.root, b.trouble)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		[]keptDir{{key: other}, {key: key, end: &end}}, dirs, cmp.AllowUnexported(keptDir{}, attemptKey{}),
	); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	b.restore(dirs, nil)
	b.hold()
	b.list(task("j.g.0", 2, plimsoll.TaskRunning)) // acknowledged, but unknown to the coordinator
	b.expect()
	b.waiting("j.g.0 2 Finished out of memory")
}
