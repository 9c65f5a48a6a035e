package archivetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// readCases test the answers to single questions: their order, their pages and their bounds.
var readCases = []testCase{
	{"an id that was used again gives its newest job, a uid any", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		lives := []*written{plain(5, "job"), plain(300, "job"), plain(7, "job"), plain(400, "jobs")}
		for _, j := range lives {
			a.write(t, j.Job)
		}
		newest := must[archive.Stored](t, "get")(a.r.Job(t.Context(), "job", plimsoll.UID{}))
		same(t, &newest, lives[1])
		for _, j := range lives {
			one := must[archive.Stored](t, "get")(a.r.Job(t.Context(), j.ID, j.UID))
			same(t, &one, j)
		}
		_, err := a.r.Job(t.Context(), "jobs", lives[0].UID)
		refused(t, "an id with the uid of another", plimsoll.CodeNotFound, err)
		_, err = a.r.Job(t.Context(), "", plimsoll.UID{})
		refused(t, "neither id nor uid", plimsoll.CodeNotFound, err)
	}},
	{"jobs that are equal in the order stand in one page each", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		for i := range 40 {
			j := plain(i/4, fmt.Sprint("job", i%2)) // four with a time of submit, all with one end
			j.UID = plimsoll.MakeUID(j.UID.Submitted(), uint64(i))
			j.Finished = start
			m.write(j)
			a.write(t, j.Job)
		}
		for order := range archive.Sort(archive.NumSorts) {
			for _, ascending := range []bool{false, true} {
				for limit := 1; limit < 5; limit++ {
					list(t, a, m, archive.JobQuery{Sort: order, Ascending: ascending, Limit: limit})
				}
			}
		}
	}},
	{"a page goes on behind its position, also when that job has gone", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		for i := range 9 {
			a.write(t, plain(i, "job").Job)
		}
		for order := range archive.Sort(archive.NumSorts) {
			for _, ascending := range []bool{false, true} {
				number := 3 + int(order)
				j := plain(number, "job")
				if err := a.w.Delete(t.Context(), 1, []plimsoll.UID{j.UID}, start); err != nil {
					t.Fatalf("delete: %v", err)
				}
				q := archive.JobQuery{Sort: order, Ascending: ascending, After: archive.PositionOf(order, &j.Head)}
				found := a.jobs(t, q)
				want := 9 - 1 - number
				if !ascending {
					want = 3
				}
				if len(found) != want {
					t.Fatalf("behind job %d are %d jobs, not %d", number, len(found), want)
				}
			}
		}
	}},
	{"a list that is read while jobs come and go has each that stays once", movingList},
	{"a job has all labels of a question", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		for i, labels := range []map[string]string{
			nil, {"app": "1"}, {"zone": "1"}, {"app": "1", "zone": "1"}, {"app": "1", "zone": "2"},
		} {
			j := plain(i, "job")
			j.Labels = labels
			m.write(j)
			a.write(t, j.Job)
		}
		for _, labels := range [][]string{{"app=1"}, {"app=1", "zone=1"}, {"zone=1", "app=1"}, {"app", "zone=2"}} {
			list(t, a, m, archive.JobQuery{Labels: labels})
		}
	}},
	{"a range of ends has its first instant and not its last, and no job that is skipped", func(
		t tester, h Harness, _ uint64,
	) {
		a, m := open(t, h), newModel()
		for i := range 4 {
			m.write(plain(i, "job"))
			a.write(t, plain(i, "job").Job)
		}
		skip := func(uid plimsoll.UID) bool { return uid == plain(2, "job").UID }
		for _, from := range []int{0, 1} {
			for _, to := range []int{2, 3} {
				q := archive.JobQuery{FinishedFrom: plain(from, "").Finished, FinishedTo: plain(to, "").Finished}
				list(t, a, m, q)
				q.Skip = skip
				list(t, a, m, q)
			}
		}
	}},
	{"pages move on over many jobs that are not of the question", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		long := plain(0, "long") // the jobs of a question may have been submitted as long before their ends
		long.Finished = start + int64(24*time.Hour)
		jobs := []*written{long}
		for i := range 799 {
			jobs = append(jobs, plain(1+i, "job"))
		}
		m.write(jobs...)
		a.write(t, unwritten(jobs[:400]...)...)
		a.write(t, unwritten(jobs[400:]...)...)
		for _, ascending := range []bool{false, true} {
			list(t, a, m, archive.JobQuery{Ascending: ascending, FinishedFrom: long.Finished, Queue: "root.a"})
			list(t, a, m, archive.JobQuery{Ascending: ascending, FinishedFrom: long.Finished})
		}
	}},
	{"a page keeps to its bytes, but for its first job or task", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		for i, size := range []int{10, 5000, 10, 10, 9000, 1} {
			j := jobWith(plain(i, "job").Head, string(make([]byte, size)), "", plimsoll.ResultSucceeded,
				plimsoll.ResultFailed)
			j.tasks[1].Value = make([]byte, size)
			m.write(j)
			a.write(t, j.Job)
		}
		for _, most := range []int{1, 300, 6000, archive.MaxPageBytes} {
			list(t, a, m, archive.JobQuery{MaxBytes: most})
			q := archive.TaskQuery{MaxBytes: most}
			sameTasks(t, a.tasks(t, q), m.tasksOf(&q))
		}
	}},
	{"heads come without specifications and statuses", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		a.write(t, plain(1, "job").Job)
		for _, s := range a.jobs(t, archive.JobQuery{Heads: true}) {
			if s.ID != "job" || s.Spec != nil || s.Status != nil {
				t.Fatalf("a head is %+v", s)
			}
		}
	}},
	{"a question beyond its bounds is refused with the field", func(t tester, h Harness, _ uint64) {
		a := open(t, h)
		for _, q := range []archive.JobQuery{
			{Limit: -1},
			{Limit: archive.MaxLimit + 1},
			{MaxBytes: -1},
			{MaxBytes: archive.MaxPageBytes + 1},
			{Sort: archive.Sort(archive.NumSorts)},
			{FinishedFrom: -1},
			{FinishedTo: -1},
			{IDs: make([]string, archive.MaxIDs+1)},
			{Labels: make([]string, archive.MaxLabels+1)},
		} {
			_, err := a.r.Jobs(t.Context(), q)
			refused(t, show(q), plimsoll.CodeInvalid, err)
			_, _, err = a.r.Count(t.Context(), q, 10)
			refused(t, "the count of "+show(q), plimsoll.CodeInvalid, err)
			_, err = a.r.Tasks(t.Context(), archive.TaskQuery{Jobs: q})
			refused(t, "the tasks of "+show(q), plimsoll.CodeInvalid, err)
		}
		for _, q := range []archive.TaskQuery{
			{Limit: -1},
			{Outcome: 3},
			{Keys: make([]string, archive.MaxIDs+1)},
			{After: archive.TaskPosition{Task: -1}},
		} {
			_, err := a.r.Tasks(t.Context(), q)
			refused(t, "a query of tasks", plimsoll.CodeInvalid, err)
		}
	}},
	{"a position within a job that is not of the query gives none of its tasks", otherJobCase},
	{"failed tasks are found among thousands", func(t tester, h Harness, _ uint64) {
		a, m := open(t, h), newModel()
		results := slices.Repeat([]plimsoll.TaskResult{plimsoll.ResultSucceeded}, 5000)
		results[17], results[4999] = plimsoll.ResultFailed, plimsoll.ResultFailed
		results[2500] = plimsoll.ResultOutOfMemory
		j := jobWith(plain(1, "job").Head, "", "", results...)
		m.write(j, plain(2, "other"))
		a.write(t, unwritten(j, plain(2, "other"))...)
		for _, q := range []archive.TaskQuery{
			{UID: j.UID, Outcome: archive.Failed},
			{UID: j.UID, Outcome: archive.Failed, Limit: 1},
			{Outcome: archive.Failed},
			{Outcome: archive.Succeeded, Limit: 700},
			{UID: j.UID, Results: []plimsoll.TaskResult{plimsoll.ResultOutOfMemory, plimsoll.ResultFailed}, Limit: 2},
			{Results: []plimsoll.TaskResult{plimsoll.ResultOutOfMemory}},
			{Results: []plimsoll.TaskResult{plimsoll.ResultTimedOut}},
			{UID: j.UID, Keys: []string{j.tasks[3000].Key, j.tasks[2].Key, "nothing"}},
		} {
			sameTasks(t, a.tasks(t, q), m.tasksOf(&q))
		}
	}},
}

// otherJobCase reads on from positions that no page of the query has returned, as a caller can make
// them up.
func otherJobCase(t tester, h Harness, _ uint64) {
	a := open(t, h)
	first, other, last := plain(1, "a"), plain(2, "b"), plain(3, "c")
	other.Owner = "bob"
	a.write(t, unwritten(first, other, last)...)
	skip := func(uid plimsoll.UID) bool { return uid == other.UID }
	for _, q := range []archive.JobQuery{{Owner: "ann"}, {Skip: skip}} {
		for order := range archive.Sort(archive.NumSorts) {
			for _, want := range []*written{first, last} {
				q.Sort, q.Ascending = order, want == last
				after := archive.TaskPosition{Job: archive.PositionOf(order, &other.Head)}
				got := a.tasks(t, archive.TaskQuery{Jobs: q, After: after})
				if len(got) != 1 || got[0].Job != want.UID {
					t.Fatalf("%s: behind a task of job %s come %v, not that of %s", show(q), other.UID, got, want.UID)
				}
			}
		}
	}
}

// list reads a list page by page and compares it with a model.
func list(t tester, a *archiveOf, m *model, q archive.JobQuery) {
	t.Helper()
	found, want := a.jobs(t, q), m.matching(&q)
	if len(found) != len(want) {
		t.Fatalf("%s: there are %d jobs, not %d", show(q), len(found), len(want))
	}
	for i, j := range want {
		if found[i].UID != j.UID {
			t.Fatalf("%s: job %d is %s, not %s", show(q), i, found[i].UID, j.UID)
		}
		if !q.Heads {
			same(t, &found[i], j)
		}
	}
}

// movingList writes and deletes jobs between the pages of a list.
func movingList(t tester, h Harness, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	a := open(t, h)
	for i := range 60 {
		a.write(t, plain(10*i, "job").Job)
	}
	for order := range archive.Sort(archive.NumSorts) {
		q := archive.JobQuery{Sort: order, Ascending: rng.IntN(2) == 0, Limit: 7}
		seen := map[plimsoll.UID]int{}
		for more := true; more; {
			page := must[archive.Page[archive.Stored, archive.Position]](t, "list")(a.r.Jobs(t.Context(), q))
			for _, s := range page.Items {
				seen[s.UID]++
			}
			q.After, more = page.Next, page.More
			moving := plain(10*rng.IntN(60)+1+rng.IntN(8), "moving")
			a.write(t, moving.Job)
			if rng.IntN(2) == 0 {
				if err := a.w.Delete(t.Context(), 1, []plimsoll.UID{moving.UID}, start); err != nil {
					t.Fatalf("delete: %v", err)
				}
			}
		}
		for i := range 60 {
			if n := seen[plain(10*i, "job").UID]; n != 1 {
				t.Fatalf("order %d: job %d stood in %d pages", order, i, n)
			}
		}
	}
}
