package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// taskSearch finds tasks for one answer.
type taskSearch struct {
	*search
	q     *archive.TaskQuery
	mask  uint64 // results that the query takes, as a set
	page  archive.Page[archive.Task, archive.TaskPosition]
	bytes int
}

// Tasks implements archive.Reader.
func (r *Reader) Tasks(
	ctx context.Context, q archive.TaskQuery,
) (page archive.Page[archive.Task, archive.TaskPosition], err error) {
	if err := q.Normalize(); err != nil {
		return page, err
	}
	q.Jobs.After = q.After.Job
	if q.Outcome == archive.Failed {
		q.Jobs.Failed = true
	}
	err = r.view(ctx, func(ctx context.Context, c *conn) error {
		s, err := newSearch(ctx, c, &q.Jobs)
		if err != nil {
			return err
		}
		s.taskResults = q.Results
		t := &taskSearch{search: s, q: &q, mask: wantedResults(&q)}
		t.page.Next = q.After
		if q.UID.IsZero() {
			err = t.ofJobs()
		} else {
			err = t.ofJob()
		}
		switch {
		case errors.Is(err, errBudget):
			t.page.Partial, t.page.More = true, true
		case errors.Is(err, errFound):
			t.page.More = true
		case err != nil:
			return err
		}
		page = t.page
		return nil
	})
	return page, err
}

// wantedResults returns the results that a query takes, as a set of bits.
func wantedResults(q *archive.TaskQuery) uint64 {
	mask := ^uint64(0)
	if len(q.Results) > 0 {
		mask = 0
		for _, r := range q.Results {
			mask |= resultBit(r)
		}
	}
	switch q.Outcome {
	case archive.Failed:
		mask &^= resultBit(plimsoll.ResultSucceeded)
	case archive.Succeeded:
		mask &= resultBit(plimsoll.ResultSucceeded)
	}
	return mask
}

// ofJob finds the tasks of the job that the query names.
func (t *taskSearch) ofJob() error {
	j, err := t.c.job(t.q.UID, false)
	switch {
	case err != nil:
		return err
	case j == nil:
		return notFound("", t.q.UID)
	}
	return t.tasks(j, archive.Position{UID: j.UID}, t.q.After.Task)
}

// ofJobs finds the tasks of the jobs of the query.
func (t *taskSearch) ofJobs() error {
	damage := func(uid plimsoll.UID) { t.page.Damaged = append(t.page.Damaged, uid) }
	if !t.q.After.Job.IsZero() && !t.skips(t.q.After.Job.UID) { // the job at which the last page ended
		j, err := t.c.job(t.q.After.Job.UID, false)
		switch {
		case errors.Is(err, errJobDamaged):
			damage(t.q.After.Job.UID)
		case err != nil:
			return err
		case j != nil && t.meets(&j.row): // a caller may have made up the position
			if err := t.tasks(j, t.q.After.Job, t.q.After.Task); err != nil {
				return err
			}
		}
	}
	var stopped error
	next, partial, err := t.each(false, func(j *stored) error {
		if stopped = t.tasks(j, archive.PositionOf(t.q.Jobs.Sort, &j.Head), 0); stopped != nil {
			return errFound
		}
		return nil
	}, damage)
	switch {
	case err != nil:
		return err
	case stopped != nil:
		return stopped
	case partial:
		t.page.Next = archive.TaskPosition{Job: next, Task: allTasks}
		return errBudget
	}
	return nil
}

// allTasks is the number in a position behind all tasks of a job.
const allTasks = 1 << chunkShift

// tasks finds the tasks of one job without the first from of them.
func (t *taskSearch) tasks(j *stored, at archive.Position, from int32) error {
	if j.results&t.mask == 0 || from >= j.Tasks {
		t.page.Next = archive.TaskPosition{Job: at, Task: allTasks}
		return nil
	}
	inline, err := t.c.First("SELECT tasks FROM job WHERE n = ?", j.n)
	if err != nil {
		return err
	}
	if inline == nil {
		return t.c.Damaged("the row of job %s", j.UID)
	}
	if data, _ := inline[0].([]byte); len(data) > 0 {
		err = t.chunk(j, at, 0, from, data)
	} else {
		err = t.chunks(j, at, from)
	}
	if err == nil {
		t.page.Next = archive.TaskPosition{Job: at, Task: allTasks}
	}
	return err
}

// chunks finds the tasks of a job that has its tasks in chunks.
func (t *taskSearch) chunks(j *stored, at archive.Position, from int32) error {
	start, end := j.n<<chunkShift|int64(from), (j.n+1)<<chunkShift-1
	covering, err := t.c.First("SELECT n FROM chunk WHERE n BETWEEN ? AND ? ORDER BY n DESC LIMIT 1",
		j.n<<chunkShift, start)
	if err != nil {
		return err
	}
	if covering != nil {
		start, _ = covering[0].(int64)
	}
	var wanted []int64
	looked, last := 0, int64(0)
	err = t.c.Rows(func(row []driver.Value) error {
		least, _ := row[1].(string)
		greatest, _ := row[2].(string)
		looked++
		if last, _ = row[0].(int64); t.mayHold(least, greatest) {
			wanted = append(wanted, last)
		}
		return nil
	}, "SELECT n, least, greatest FROM chunk WHERE n BETWEEN ? AND ? AND results & ? != 0 ORDER BY n LIMIT ?",
		start, end, int64(t.mask), int64(maxChunks))
	if err != nil {
		return err
	}
	for _, n := range wanted {
		first := int32(n & (1<<chunkShift - 1))
		if err := t.budget.take(chunkWork); err != nil {
			t.page.Next = archive.TaskPosition{Job: at, Task: max(first, from)}
			return err
		}
		row, err := t.c.First("SELECT tasks FROM chunk WHERE n = ?", n)
		if err != nil {
			return err
		}
		var data []byte
		if row != nil {
			data, _ = row[0].([]byte)
		}
		if err := t.chunk(j, at, first, from, data); err != nil {
			return err
		}
	}
	if looked == maxChunks { // there may be more
		t.page.Next = archive.TaskPosition{Job: at, Task: int32(last&(1<<chunkShift-1)) + 1}
		return errBudget
	}
	return nil
}

// maxChunks bounds the chunks of a job that are looked at for one answer.
const maxChunks = 1 << 15

// mayHold reports whether a chunk can have a task with a wanted key.
func (t *taskSearch) mayHold(least, greatest string) bool {
	return len(t.q.Keys) == 0 ||
		slices.ContainsFunc(t.q.Keys, func(key string) bool { return key >= least && key <= greatest })
}

// chunk finds the tasks in a chunk. number is that of its first task.
func (t *taskSearch) chunk(j *stored, at archive.Position, number, from int32, data []byte) error {
	content, ok := sqlitefile.Unsealed(data)
	if !ok {
		return t.broken(j, at, number)
	}
	full := false
	err := eachTask(content, func(r archive.TaskRecord) bool {
		number++
		if number <= from || resultBit(r.Result)&t.mask == 0 || !t.q.Matches(&r) {
			return true
		}
		t.bytes += r.Bytes()
		if len(t.page.Items) >= t.q.Limit || len(t.page.Items) > 0 && t.bytes > t.q.MaxBytes {
			full = true
			return false
		}
		r.Value = slices.Clone(r.Value) // without the rest of its chunk
		t.page.Items = append(t.page.Items, archive.Task{Job: j.UID, TaskRecord: r})
		t.page.Next = archive.TaskPosition{Job: at, Task: number}
		return true
	})
	switch {
	case err != nil:
		return t.broken(j, at, number)
	case full:
		return errFound
	}
	return nil
}

// broken passes tasks that cannot be read. Asked for the tasks of one job, that is an error.
func (t *taskSearch) broken(j *stored, at archive.Position, number int32) error {
	if !t.q.UID.IsZero() {
		return t.c.Damaged("the tasks of job %s from task %d on", j.UID, number)
	}
	if !slices.Contains(t.page.Damaged, j.UID) {
		t.page.Damaged = append(t.page.Damaged, j.UID)
	}
	t.page.Next = archive.TaskPosition{Job: at, Task: allTasks}
	return nil
}
