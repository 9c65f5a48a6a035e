package archivetest

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

const hour = int64(time.Hour)

// leaderCases test the order of leaders, deletions and the retention.
var leaderCases = []testCase{
	{"a leader that another has replaced changes nothing", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		j := plain(1, "job")
		m.write(j)
		a.write(t, j.Job)
		next := must[archive.Writer](t, "open for writing")(h.Writer())
		mark := must[archive.Mark](t, "fence")(next.Fence(t.Context(), 2))
		if mark.Epoch != 2 || mark.Jobs != 1 {
			t.Fatalf("the mark is %+v", mark)
		}
		for _, w := range []archive.Writer{a.w, next} { // it is the epoch that counts
			_, err := w.Write(t.Context(), 1, unwritten(plain(2, "late")), nil)
			refused(t, "a Write of epoch 1", plimsoll.CodeStale, err)
			err = w.Delete(t.Context(), 1, []plimsoll.UID{j.UID}, start)
			refused(t, "a Delete of epoch 1", plimsoll.CodeStale, err)
			_, _, err = w.Trim(t.Context(), 1, archive.Retention{Age: 1}, start+hour, 10)
			refused(t, "a Trim of epoch 1", plimsoll.CodeStale, err)
			_, err = w.Fence(t.Context(), 1)
			refused(t, "a Fence of epoch 1", plimsoll.CodeStale, err)
		}
		holds(t, a, m)
		must[archive.Mark](t, "fence again")(next.Fence(t.Context(), 2))
		must[archive.Mark](t, "write")(next.Write(t.Context(), 2, unwritten(plain(3, "new")), nil))
		m.write(plain(3, "new"))
		holds(t, a, m)
		if now := a.mark(t); now.ID != mark.ID || now.Epoch != 2 {
			t.Fatalf("the mark is %+v", now)
		}
	}},
	{"an older store can be accepted, and a list at its revision has the jobs of before", acceptCase},
	{"a deleted job goes with all of it, and does not come back", deleteCase},
	{"trimming goes by age, and jobs that failed have an age of their own", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		for i := range 10 {
			j := plain(i, fmt.Sprint(i))
			if i%2 == 1 {
				j = jobWith(j.Head, "", "", plimsoll.ResultFailed)
			}
			j.Finished = start + int64(i)*hour
			m.write(j)
			a.write(t, j.Job)
		}
		if mark := a.mark(t); mark.Oldest != start {
			t.Fatalf("the oldest ended at %d, not %d", mark.Oldest, start)
		}
		keep := archive.Retention{Age: 4 * time.Hour, FailedAge: 7 * time.Hour}
		trims(t, a, m, keep, start+9*hour, 0, 2, 4, 1) // those before 5 h, of the failed before 2 h
		if mark := a.mark(t); mark.Oldest != start+3*hour || mark.Jobs != 6 {
			t.Fatalf("the mark is %+v", mark)
		}
		trims(t, a, m, archive.Retention{}, start+1000*hour)
	}},
	{"trimming to a number or to bytes takes the oldest, those that failed last", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		for i := range 12 {
			j := plain(i, fmt.Sprint(i))
			if i < 4 {
				j = jobWith(j.Head, "", "", plimsoll.ResultFailed)
			}
			m.write(j)
			a.write(t, j.Job)
		}
		trims(t, a, m, archive.Retention{Jobs: 9}, start+hour, 4, 5, 6)
		bytes := a.mark(t).Bytes
		trims(t, a, m, archive.Retention{Bytes: bytes - 1}, start+hour, 7)
		if left := a.mark(t).Bytes; left >= bytes || left < bytes/2 {
			t.Fatalf("of %d bytes %d are left", bytes, left)
		}
		trims(t, a, m, archive.Retention{Jobs: 2}, start+hour, 8, 9, 10, 11, 0, 1)
		trims(t, a, m, archive.Retention{Bytes: 1}, start+hour, 2, 3)
		if mark := a.mark(t); mark.Jobs != 0 || mark.Tasks != 0 || mark.Bytes != 0 || mark.Oldest != 0 {
			t.Fatalf("the mark of an empty archive is %+v", mark)
		}
	}},
	{"trimming to bytes counts attempts with their job, and none before that is there", earlyCase},
	{"trimming goes in steps, and says whether there is more", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		for i := range 25 {
			a.write(t, plain(i, fmt.Sprint(i)).Job)
		}
		removed := 0
		for _, want := range []int{10, 10, 5, 0} {
			n, more, err := a.w.Trim(t.Context(), 1, archive.Retention{Age: 1}, start+hour, 10)
			if removed += n; n != want || err != nil || more != (removed < 25 && n == 10) {
				t.Fatalf("a step removes %d, more: %v, %v; %d are gone", n, more, err, removed)
			}
			if left := len(a.jobs(t, archive.JobQuery{Owner: "ann"})); left != 25-removed {
				t.Fatalf("%d jobs are left of %d", left, 25-removed)
			}
		}
	}},
}

func earlyCase(t tester, h Harness, _ uint64) {
	a, m := open(t, h), newModel()
	looping := plain(100, "looping")
	attempts := func(of *written) archive.Attempts {
		return archive.Attempts{UID: of.UID, TaskKey: of.tasks[0].Key, First: 1, Value: make([]byte, 100_000)}
	}
	write := func(jobs []archive.Job, some ...archive.Attempts) {
		t.Helper()
		must[archive.Mark](t, "write")(a.w.Write(t.Context(), 1, jobs, some))
	}
	for i := range 6 {
		j := plain(i, fmt.Sprint(i))
		m.write(j)
		write(unwritten(j))
	}
	bytes := a.mark(t).Bytes
	for range 2 { // the second time they are there
		write(nil, attempts(looping))
	}
	if now := a.mark(t).Bytes; now < bytes+100_000 {
		t.Fatalf("with attempts of a job that runs there are %d bytes, and %d without", now, bytes)
	}
	if err := h.Crash(); err != nil {
		t.Fatalf("crash: %v", err)
	}
	a.openAgain(t)
	trims(t, a, m, archive.Retention{Bytes: bytes}, start+hour)
	trims(t, a, m, archive.Retention{Bytes: bytes - 1}, start+hour, 0)

	// With its job they count, and go with it.
	first := plain(1, "1")
	m.write(looping)
	write(unwritten(looping), attempts(first))
	bytes = a.mark(t).Bytes
	trims(t, a, m, archive.Retention{Bytes: bytes}, start+hour)
	trims(t, a, m, archive.Retention{Bytes: bytes - 50_000}, start+hour, 1)
	if left := a.mark(t).Bytes; left > bytes-100_000 {
		t.Fatalf("of %d bytes %d are left", bytes, left)
	}
	trims(t, a, m, archive.Retention{Bytes: a.mark(t).Bytes - 1}, start+hour, 2)

	// Those of a job that was deleted do not count any more.
	never := plain(200, "never")
	write(nil, attempts(never))
	if err := a.w.Delete(t.Context(), 1, []plimsoll.UID{never.UID}, start); err != nil {
		t.Fatalf("delete: %v", err)
	}
	m.deleted[never.UID] = true
	trims(t, a, m, archive.Retention{Bytes: a.mark(t).Bytes}, start+hour)
	trims(t, a, m, archive.Retention{Bytes: a.mark(t).Bytes - 1}, start+hour, 3)
}

// trims trims an archive and compares it with a model without the jobs with some numbers.
func trims(t tester, a *archiveOf, m *model, keep archive.Retention, now int64, numbers ...int) {
	t.Helper()
	n, more, err := a.w.Trim(t.Context(), 1, keep, now, 100)
	if n != len(numbers) || more || err != nil {
		t.Fatalf("trimming to %+v removes %d jobs, not %d; more: %v, %v", keep, n, len(numbers), more, err)
	}
	for _, number := range numbers {
		delete(m.jobs, plain(number, "").UID)
	}
	holds(t, a, m)
}

func acceptCase(t tester, h Harness, _ uint64) {
	a := open(t, h)
	old := plain(500, "old") // of revision 501
	must[archive.Mark](t, "fence")(a.w.Fence(t.Context(), 9))
	must[archive.Mark](t, "write")(a.w.Write(t.Context(), 9, unwritten(old), nil))
	_, err := a.w.Fence(t.Context(), 3)
	refused(t, "a Fence of an older store", plimsoll.CodeStale, err)
	if mark := must[archive.Mark](t, "accept")(a.w.Accept(t.Context(), 3)); mark.Epoch != 3 || mark.Jobs != 1 {
		t.Fatalf("the mark is %+v", mark)
	}
	early, late := plain(10, "early"), plain(20, "late") // of revisions 11 and 21
	must[archive.Mark](t, "write")(a.w.Write(t.Context(), 3, unwritten(early, late), nil))
	for _, order := range []archive.Sort{archive.SortSubmitted, archive.SortFinished, archive.SortID} {
		q := archive.JobQuery{UpTo: 15, Sort: order}
		var ids []string
		for _, s := range a.jobs(t, q) {
			ids = append(ids, s.ID)
		}
		if len(ids) != 2 || ids[0] != "old" || ids[1] != "early" {
			t.Fatalf("at revision 15 there are %v", ids)
		}
		if n, exact, err := a.r.Count(t.Context(), q, 100); n != 2 || !exact || err != nil {
			t.Fatalf("at revision 15 there are %d jobs (exact: %v), %v", n, exact, err)
		}
	}
}

func deleteCase(t tester, h Harness, _ uint64) {
	a, m := open(t, h), newModel()
	first, second, other := plain(1, "job"), plain(2, "job"), plain(3, "other")
	never := plain(4, "never")
	m.write(first, second, other)
	a.write(t, unwritten(first, second, other)...)
	for range 2 { // it can be repeated
		if err := a.w.Delete(t.Context(), 1, []plimsoll.UID{second.UID, never.UID}, start); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	m.remove(second.UID)
	m.remove(never.UID)
	holds(t, a, m)
	_, err := a.r.Job(t.Context(), "", second.UID)
	refused(t, "the deleted job", plimsoll.CodeNotFound, err)
	_, err = a.r.Tasks(t.Context(), archive.TaskQuery{UID: second.UID})
	refused(t, "the deleted job's tasks", plimsoll.CodeNotFound, err)
	if j := must[archive.Stored](t, "get the id")(a.r.Job(t.Context(), "job", plimsoll.UID{})); j.UID != first.UID {
		t.Fatalf("the newest job of the id is %s, not %s", j.UID, first.UID)
	}
	if mark := a.mark(t); mark.Jobs != 2 || mark.Tasks != 2 {
		t.Fatalf("the mark is %+v", mark)
	}
	if err := h.Crash(); err != nil {
		t.Fatalf("crash: %v", err)
	}
	a.openAgain(t)
	a.write(t, unwritten(second, never)...)
	holds(t, a, m)
	// It is forgotten in the end, when nobody can write the job any more.
	for _, at := range []int64{start + int64(archive.DeletedAge), start + int64(archive.DeletedAge) + 1} {
		if _, _, err := a.w.Trim(t.Context(), 1, archive.Retention{}, at, 100); err != nil {
			t.Fatalf("trim: %v", err)
		}
		if at > start+int64(archive.DeletedAge) {
			m.deleted = nil
			m.write(second, never)
		}
		a.write(t, unwritten(second, never)...)
		holds(t, a, m)
	}
}
