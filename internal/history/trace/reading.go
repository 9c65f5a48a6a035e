package trace

import (
	"context"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// reading is a window that is being read.
type reading struct {
	trace  *Trace
	reader history.Reader
	until  int64
	now    int64            // the newest time of all events; it never goes back
	end    history.Position // of the first event that is not read; zero: time alone bounds the window
	behind history.Position // of the next event, unless there is a gap; zero: any that is later than now
	gapped bool             // the state behind a gap is taken over

	jobs   map[string]*job // present lives, by id
	all    []*job
	names  names
	nodes  map[string]*node
	order  []*node // as they were met
	queues queues

	tasks, attempts, states int
	lost                    string // task whose node is lost, by the event before
}

func newReading(t *Trace, r history.Reader, until int64) *reading {
	return &reading{
		trace: t, reader: r, until: until, jobs: map[string]*job{}, names: names{}, nodes: map[string]*node{},
		queues: queues{all: map[string]*limits{}},
	}
}

// rel returns the present instant from the beginning of the window.
func (p *reading) rel() int64 { return p.now - p.trace.From }

// follow reads the events of the window.
func (p *reading) follow(ctx context.Context) error {
	q := history.TimelineQuery{From: p.trace.From + 1}
	if p.end == (history.Position{}) {
		q.Until = p.until
	}
	for {
		page, err := p.reader.Timeline(ctx, q)
		if err != nil {
			return err //nolint:wrapcheck // it names the file
		}
		for i := range page.Rows {
			if err := p.record(ctx, &page.Rows[i]); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == (history.Cursor{}) {
			p.queues.note(p.rel())
			return nil
		}
	}
}

// record takes an event, and the state behind a gap before it.
func (p *reading) record(ctx context.Context, r *history.Record) error {
	same := r.Instance == p.behind.Instance
	switch {
	case r.Instance == p.end.Instance && r.ID >= p.end.Next: // it was written meanwhile
		return nil
	case same && r.ID < p.behind.Next, p.behind.Instance == "" && r.Event.Time <= p.now:
		return nil // it is in the state that was entered
	case p.behind.Instance != "" && (!same || r.ID > p.behind.Next):
		if r.Event.Time < p.now { // it is in that state too, which is of another instance
			return nil
		}
		if err := p.gap(ctx, r); err != nil {
			return err
		}
		if r.Event.Time <= p.now && (r.Instance != p.behind.Instance || r.ID < p.behind.Next) {
			return nil
		}
	}
	p.behind = history.Position{Instance: r.Instance, Next: r.ID + 1}
	if r.Event.Time > p.now {
		p.queues.note(p.rel())
		p.now = r.Event.Time
	}
	p.event(&r.Event)
	return p.bounded()
}

// gap goes on behind lost events.
func (p *reading) gap(ctx context.Context, r *history.Record) error {
	before := p.now
	known, m, err := p.firstKnown(ctx, max(r.Event.Time, p.now))
	if err != nil {
		return err
	}
	p.now, p.gapped = known, true
	p.trace.Counts.Gaps++
	p.trace.Counts.GapTime += duration(known - before)
	p.enter(m)
	return nil
}

// bounded refuses a window that takes too much memory.
func (p *reading) bounded() error {
	for _, b := range []struct {
		what      string
		has, most int
	}{
		{"tasks", p.tasks, MaxTasks},
		{"attempts of tasks", p.attempts, MaxAttempts},
		{"changes of nodes and queues", p.states + p.queues.entries, MaxStates},
	} {
		if b.has > b.most {
			return plimsoll.Errorf(plimsoll.CodeExhausted,
				"the window has more than %d %s; choose a shorter one, by a later beginning or by --until", b.most, b.what)
		}
	}
	return nil
}

// event applies an event. Types that are not needed are skipped.
func (p *reading) event(e *plimsoll.Event) {
	lost := p.lost
	p.lost = ""
	switch e.Type {
	case plimsoll.EventApp:
		p.app(e)
	case plimsoll.EventNode:
		p.node(e, lost)
	case plimsoll.EventQueue:
		p.queue(e)
	}
}

// app applies an event of a job.
func (p *reading) app(e *plimsoll.Event) {
	if history.Begins(e) {
		if j := p.jobs[e.Object]; j != nil {
			p.vanish(j)
		}
		j := p.newJob(strings.Clone(e.Object), plimsoll.UID{})
		if e.Head != nil {
			j.uid, j.owner = e.Head.UID, strings.Clone(e.Head.Owner)
		}
		return
	}
	j := p.jobs[e.Object]
	switch {
	case j == nil:
		p.trace.Counts.Strange++
	case e.Detail == plimsoll.AppReject:
		if len(j.groups) == 0 {
			p.trace.Counts.Refused++
			delete(p.jobs, j.id)
		}
	case e.Change == plimsoll.ChangeSet:
		switch e.Detail {
		case plimsoll.AppAccepted:
			j.accepted = true
		case plimsoll.AppFailing: // one that fails by itself has no task that is wanted
			if j.open > 0 && j.killed == 0 {
				j.killed = max(p.rel(), 1)
			}
		}
	case e.Change == plimsoll.ChangeRemove && e.Detail == plimsoll.DetailNone:
		p.vanish(j)
	default:
		p.task(j, e)
	}
}

// task applies an event of a task.
func (p *reading) task(j *job, e *plimsoll.Event) {
	id, name, index, ok := fold.SplitTask(e.Reference)
	if !ok || id != j.id {
		p.trace.Counts.Strange++
		return
	}
	if e.Detail == plimsoll.AppRequest && e.Change == plimsoll.ChangeAdd {
		p.request(j, strings.Clone(name), index, e.Resources)
		return
	}
	g := j.group(name)
	if g == nil || g.task(index) == nil || g.task(index).done {
		p.trace.Counts.Strange++
		return
	}
	t := g.task(index)
	switch e.Detail {
	case plimsoll.AppAlloc:
		p.allocate(t)
	case plimsoll.AppRequest, plimsoll.RequestCancel, plimsoll.RequestTimeout:
		if e.Detail != plimsoll.AppRequest {
			p.stopped(j, g, index)
		}
		t.done = true
		j.open--
	case plimsoll.AllocCancel, plimsoll.AllocTimeout, plimsoll.AllocPreempt, plimsoll.AllocReplaced,
		plimsoll.AllocNodeRemoved:
		p.release(j, g, index, e)
	}
}

// release applies the end of an attempt.
func (p *reading) release(j *job, g *group, index int32, e *plimsoll.Event) {
	t := g.task(index)
	if t.since == 0 {
		p.trace.Counts.Strange++
		return
	}
	result, _ := plimsoll.ParseTaskResult(e.Message)
	switch {
	case result == plimsoll.ResultKilled:
		p.trace.Counts.Killed++
		p.stopAttempt(t)
		p.stopped(j, g, index)
	case e.Detail == plimsoll.AllocNodeRemoved:
		p.trace.Counts.Interrupted++
		p.lost, t.since = e.Reference, 0
	case result == plimsoll.ResultEvicted: // without its effect that the group avoids the node
		p.endAttempt(t, plimsoll.ResultPreempted)
	default:
		p.endAttempt(t, result)
	}
}

// stopped notes that a task was stopped: its job was killed, or its group got fewer tasks.
func (p *reading) stopped(j *job, g *group, index int32) {
	if j.killed == 0 {
		g.of.scaleTo(p.rel(), g, g.place(index), true)
	}
}

// finish ends the window and makes the workload.
func (p *reading) finish() {
	w := &simulate.Workload{
		Name: "the history from " + clock(p.trace.From) + " to " + clock(p.trace.Until), Recorded: true,
		WaitingAtEnd: map[string]int{},
	}
	p.trace.Workload = w
	p.queues.trace(p.trace)
	for _, n := range p.order {
		w.Nodes = append(w.Nodes, simulate.Node{ID: n.id, Capacity: n.states[0].Capacity, States: n.states})
	}
	for _, j := range p.all {
		p.arrivals(w, j)
	}
	w.Notes = p.trace.notes()
}

// arrivals adds a job to the workload.
func (p *reading) arrivals(w *simulate.Workload, j *job) {
	if len(j.arrivals) == 0 {
		return
	}
	if j.owner == "" {
		p.trace.Counts.NoOwner++
	}
	if !p.queues.leaf(j.queue) {
		p.trace.Counts.NoQueue++
	}
	for i, from := range j.arrivals {
		a := simulate.Arrival{
			At: from.at, Job: j.name, Owner: j.owner, Queue: j.queue, Scales: from.scales, Killed: j.killed,
		}
		if i > 0 {
			a.Job = p.names.free(j.name)
		}
		if a.Killed != 0 {
			a.Killed = max(a.Killed, a.At+1)
		}
		for _, g := range from.groups {
			a.Groups = append(a.Groups, p.taskGroup(w, j, g))
		}
		w.Arrivals = append(w.Arrivals, a)
	}
}

// taskGroup returns a group of the workload. Attempts that go on at the end never end.
func (p *reading) taskGroup(w *simulate.Workload, j *job, g *group) simulate.TaskGroup {
	out := simulate.TaskGroup{
		Name: g.name, Resources: g.resources, Later: g.later, Tasks: make([]simulate.Task, len(g.tasks)),
		Waits: make([]int64, len(g.tasks)),
	}
	for i := range g.tasks {
		t := &g.tasks[i]
		switch {
		case t.since != 0:
			p.trace.Counts.Unfinished++
			p.stopAttempt(t)
		case !t.done:
			p.trace.Counts.Waiting++
			w.WaitingAtEnd[j.queue]++
			p.stopAttempt(t)
		case len(t.attempts) == 0:
			p.stopAttempt(t)
		}
		if t.done && t.wait == waits { // it was stopped before it began
			t.wait = noWait
		}
		out.Tasks[i], out.Waits[i] = t.attempts, t.wait
	}
	return out
}
