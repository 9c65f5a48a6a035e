package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// search finds jobs for one answer. The tables do not change meanwhile.
type search struct {
	c           *conn
	q           *archive.JobQuery
	taskResults []plimsoll.TaskResult // of which a job must have one among its tasks; nil: any
	budget      *budget
	state       *state
	x           *index
}

// errFound ends a search whose caller has enough.
var errFound = errors.New("enough jobs were found")

func newSearch(ctx context.Context, c *conn, q *archive.JobQuery) (*search, error) {
	state, err := c.readState()
	if err != nil {
		return nil, err
	}
	b := &budget{ctx, c.sizes.work}
	x, err := c.index(b)
	if err != nil {
		return nil, err
	}
	x.span.from = uint64(q.FinishedFrom)
	if q.FinishedTo > 0 {
		x.span.to = uint64(q.FinishedTo)
	}
	return &search{c: c, q: q, budget: b, state: state, x: x}, nil
}

// Jobs implements archive.Reader.
func (r *Reader) Jobs(
	ctx context.Context, q archive.JobQuery,
) (page archive.Page[archive.Stored, archive.Position], err error) {
	if err := q.Normalize(); err != nil {
		return page, err
	}
	err = r.view(ctx, func(ctx context.Context, c *conn) error {
		s, err := newSearch(ctx, c, &q)
		if err != nil {
			return err
		}
		bytes := 0
		page.Next, page.Partial, err = s.each(!q.Heads, func(j *stored) error {
			bytes += j.Bytes() + len(j.spec) + len(j.status)
			if len(page.Items) >= q.Limit || len(page.Items) > 0 && bytes > q.MaxBytes {
				page.More = true
				return errFound
			}
			page.Items = append(page.Items, archive.Stored{Head: j.Head, Spec: j.spec, Status: j.status})
			return nil
		}, func(uid plimsoll.UID) { page.Damaged = append(page.Damaged, uid) })
		page.More = page.More || page.Partial
		return err
	})
	if err != nil {
		return archive.Page[archive.Stored, archive.Position]{}, err
	}
	return page, nil
}

// each calls found for each job of the query, in its order, until that returns errFound. It
// returns the place behind the last job that was taken or passed, and whether the budget ended it.
func (s *search) each(
	whole bool, found func(*stored) error, broken func(plimsoll.UID),
) (next archive.Position, partial bool, err error) {
	v := &visit{s: s, whole: whole, found: found, broken: broken, next: s.q.After}
	switch {
	case len(s.q.IDs) > 0:
		err = s.eachOfIDs(v)
	case s.q.Sort == archive.SortID:
		err = s.eachByID(v)
	default:
		err = s.eachByList(v)
	}
	switch {
	case errors.Is(err, errFound):
		err = nil
	case errors.Is(err, errBudget):
		partial, err = true, nil
	}
	return v.next, partial, err
}

// visit is a walk over jobs in the order of a query.
type visit struct {
	s      *search
	whole  bool
	found  func(*stored) error
	broken func(plimsoll.UID)
	next   archive.Position // behind what has been looked at
}

// look reads a job and gives it to found if it meets the query.
func (v *visit) look(uid plimsoll.UID, at archive.Position) error {
	j, err := v.s.c.job(uid, v.whole)
	switch {
	case errors.Is(err, errJobDamaged):
		v.broken(uid)
		j = nil
	case err != nil:
		return err
	}
	if j != nil && v.s.meets(&j.row) {
		if err := v.found(j); err != nil {
			return err
		}
		v.next = at
		return nil
	}
	v.next = at
	return v.s.budget.take(rowWork)
}

// meets reports whether a job meets all of the query.
func (s *search) meets(r *row) bool {
	return s.q.Matches(&r.Head) &&
		(s.q.UpTo == 0 || r.UID.Revision() <= s.q.UpTo || r.generation < uint64(s.state.generation))
}

// skips reports whether a job is left out for its uid, which is asked before its row is read.
func (s *search) skips(uid plimsoll.UID) bool {
	if s.q.Skip != nil && s.q.Skip(uid) {
		return true
	}
	return s.q.UpTo > 0 && s.state.generation == 0 && uid.Revision() > s.q.UpTo
}

// eachByList walks the lists of the words of the query.
func (s *search) eachByList(v *visit) error {
	d := direction{down: !s.q.Ascending}
	if s.q.Sort == archive.SortFinished {
		d.order = byFinish
	}
	place := func(e entry) archive.Position {
		p := archive.Position{UID: e.uid()}
		if d.order == byFinish {
			p.Finished = int64(e.finished)
		}
		return p
	}
	e, behind := d.start(), false
	if !s.q.After.IsZero() {
		e, behind = entryOf(s.q.After.UID, s.q.After.Finished), true
	}
	first, last := s.bounds(d)
	if d.compare(e, first) < 0 {
		e, behind = first, false
	}
	l, err := s.x.matching(criteriaOf(s.q, s.taskResults), d)
	if err != nil {
		return err
	}
	for {
		found, ok, err := l.from(e, behind)
		switch {
		case errors.Is(err, errBudget):
			if next := d.before(found); found != d.start() && d.compare(next, e) > 0 {
				v.next = place(next)
			}
			return err
		case err != nil:
			return err
		case !ok || d.compare(found, last) > 0:
			return nil
		}
		e, behind = found, true
		if s.skips(e.uid()) {
			continue
		}
		if err := v.look(e.uid(), place(e)); err != nil {
			return err
		}
	}
}

// bounds returns the first and the last entry that the times of a query leave possible. From the
// end of a job follows about when it was submitted.
func (s *search) bounds(d direction) (first, last entry) {
	low, high := entry{}, entry{math.MaxUint64, math.MaxUint64, math.MaxUint64}
	from, to := s.x.span.from, s.x.span.to-1
	if d.order == byFinish {
		low.finished, high.finished = from, to
	} else {
		low.submitted = from - min(from, uint64(s.state.longest))
		high.submitted = to + min(uint64(s.state.before), math.MaxUint64-to)
	}
	if d.down {
		return high, low
	}
	return low, high
}

// eachByID walks the jobs in the order of their ids. If the words of the query leave few, only
// those are looked at.
func (s *search) eachByID(v *visit) error {
	if few, err := s.few(); few != nil || err != nil {
		return s.eachOf(v, few)
	}
	query := "SELECT id, uid, words FROM job ORDER BY id DESC, uid DESC LIMIT ?"
	after := "SELECT id, uid, words FROM job WHERE (id, uid) < (?, ?) ORDER BY id DESC, uid DESC LIMIT ?"
	if s.q.Ascending {
		query = "SELECT id, uid, words FROM job ORDER BY id, uid LIMIT ?"
		after = "SELECT id, uid, words FROM job WHERE (id, uid) > (?, ?) ORDER BY id, uid LIMIT ?"
	}
	mask := uint64(0) // of every job that meets the query; of a choice of words none need be there
	for _, words := range criteriaOf(s.q, s.taskResults) {
		if len(words) == 1 {
			mask |= signature(words)
		}
	}
	values := []driver.Value{int64(scanRows)}
	for at := s.q.After; ; {
		if !at.IsZero() {
			query, values = after, []driver.Value{at.ID, slices.Clone(at.UID[:]), int64(scanRows)}
		}
		if err := s.budget.take(scanWork); err != nil {
			return err
		}
		places := make([]archive.Position, 0, scanRows)
		may := make([]bool, 0, scanRows)
		err := s.c.Rows(func(row []driver.Value) error {
			id, _ := row[0].(string)
			words, _ := row[2].(int64)
			places = append(places, archive.Position{ID: id, UID: uidOf(row[1])})
			may = append(may, uint64(words)&mask == mask)
			return nil
		}, query, values...)
		if len(places) == 0 || err != nil {
			return err
		}
		for i := range places {
			at = places[i]
			if !may[i] || s.skips(at.UID) {
				v.next = at
				continue
			}
			if err := v.look(at.UID, at); err != nil {
				return err
			}
		}
	}
}

// scanRows is how many ids are read at once, and scanWork and rowWork the parts of sizes.work that
// they and one row take.
const (
	scanRows = 100
	scanWork = 12
	rowWork  = 2
)

// few returns the uids of the jobs with the words of the query, if they are few; otherwise nil. It
// spends up to half of the budget.
func (s *search) few() ([]plimsoll.UID, error) {
	kept := s.budget.left / 2
	s.budget.left -= kept
	defer func() { s.budget.left += kept }()
	d := direction{order: bySubmit}
	l, err := s.x.matching(criteriaOf(s.q, s.taskResults), d)
	if err != nil {
		return nil, err
	}
	uids := []plimsoll.UID{}
	for e, behind := d.start(), false; ; behind = true {
		found, ok, err := l.from(e, behind)
		switch {
		case errors.Is(err, errBudget):
			return nil, nil
		case err != nil:
			return nil, err
		case !ok:
			return uids, nil
		}
		if e = found; s.skips(e.uid()) {
			continue
		}
		if uids = append(uids, e.uid()); len(uids) > s.c.sizes.gather {
			return nil, nil
		}
	}
}

// eachOfIDs walks the jobs that have or had one of some ids.
func (s *search) eachOfIDs(v *visit) error {
	ids := slices.Clone(s.q.IDs)
	slices.Sort(ids)
	uids := []plimsoll.UID{}
	for _, id := range slices.Compact(ids) {
		err := s.c.Rows(func(row []driver.Value) error {
			if uid := uidOf(row[0]); !s.skips(uid) {
				uids = append(uids, uid)
			}
			return nil
		}, "SELECT uid FROM job WHERE id = ? ORDER BY uid DESC LIMIT ?", id, int64(s.c.sizes.gather+1))
		if err != nil {
			return err
		}
		if len(uids) > s.c.sizes.gather {
			return plimsoll.Invalid(
				"ids", "the archive has more than %d jobs with them; ask for fewer ids at once, or for one job by its uid",
				s.c.sizes.gather,
			)
		}
		if err := kind.Ended(s.budget.ctx); err != nil {
			return err
		}
	}
	return s.eachOf(v, uids)
}

// eachOf walks given jobs in the order of the query.
func (s *search) eachOf(v *visit, uids []plimsoll.UID) error {
	var places []archive.Position
	for _, uid := range uids {
		j, err := s.c.job(uid, false)
		switch {
		case errors.Is(err, errJobDamaged):
			v.broken(uid)
		case err != nil:
			return err
		case j != nil && s.meets(&j.row):
			places = append(places, archive.PositionOf(s.q.Sort, &j.Head))
		}
		if err := kind.Ended(s.budget.ctx); err != nil {
			return err
		}
	}
	slices.SortFunc(places, s.q.Compare)
	for _, at := range places {
		if !s.q.After.IsZero() && s.q.Compare(at, s.q.After) <= 0 {
			continue
		}
		if err := v.look(at.UID, at); err != nil {
			return err
		}
	}
	return nil
}

// Count implements archive.Reader.
func (r *Reader) Count(ctx context.Context, q archive.JobQuery, most int) (n int64, exact bool, err error) {
	if err := q.Normalize(); err != nil {
		return 0, false, err
	}
	q.After, q.Sort = archive.Position{}, archive.SortSubmitted
	err = r.view(ctx, func(ctx context.Context, c *conn) error {
		s, err := newSearch(ctx, c, &q)
		if err != nil {
			return err
		}
		n, exact, err = s.count(int64(most))
		return err
	})
	return n, exact, err
}

// count counts entries of the lists if the words of the query are all of its criteria. Otherwise it
// reads the row of each job, whether that meets the query or not, and takes the work for it.
func (s *search) count(most int64) (n int64, exact bool, err error) {
	if len(s.q.IDs) > 0 || !hasQueueWord(s.q.Queue) && s.q.Queue != "" || s.q.UpTo > 0 && s.state.generation > 0 {
		more := false
		_, partial, err := s.each(false, func(*stored) error {
			if n == most {
				more = true
				return errFound
			}
			n++
			if len(s.q.IDs) > 0 { // sizes.gather bounds those
				return nil
			}
			return s.budget.take(rowWork)
		}, func(plimsoll.UID) {})
		return n, !partial && !more, err
	}
	d := direction{order: bySubmit}
	l, err := s.x.matching(criteriaOf(s.q, nil), d)
	if err != nil {
		return 0, false, err
	}
	for e, behind := d.start(), false; ; behind = true {
		found, ok, err := l.from(e, behind)
		switch {
		case errors.Is(err, errBudget):
			return n, false, nil
		case err != nil:
			return 0, false, err
		case !ok:
			return n, true, nil
		}
		if e = found; s.skips(e.uid()) {
			continue
		}
		if n == most {
			return n, false, nil
		}
		n++
	}
}
