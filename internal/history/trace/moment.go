package trace

import (
	"context"
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// moment is the cluster at an instant, and the event behind which it is.
type moment struct {
	view  *fold.View
	tasks []fold.Task
	history.Position
}

// at returns the cluster at an instant.
func (p *reading) at(ctx context.Context, at int64) (*moment, error) {
	state, replay, err := p.reader.At(ctx, at)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the time
	}
	f, m := fold.New(), &moment{}
	if state != nil {
		if f, err = fold.Decode(state); err != nil {
			return nil, err //nolint:wrapcheck // it says what was done
		}
	}
	err = replay(func(run history.Events) error {
		events := make([]plimsoll.Event, 0, min(run.Count, history.MaxWriteEvents))
		for e, err := range ring.Decode(run.Data) {
			if err != nil {
				return fmt.Errorf("events from %d on: %w", run.First, err)
			}
			if e.Time > at {
				break
			}
			events = append(events, e)
		}
		m.Position = history.Position{Instance: run.Instance, Next: run.First + uint64(len(events))}
		for len(events) > 0 {
			events = events[f.Apply(events).Taken:]
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	m.view = f.View()
	for t := range f.Tasks("") {
		m.tasks = append(m.tasks, t)
	}
	return m, nil
}

// precision is how exactly firstKnown finds the beginning.
const precision = int64(1e9)

// firstKnown returns the first instant from a time on at which the history knows the cluster: to a
// second, unless it is the time itself.
func (p *reading) firstKnown(ctx context.Context, from int64) (int64, *moment, error) {
	m, err := p.at(ctx, from)
	if err == nil || plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		return from, m, err
	}
	low, high := from, p.until-1
	if m, err = p.at(ctx, high); err != nil {
		return 0, nil, err
	}
	for high-low > precision {
		middle := low + (high-low)/2
		switch is, err := p.at(ctx, middle); {
		case err == nil:
			m, high = is, middle
		case plimsoll.CodeOf(err) == plimsoll.CodeNotFound:
			low = middle
		default:
			return 0, nil, err
		}
	}
	return high, m, nil
}

// enter takes over the cluster as it is at the present instant, at the beginning and behind a gap.
func (p *reading) enter(m *moment) {
	p.behind = m.Position
	for i := range m.view.Queues {
		q := &m.view.Queues[i]
		p.queues.set(q.Path, q.Max, q.Guaranteed)
	}
	p.queues.note(p.rel())
	p.enterNodes(m.view.Nodes)
	there := map[string]*fold.Job{}
	for i := range m.view.Jobs {
		j := &m.view.Jobs[i]
		there[j.ID] = j
	}
	for _, id := range sortedKeys(p.jobs) {
		if j, is := p.jobs[id], there[id]; is == nil || !j.uid.IsZero() && !is.UID.IsZero() && j.uid != is.UID {
			p.vanish(j)
		}
	}
	p.enterTasks(m, there)
}

// enterTasks takes over the tasks that are wanted, in the order of the submits of their jobs.
func (p *reading) enterTasks(m *moment, there map[string]*fold.Job) {
	wanted := map[string][]*fold.Task{}
	for i := range m.tasks {
		t := &m.tasks[i]
		wanted[t.Job] = append(wanted[t.Job], t)
	}
	jobs := make([]*fold.Job, 0, len(there))
	for _, id := range sortedKeys(there) {
		jobs = append(jobs, there[id])
	}
	slices.SortStableFunc(jobs, func(a, b *fold.Job) int { return compare(a.Submitted, b.Submitted) })
	for _, is := range jobs {
		j := p.jobs[is.ID]
		if j == nil {
			j = p.newJob(is.ID, is.UID)
			if j.owner, j.queue, j.accepted = is.Owner, is.Queue, true; is.State == plimsoll.AppFailing {
				j.killed = p.rel() + 2 // behind the arrival of its tasks
			}
			p.enterNew(j, wanted[is.ID])
			continue
		}
		p.enterKnown(j, wanted[is.ID])
	}
}

// enterNew takes over the tasks of a job that was not known. Those that run come first.
func (p *reading) enterNew(j *job, tasks []*fold.Task) {
	running := slices.ContainsFunc(tasks, func(t *fold.Task) bool { return t.Allocated })
	first := (*arrival)(nil)
	if running {
		first = j.arrive(p.rel())
	}
	for _, t := range tasks {
		if t.Allocated {
			g := j.groupOf(first, t.Group, t.Resources)
			p.add(g, t.Index).since = p.now
		}
	}
	second := (*arrival)(nil)
	for _, t := range tasks {
		if t.Allocated {
			continue
		}
		g := j.group(t.Group)
		switch {
		case g == nil && second == nil:
			second = j.arrive(p.rel() + 1)
			fallthrough
		case g == nil:
			g = j.groupOf(second, t.Group, t.Resources)
			p.add(g, t.Index)
		case g.of == second && second != nil:
			p.add(g, t.Index)
		default:
			p.add(g, t.Index)
			g.later++
			g.of.scale(p.rel()+1, g)
		}
	}
	if p.gapped {
		p.trace.Counts.InGaps += len(tasks)
		return
	}
	for _, t := range tasks {
		if t.Allocated {
			p.trace.Counts.RanBefore++
		} else {
			p.trace.Counts.WaitedBefore++
		}
	}
}

// enterKnown compares the tasks of a job with those that are wanted behind a gap.
func (p *reading) enterKnown(j *job, tasks []*fold.Task) {
	there := map[place]*fold.Task{}
	for _, t := range tasks {
		there[place{t.Group, t.Index}] = t
	}
	for _, g := range j.groups {
		for _, index := range g.indexes() {
			t := g.task(index)
			is := there[place{g.name, index}]
			delete(there, place{g.name, index})
			if t.done || is != nil && is.Allocated == (t.since != 0) {
				continue // an attempt of then may have been another one
			}
			p.trace.Counts.InGaps++
			switch {
			case is == nil:
				p.lose(j, t)
			case is.Allocated:
				t.since, t.wait = p.now, noWaitIfOpen(t.wait)
			default:
				p.endAttempt(t, plimsoll.ResultFailed)
			}
		}
	}
	for _, t := range tasks {
		if there[place{t.Group, t.Index}] == nil {
			continue
		}
		p.trace.Counts.InGaps++
		is := p.request(j, t.Group, t.Index, t.Resources)
		if is.wait = noWaitIfOpen(is.wait); t.Allocated {
			is.since = p.now
		}
	}
}

// vanish ends a job that is gone behind a gap.
func (p *reading) vanish(j *job) {
	for _, g := range j.groups {
		for _, index := range g.indexes() {
			if t := g.task(index); !t.done {
				p.trace.Counts.InGaps++
				p.lose(j, t)
			}
		}
	}
	delete(p.jobs, j.id)
}

// lose ends a task whose end was in a gap. One that waited takes no room.
func (p *reading) lose(j *job, t *task) {
	if t.since == 0 {
		t.since, t.wait = p.now-1, noWaitIfOpen(t.wait)
	}
	p.endAttempt(t, plimsoll.ResultSucceeded)
	t.done = true
	j.open--
}
