package archivetest

import (
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// randomCases compare an archive with a model over random steps and questions.
var randomCases = []testCase{
	{"random questions are answered as a filter over all jobs answers them", func(t tester, h Harness, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a, m := open(t, h), newModel()
		for range testrun.Count(4, 30, 600) {
			writeSome(t, rng, a, m, 1+rng.IntN(20))
			askSome(t, rng, a, m, 8)
		}
	}},
	{"random writes, deletes and crashes leave what a model has", func(t tester, h Harness, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a, m := open(t, h), newModel()
		for range testrun.Count(8, 50, 2000) {
			switch rng.IntN(6) {
			case 0:
				deleteSome(t, rng, a, m)
			case 1:
				if err := h.Crash(); err != nil {
					t.Fatalf("crash: %v", err)
				}
				a.openAgain(t)
			case 2: // all over again, as after a crash of the leader
				all := m.all()
				for len(all) > 0 {
					n := min(len(all), 100)
					a.write(t, unwritten(all[:n]...)...)
					all = all[n:]
				}
			default:
				writeSome(t, rng, a, m, 1+rng.IntN(40))
			}
			askSome(t, rng, a, m, 2)
		}
		holds(t, a, m)
		if err := a.w.Check(t.Context()); err != nil {
			t.Fatalf("check: %v", err)
		}
		tasks, mark := int64(0), a.mark(t)
		for _, j := range m.jobs {
			tasks += int64(len(j.tasks))
		}
		if mark.Jobs != int64(len(m.jobs)) || mark.Tasks != tasks {
			t.Fatalf("the mark is %+v, and there are %d jobs with %d tasks", mark, len(m.jobs), tasks)
		}
	}},
}

func writeSome(t tester, rng *rand.Rand, a *archiveOf, m *model, count int) {
	t.Helper()
	var jobs []*written
	for range count {
		jobs = append(jobs, randomJob(rng))
	}
	a.write(t, unwritten(jobs...)...)
	m.write(jobs...)
}

func deleteSome(t tester, rng *rand.Rand, a *archiveOf, m *model) {
	t.Helper()
	uids := []plimsoll.UID{randomJob(rng).UID}
	for range rng.IntN(20) {
		if all := m.all(); len(all) > 0 {
			uids = append(uids, pick(rng, all).UID)
		}
	}
	if err := a.w.Delete(t.Context(), 1, uids, start); err != nil {
		t.Fatalf("delete: %v", err)
	}
	for _, uid := range uids {
		m.remove(uid)
	}
}

// askSome asks random questions about jobs, tasks and numbers.
func askSome(t tester, rng *rand.Rand, a *archiveOf, m *model, count int) {
	t.Helper()
	all := m.all()
	for range count {
		q := randomQuery(rng, all)
		list(t, a, m, q)
		want := int64(len(m.matching(&q)))
		most := rng.IntN(60)
		n, exact, err := a.r.Count(t.Context(), q, most)
		right := n == min(want, int64(most)) && exact == (want <= int64(most))
		if err != nil || !right && (!a.h.Partial || exact || n > min(want, int64(most))) {
			t.Fatalf("%s: up to %d there are %d jobs (exact: %v), %v; not %d", show(q), most, n, exact, err, want)
		}
		tq := archive.TaskQuery{Jobs: q, Outcome: archive.Outcome(rng.IntN(3)), Limit: rng.IntN(40)}
		if rng.IntN(4) == 0 {
			tq.Results = []plimsoll.TaskResult{pick(rng, someResults), pick(rng, someResults)}
		}
		if rng.IntN(4) == 0 && len(all) > 0 {
			tq.UID = pick(rng, all).UID
		}
		sameTasks(t, a.tasks(t, tq), m.tasksOf(&tq))
	}
}
