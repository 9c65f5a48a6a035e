package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// taskEntry is a task of a page with its place in the order.
type taskEntry struct {
	at       taskPlace
	record   []byte
	archived bool
}

// taskPage is a part of a list of tasks, from one source.
type taskPage struct {
	tasks []taskEntry // in the order of the list
	more  bool
	next  taskPlace // if more: all tasks up to this place are in tasks

	// steps are places of the archive behind parts of tasks: so many first ones lie before each.
	steps   []archiveStep
	damaged []plimsoll.UID
}

type archiveStep struct {
	tasks int
	at    archive.TaskPosition
}

// The phases of a list with failed tasks first.
const (
	phaseFirst uint8 = iota
	phaseRest

	numPhases
)

// phases returns the phases of the list from its cursor on.
func (l *taskList) phases() (from, to uint8) {
	if l.sort != pb.TaskSort_TASK_SORT_FAILED_FIRST {
		return phaseFirst, phaseFirst
	}
	if l.from != nil {
		from = min(l.from.phase, phaseRest)
	}
	return from, numPhases - 1
}

// orderedTasks is a list in any order, of the copy and perhaps of the archive. If the list is of
// one job and that is in the archive, stored is set.
func (s jobService) orderedTasks(
	ctx context.Context, req *pb.ListTasksRequest, want *taskList, v *pinned, stored *sought, a *answer,
) error {
	if want.plain && want.from == nil && want.after != "" { // the job has left the copy between two pages
		want.from = &cursor{id: stored.id, uid: stored.stored.UID, key: want.after}
	}
	look, err := s.g.lookAtTasks(v.Snapshot, want)
	if err != nil {
		return err
	}
	kept, err := s.g.archiveOf(v.Snapshot)
	if err != nil {
		return err
	}
	resp := &pb.ListTasksResponse{
		Revision: v.Revision(), Epoch: v.Epoch(), PinUntil: v.untilNanos(),
	}
	p := taskPages{g: s.g, ctx: ctx, want: want, look: look, kept: &kept, stored: stored, answer: a}
	next, err := p.fill()
	if err != nil {
		return err
	}
	for _, uid := range p.damaged {
		resp.Damaged = append(resp.Damaged, uid.String())
	}
	if next != nil {
		next.list, next.criteria = listOfTasks, want.hashFor(req)
		if resp.Next = v.next(s.g, *next); want.plain {
			resp.Next = cursorMark + resp.Next
		}
	}
	if p.listed == 0 && want.from == nil && next == nil && stored == nil {
		if err := checkTaskFilters(v.Snapshot, req, want.archive); err != nil {
			return err
		}
	}
	if resp.JobUids, err = a.jobUIDs(p.uids); err != nil {
		return err
	}
	if want.count {
		if resp.Total, resp.TotalAtLeast, err = p.count(); err != nil {
			return err
		}
	}
	return a.Finish(resp, v.age)
}

// taskPages fills an answer with the tasks of the copy and of the archive.
type taskPages struct {
	g      *Gateway
	ctx    context.Context //nolint:containedctx // the value lives as long as the request
	want   *taskList
	look   *taskLook
	kept   *archiveView
	stored *sought // the one job of the list, which is in the archive; nil: none
	answer *answer

	listed  int
	uids    []plimsoll.UID // of the jobs of the listed tasks, if they are wanted
	damaged []plimsoll.UID
}

// fill adds tasks until the answer is full. It returns the cursor of the next page; nil: there is
// none.
func (p *taskPages) fill() (*cursor, error) {
	first, last := p.want.phases()
	for phase := first; ; phase++ {
		next, err := p.phase(phase)
		if next != nil || err != nil || phase == last {
			return next, err
		}
		p.want.from = nil // the next phase begins at its beginning
		if p.listed == p.want.limit || p.answer.records > pageBytes {
			return &cursor{phase: phase + 1}, nil
		}
	}
}

// phase adds the tasks of one phase.
func (p *taskPages) phase(phase uint8) (next *cursor, err error) {
	var near, far taskPage
	if p.stored == nil {
		if near, err = p.ofCopy(phase); err != nil {
			return nil, err
		}
	}
	if p.stored != nil || p.want.archive && !p.want.names && p.kept.kept() {
		if far, err = p.ofArchive(phase); err != nil {
			return nil, err
		}
		p.damaged = append(p.damaged, far.damaged...)
	}
	used := 0
	pages := [2]*taskPage{&near, &far}
	var place taskPlace
	for {
		page := pages[0]
		if len(page.tasks) == 0 || len(far.tasks) > 0 && p.want.compare(far.tasks[0].at, near.tasks[0].at) < 0 {
			page = pages[1]
		}
		if len(page.tasks) == 0 {
			break
		}
		task := &page.tasks[0]
		for _, other := range pages {
			if other.more && p.want.compare(task.at, other.next) > 0 {
				return p.cursor(other.next, far.steps, used), nil
			}
		}
		if p.listed == p.want.limit || p.answer.records > pageBytes {
			if place == (taskPlace{}) && p.want.from != nil {
				place = p.want.from.taskPlace()
			}
			place.phase = phase
			return p.cursor(place, far.steps, used), nil
		}
		record, err := p.answer.chosen(wire.KindTask, task.at.key, task.record, p.want.mask, task.archived)
		if err != nil {
			return nil, err
		}
		p.answer.Add(fieldTasks, record)
		if p.want.uids {
			p.uids = append(p.uids, task.at.uid)
		}
		p.listed++
		place = task.at
		if page.tasks = page.tasks[1:]; page == &far {
			used++
		}
	}
	more := false
	for _, page := range pages {
		if page.more && (!more || p.want.compare(page.next, place) < 0) {
			place, more = page.next, true
		}
	}
	if !more {
		return nil, nil
	}
	return p.cursor(place, far.steps, used), nil
}

// cursor returns the cursor behind a place. The archive is read on where it was, as far as all that
// it had until there is listed.
func (p *taskPages) cursor(at taskPlace, steps []archiveStep, used int) *cursor {
	c := &cursor{phase: at.phase, finished: at.finished, id: at.job, uid: at.uid, key: at.key}
	if p.want.from != nil {
		c.archived = p.want.from.archived
	}
	for _, step := range steps {
		ofJob := archive.Position{ID: at.job, UID: at.uid}
		if step.tasks <= used && (p.stored != nil || step.at.Job.Compare(ofJob) <= 0) {
			c.archived = step.at
		}
	}
	return c
}

// failed reports whether a task stands in the first phase of a list with failed tasks first.
func failed(t *wire.TaskFacts) bool {
	return t.State == int32(plimsoll.TaskFinished) && t.Result != int32(plimsoll.ResultSucceeded)
}

// ofCopy returns the part of the copy for one phase of one page.
func (p *taskPages) ofCopy(phase uint8) (page taskPage, err error) {
	want, l := p.want, p.look
	l.ofJobs, l.facts = true, true // the uid of the job, and perhaps the end, are part of the place
	first := firstOf[taskEntry]{
		most: want.limit + 1 - p.listed, compare: func(a, b taskEntry) int { return want.compare(a.at, b.at) },
	}
	byEnd := want.sort == pb.TaskSort_TASK_SORT_FINISHED
	if err := chargeOf(p.ctx).holdAnswer(2 * min(first.most,
		l.snapshot.TaskRange(want.tasks()).Len()) * entryBytes); err != nil {
		return page, err
	}
	after := ""
	if want.from != nil && !byEnd {
		after = p.after(want.from)
	}
	seen, size := 0, 0
	for key, data := range l.tasks(after) {
		if seen++; seen%lookEvery == 0 && p.ctx.Err() != nil {
			return page, callerGone(p.ctx)
		}
		entry, met, err := p.entry(phase, key, data)
		if err != nil {
			return page, err
		}
		if !met || want.from != nil && want.compare(entry.at, want.from.taskPlace()) <= 0 {
			continue
		}
		first.add(entry)
		if size += len(data); !byEnd && (len(first.kept) == first.most || size > pageBytes) {
			break
		}
	}
	page.tasks = first.all()
	if !byEnd && size > pageBytes || len(page.tasks) == first.most {
		page.more, page.next = true, page.tasks[len(page.tasks)-1].at
	}
	return page, nil
}

// after returns the key behind which the copy's tasks behind a cursor lie.
func (p *taskPages) after(c *cursor) string {
	if job, has := p.look.snapshot.JobOf(c.uid.String()); has && job == c.id && c.key != "" {
		return c.key
	}
	return before(c.id) // the copy may have a later lifetime of the id
}

// entry looks at a task of the copy.
func (p *taskPages) entry(phase uint8, key string, data []byte) (e taskEntry, met bool, err error) {
	if p.want.job != "" && !wire.IsTaskKeyOf(key, p.want.job) {
		return e, false, nil
	}
	if met, err := p.look.jobOf(key); !met || err != nil {
		return e, false, err
	}
	facts, err := wire.LookAtTask(data)
	if err != nil {
		return e, false, undecodable(wire.KindTask, key, err)
	}
	if !p.inPhase(phase, &facts) || !p.want.metBy(key, &facts) {
		return e, false, nil
	}
	e = taskEntry{record: data, at: taskPlace{phase: phase, job: p.look.last, uid: p.look.lastUID, key: key}}
	if p.want.sort == pb.TaskSort_TASK_SORT_FINISHED {
		e.at.finished = facts.Finished
	}
	return e, true, nil
}

func (p *taskPages) inPhase(phase uint8, t *wire.TaskFacts) bool {
	return p.want.sort != pb.TaskSort_TASK_SORT_FAILED_FIRST || failed(t) == (phase == phaseFirst)
}

// maxArchivePages bounds the pages of the archive that are read for one answer. None is begun with
// less than archivePageTime left: a reader takes up to 2 s for a page, and the answer has to come.
const (
	maxArchivePages = 8
	archivePageTime = archiveTimeout / 2
)

// ofArchive returns the part of the archive for one phase of one page. The archive knows few of the
// criteria of tasks, so that several of its pages may be read; when there would be too many, or the
// time for them is over, the answer ends early.
func (p *taskPages) ofArchive(phase uint8) (page taskPage, err error) {
	want := p.want
	if want.node != "" || len(want.states) > 0 && !slices.Contains(want.states, int32(plimsoll.TaskFinished)) {
		return page, nil // no task of the archive is on a node
	}
	q := p.query(phase)
	if err := chargeOf(p.ctx).holdAnswer(2 * pageBytes); err != nil {
		return page, err
	}
	if c := chargeOf(p.ctx); c != nil {
		defer c.release(2 * pageBytes) // what is added to the answer is charged there
	}
	size := 0
	err = p.kept.read(p.ctx, func(ctx context.Context, r archive.Reader) error {
		for range maxArchivePages {
			q.MaxBytes = max(pageBytes-size, 1)
			if len(page.steps) > 0 && isShort(ctx) {
				return nil // there is more, and the next answer begins with it
			}
			got, err := r.Tasks(ctx, q)
			switch {
			case err == nil:
			case len(page.steps) > 0 && p.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
				return nil // as above
			default:
				return err //nolint:wrapcheck // read says what failed
			}
			page.damaged = append(page.damaged, got.Damaged...)
			for i := range got.Items {
				task := &got.Items[i]
				size += task.Bytes()
				if err := p.takeArchived(&page, phase, task); err != nil {
					return err
				}
			}
			q.After = got.Next
			page.steps = append(page.steps, archiveStep{len(page.tasks), got.Next})
			if page.more = got.More; !got.More || len(page.tasks) >= q.Limit || size >= pageBytes {
				return nil
			}
		}
		return nil
	})
	if page.more {
		page.next = taskPlace{phase: phase, job: q.After.Job.ID, uid: q.After.Job.UID}
		if p.stored != nil {
			page.next.job, page.next.uid = p.stored.id, p.stored.stored.UID
		}
		if n := len(page.tasks); n > 0 && want.compare(page.tasks[n-1].at, page.next) > 0 {
			page.next = page.tasks[n-1].at
		}
		if want.from != nil && want.compare(want.from.taskPlace(), page.next) > 0 {
			page.next = want.from.taskPlace()
		}
	}
	return page, err
}

// isShort reports whether a read of the archive has too little time left for another page.
func isShort(ctx context.Context) bool {
	deadline, has := ctx.Deadline()
	return has && time.Until(deadline) < archivePageTime
}

// query returns the question to the archive for the tasks of a phase.
func (p *taskPages) query(phase uint8) archive.TaskQuery {
	want := p.want
	q := archive.TaskQuery{
		Results: wire.EnumsFromProto[plimsoll.TaskResult](want.results), Limit: min(want.limit, archive.MaxLimit),
	}
	if want.from != nil {
		q.After = want.from.archived
	}
	if want.sort == pb.TaskSort_TASK_SORT_FAILED_FIRST {
		q.Outcome = archive.Succeeded
		if phase == phaseFirst {
			q.Outcome = archive.Failed
		}
	}
	if p.stored != nil {
		q.UID = p.stored.stored.UID
		return q
	}
	q.Jobs = archive.JobQuery{
		Owner: want.jobFilter.owner, Queue: want.jobFilter.queue, Labels: want.jobFilter.labels,
		FinishedFrom: want.since, // a job does not end before its tasks
		UpTo:         p.kept.snapshot.Revision(), Skip: p.kept.skips, Sort: archive.SortID, Ascending: true,
	}
	return q
}

// takeArchived adds a task of the archive to a page, if it meets the criteria and lies behind the
// cursor.
func (p *taskPages) takeArchived(page *taskPage, phase uint8, task *archive.Task) error {
	facts, err := wire.LookAtTask(task.Value)
	if err != nil {
		return undecodable(wire.KindTask, task.Key, err)
	}
	at := taskPlace{phase: phase, job: wire.JobOfTaskKey(task.Key), uid: task.Job, key: task.Key}
	if p.want.from != nil && p.want.compare(at, p.want.from.taskPlace()) <= 0 || !p.want.metBy(task.Key, &facts) {
		return nil
	}
	page.tasks = append(page.tasks, taskEntry{at: at, record: task.Value, archived: true})
	return nil
}

// count counts the tasks of the list. Those of the archive are counted only if the list is of one
// job, and all of its tasks are wanted.
func (p *taskPages) count() (n int64, atLeast bool, err error) {
	if p.stored != nil {
		if p.want.restricts() {
			return int64(p.listed), true, nil
		}
		return int64(p.stored.stored.Tasks), false, nil
	}
	n, atLeast, err = p.look.count(p.ctx)
	return n, atLeast || p.want.archive && !p.want.names && p.kept.kept(), err
}
