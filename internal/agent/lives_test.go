package agent

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// The uids of three jobs that had the same id one after the other. The last was submitted long
// after every attempt of the tests.
var first, second, late = plimsoll.MakeUID(5, 1), plimsoll.MakeUID(6, 2), plimsoll.MakeUID(int64(time.Hour), 3)

func ofLife(uid plimsoll.UID, attempt int32, state plimsoll.TaskState) assignmentOf {
	a := task("j.g.0", attempt, state)
	a.uid = uid
	return a
}

// liveOf is the supervisor's status of an attempt of a life.
func liveOf(uid plimsoll.UID, attempt int32, state plimsoll.TaskState) executor.Status {
	return live(executor.LocalName("j.g.0", uid), attempt, state)
}

// left puts an attempt into the ledger whose end was acknowledged, and which is kept for its log.
func (b *book) left(uid plimsoll.UID, attempt int32) {
	b.Helper()
	key := attemptKey{executor.LocalName("j.g.0", uid), attempt}
	if err := os.MkdirAll(b.attemptDir(key), 0o700); err != nil {
		b.Fatal(err)
	}
	end := named(key.task, attempt)
	end.State, end.Result, end.At = plimsoll.TaskFinished, plimsoll.ResultSucceeded, 20
	b.restore([]keptDir{{key: key, end: &end}}, nil)
}

// uids checks the uids of the waiting reports.
func (b *book) uids(want ...plimsoll.UID) {
	b.Helper()
	reports := b.out.next(1000)
	if len(reports) != len(want) {
		b.Fatalf("%d reports wait, want %d: %+v", len(reports), len(want), reports)
	}
	for i := range reports {
		if reports[i].UID != want[i] || strings.Contains(reports[i].Task, "~") {
			b.Errorf("report %d is of %s with uid %v, want %v", i, reports[i].Task, reports[i].UID, want[i])
		}
	}
}

// What an agent does with an assignment while attempts with its number are on the node, of this life
// of the task or another. The uid of an attempt that an earlier version started is not known.
func TestAttemptsOfOtherLives(t *testing.T) {
	none := plimsoll.UID{}
	own := "start j.g.0~" + first.String() + " 1"
	for _, c := range []struct {
		name string
		held func(b *book)
		uid  plimsoll.UID
		want map[plimsoll.TaskState][]string // of the assignment → what is done
	}{
		{"nothing is there", func(*book) {}, first, map[plimsoll.TaskState][]string{plimsoll.TaskBound: {own}}},
		{
			"another life has ended", func(b *book) { b.left(second, 1) }, first,
			map[plimsoll.TaskState][]string{plimsoll.TaskBound: {own}},
		},
		{
			"this life has ended", func(b *book) { b.left(first, 1) }, first,
			map[plimsoll.TaskState][]string{plimsoll.TaskBound: nil, plimsoll.TaskRunning: nil},
		},
		{
			"of an earlier version, has ended and was acknowledged", func(b *book) { b.left(none, 1) }, first,
			// An attempt that is bound now is another. One that was reported as running is this one.
			map[plimsoll.TaskState][]string{plimsoll.TaskBound: {own}, plimsoll.TaskRunning: nil},
		},
		{
			"of an earlier version, has ended and was not acknowledged",
			func(b *book) { b.hold(liveOf(none, 1, plimsoll.TaskFinished)) }, first,
			map[plimsoll.TaskState][]string{plimsoll.TaskBound: nil, plimsoll.TaskRunning: nil},
		},
		{
			"of an earlier version, runs", func(b *book) { b.hold(liveOf(none, 1, plimsoll.TaskRunning)) }, first,
			map[plimsoll.TaskState][]string{
				plimsoll.TaskBound: nil, plimsoll.TaskStarting: nil, plimsoll.TaskRunning: nil,
				plimsoll.TaskStopping: {"stop j.g.0 1"},
			},
		},
		{
			"of an earlier version, runs since before the job was submitted",
			func(b *book) { b.hold(liveOf(none, 1, plimsoll.TaskRunning)) }, late,
			map[plimsoll.TaskState][]string{plimsoll.TaskBound: {"stop j.g.0 1"}},
		},
		{
			"runs, and a gateway of an earlier version does not tell the uid",
			func(b *book) { b.hold(liveOf(first, 1, plimsoll.TaskRunning)) }, none,
			map[plimsoll.TaskState][]string{plimsoll.TaskBound: nil, plimsoll.TaskRunning: nil},
		},
		{
			"has ended, and a gateway of an earlier version does not tell the uid",
			func(b *book) { b.left(first, 1) }, none,
			map[plimsoll.TaskState][]string{plimsoll.TaskBound: {"start j.g.0 1"}, plimsoll.TaskRunning: nil},
		},
	} {
		for state, want := range c.want {
			t.Run(c.name+"/"+state.String(), func(t *testing.T) {
				b := newBook(t)
				b.hold()
				c.held(b)
				b.list(ofLife(c.uid, 1, state))
				b.expect(want...)
			})
		}
	}
}

// A second life starts at once beside what the first has left. Each life has its own directory,
// reports and logs.
func TestASecondLifeIsStartedAndReportedAsSuch(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.left(first, 1)
	b.list(ofLife(second, 1, plimsoll.TaskBound))
	ops := b.expect("start j.g.0~" + second.String() + " 1")
	if ops[0].start.ID != "j.g.0" {
		t.Errorf("the program is told the id %q", ops[0].start.ID)
	}
	b.uids(second)
	b.doneAll(ops, nil)
	b.uids(second) // running has replaced starting
	for uid, running := range map[plimsoll.UID]bool{first: false, second: true, {}: true} {
		key, known, begun, writing := b.status("j.g.0", uid, 0)
		if uid.IsZero() {
			uid = second
		}
		if !known || !begun || writing != running || key.task != executor.LocalName("j.g.0", uid) {
			t.Errorf("the log of %v: %v, known %v, begun %v, writing %v", uid, key, known, begun, writing)
		}
	}
	if _, known, _, _ := b.status("j.g.0", late, 0); known {
		t.Error("a life that was never here has a log")
	}
	if got := b.liveTasks(); len(got) != 1 || got[0].ID != "j.g.0" {
		t.Errorf("the QoS loop sees %+v", got)
	}
	b.attempts([]executor.Status{liveOf(second, 1, plimsoll.TaskFinished)}, false)
	b.ack()
	b.expect("forget j.g.0~" + second.String() + " 1") // and no second start while it is still bound
}

// An attempt that an earlier version has started is adopted by the first assignment with a uid. It
// stays so after its end, although its assignment is still there.
func TestAnAttemptOfAnEarlierVersionRunsOnce(t *testing.T) {
	b := newBook(t)
	b.hold(liveOf(plimsoll.UID{}, 1, plimsoll.TaskRunning))
	b.list(ofLife(first, 1, plimsoll.TaskBound))
	b.expect()
	b.uids(plimsoll.UID{}) // its uid is a guess, which the coordinator is not told
	b.attempts([]executor.Status{liveOf(plimsoll.UID{}, 1, plimsoll.TaskFinished)}, false)
	b.ack()
	b.expect("forget j.g.0 1")
	if key, known, _, _ := b.status("j.g.0", first, 1); !known || key.task != "j.g.0" {
		t.Errorf("its log is that of %v, known %v", key, known)
	}
	b.assign(nil, []string{"j.g.0"}, false)
	b.assign([]assignmentOf{ofLife(first, 2, plimsoll.TaskBound)}, nil, false)
	b.expect("start j.g.0~" + first.String() + " 2")
}

// While an attempt of an earlier life still runs, the next life waits. The coordinator no longer
// knows the earlier job, so the end of that attempt is not reported.
func TestALifeWaitsForTheEndOfAnEarlierOne(t *testing.T) {
	for _, earlier := range []plimsoll.UID{{}, first} {
		b := newBook(t)
		b.hold(liveOf(earlier, 1, plimsoll.TaskRunning))
		b.ack()
		b.list(ofLife(late, 1, plimsoll.TaskBound))
		name := executor.LocalName("j.g.0", earlier)
		b.expect("stop " + name + " 1")
		b.expect()
		b.attempts([]executor.Status{liveOf(earlier, 1, plimsoll.TaskFinished)}, false)
		b.expect("forget "+name+" 1", "start j.g.0~"+late.String()+" 1")
		b.uids(late)
	}
}

// The files of an attempt go with its own life.
func TestDirectoriesOfLivesAreFoundAgain(t *testing.T) {
	b := newBook(t)
	for _, uid := range []plimsoll.UID{{}, first} {
		key := attemptKey{executor.LocalName("j.g.0", uid), 1}
		if err := os.MkdirAll(b.attemptDir(key), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(b.root+"/j.g.0~not-a-uid/1", 0o700); err != nil {
		t.Fatal(err)
	}
	dirs, err := scanDirs(b.root, func(Trouble) {})
	if err != nil || len(dirs) != 2 {
		t.Fatalf("%+v, %v; want two directories", dirs, err)
	}
	b.restore(dirs, nil)
	b.hold()
	b.list()
	b.expect()
	if gone, err := b.retire(attemptKey{executor.LocalName("j.g.0", first), 1}); !gone || err != nil {
		t.Fatal(gone, err)
	}
	if _, err := os.Stat(b.attemptDir(attemptKey{"j.g.0", 1})); err != nil {
		t.Errorf("the other life's files are gone too: %v", err)
	}
}

// A task that shares the files of others gets those of the lives that are here now.
func TestVolumesAreThoseOfTheLatestLives(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.left(first, 1)
	b.left(second, 1)
	sharing := task("j.h.0", 1, plimsoll.TaskBound)
	sharing.uid, sharing.spec.Constraints.VolumesFrom = late, []string{"j.g.0", "other.g.0"}
	b.list(sharing)
	ops := b.expect("start j.h.0~" + late.String() + " 1")
	got := strings.Join(ops[0].start.Spec.Constraints.VolumesFrom, " ")
	if want := "j.g.0~" + second.String() + " other.g.0"; got != want {
		t.Errorf("it shares the files of %s, want %s", got, want)
	}
	if sharing.spec.Constraints.VolumesFrom[0] != "j.g.0" {
		t.Error("the assignment was changed")
	}
}

// Reports of two lives with the same attempt wait beside each other, also in the file.
func TestReportsOfTwoLivesWaitBesideEachOther(t *testing.T) {
	dir := t.TempDir()
	out, _ := mustOpenOutbox(t, dir)
	for _, uid := range []plimsoll.UID{first, second} {
		r := named(executor.LocalName("j.g.0", uid), 1)
		r.State, r.At = plimsoll.TaskFinished, 20
		out.add(r)
	}
	if err := out.close(); err != nil {
		t.Fatal(err)
	}
	out, _ = mustOpenOutbox(t, dir)
	if ends := out.ends(); len(ends) != 2 || ends[0].UID != first || ends[1].UID != second {
		t.Errorf("after a restart these wait: %+v", ends)
	}
}
