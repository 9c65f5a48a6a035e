package gateway

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// chosenRecords is the number of records of a range up to which all are looked at, and the first
// ones of the order picked. Of more, those of the order are walked until the page is full.
const chosenRecords = 20_000

// scope is the part of the jobs that a list looks at.
type scope struct {
	archive bool // the archive too
	ended   bool // only those that have ended
}

func scopeOf(s pb.Scope) scope {
	return scope{
		archive: s == pb.Scope_SCOPE_ENDED || s == pb.Scope_SCOPE_ALL, ended: s == pb.Scope_SCOPE_ENDED,
	}
}

// jobList is a list of jobs that a request asks for.
type jobList struct {
	criteria
	scope

	plain     bool // in the order of ids, with ids as cursors
	sort      archive.Sort
	ascending bool
	limit     int
	count     bool
	mask      *wire.Mask
	hash      uint64  // of criteria, scope and order
	from      *cursor // nil: from the beginning
	pin       bool
}

// jobListOf checks a request for a list of jobs.
func jobListOf(g *Gateway, req *pb.ListJobsRequest) (l jobList, err error) {
	if l.limit, err = g.limit(req.GetLimit()); err != nil {
		return l, err
	}
	if l.criteria, err = jobCriteria(req); err != nil {
		return l, err
	}
	if err = l.period(req.GetSince(), req.GetUntil()); err != nil {
		return l, err
	}
	if l.mask, err = wire.CompileMask(statusFields, req.GetFields()); err != nil {
		return l, err //nolint:wrapcheck // it names the field
	}
	l.scope = scopeOf(req.GetScope())
	l.criteria.ended = l.scope.ended
	l.count, l.pin, l.ascending = req.GetCount(), req.GetPin(), req.GetAscending()
	l.plain = req.GetSort() == pb.JobSort_JOB_SORT_UNSPECIFIED && !l.archive && !l.pin && req.GetCursor() == ""
	switch req.GetSort() {
	case pb.JobSort_JOB_SORT_FINISHED:
		l.sort = archive.SortFinished
	case pb.JobSort_JOB_SORT_ID:
		l.sort = archive.SortID
	}
	if l.plain {
		return l, nil
	}
	if req.GetAfter() != "" {
		return l, plimsoll.Invalid("after",
			"is possible only in a list without cursor, sort, pin and scope; give cursor")
	}
	direction := uint64(0)
	if l.ascending {
		direction = 1
	}
	l.hash = l.hashOf(uint64(listOfJobs), uint64(req.GetScope()), uint64(l.sort), direction)
	l.from, err = cursorOf(g, "cursor", req.GetCursor(), listOfJobs, l.hash)
	return l, err
}

// cursorOf reads the cursor of a request; nil: it has none.
func cursorOf(g *Gateway, field, text string, list uint8, hash uint64) (*cursor, error) {
	if text == "" {
		return nil, nil
	}
	c, err := parseCursor(field, text)
	if err == nil {
		err = c.check(field, list, hash, g.cfg.ID)
	}
	return &c, err
}

// hashOf returns a hash of the criteria with a few more numbers. Cursors carry it, so that a page
// is not continued with other criteria by mistake. Gateways of one version have the same.
func (c *criteria) hashOf(numbers ...uint64) uint64 {
	sum := fnv.New64a()
	number := func(n uint64) {
		_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, n)) // a hash takes everything
	}
	text := func(s string) {
		number(uint64(len(s)))
		_, _ = sum.Write([]byte(s)) // as above
	}
	for _, n := range numbers {
		number(n)
	}
	for _, s := range []string{c.job, c.node, c.lastNode, c.queue, c.owner} {
		text(s)
	}
	for _, list := range [][]string{c.ids, c.labels} {
		number(uint64(len(list)))
		for _, s := range list {
			text(s)
		}
	}
	for _, list := range [][]int32{ordered(c.states), ordered(c.results), c.exitCodes} {
		number(uint64(len(list)))
		for _, n := range list {
			number(uint64(n))
		}
	}
	number(uint64(c.since))
	number(uint64(c.until))
	return sum.Sum64()
}

// pinned is the state of a list with a pin.
type pinned struct {
	view
	until time.Time // zero: without a pin
}

// pinnedView returns the state from which a page is answered: that of its pin, or that of the
// request's consistency, which is pinned if asked for.
func (g *Gateway) pinnedView(
	ctx context.Context, req reading, from *cursor, pin bool, a *answer,
) (p pinned, err error) {
	if from != nil && from.pinned {
		now := time.Now()
		held, err := g.pins.find(from.version, g.replica.Latest(), now)
		return pinned{view{held.snapshot, now.Sub(held.made)}, held.until}, err
	}
	if p.view, err = a.view(ctx, req); err != nil || !pin {
		return p, err
	}
	if p.until, err = g.pins.take(p.Snapshot, g.replica.Latest(), time.Now()); err != nil {
		if c := chargeOf(ctx); c != nil {
			c.answer.Header().Set("Retry-After", retryAfter)
		}
	}
	return p, err
}

// next returns the cursor of the next page of the state.
func (p *pinned) next(g *Gateway, c cursor) string {
	if c.pinned = !p.until.IsZero(); c.pinned {
		c.gateway, c.version = g.cfg.ID, p.Version()
	}
	return c.text()
}

func (p *pinned) untilNanos() int64 {
	if p.until.IsZero() {
		return 0
	}
	return p.until.UnixNano()
}

// jobEntry is a job of a page with its place in the order.
type jobEntry struct {
	at       archive.Position
	id       string
	status   []byte
	archived bool
}

// entryBytes is the approximate cost of a jobEntry or a taskEntry beside its record.
const entryBytes = 192

// orderedJobs is a list in any order, of the copy and perhaps of the archive.
func (s jobService) orderedJobs(ctx context.Context, req *pb.ListJobsRequest, want *jobList, a *answer) error {
	v, err := s.g.pinnedView(ctx, req, want.from, want.pin, a)
	if err != nil {
		return err
	}
	if !want.archive && v.until.IsZero() {
		a.share(v.Snapshot)
	}
	look, err := s.g.lookAtJobs(v.Snapshot, &want.criteria)
	if err != nil {
		return err
	}
	kept, err := s.g.archiveOf(v.Snapshot)
	if err != nil {
		return err
	}
	near, err := look.page(ctx, want)
	if err != nil {
		return err
	}
	resp := &pb.ListJobsResponse{
		Revision: v.Revision(), Epoch: v.Epoch(), PinUntil: v.untilNanos(),
	}
	var far jobPage
	if want.archive && kept.kept() {
		if far, err = kept.page(ctx, want); err != nil {
			return err
		}
		for _, uid := range far.damaged {
			resp.Damaged = append(resp.Damaged, uid.String())
		}
	}
	stored := int64(len(far.jobs))
	place, more, err := s.addJobs(a, v.Snapshot, want, &near, &far)
	if err != nil {
		return err
	}
	if more {
		resp.Next = v.next(s.g, cursor{
			list: listOfJobs, criteria: want.hash, uid: place.UID, finished: place.Finished, id: place.ID,
		})
	}
	if place.IsZero() && want.from == nil && !want.archive {
		if err := checkJobFilters(v.Snapshot, req); err != nil {
			return err
		}
	}
	if want.count {
		if resp.Total, resp.TotalAtLeast, err = look.countAll(ctx, &kept, want, stored); err != nil {
			return err
		}
	}
	return a.Finish(resp, v.age)
}

// addJobs merges two pages into the answer, until that is full. It returns the place up to which
// all jobs are listed, and whether there are more behind it.
func (s jobService) addJobs(
	a *answer, snapshot *replica.Snapshot, want *jobList, near, far *jobPage,
) (place archive.Position, more bool, err error) {
	pages := [2]*jobPage{near, far}
	for listed := 0; ; listed++ {
		next := pages[0]
		if len(next.jobs) == 0 || len(pages[1].jobs) > 0 && want.compare(pages[1].jobs[0].at, next.jobs[0].at) < 0 {
			next = pages[1]
		}
		if len(next.jobs) == 0 {
			break
		}
		job := &next.jobs[0]
		for _, p := range pages {
			if p.more && want.compare(job.at, p.next) > 0 { // the other page may have jobs before it
				return p.next, true, nil
			}
		}
		if listed == want.limit || a.records > pageBytes {
			return place, true, nil
		}
		status, err := a.chosenStatus(snapshot, job.id, job.status, want.mask, job.archived)
		if err != nil {
			return place, false, err
		}
		a.Add(fieldJobs, status)
		place = job.at
		next.jobs = next.jobs[1:]
	}
	// All that both pages hold is listed. The list goes on behind the one that ended first.
	for _, p := range pages {
		if p.more && (!more || want.compare(p.next, place) < 0) {
			place, more = p.next, true
		}
	}
	return place, more, nil
}

// jobPage is a part of a list, from one source.
type jobPage struct {
	jobs    []jobEntry // in the order of the list
	more    bool
	next    archive.Position // if more: all jobs up to this place are in jobs
	damaged []plimsoll.UID
}

// compare compares two places in the direction of the list.
func (l *jobList) compare(a, b archive.Position) int {
	if l.ascending {
		return a.Compare(b)
	}
	return b.Compare(a)
}

// behind reports whether a place lies behind the list's cursor.
func (l *jobList) behind(p archive.Position) bool {
	return l.from == nil || l.compare(p, l.from.place()) > 0
}

// place is the place of the last object before the cursor in a list of jobs.
func (c *cursor) place() archive.Position {
	return archive.Position{UID: c.uid, Finished: c.finished, ID: c.id}
}

// page returns the part of the snapshot's jobs for one page.
func (l *jobLook) page(ctx context.Context, want *jobList) (p jobPage, err error) {
	first := firstOf[jobEntry]{most: want.limit + 1, compare: func(a, b jobEntry) int {
		return want.compare(a.at,
			b.at)
	}}
	jobs, most, walked := l.inOrder(want)
	if err := chargeOf(ctx).holdAnswer(2 * min(first.most, most) * entryBytes); err != nil {
		return p, err
	}
	seen, size := 0, 0
	for id, data := range jobs {
		if seen++; seen%lookEvery == 0 && ctx.Err() != nil {
			return p, callerGone(ctx)
		}
		entry, met, err := l.entry(want, id, data)
		if err != nil {
			return p, err
		}
		if !met || !want.behind(entry.at) {
			continue
		}
		first.add(entry)
		if size += len(data); walked && (len(first.kept) == first.most || size > pageBytes) {
			break
		}
	}
	p.jobs = first.all()
	if walked && size > pageBytes || len(p.jobs) == first.most {
		p.more, p.next = true, p.jobs[len(p.jobs)-1].at
	}
	return p, nil
}

// entry looks at a job.
func (l *jobLook) entry(want *jobList, id string, data []byte) (e jobEntry, met bool, err error) {
	facts, err := wire.LookAtJob(data)
	if err != nil {
		return e, false, undecodable(wire.KindJobStatus, id, err)
	}
	if _, met = l.look(id, &facts); !met {
		return e, false, nil
	}
	uid, err := facts.Lifetime()
	if err != nil {
		return e, false, undecodable(wire.KindJobStatus, id, err)
	}
	head := archive.Head{UID: uid, ID: id, Finished: facts.Finished}
	return jobEntry{at: archive.PositionOf(want.sort, &head), id: id, status: data}, true, nil
}

// inOrder yields jobs that hold all which meet the criteria and lie behind the cursor, at most
// most. walked is set if they are in the order of the list, and not set if they are few.
func (l *jobLook) inOrder(want *jobList) (jobs iter.Seq2[string, []byte], most int, walked bool) {
	chosen := l.snapshot.JobRange(want.jobs())
	few := chosen.Len() <= l.few
	var at archive.Position
	if want.from != nil {
		at = want.from.place()
	}
	switch {
	case want.sort == archive.SortID && want.ascending && few:
		// The job with the cursor's id may be another lifetime, behind the cursor.
		return chosen.After(before(at.ID)), chosen.Len(), true
	case few, want.sort == archive.SortFinished:
		return chosen.After(""), chosen.Len(), false
	case want.sort == archive.SortID && want.ascending:
		return l.snapshot.JobsFrom(before(at.ID), false), chosen.Len(), true
	case want.sort == archive.SortID && at.ID == "":
		return l.snapshot.JobsFrom("", true), chosen.Len(), true
	case want.sort == archive.SortID:
		return l.snapshot.JobsFrom(at.ID+"\x00", true), chosen.Len(), true
	case want.from == nil:
		return l.snapshot.JobsBySubmit("", !want.ascending), chosen.Len(), true
	}
	return l.snapshot.JobsBySubmit(at.UID.String(), !want.ascending), chosen.Len(), true
}

// before returns a text that lies between an id and all lower ids.
func before(id string) string {
	if id == "" {
		return ""
	}
	return id[:len(id)-1] + string(rune(id[len(id)-1]-1)) + "\x7f" // ids are ASCII
}

// page returns the archive's part of one page.
func (v *archiveView) page(ctx context.Context, want *jobList) (p jobPage, err error) {
	q := want.query(v)
	if want.from != nil {
		q.After = want.from.place()
	}
	q.Limit = min(want.limit, archive.MaxLimit)
	if err := chargeOf(ctx).holdAnswer(pageBytes); err != nil {
		return p, err
	}
	if c := chargeOf(ctx); c != nil {
		defer c.release(pageBytes) // what is added to the answer is charged there
	}
	err = v.read(ctx, func(ctx context.Context, r archive.Reader) error {
		page, err := r.Jobs(ctx, q)
		if err != nil {
			return err //nolint:wrapcheck // read says what failed
		}
		p.more, p.next, p.damaged = page.More, page.Next, page.Damaged
		for i := range page.Items {
			job := &page.Items[i]
			p.jobs = append(p.jobs, jobEntry{
				at: archive.PositionOf(want.sort, &job.Head), id: job.ID, status: job.Status, archived: true,
			})
		}
		return nil
	})
	return p, err
}

// query returns the question to the archive for the jobs of the list that the snapshot lacks.
func (l *jobList) query(v *archiveView) archive.JobQuery {
	return archive.JobQuery{
		IDs: l.ids, Owner: l.owner, Queue: l.queue, Labels: l.labels,
		States:       wire.EnumsFromProto[plimsoll.JobState](l.states),
		Results:      wire.EnumsFromProto[plimsoll.TaskResult](l.results),
		FinishedFrom: l.since, FinishedTo: l.until,
		UpTo: v.snapshot.Revision(), Skip: v.skips, Sort: l.sort, Ascending: l.ascending,
	}
}

// countAll counts the jobs of the list in the snapshot and the archive. The page has stored jobs of
// the archive: if that cannot count now, they are added to the snapshot's, as a lower bound.
func (l *jobLook) countAll(
	ctx context.Context, v *archiveView, want *jobList, stored int64,
) (n int64, atLeast bool, err error) {
	if n, atLeast, err = l.count(ctx); err != nil || !want.archive || !v.kept() {
		return n, atLeast, err
	}
	more, exact := int64(0), false
	err = v.read(ctx, func(ctx context.Context, r archive.Reader) (err error) {
		more, exact, err = r.Count(ctx, want.query(v), maxCounted)
		return err //nolint:wrapcheck // read says what failed
	})
	if plimsoll.CodeOf(err) == plimsoll.CodeUnavailable {
		return n + stored, true, nil
	}
	return n + more, atLeast || !exact, err
}

// firstOf picks the first elements of an order. It holds at most twice as many.
type firstOf[E any] struct {
	most    int
	compare func(a, b E) int
	kept    []E
}

func (f *firstOf[E]) add(e E) {
	if f.kept = append(f.kept, e); len(f.kept) >= 2*f.most {
		f.all()
	}
}

// all returns the elements in their order.
func (f *firstOf[E]) all() []E {
	slices.SortFunc(f.kept, f.compare)
	if len(f.kept) > f.most {
		clear(f.kept[f.most:])
		f.kept = f.kept[:f.most]
	}
	return f.kept
}
