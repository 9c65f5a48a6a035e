package archivetest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// Memory is an archive in memory, for tests: the Writer and the Reader of one. It is as large as
// what is written to it.
type Memory struct {
	mu struct {
		sync.RWMutex
		mark       archive.Mark
		generation uint64
		jobs       map[plimsoll.UID]*kept
		attempts   map[attemptsKey]archive.Attempts
		deleted    map[plimsoll.UID]int64 // time of the deletion, in Unix nanoseconds
	}
}

// kept is a job of a Memory.
type kept struct {
	archive.Job
	tasks      []archive.TaskRecord
	bytes      int
	generation uint64
}

type attemptsKey struct {
	uid   plimsoll.UID
	task  string
	first int32
}

var (
	_ archive.Writer = (*Memory)(nil)
	_ archive.Reader = (*Memory)(nil)
)

// NewMemory returns an empty archive.
func NewMemory() *Memory {
	m := &Memory{}
	m.mu.mark.ID = uuid.NewString()
	m.mu.jobs = map[plimsoll.UID]*kept{}
	m.mu.attempts = map[attemptsKey]archive.Attempts{}
	m.mu.deleted = map[plimsoll.UID]int64{}
	return m
}

// lead locks the archive if no later epoch leads it. Otherwise it fails and leaves it unlocked.
func (m *Memory) lead(ctx context.Context, epoch uint64) error {
	if err := over(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	if epoch < m.mu.mark.Epoch {
		defer m.mu.Unlock()
		return plimsoll.Errorf(plimsoll.CodeStale, "epoch %d writes, and epoch %d leads", epoch, m.mu.mark.Epoch)
	}
	return nil
}

func over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &plimsoll.Error{Code: plimsoll.CodeCanceled, Op: "use the archive", Err: err}
	}
	return nil
}

// Fence implements archive.Writer.
func (m *Memory) Fence(ctx context.Context, epoch uint64) (archive.Mark, error) {
	if err := m.lead(ctx, epoch); err != nil {
		return archive.Mark{}, err
	}
	defer m.mu.Unlock()
	m.mu.mark.Epoch = epoch
	return m.mark(), nil
}

// Accept implements archive.Writer.
func (m *Memory) Accept(ctx context.Context, epoch uint64) (archive.Mark, error) {
	if err := over(ctx); err != nil {
		return archive.Mark{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.mark.Epoch = epoch
	m.mu.generation++
	return m.mark(), nil
}

// mark returns the mark of the present jobs. The caller holds the lock.
func (m *Memory) mark() archive.Mark {
	mark := m.mu.mark
	for _, j := range m.mu.jobs {
		mark.Jobs++
		mark.Tasks += int64(len(j.tasks))
		mark.Bytes += int64(j.bytes)
		if mark.Oldest == 0 || j.Finished < mark.Oldest {
			mark.Oldest = j.Finished
		}
	}
	for _, a := range m.mu.attempts {
		mark.Bytes += attemptsBytes(&a)
	}
	return mark
}

func attemptsBytes(a *archive.Attempts) int64 { return int64(len(a.TaskKey) + len(a.Value)) }

// Write implements archive.Writer.
func (m *Memory) Write(
	ctx context.Context, epoch uint64, jobs []archive.Job, attempts []archive.Attempts,
) (archive.Mark, error) {
	if err := archive.CheckWrite(jobs, attempts); err != nil {
		return archive.Mark{}, err
	}
	taken := make([]*kept, len(jobs))
	for i, j := range jobs {
		k := &kept{Job: j, tasks: slices.Collect(j.Records), bytes: j.Bytes()}
		if err := archive.CheckTasks(&j.Head, int32(len(k.tasks)), failedOf(k.tasks)); err != nil {
			return archive.Mark{}, err
		}
		taken[i] = k
	}
	if err := m.lead(ctx, epoch); err != nil {
		return archive.Mark{}, err
	}
	defer m.mu.Unlock()
	changed := false
	for _, k := range taken {
		if _, deleted := m.mu.deleted[k.UID]; !deleted && m.mu.jobs[k.UID] == nil {
			k.generation = m.mu.generation
			m.mu.jobs[k.UID] = k
			changed = true
		}
	}
	for _, a := range attempts {
		key := attemptsKey{a.UID, a.TaskKey, a.First}
		_, there := m.mu.attempts[key]
		if _, deleted := m.mu.deleted[a.UID]; !deleted && !there {
			m.mu.attempts[key] = a
			changed = true
		}
	}
	if changed {
		m.mu.mark.Sequence++
	}
	return m.mark(), nil
}

func failedOf(tasks []archive.TaskRecord) (n int32) {
	for i := range tasks {
		if tasks[i].Failed() {
			n++
		}
	}
	return n
}

// Delete implements archive.Writer.
func (m *Memory) Delete(ctx context.Context, epoch uint64, uids []plimsoll.UID, now int64) error {
	if err := m.lead(ctx, epoch); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, uid := range uids {
		m.remove(uid)
		if _, known := m.mu.deleted[uid]; !known {
			m.mu.deleted[uid] = now
		}
	}
	return nil
}

// remove takes a job out with its attempts. The caller holds the lock.
func (m *Memory) remove(uid plimsoll.UID) {
	delete(m.mu.jobs, uid)
	maps.DeleteFunc(m.mu.attempts, func(key attemptsKey, _ archive.Attempts) bool { return key.uid == uid })
}

// Trim implements archive.Writer.
func (m *Memory) Trim(
	ctx context.Context, epoch uint64, keep archive.Retention, now int64, most int,
) (removed int, more bool, err error) {
	if err := m.lead(ctx, epoch); err != nil {
		return 0, false, err
	}
	defer m.mu.Unlock()
	maps.DeleteFunc(m.mu.deleted, func(_ plimsoll.UID, at int64) bool { return at < now-int64(archive.DeletedAge) })
	mark := m.mark()
	for key, a := range m.mu.attempts {
		if m.mu.jobs[key.uid] == nil {
			mark.Bytes -= attemptsBytes(&a)
		}
	}
	for _, tooOld := range []bool{true, false} {
		for _, good := range []bool{true, false} {
			for _, k := range m.oldest(good) {
				age := keep.FailedAge
				if good {
					age = keep.Age
				}
				goes := keep.Jobs > 0 && mark.Jobs > keep.Jobs || keep.Bytes > 0 && mark.Bytes > keep.Bytes
				if tooOld {
					goes = age > 0 && k.Finished < now-int64(age)
				}
				switch {
				case !goes:
				case removed == most:
					return removed, true, nil
				default:
					before := m.mark().Bytes
					m.remove(k.UID)
					mark.Bytes -= before - m.mark().Bytes
					mark.Jobs--
					removed++
				}
			}
		}
	}
	return removed, false, nil
}

// oldest returns the jobs that are Good, or all others, in the order of their ends.
func (m *Memory) oldest(good bool) []*kept {
	var jobs []*kept
	for _, k := range m.mu.jobs {
		if k.Good() == good {
			jobs = append(jobs, k)
		}
	}
	slices.SortFunc(jobs, func(a, b *kept) int {
		return cmp.Or(cmp.Compare(a.Finished, b.Finished), bytes.Compare(a.UID[:], b.UID[:]))
	})
	return jobs
}

// Check implements archive.Writer.
func (m *Memory) Check(ctx context.Context) error { return over(ctx) }

// Close implements archive.Writer and archive.Reader. The jobs stay.
func (m *Memory) Close() error { return nil }

// Mark implements archive.Reader.
func (m *Memory) Mark(ctx context.Context) (archive.Mark, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mark(), over(ctx)
}

// Job implements archive.Reader.
func (m *Memory) Job(ctx context.Context, id string, uid plimsoll.UID) (archive.Stored, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := over(ctx); err != nil {
		return archive.Stored{}, err
	}
	var newest *kept
	for _, k := range m.mu.jobs {
		if (uid.IsZero() || k.UID == uid) && (id == "" || k.ID == id) &&
			(newest == nil || bytes.Compare(k.UID[:], newest.UID[:]) > 0) {
			newest = k
		}
	}
	if newest == nil || id == "" && uid.IsZero() {
		return archive.Stored{}, plimsoll.Errorf(plimsoll.CodeNotFound, "the archive has no job %q, uid %s", id, uid)
	}
	return newest.stored(false), nil
}

func (k *kept) stored(head bool) archive.Stored {
	if head {
		return archive.Stored{Head: k.Head}
	}
	return archive.Stored{Head: k.Head, Spec: k.Spec, Status: k.Status}
}

// matching returns the jobs of a query in its order. The caller holds the lock.
func (m *Memory) matching(q *archive.JobQuery) []*kept {
	var jobs []*kept
	for _, k := range m.mu.jobs {
		if q.Matches(&k.Head) && (q.Skip == nil || !q.Skip(k.UID)) &&
			(q.UpTo == 0 || k.UID.Revision() <= q.UpTo || k.generation < m.mu.generation) {
			jobs = append(jobs, k)
		}
	}
	slices.SortFunc(jobs, func(a, b *kept) int {
		return q.Compare(archive.PositionOf(q.Sort, &a.Head), archive.PositionOf(q.Sort, &b.Head))
	})
	return jobs
}

// Jobs implements archive.Reader.
func (m *Memory) Jobs(
	ctx context.Context, q archive.JobQuery,
) (page archive.Page[archive.Stored, archive.Position], err error) {
	if err := q.Normalize(); err != nil {
		return page, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	bytes := 0
	page.Next = q.After
	for _, k := range m.matching(&q) {
		at := archive.PositionOf(q.Sort, &k.Head)
		if !q.After.IsZero() && q.Compare(at, q.After) <= 0 {
			continue
		}
		s := k.stored(q.Heads)
		bytes += s.Bytes() + len(s.Spec) + len(s.Status)
		if len(page.Items) == q.Limit || len(page.Items) > 0 && bytes > q.MaxBytes {
			page.More = true
			break
		}
		page.Items, page.Next = append(page.Items, s), at
	}
	return page, over(ctx)
}

// Tasks implements archive.Reader.
func (m *Memory) Tasks(
	ctx context.Context, q archive.TaskQuery,
) (page archive.Page[archive.Task, archive.TaskPosition], err error) {
	if err := q.Normalize(); err != nil {
		return page, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	jobs := m.matching(&q.Jobs)
	if !q.UID.IsZero() {
		k := m.mu.jobs[q.UID]
		if k == nil {
			return page, plimsoll.Errorf(plimsoll.CodeNotFound, "the archive has no job with uid %s", q.UID)
		}
		jobs = []*kept{k}
	}
	bytes := 0
	page.Next = q.After
	for _, k := range jobs {
		at := archive.PositionOf(q.Jobs.Sort, &k.Head)
		order := 1
		if !q.After.Job.IsZero() {
			order = q.Jobs.Compare(at, q.After.Job)
		}
		for i := range k.tasks {
			r := &k.tasks[i]
			if order < 0 || order == 0 && int32(i) < q.After.Task || !q.Matches(r) {
				continue
			}
			bytes += r.Bytes()
			if len(page.Items) == q.Limit || len(page.Items) > 0 && bytes > q.MaxBytes {
				page.More = true
				return page, over(ctx)
			}
			page.Items = append(page.Items, archive.Task{Job: k.UID, TaskRecord: *r})
			page.Next = archive.TaskPosition{Job: at, Task: int32(i) + 1}
		}
	}
	return page, over(ctx)
}

// Attempts implements archive.Reader.
func (m *Memory) Attempts(
	ctx context.Context, uid plimsoll.UID, taskKey string, after int32,
) (chunks []archive.Attempts, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for key, a := range m.mu.attempts {
		if key.uid == uid && key.task == taskKey && key.first > after {
			chunks = append(chunks, a)
		}
	}
	slices.SortFunc(chunks, func(a, b archive.Attempts) int { return cmp.Compare(a.First, b.First) })
	bytes := 0
	for i := range chunks {
		if bytes += len(chunks[i].Value); i > 0 && bytes > archive.MaxPageBytes {
			chunks = chunks[:i]
			break
		}
	}
	return chunks, over(ctx)
}

// Count implements archive.Reader.
func (m *Memory) Count(ctx context.Context, q archive.JobQuery, most int) (n int64, exact bool, err error) {
	if err := q.Normalize(); err != nil {
		return 0, false, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	n = int64(len(m.matching(&q)))
	return min(n, int64(most)), n <= int64(most), over(ctx)
}
