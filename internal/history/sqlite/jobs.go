package sqlite

import (
	"context"
	"database/sql/driver"
	"math"

	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// Jobs implements history.Reader.
func (r *Reader) Jobs(ctx context.Context, q history.JobQuery) (page history.Page[history.Job], err error) {
	if err := q.Check(); err != nil {
		return page, err //nolint:wrapcheck // it names the field
	}
	err = r.view(ctx, func(ctx context.Context, c *conn) error { return c.jobs(ctx, &q, &page) })
	if err != nil {
		return history.Page[history.Job]{}, err
	}
	return page, nil
}

// jobRows is how many rows of jobs are read at once.
const jobRows = 100

// jobs walks the lives of a query from the newest on. Below a life from which on all have ended
// before the query's time, it walks those that run.
func (c *conn) jobs(ctx context.Context, q *history.JobQuery, page *history.Page[history.Job]) error {
	const running = "SELECT life, value FROM job WHERE ended = 0 AND life < ? ORDER BY life DESC LIMIT ?"
	high, low, err := c.bounds(q)
	if err != nil {
		return err
	}
	if q.After.Chunk > 0 {
		high = min(high, q.After.Chunk)
	}
	v := &jobVisit{ctx: ctx, c: c, q: q, page: page, below: high}
	query, values, err := c.jobsQuery(q)
	if err != nil {
		return err
	}
	if full, err := v.walk(low, query, values...); full || err != nil {
		return err
	}
	if low == 0 {
		return nil
	}
	v.below = min(v.below, low+1)
	_, err = v.walk(0, running)
	return err
}

// jobsQuery returns the query of the index with the fewest lives.
func (c *conn) jobsQuery(q *history.JobQuery) (query string, values []driver.Value, err error) {
	switch {
	case q.ID != "":
		return "SELECT life, value FROM job WHERE id = ? AND life < ? ORDER BY life DESC LIMIT ?",
			[]driver.Value{q.ID}, nil
	case q.Owner != "":
		return "SELECT life, value FROM job WHERE owner = ? AND life < ? ORDER BY life DESC LIMIT ?",
			[]driver.Value{q.Owner}, nil
	}
	queue, exact, err := c.onlyQueue(q.Queue)
	if exact {
		return "SELECT life, value FROM job WHERE queue = ? AND life < ? ORDER BY life DESC LIMIT ?",
			[]driver.Value{queue}, err
	}
	return "SELECT life, value FROM job WHERE life < ? ORDER BY life DESC LIMIT ?", nil, err
}

// jobVisit is a walk over lives for one page.
type jobVisit struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one call
	c      *conn
	q      *history.JobQuery
	page   *history.Page[history.Job]
	below  int64 // lives from this one on were looked at
	bytes  int
	looked int
}

// walk looks at the lives of a query above one. It reports whether the page is full.
func (v *jobVisit) walk(above int64, query string, values ...driver.Value) (full bool, err error) {
	for {
		if err := kind.Ended(v.ctx); err != nil {
			return false, err //nolint:wrapcheck // it says what was done
		}
		var jobs []*history.Job
		err := v.c.Rows(func(row []driver.Value) error {
			life, _ := row[0].(int64)
			j, err := v.c.decodeJob(life, row[1])
			jobs = append(jobs, j)
			return err
		}, query, append(values[:len(values):len(values)], v.below, int64(jobRows))...)
		if err != nil {
			return false, err //nolint:wrapcheck // it says what was done
		}
		for _, j := range jobs {
			if j.Life <= above {
				return false, nil
			}
			if v.look(j) {
				v.page.Next = history.Cursor{Chunk: v.below}
				return true, nil
			}
		}
		if len(jobs) < jobRows {
			return false, nil
		}
	}
}

// look adds a job to the page if it meets the query. It reports whether the page was full before.
func (v *jobVisit) look(j *history.Job) (full bool) {
	met := v.q.Meets(j)
	if met {
		v.bytes += j.Bytes()
		full = len(v.page.Rows) >= v.q.Limit || len(v.page.Rows) > 0 && v.bytes > history.MaxPageBytes
	}
	if full || v.looked >= v.c.sizes.jobs {
		return true
	}
	if met {
		v.page.Rows = append(v.page.Rows, *j)
	}
	v.looked++
	v.below = j.Life
	return false
}

// bounds returns between which lives those of a query's time are, without both; but up to low some
// may run.
func (c *conn) bounds(q *history.JobQuery) (high, low int64, err error) {
	s, err := c.readState()
	if err != nil {
		return 0, 0, err
	}
	high = math.MaxInt64
	if q.Until > 0 {
		// All lives above one have a submit that is at most submitBehind before its own.
		_, above, err := c.lifeAt(s, func(submitted int64) bool { return submitted < q.Until+s.submitBehind })
		if err != nil {
			return 0, 0, err
		}
		if above > 0 {
			high = above
		}
	}
	if q.From > 0 {
		// All lives below one have a submit that is at most submitBehind after its own.
		low, _, err = c.lifeAt(s, func(submitted int64) bool { return submitted+s.submitBehind < q.From-s.longest })
	}
	return high, low, err
}

// lifeAt looks for the place from which on submits are not early any more. below is a life whose
// submit is early, and above one whose is not; 0 if none was found.
func (c *conn) lifeAt(s *state, early func(submitted int64) bool) (below, above int64, err error) {
	for from, to := int64(1), s.lives; from <= to; {
		middle := from + (to-from)/2
		row, err := c.First(
			"SELECT life, value FROM job WHERE life >= ? AND life <= ? ORDER BY life LIMIT 1", middle, to,
		)
		if err != nil {
			return 0, 0, err //nolint:wrapcheck // it says what was done
		}
		if row == nil { // none is in the upper half
			to = middle - 1
			continue
		}
		life, _ := row[0].(int64)
		j, err := c.decodeJob(life, row[1])
		if err != nil {
			return 0, 0, err
		}
		if early(j.Submitted) {
			below, from = life, life+1
		} else {
			above, to = life, middle-1
		}
	}
	return below, above, nil
}

// onlyQueue returns the one queue with jobs among a queue and those below it. exact is false if
// there are several, and without a queue.
func (c *conn) onlyQueue(queue string) (only string, exact bool, err error) {
	if queue == "" {
		return "", false, nil
	}
	count := 0
	for _, query := range []string{
		"SELECT queue FROM job WHERE queue = ?1 LIMIT 1",
		"SELECT min(queue) FROM job WHERE queue > ?1 || '.' AND queue < ?1 || '/'",
		"SELECT max(queue) FROM job WHERE queue > ?1 || '.' AND queue < ?1 || '/'",
	} {
		row, err := c.First(query, queue)
		if err != nil {
			return "", false, err //nolint:wrapcheck // it says what was done
		}
		if row == nil {
			continue
		}
		if found, ok := row[0].(string); ok && found != only {
			only = found
			count++
		}
	}
	if count == 0 {
		return queue, true, nil
	}
	return only, count == 1, nil
}
