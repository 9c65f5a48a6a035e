package archivetest

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// model has the jobs that an archive should hold, and answers by looking at each of them. It shares
// no code with package archive, so that a fault there is found.
type model struct {
	jobs    map[plimsoll.UID]*written
	deleted map[plimsoll.UID]bool
}

// written is a job with its tasks at hand.
type written struct {
	archive.Job
	tasks []archive.TaskRecord
}

func newModel() *model {
	return &model{jobs: map[plimsoll.UID]*written{}, deleted: map[plimsoll.UID]bool{}}
}

func (m *model) write(jobs ...*written) {
	for _, j := range jobs {
		if m.jobs[j.UID] == nil && !m.deleted[j.UID] {
			m.jobs[j.UID] = j
		}
	}
}

func (m *model) remove(uid plimsoll.UID) {
	delete(m.jobs, uid)
	m.deleted[uid] = true
}

// matching returns the jobs of a query in its order.
func (m *model) matching(q *archive.JobQuery) []*written {
	var found []*written
	for _, j := range m.jobs {
		if meets(j, q) {
			found = append(found, j)
		}
	}
	slices.SortFunc(found, func(a, b *written) int {
		c := 0
		switch q.Sort {
		case archive.SortFinished:
			c = cmp.Compare(a.Finished, b.Finished)
		case archive.SortID:
			c = strings.Compare(a.ID, b.ID)
		}
		if c == 0 {
			c = bytes.Compare(a.UID[:], b.UID[:])
		}
		if !q.Ascending {
			c = -c
		}
		return c
	})
	return found
}

func meets(j *written, q *archive.JobQuery) bool {
	among := func(n int, is func(i int) bool) bool {
		for i := range n {
			if is(i) {
				return true
			}
		}
		return n == 0
	}
	labelled := func(wanted string) bool {
		for key, value := range j.Labels {
			if wanted == key || wanted == key+"="+value {
				return true
			}
		}
		return false
	}
	for _, l := range q.Labels {
		if !labelled(l) {
			return false
		}
	}
	failed := slices.ContainsFunc(j.tasks, func(r archive.TaskRecord) bool {
		return r.Result != plimsoll.ResultSucceeded
	})
	return among(len(q.IDs), func(i int) bool { return q.IDs[i] == j.ID }) &&
		(q.Owner == "" || q.Owner == j.Owner) &&
		(q.Queue == "" || strings.HasPrefix(j.Queue+".", q.Queue+".")) &&
		among(len(q.States), func(i int) bool { return q.States[i] == j.State }) &&
		among(len(q.Results), func(i int) bool { return q.Results[i] == j.Result }) &&
		(q.FinishedFrom == 0 || j.Finished >= q.FinishedFrom) &&
		(q.FinishedTo == 0 || j.Finished < q.FinishedTo) &&
		(!q.Failed || failed) &&
		(q.UpTo == 0 || j.UID.Revision() <= q.UpTo) &&
		(q.Skip == nil || !q.Skip(j.UID))
}

// tasksOf returns the tasks of a query.
func (m *model) tasksOf(q *archive.TaskQuery) []archive.Task {
	jobs := m.matching(&q.Jobs)
	if !q.UID.IsZero() {
		jobs = []*written{m.jobs[q.UID]}
	}
	var found []archive.Task
	for _, j := range jobs {
		for _, r := range j.tasks {
			succeeded := r.Result == plimsoll.ResultSucceeded
			if q.Outcome == archive.Failed && succeeded || q.Outcome == archive.Succeeded && !succeeded ||
				len(q.Results) > 0 && !slices.Contains(q.Results, r.Result) ||
				len(q.Keys) > 0 && !slices.Contains(q.Keys, r.Key) {
				continue
			}
			found = append(found, archive.Task{Job: j.UID, TaskRecord: r})
		}
	}
	return found
}

const start = int64(1_700_000_000_000_000_000)

// jobWith returns a job with tasks of some results.
func jobWith(h archive.Head, spec, status string, results ...plimsoll.TaskResult) *written {
	j := &written{Job: archive.Job{Head: h, Spec: []byte(spec), Status: []byte(status)}}
	for i, result := range results {
		j.tasks = append(j.tasks, archive.TaskRecord{
			Key: fmt.Sprintf("%s\x00group\x00%08d", h.ID, i), State: plimsoll.TaskFinished, Result: result,
			Value: fmt.Appendf(nil, "task %d of %s", i, h.UID),
		})
		if result != plimsoll.ResultSucceeded {
			j.Failed++
		}
	}
	j.Tasks = int32(len(j.tasks))
	j.Records = slices.Values(j.tasks)
	return j
}

// plain returns a job that has succeeded, the n-th that was submitted.
func plain(n int, id string) *written {
	return jobWith(archive.Head{
		UID: plimsoll.MakeUID(start+int64(n), uint64(n+1)), ID: id, Owner: "ann", Queue: "root.a",
		State: plimsoll.JobCompleted, Result: plimsoll.ResultSucceeded, Finished: start + int64(n)*int64(time.Second),
	}, "spec of "+id, "status of "+id, plimsoll.ResultSucceeded)
}

// unwritten returns the jobs as Write takes them.
func unwritten(jobs ...*written) []archive.Job {
	out := make([]archive.Job, len(jobs))
	for i, j := range jobs {
		out[i] = j.Job
	}
	return out
}

var (
	someOwners  = []string{"ann", "bob", "cy", ""}
	someQueues  = []string{"root", "root.a", "root.a.b", "root.ab", "root.a.b.c", "root.z"}
	someLabels  = []string{"app", "zone", "x"}
	someStates  = []plimsoll.JobState{plimsoll.JobCompleted, plimsoll.JobFailed, plimsoll.JobRejected}
	someResults = []plimsoll.TaskResult{
		plimsoll.ResultSucceeded, plimsoll.ResultSucceeded, plimsoll.ResultSucceeded, plimsoll.ResultFailed,
		plimsoll.ResultKilled, plimsoll.ResultOutOfMemory, plimsoll.ResultNone,
	}
)

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// randomJob returns a job whose values many others have too, so that every order has ties.
func randomJob(rng *rand.Rand) *written {
	h := archive.Head{
		UID: plimsoll.MakeUID(start+rng.Int64N(500), 1+rng.Uint64N(40)), ID: fmt.Sprintf("job%d", rng.IntN(25)),
		Owner: pick(rng, someOwners), Queue: pick(rng, someQueues), State: pick(rng, someStates),
		Result: pick(rng, someResults), Finished: start + rng.Int64N(30),
	}
	for range rng.IntN(4) {
		if h.Labels == nil {
			h.Labels = map[string]string{}
		}
		h.Labels[pick(rng, someLabels)] = fmt.Sprint(rng.IntN(3))
	}
	results := make([]plimsoll.TaskResult, rng.IntN(5))
	if rng.IntN(50) == 0 {
		results = make([]plimsoll.TaskResult, 300+rng.IntN(700))
	}
	allGood := rng.IntN(3) > 0
	for i := range results {
		if results[i] = pick(rng, someResults); allGood {
			results[i] = plimsoll.ResultSucceeded
		}
	}
	return jobWith(h, strings.Repeat("s", rng.IntN(200)), strings.Repeat("t", rng.IntN(100)), results...)
}

// randomQuery returns a query with some criteria.
func randomQuery(rng *rand.Rand, jobs []*written) archive.JobQuery {
	q := archive.JobQuery{Sort: archive.Sort(rng.IntN(archive.NumSorts)), Ascending: rng.IntN(2) == 0}
	some := func() bool { return rng.IntN(5) == 0 }
	if some() {
		for range 1 + rng.IntN(4) {
			q.IDs = append(q.IDs, fmt.Sprintf("job%d", rng.IntN(30)))
		}
	}
	if some() {
		q.Owner = pick(rng, append([]string{"nobody"}, someOwners...))
	}
	if some() {
		q.Queue = pick(rng, append([]string{"root.nothing"}, someQueues...))
	}
	for some() {
		l := pick(rng, append([]string{"y"}, someLabels...))
		if rng.IntN(2) == 0 {
			l += fmt.Sprintf("=%d", rng.IntN(3))
		}
		q.Labels = append(q.Labels, l)
	}
	for some() {
		q.States = append(q.States, pick(rng, someStates))
	}
	for some() {
		q.Results = append(q.Results, pick(rng, someResults))
	}
	if some() {
		q.FinishedFrom = start + rng.Int64N(30)
	}
	if some() {
		q.FinishedTo = start + rng.Int64N(32)
	}
	if some() {
		q.UpTo = rng.Uint64N(42)
	}
	q.Failed = some()
	if some() && len(jobs) > 0 {
		skipped := map[plimsoll.UID]bool{}
		for range 20 {
			skipped[pick(rng, jobs).UID] = true
		}
		q.Skip = func(uid plimsoll.UID) bool { return skipped[uid] }
	}
	if rng.IntN(2) == 0 {
		q.Limit = 1 + rng.IntN(30)
	}
	if some() {
		q.MaxBytes = 1 + rng.IntN(2000)
	}
	q.Heads = some()
	return q
}

// show prints a query without its bounds.
func show(q archive.JobQuery) string {
	skip := q.Skip != nil
	q.Skip = nil
	return fmt.Sprintf("%+v, skips %v", q, skip)
}

// all returns the jobs in the order of their uids.
func (m *model) all() []*written {
	uids := slices.SortedFunc(maps.Keys(m.jobs), func(a, b plimsoll.UID) int { return bytes.Compare(a[:], b[:]) })
	jobs := make([]*written, len(uids))
	for i, uid := range uids {
		jobs[i] = m.jobs[uid]
	}
	return jobs
}
