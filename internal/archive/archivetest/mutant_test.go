package archivetest

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// mutant is an archive in memory with a fault.
type mutant struct {
	*Memory
	write    func(m *Memory, jobs []archive.Job, attempts []archive.Attempts) ([]archive.Job, []archive.Attempts)
	epoch    func(m *Memory, epoch uint64) uint64
	written  func(archive.Mark) archive.Mark
	deleted  func(m *Memory, uids []plimsoll.UID)
	retain   func(archive.Retention, *int64) archive.Retention
	trimmed  func(m *Memory, keep archive.Retention) archive.Retention
	job      func(m *Memory, id string, uid plimsoll.UID) (string, plimsoll.UID)
	query    func(*archive.JobQuery)
	page     func(*archive.JobQuery, *archive.Page[archive.Stored, archive.Position])
	taskPage func(*archive.TaskQuery, *archive.Page[archive.Task, archive.TaskPosition])
	chunks   func([]archive.Attempts) []archive.Attempts
}

func (m *mutant) Write(
	ctx context.Context, epoch uint64, jobs []archive.Job, attempts []archive.Attempts,
) (archive.Mark, error) {
	if m.write != nil {
		jobs, attempts = m.write(m.Memory, jobs, attempts)
	}
	mark, err := m.Memory.Write(ctx, m.as(epoch), jobs, attempts)
	if m.written != nil && err == nil {
		mark = m.written(mark)
	}
	return mark, err
}

func (m *mutant) as(epoch uint64) uint64 {
	if m.epoch != nil {
		return m.epoch(m.Memory, epoch)
	}
	return epoch
}

func (m *mutant) Delete(ctx context.Context, epoch uint64, uids []plimsoll.UID, now int64) error {
	err := m.Memory.Delete(ctx, m.as(epoch), uids, now)
	if m.deleted != nil && err == nil {
		m.deleted(m.Memory, uids)
	}
	return err
}

func (m *mutant) Trim(
	ctx context.Context, epoch uint64, keep archive.Retention, now int64, most int,
) (int, bool, error) {
	if m.retain != nil {
		keep = m.retain(keep, &now)
	}
	if m.trimmed != nil {
		keep = m.trimmed(m.Memory, keep)
	}
	return m.Memory.Trim(ctx, m.as(epoch), keep, now, most)
}

func (m *mutant) Job(ctx context.Context, id string, uid plimsoll.UID) (archive.Stored, error) {
	if m.job != nil {
		id, uid = m.job(m.Memory, id, uid)
	}
	return m.Memory.Job(ctx, id, uid)
}

func (m *mutant) Jobs(
	ctx context.Context, q archive.JobQuery,
) (archive.Page[archive.Stored, archive.Position], error) {
	asked := q
	if m.query != nil {
		m.query(&q)
	}
	page, err := m.Memory.Jobs(ctx, q)
	if m.page != nil && err == nil {
		m.page(&asked, &page)
	}
	return page, err
}

func (m *mutant) Tasks(
	ctx context.Context, q archive.TaskQuery,
) (archive.Page[archive.Task, archive.TaskPosition], error) {
	page, err := m.Memory.Tasks(ctx, q)
	if m.taskPage != nil && err == nil {
		m.taskPage(&q, &page)
	}
	return page, err
}

func (m *mutant) Attempts(
	ctx context.Context, uid plimsoll.UID, task string, after int32,
) ([]archive.Attempts, error) {
	chunks, err := m.Memory.Attempts(ctx, uid, task, after)
	if m.chunks != nil && err == nil {
		chunks = m.chunks(chunks)
	}
	return chunks, err
}

type (
	jobPage  = archive.Page[archive.Stored, archive.Position]
	taskPage = archive.Page[archive.Task, archive.TaskPosition]
)

// mutants has a fault of each kind that the suite must find.
var mutants = map[string]mutant{
	"writes half of the jobs": {write: func(_ *Memory, jobs []archive.Job, a []archive.Attempts) (
		[]archive.Job, []archive.Attempts,
	) {
		return jobs[:(len(jobs)+1)/2], a
	}},
	"forgets attempts": {write: func(_ *Memory, jobs []archive.Job, _ []archive.Attempts) (
		[]archive.Job, []archive.Attempts,
	) {
		return jobs, nil
	}},
	"replaces a job that is there": {write: func(m *Memory, jobs []archive.Job, a []archive.Attempts) (
		[]archive.Job, []archive.Attempts,
	) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i := range jobs {
			delete(m.mu.jobs, jobs[i].UID)
		}
		return jobs, a
	}},
	"counts a repeated Write": {written: func(mark archive.Mark) archive.Mark {
		mark.Sequence++
		return mark
	}},
	"loses a label": {write: func(_ *Memory, jobs []archive.Job, a []archive.Attempts) (
		[]archive.Job, []archive.Attempts,
	) {
		jobs = slices.Clone(jobs)
		for i := range jobs {
			jobs[i].Labels = maps.Clone(jobs[i].Labels)
			delete(jobs[i].Labels, "zone")
		}
		return jobs, a
	}},
	"ignores the fence": {epoch: func(m *Memory, _ uint64) uint64 {
		m.mu.RLock()
		defer m.mu.RUnlock()
		return m.mu.mark.Epoch
	}},
	"forgets deleted uids": {deleted: func(m *Memory, uids []plimsoll.UID) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, uid := range uids {
			delete(m.mu.deleted, uid)
		}
	}},
	"remembers deleted uids for ever": {deleted: func(m *Memory, uids []plimsoll.UID) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, uid := range uids {
			m.mu.deleted[uid] = 1 << 62
		}
	}},
	"trims failed jobs like others": {retain: func(keep archive.Retention, _ *int64) archive.Retention {
		keep.FailedAge = keep.Age
		return keep
	}},
	"trims an hour early": {retain: func(keep archive.Retention, now *int64) archive.Retention {
		*now += hour
		return keep
	}},
	"does not trim by bytes": {retain: func(keep archive.Retention, _ *int64) archive.Retention {
		keep.Bytes = 0
		return keep
	}},
	"trims by attempts of jobs to come": {trimmed: func(m *Memory, keep archive.Retention) archive.Retention {
		for key, a := range m.mu.attempts {
			if m.mu.jobs[key.uid] == nil && keep.Bytes > 0 {
				keep.Bytes = max(keep.Bytes-attemptsBytes(&a), 1)
			}
		}
		return keep
	}},
	"gives any job of an id for a uid": {job: func(_ *Memory, id string, uid plimsoll.UID) (string, plimsoll.UID) {
		if id != "" {
			uid = plimsoll.UID{}
		}
		return id, uid
	}},
	"ignores the second label": {query: func(q *archive.JobQuery) {
		if len(q.Labels) == 2 {
			q.Labels = q.Labels[:1]
		}
	}},
	"ignores the revision":     {query: func(q *archive.JobQuery) { q.UpTo = 0 }},
	"ignores Skip":             {query: func(q *archive.JobQuery) { q.Skip = nil }},
	"ignores the limit":        {query: func(q *archive.JobQuery) { q.Limit = 0 }},
	"ignores the bytes":        {query: func(q *archive.JobQuery) { q.MaxBytes = 0 }},
	"sorts by submit always":   {query: func(q *archive.JobQuery) { q.Sort = archive.SortSubmitted }},
	"sorts upwards always":     {query: func(q *archive.JobQuery) { q.Ascending = true }},
	"takes the end of a range": {query: func(q *archive.JobQuery) { q.FinishedTo += min(q.FinishedTo, 1) }},
	"loses a tie in the cursor": {page: func(q *archive.JobQuery, page *jobPage) {
		if q.Sort == archive.SortFinished && page.More {
			page.Next.UID = plimsoll.UID{}
			if q.Ascending {
				page.Next.UID = plimsoll.MakeUID(-1, 1<<64-1)
			}
		}
	}},
	"forgets the last job of a page": {page: func(_ *archive.JobQuery, page *jobPage) {
		if page.More && len(page.Items) > 1 {
			page.Items = page.Items[:len(page.Items)-1]
		}
	}},
	"doubles the first job of a page": {page: func(q *archive.JobQuery, page *jobPage) {
		if !q.After.IsZero() && len(page.Items) > 0 {
			page.Items = append(page.Items[:1:1], page.Items...)
		}
	}},
	"gives no statuses": {page: func(_ *archive.JobQuery, page *jobPage) {
		for i := range page.Items {
			page.Items[i].Status = nil
		}
	}},
	"gives specifications with heads": {page: func(_ *archive.JobQuery, page *jobPage) {
		for i := range page.Items {
			page.Items[i].Spec = []byte("spec")
		}
	}},
	"forgets a chunk of tasks": {taskPage: func(_ *archive.TaskQuery, page *taskPage) {
		if len(page.Items) > 256 {
			page.Items = slices.Delete(page.Items, 0, 256)
		}
	}},
	"mixes up tasks": {taskPage: func(_ *archive.TaskQuery, page *taskPage) { slices.Reverse(page.Items) }},
	"forgets the last attempts": {chunks: func(c []archive.Attempts) []archive.Attempts {
		return c[:max(len(c)-1, 0)]
	}},
}

// witness is a tester that remembers whether its case failed.
type witness struct {
	ctx    context.Context //nolint:containedctx // it stands for a testing.T, which has one
	failed string
}

func (w *witness) Helper() {}

func (w *witness) Context() context.Context { return w.ctx }

func (w *witness) Fatalf(format string, values ...any) {
	w.failed = fmt.Sprintf(format, values...)
	runtime.Goexit()
}

// The suite finds each fault, and none in an archive without.
func TestSuiteFindsFaults(t *testing.T) {
	seed := testrun.Seed(t)
	finds := func(h func() Harness) (by, how string) {
		for _, c := range cases {
			w := &witness{ctx: t.Context()}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.run(w, h(), seed)
			}()
			<-done
			if w.failed != "" {
				return c.name, w.failed
			}
		}
		return "", ""
	}
	if by, how := finds(memory); by != "" {
		t.Errorf("it finds a fault where there is none: %s: %s", by, how)
	}
	for name, fault := range mutants {
		by, how := finds(func() Harness {
			m := fault
			m.Memory = NewMemory()
			return of(&m)
		})
		if by == "" {
			t.Errorf("it does not notice an archive that %s", name)
		}
		t.Logf("an archive that %s is found by %q: %.80q", name, by, how)
	}
}
