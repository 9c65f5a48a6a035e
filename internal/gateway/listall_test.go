package gateway

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/archivetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// randomLife is a cell whose jobs live at random.
type randomLife struct {
	*cell
	rng *rand.Rand
}

// newRandomLife returns a cell with some jobs, and a gateway beside its archive.
func newRandomLife(t *testing.T, rng *rand.Rand) (*randomLife, *served) {
	t.Helper()
	l := &randomLife{newCell(t), rng}
	s := l.serve(Config{Archive: &shortArchive{l.archive, rng}})
	s.gateway.few = rng.IntN(30) // some ranges are walked, and of some all is looked at
	for range 60 {
		l.step(true)
	}
	return l, s
}

// step lets one job take a step: it is submitted, ends, is written, expires, is forgotten.
func (l *randomLife) step(remove bool) {
	if len(l.active) < 4 || l.rng.IntN(4) == 0 {
		id := fmt.Sprintf("job-%d", l.rng.IntN(25))
		if l.active[id] != nil {
			return
		}
		labels := map[string]string{"team": pick(l.rng, "red", "blue"), "n": fmt.Sprint(l.rng.IntN(3))}
		l.submit(id, pick(l.rng, "ann", "bob"), pick(l.rng, "root.x", "root.x.y", "root.z"), labels, l.rng.IntN(4))
		return
	}
	ids := slices.Sorted(maps.Keys(l.active))
	j := l.active[ids[l.rng.IntN(len(ids))]]
	switch {
	case !j.status.State.Ended():
		l.end(j, l.rng.IntN(len(j.tasks)+1))
	case !j.stored && remove && l.rng.IntN(6) == 0:
		l.remove(j)
	case !j.stored:
		l.store(j)
	case l.rng.IntN(2) == 0:
		l.expire(j, l.rng.IntN(4))
	default:
		l.forget(j)
	}
}

func pick(rng *rand.Rand, of ...string) string { return of[rng.IntN(len(of))] }

// question is a list with criteria that do not change in the life of a job, unless ended is set.
func (l *randomLife) question() *pb.ListJobsRequest {
	req := &pb.ListJobsRequest{Scope: pb.Scope_SCOPE_ALL, Limit: int32(1 + l.rng.IntN(7))}
	if l.rng.IntN(3) == 0 {
		req.Owner = pick(l.rng, "ann", "bob")
	}
	if l.rng.IntN(3) == 0 {
		req.Queue = pick(l.rng, "root", "root.x", "root.x.y", "root.z")
	}
	switch l.rng.IntN(4) {
	case 0:
		req.Labels = []string{"team=" + pick(l.rng, "red", "blue")}
	case 1:
		req.Labels = []string{"n", "team=" + pick(l.rng, "red", "blue"), "n=1"}
	}
	if l.rng.IntN(5) == 0 {
		for range 8 {
			req.Ids = append(req.Ids, fmt.Sprintf("job-%d", l.rng.IntN(25)))
		}
	}
	req.Sort = pb.JobSort(l.rng.IntN(4))
	req.Ascending = l.rng.IntN(2) == 0
	return req
}

// jobAnswers reports whether a job is part of the answer to a question, by the model.
func jobAnswers(req *pb.ListJobsRequest, j *cellJob) bool {
	for _, label := range req.GetLabels() {
		ok := false
		for k, v := range j.spec.Labels {
			ok = ok || label == k || label == k+"="+v
		}
		if !ok {
			return false
		}
	}
	return (req.GetOwner() == "" || req.GetOwner() == j.spec.Owner) && isOrBelow(j.spec.Queue, req.GetQueue()) &&
		(len(req.GetIds()) == 0 || slices.Contains(req.GetIds(), j.spec.ID)) &&
		(req.GetScope() != pb.Scope_SCOPE_ENDED || j.status.State.Ended()) &&
		(len(req.GetResults()) == 0 || slices.Contains(req.GetResults(), pb.TaskResult(j.status.Result()))) &&
		(req.GetSince() == 0 || j.status.Finished >= req.GetSince()) &&
		(req.GetUntil() == 0 || j.status.Finished > 0 && j.status.Finished < req.GetUntil())
}

// answerOf is the whole answer to a question, by the model.
func (c *cell) answerOf(req *pb.ListJobsRequest) (ids []string) {
	var jobs []*pb.JobStatus
	for _, j := range c.sorted() {
		if jobAnswers(req, j) {
			jobs = append(jobs, j.message())
		}
	}
	slices.SortStableFunc(jobs, func(a, b *pb.JobStatus) int {
		switch req.GetSort() {
		case pb.JobSort_JOB_SORT_ID:
			return cmp.Compare(a.GetId(), b.GetId())
		case pb.JobSort_JOB_SORT_FINISHED:
			return cmp.Compare(a.GetFinished(), b.GetFinished())
		}
		return 0
	})
	if !req.GetAscending() {
		slices.Reverse(jobs)
	}
	return idsOf(jobs)
}

// TestAPinnedListOfAllIsTheStateOfItsFirstPage pages through lists while jobs move into the
// archive. With a pin the pages are the state of the first one, whatever happens meanwhile.
func TestAPinnedListOfAllIsTheStateOfItsFirstPage(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(15, 50, 5000)
	for run := range runs {
		rng := rand.New(rand.NewPCG(first, uint64(run)))
		l, s := newRandomLife(t, rng)
		for range 5 {
			req := l.question()
			req.Pin, req.Count = true, true
			if rng.IntN(2) == 0 {
				req.Scope = pb.Scope_SCOPE_ENDED
			}
			switch rng.IntN(4) {
			case 0:
				req.Results = []pb.TaskResult{pb.TaskResult(1 + rng.IntN(2))}
			case 1:
				req.Since = l.clock - int64(rng.IntN(40))
			case 2:
				req.Until = l.clock - int64(rng.IntN(40))
			}
			want := l.answerOf(req)
			var got []string
			for pages := 0; ; pages++ {
				res, err := call(s.jobs.ListJobs, req)
				if err != nil {
					t.Fatalf("seed %d, run %d, %v: %v", first, run, req, err)
				}
				if pages == 0 && (res.GetTotal() != int64(len(want)) || res.GetTotalAtLeast() ||
					res.GetPinUntil() == 0) {
					t.Fatalf("seed %d, run %d, %v: counted %d, want %d", first, run, req, res.GetTotal(), len(want))
				}
				got = append(got, idsOf(res.GetJobs())...)
				if req.Cursor = res.GetNext(); req.Cursor == "" {
					break
				}
				for range rng.IntN(4) {
					l.step(false) // a job that is deleted for good is missing from pinned pages too
				}
				req.Count = false
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, run %d, %v:\n got %v\nwant %v", first, run, req, got, want)
			}
		}
	}
}

// TestAListOfAllMissesNoJobThatMoves pages without a pin, while jobs end, move into the archive and
// are submitted. Each job that is there all the time is listed once, and the order holds.
func TestAListOfAllMissesNoJobThatMoves(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(15, 60, 10_000)
	for run := range runs {
		rng := rand.New(rand.NewPCG(first, uint64(run)))
		l, s := newRandomLife(t, rng)
		for range 4 {
			req := l.question()
			if req.Sort == pb.JobSort_JOB_SORT_FINISHED { // the end of a job changes once: pin such a list
				req.Sort = pb.JobSort_JOB_SORT_SUBMITTED
			}
			there := l.answerOf(req)
			var got []string
			for {
				res := must(t, s.jobs.ListJobs, req)
				got = append(got, idsOf(res.GetJobs())...)
				if req.Cursor = res.GetNext(); req.Cursor == "" {
					break
				}
				for range rng.IntN(6) {
					l.step(true)
				}
			}
			now := l.answerOf(req)
			inOrder := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !slices.Contains(now, id) })
			if !isSubsequence(inOrder, now) {
				t.Fatalf("seed %d, run %d, %v: out of order or twice:\n got %v\n now %v", first, run, req, got, now)
			}
			for _, id := range there {
				if slices.Contains(now, id) && !slices.Contains(got, id) {
					t.Fatalf("seed %d, run %d, %v: %s is missing:\n got %v\nwant %v", first, run, req, id, got, there)
				}
			}
		}
	}
}

// shortArchive is an archive whose pages are shorter than they may be, as when their work is done
// before their limit is reached.
type shortArchive struct {
	*archivetest.Memory
	rng *rand.Rand
}

func (a *shortArchive) Jobs(ctx context.Context, q archive.JobQuery) (archive.Page[archive.Stored, archive.Position],
	error,
) {
	q.Limit = 1 + a.rng.IntN(q.Limit)
	return a.Memory.Jobs(ctx, q)
}

func (a *shortArchive) Tasks(
	ctx context.Context, q archive.TaskQuery,
) (archive.Page[archive.Task, archive.TaskPosition], error) {
	q.Limit = 1 // one answer is made of many pages, and ends early
	return a.Memory.Tasks(ctx, q)
}

func isSubsequence(part, whole []string) bool {
	for _, s := range whole {
		if len(part) > 0 && part[0] == s {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// tasksOfAll is the whole answer to a list of tasks, by the model.
func (c *cell) tasksOfAll(req *pb.ListTasksRequest) (ids []string) {
	type task struct {
		phase int
		job   *cellJob
		t     *plimsoll.Task
	}
	var all []task
	jobs := &pb.ListJobsRequest{
		Owner: req.GetOwner(), Queue: req.GetQueue(), Labels: req.GetLabels(),
		Scope: req.GetScope(),
	}
	for _, j := range c.sorted() {
		if !jobAnswers(jobs, j) {
			continue
		}
		for i := range j.tasks {
			t := &j.tasks[i]
			result := t.Result
			if t.State == plimsoll.TaskStopping {
				result = plimsoll.ResultNone // it has not ended
			}
			if len(req.GetResults()) > 0 && !slices.Contains(req.GetResults(), pb.TaskResult(result)) ||
				len(req.GetExitCodes()) > 0 && (result == 0 || !slices.Contains(req.GetExitCodes(), t.ExitCode)) {
				continue
			}
			phase := 0
			if req.GetSort() == pb.TaskSort_TASK_SORT_FAILED_FIRST && (t.Result == 0 ||
				t.Result == plimsoll.ResultSucceeded) {
				phase = 1
			}
			all = append(all, task{phase, j, t})
		}
	}
	slices.SortStableFunc(all, func(a, b task) int {
		return cmp.Or(
			a.phase-b.phase, cmp.Compare(a.job.spec.ID, b.job.spec.ID),
			slices.Compare(a.job.status.UID[:], b.job.status.UID[:]),
			cmp.Compare(wire.TaskKey(a.t.Job, a.t.Group, a.t.Index), wire.TaskKey(b.t.Job, b.t.Group, b.t.Index)),
		)
	})
	for _, a := range all {
		ids = append(ids, fmt.Sprintf("%s@%d", a.t.ID, a.t.Created))
	}
	return ids
}

func idsOfTasks(tasks []*pb.Task) (ids []string) {
	for _, t := range tasks {
		ids = append(ids, fmt.Sprintf("%s@%d", taskID(t), t.GetCreated()))
	}
	return ids
}

// pageSizes are limits below and above the pages of a shortArchive that make up one answer.
var pageSizes = []int32{1, 2, 3, 5, 20, 50} //nolint:gochecknoglobals // constants

// TestAListOfAllTasksMissesNone is the same for tasks, with a pin and without.
func TestAListOfAllTasksMissesNone(t *testing.T) {
	first, runs := testrun.Seed(t), testrun.Count(15, 50, 5000)
	for run := range runs {
		rng := rand.New(rand.NewPCG(first, uint64(run)))
		l, s := newRandomLife(t, rng)
		for range 6 {
			q := l.question()
			req := &pb.ListTasksRequest{
				Owner: q.Owner, Queue: q.Queue, Labels: q.Labels, Scope: q.Scope, Pin: rng.IntN(2) == 0,
				Limit: pageSizes[rng.IntN(len(pageSizes))],
			}
			if req.Pin {
				req.Sort = pb.TaskSort(rng.IntN(3))
				if rng.IntN(2) == 0 {
					req.Scope = pb.Scope_SCOPE_ENDED
				}
				switch rng.IntN(4) {
				case 0:
					req.Results = []pb.TaskResult{pb.TaskResult_TASK_RESULT_FAILED}
				case 1:
					req.ExitCodes = []int32{0, 2, 2, 3}
				}
			}
			want := l.tasksOfAll(req)
			var got []string
			for {
				res, err := call(s.jobs.ListTasks, req)
				if err != nil {
					t.Fatalf("seed %d, run %d, %v: %v", first, run, req, err)
				}
				got = append(got, idsOfTasks(res.GetTasks())...)
				if req.Cursor = res.GetNext(); req.Cursor == "" {
					break
				}
				for range rng.IntN(5) {
					l.step(!req.Pin)
				}
			}
			if req.Pin {
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, run %d, %v:\n got %v\nwant %v", first, run, req, got, want)
				}
				continue
			}
			now := l.tasksOfAll(req)
			inOrder := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !slices.Contains(now, id) })
			if !isSubsequence(inOrder, now) {
				t.Fatalf("seed %d, run %d, %v: out of order or twice:\n got %v\n now %v", first, run, req, got, now)
			}
			for _, id := range want {
				if slices.Contains(now, id) && !slices.Contains(got, id) {
					t.Fatalf("seed %d, run %d, %v: %s is missing:\n got %v\nwant %v", first, run, req, id, got, want)
				}
			}
		}
	}
}

// A list of the tasks of one job goes on when the job leaves the store between two pages. So it
// does for a caller that pages with the ids of tasks.
func TestAListOfTheTasksOfAJobGoesOnInTheArchive(t *testing.T) {
	for moves := range 5 {
		for _, pin := range []bool{false, true} {
			c := newCell(t)
			s := c.serve(Config{})
			j := c.submit("a", "ann", "root.x", nil, 9)
			c.end(j, 0)
			c.store(j)
			req := &pb.ListTasksRequest{Job: "a", Limit: 2, Pin: pin}
			var got []string
			for page := 0; ; page++ {
				switch page {
				case moves:
					c.expire(j, 3)
				case moves + 1:
					c.forget(j)
				}
				res := must(t, s.jobs.ListTasks, req)
				got = append(got, idsOfTasks(res.GetTasks())...)
				if res.GetNext() == "" {
					break
				}
				if req.After = res.GetNext(); pin {
					req.After, req.Cursor = "", res.GetNext()
				}
			}
			if want := c.tasksOfAll(&pb.ListTasksRequest{}); !slices.Equal(got, want) {
				t.Errorf("moved at page %d, pinned %v: got %v, want %v", moves, pin, got, want)
			}
		}
	}
}
