package trace_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

const a, b = "root.a", "root.b"

// simple tells of a node with room for two tasks, two queues and three tasks of two seconds.
func simple(l *tale) {
	l.leaf(0, a, nil)
	l.leaf(0, b, nil)
	l.node(0, "n", large)
	l.submit(1, "j", a, 3)
	l.begins(1, "j.main.0", "n")
	l.begins(1, "j.main.1", "n")
	l.ends(3, "j.main.0", "n", plimsoll.ResultSucceeded, false)
	l.begins(3, "j.main.2", "n")
	l.ends(4, "j.main.1", "n", plimsoll.ResultSucceeded, false)
	l.ends(5, "j.main.2", "n", plimsoll.ResultSucceeded, false)
	l.ofJob(5, "j", plimsoll.AppCompleting)
	l.ofJob(5, "j", plimsoll.AppCompleted)
}

func ok(d time.Duration) simulate.Attempt {
	return simulate.Attempt{Runtime: int64(d), Result: plimsoll.ResultSucceeded}
}

// TestAWindowIsRepeatedAsItWas: the workload has what was told, and its waits are those of then.
func TestAWindowIsRepeatedAsItWas(t *testing.T) {
	l := newTale(t)
	simple(l)
	is := l.read(0, 0)
	g := is.Workload.Arrivals[0].Groups[0]
	want := []simulate.Task{{ok(2 * time.Second)}, {ok(3 * time.Second)}, {ok(2 * time.Second)}}
	if diff := cmp.Diff(want, g.Tasks); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(g.Waits, []int64{0, 0, 2 * second}) || is.Workload.Arrivals[0].Owner != "ann" ||
		is.Workload.Arrivals[0].Queue != a || is.Workload.Arrivals[0].At != second {
		t.Errorf("%+v", is.Workload.Arrivals)
	}
	r := l.run(is)
	if r.Then.Both != 3 || r.Then.Difference.Max != 0 || r.Then.Waits != r.Waits || r.Ended != 3 || r.Waits.Max != 2 {
		t.Errorf("%+v, then %+v", r, r.Then)
	}
	if encoded(t, r) != encoded(t, l.run(l.read(0, 0))) {
		t.Error("the same history gives another report")
	}
}

func encoded(t *testing.T, r *simulate.Report) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestOtherQueuesChangeTheWaits: under a max of one task the three run one after the other.
func TestOtherQueuesChangeTheWaits(t *testing.T) {
	l := newTale(t)
	simple(l)
	is := l.read(0, 0)
	queues := plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{
		{Name: "team", Parent: true, Queues: []plimsoll.QueueConfig{{Name: "a", Max: small}}},
	}}
	r, _, err := simulate.Run(&simulate.Config{Queues: queues, Seed: 1}, is.Workload)
	if err != nil {
		t.Fatal(err)
	}
	if q := r.Queues[0]; q.Name != "root.team.a" || q.Waits.Max != 5 || q.Waits.P50 != 2 || r.Then.Difference.Max != 3 {
		t.Errorf("%+v, then %+v", r.Queues, r.Then)
	}
}

// TestFailuresAreTriedAgain: two failures come before the success, without the pause of then.
func TestFailuresAreTriedAgain(t *testing.T) {
	l := newTale(t)
	l.leaf(0, a, nil)
	l.node(0, "n", large)
	l.submit(1, "j", a, 2)
	l.begins(1, "j.main.0", "n")
	l.begins(1, "j.main.1", "n")
	l.ends(2, "j.main.0", "n", plimsoll.ResultFailed, true)
	l.begins(5, "j.main.0", "n")
	l.ends(6, "j.main.0", "n", plimsoll.ResultOutOfMemory, true)
	l.begins(9, "j.main.0", "n")
	l.ends(10, "j.main.0", "n", plimsoll.ResultSucceeded, false)
	l.ends(10, "j.main.1", "n", plimsoll.ResultEvicted, true)
	l.begins(10, "j.main.1", "n")
	l.ends(12, "j.main.1", "n", plimsoll.ResultFailed, true)
	l.begins(12, "j.main.1", "n")
	l.ends(13, "j.main.1", "n", plimsoll.ResultFailed, true)
	l.begins(13, "j.main.1", "n")
	l.ends(14, "j.main.1", "n", plimsoll.ResultFailed, false)
	is := l.read(0, 0)
	if is.Counts.Again != 5 {
		t.Errorf("%+v", is.Counts)
	}
	r := l.run(is)
	if r.Ended != 2 || r.Failed != 1 || r.Waiting != 0 || r.Span != 14 {
		t.Errorf("%+v", r)
	}
}

// TestANodeThatIsLostInterruptsItsTasks: the attempt begins anew when the node is back.
func TestANodeThatIsLostInterruptsItsTasks(t *testing.T) {
	l := newTale(t)
	l.leaf(0, a, nil)
	l.node(0, "n", small)
	l.submit(1, "j", a, 1)
	l.begins(1, "j.main.0", "n")
	l.ofNode(2, "n", plimsoll.NodeReady, "ready: false (its agent is not heard)")
	l.ends(5, "j.main.0", "n", plimsoll.ResultLost, true)
	l.ofNode(8, "n", plimsoll.NodeReady, "ready: true")
	l.begins(8, "j.main.0", "n")
	l.ends(18, "j.main.0", "n", plimsoll.ResultSucceeded, false)
	l.tell(20, plimsoll.Event{
		Type: plimsoll.EventNode, Change: plimsoll.ChangeRemove, Detail: plimsoll.NodeDecomission, Object: "n",
	})
	l.node(21, "n", large)
	l.submit(22, "k", a, 2)
	l.begins(22, "k.main.0", "n")
	l.begins(22, "k.main.1", "n")
	l.ends(23, "k.main.0", "n", plimsoll.ResultSucceeded, false)
	l.ends(23, "k.main.1", "n", plimsoll.ResultSucceeded, false)
	is := l.read(0, 0)
	if is.Counts.Interrupted != 1 || len(is.Workload.Nodes) != 1 || len(is.Workload.Nodes[0].States) != 6 {
		t.Errorf("%+v, %+v", is.Counts, is.Workload.Nodes)
	}
	r := l.run(is)
	if r.Placed != 3 || r.Ended != 3 || r.Failed != 0 || r.Then.Difference.Max != 0 {
		t.Errorf("%+v, then %+v", r, r.Then)
	}
}

// TestClosedNodesTakeNothing: a node that was closed when its capacity grew takes tasks only later.
func TestClosedNodesTakeNothing(t *testing.T) {
	l := newTale(t)
	l.leaf(0, a, nil)
	l.node(0, "n", small)
	l.ofNode(1, "n", plimsoll.NodeSchedulable, "schedulable: false")
	l.submit(2, "j", a, 2)
	l.tell(3, plimsoll.Event{
		Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Detail: plimsoll.NodeCapacity, Object: "n",
		Resources: large,
	})
	l.ofNode(4, "n", plimsoll.NodeSchedulable, "schedulable: true")
	l.begins(4, "j.main.0", "n")
	l.begins(4, "j.main.1", "n")
	l.ends(6, "j.main.0", "n", plimsoll.ResultSucceeded, false)
	l.ends(6, "j.main.1", "n", plimsoll.ResultSucceeded, false)
	r := l.run(l.read(0, 0))
	if r.Waits.P50 != 2 || r.Waits.Max != 2 || r.Then.Difference.Max != 0 {
		t.Errorf("%+v, then %+v", r, r.Then)
	}
}

// TestWindowsHaveEdges: tasks that ran or waited at the beginning take room and are in no wait.
// Tasks that had not ended at the end run on.
func TestWindowsHaveEdges(t *testing.T) {
	l := newTale(t)
	l.leaf(0, a, nil)
	l.node(0, "n", large)
	l.submit(1, "old", a, 4)
	l.begins(1, "old.main.0", "n")
	l.begins(1, "old.main.1", "n")
	l.write(nil)
	l.ends(11, "old.main.0", "n", plimsoll.ResultSucceeded, false)
	l.begins(11, "old.main.2", "n")
	l.submit(12, "new", a, 2)
	l.ends(13, "old.main.1", "n", plimsoll.ResultSucceeded, false)
	l.begins(13, "old.main.3", "n")
	l.ends(14, "old.main.2", "n", plimsoll.ResultSucceeded, false)
	l.begins(14, "new.main.0", "n")
	l.submit(20, "last", a, 1)
	is := l.read(10, 0)
	want := is.Counts
	want.RanBefore, want.WaitedBefore, want.Unfinished, want.Waiting = 2, 2, 2, 2
	if diff := cmp.Diff(want, is.Counts); diff != "" {
		t.Error(diff)
	}
	r := l.run(is)
	if r.Then.Both != 1 || r.Then.Difference.Max > 0.001 || r.Then.Waiting != 2 || r.Waiting != 2 || r.Placed != 5 {
		t.Errorf("%+v, then %+v", r, r.Then)
	}
	if shorter := l.read(10, 3.5); shorter.Counts.Unfinished != 2 || shorter.Until-shorter.From != int64(3.5*1e9) {
		t.Errorf("%+v", shorter)
	}
	if all := l.read(-100, 0); !all.Counts.Shortened || all.From != start {
		t.Errorf("%+v", all)
	}
}

// TestStopsAreThoseOfThen: a job that was killed is killed, and a group that got fewer or more
// tasks gets them.
func TestStopsAreThoseOfThen(t *testing.T) {
	l := newTale(t)
	l.leaf(0, a, nil)
	l.node(0, "n", large)
	l.submit(1, "j", a, 2)
	l.begins(1, "j.main.0", "n")
	l.begins(1, "j.main.1", "n")
	l.ofJob(5, "j", plimsoll.AppFailing)
	l.ends(5, "j.main.0", "n", plimsoll.ResultKilled, false)
	l.ends(5, "j.main.1", "n", plimsoll.ResultKilled, false)
	l.submit(6, "k", a, 1)
	l.begins(6, "k.main.0", "n")
	l.ofTask(7, plimsoll.ChangeAdd, plimsoll.AppRequest, "k.main.1", "")
	l.ofTask(7, plimsoll.ChangeAdd, plimsoll.AppRequest, "k.main.2", "")
	l.begins(7, "k.main.1", "n")
	l.ofTask(8, plimsoll.ChangeRemove, plimsoll.RequestCancel, "k.main.2", "the group was scaled down")
	l.ends(9, "k.main.1", "n", plimsoll.ResultKilled, false)
	l.ends(10, "k.main.0", "n", plimsoll.ResultSucceeded, false)
	is := l.read(0, 0)
	if j := is.Workload.Arrivals[0]; j.Killed != 5*second || is.Counts.Killed != 3 {
		t.Errorf("%+v, %+v", j, is.Counts)
	}
	want := []simulate.Scale{
		{At: 7 * second, Group: "main", Count: 3},
		{At: 8 * second, Group: "main", Count: 2},
		{At: 9 * second, Group: "main", Count: 1},
	}
	if diff := cmp.Diff(want, is.Workload.Arrivals[1].Scales); diff != "" {
		t.Error(diff)
	}
	if r := l.run(is); r.Placed != 4 || r.Ended != 4 || r.Then.Difference.Max != 0 {
		t.Errorf("%+v, then %+v", r, r.Then)
	}
}

// TestQueuesChangeInTheWindow: limits hold from their time on.
func TestQueuesChangeInTheWindow(t *testing.T) {
	l := newTale(t)
	l.leaf(0, a, small)
	l.node(0, "n", large)
	l.submit(1, "j", a, 2)
	l.begins(1, "j.main.0", "n")
	l.limit(4, a, nil)
	l.begins(4, "j.main.1", "n")
	l.ends(9, "j.main.0", "n", plimsoll.ResultSucceeded, false)
	l.ends(9, "j.main.1", "n", plimsoll.ResultSucceeded, false)
	is := l.read(0, 0)
	if len(is.Changes) != 1 || is.Changes[0].At != 4*second || is.Queues.Queues[0].Max[plimsoll.CPU] != 1000 {
		t.Errorf("%+v, %+v", is.Queues, is.Changes)
	}
	if r := l.run(is); r.Waits.Max != 3 || r.Then.Difference.Max != 0 {
		t.Errorf("%+v, then %+v", r, r.Then)
	}
}

// TestGapsAreCounted: what happened in a gap happens at its end, and is in no wait.
func TestGapsAreCounted(t *testing.T) {
	l := newTale(t)
	l.leaf(0, a, nil)
	l.node(0, "n", plimsoll.Resources{plimsoll.CPU: 4000})
	l.submit(1, "j", a, 2)
	l.begins(1, "j.main.0", "n")
	l.begins(1, "j.main.1", "n")
	l.write(nil)
	l.ends(3, "j.main.0", "n", plimsoll.ResultSucceeded, false)
	l.submit(4, "k", a, 1)
	lost := l.events
	l.events = nil
	for len(lost) > 0 {
		lost = lost[l.fold.Apply(lost).Taken:]
	}
	l.next += 50
	l.submit(20, "m", a, 1)
	l.write(&history.Gap{
		Instance: "one", First: l.next - 50, Next: l.next, From: start + second, To: start + 20*second,
		Reason: "a test",
	})
	l.begins(21, "m.main.0", "n")
	l.ends(22, "m.main.0", "n", plimsoll.ResultSucceeded, false)
	l.ends(23, "j.main.1", "n", plimsoll.ResultSucceeded, false)
	is := l.read(0, 0)
	if is.Counts.Gaps != 1 || is.Counts.InGaps != 3 || is.Counts.GapTime < 18*time.Second {
		t.Errorf("%+v", is.Counts)
	}
	if !strings.Contains(strings.Join(is.Workload.Notes, "\n"), "gaps here: 1, of 19s") {
		t.Errorf("%q", is.Workload.Notes)
	}
	if r := l.run(is); r.Then.Placed != 2 || r.Ended != 3 {
		t.Errorf("%+v, then %+v", r, r.Then)
	}
}

// TestIDsAreUsedAgain: later jobs with an id are others. Types of events that are not needed are
// skipped, and those that do not fit are counted.
func TestIDsAreUsedAgain(t *testing.T) {
	l := newTale(t)
	simple(l)
	l.tell(6, plimsoll.Event{Type: plimsoll.EventApp, Change: plimsoll.ChangeRemove, Object: "j"})
	l.submit(7, "j", b, 1)
	l.begins(7, "j.main.0", "n")
	l.tell(8, plimsoll.Event{Type: plimsoll.EventRequest, Change: plimsoll.ChangeNone, Object: "j.main.0"})
	l.ends(9, "j.main.0", "n", plimsoll.ResultSucceeded, false)
	l.ends(9, "j.main.0", "n", plimsoll.ResultSucceeded, false)
	is := l.read(0, 0)
	if len(is.Workload.Arrivals) != 2 || is.Workload.Arrivals[1].Job == "j" || is.Counts.Strange != 2 {
		t.Errorf("%+v, %+v", is.Workload.Arrivals, is.Counts)
	}
	if r := l.run(is); r.Ended != 4 || r.Then.Difference.Max != 0 {
		t.Errorf("%+v, then %+v", r, r.Then)
	}
}

// TestWrongWindows: one that begins behind the newest event is refused, and so is an empty history.
func TestWrongWindows(t *testing.T) {
	l := newTale(t)
	if _, err := l.tryRead(t.Context(), 0, 0); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("an empty history: %v", err)
	}
	simple(l)
	if _, err := l.tryRead(t.Context(), 100, 0); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("the future: %v", err)
	}
}
