package fold

import (
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// Snapshot is made of lists of the cluster: of all queues, then nodes, jobs, and the tasks that
// have not ended. They are read after the id of the event that is applied first, and need not show
// one instant. Make one with NewSnapshot. It is used once.
type Snapshot struct{ fold *Fold }

// NewSnapshot returns the snapshot of an empty cluster.
func NewSnapshot() *Snapshot { return &Snapshot{New()} }

// AddQueue adds a queue.
func (s *Snapshot) AddQueue(st *plimsoll.QueueStatus) {
	f := s.fold
	f.addQueue(st.Path)
	q := f.queues[st.Path]
	q.parent, q.draining = !st.Leaf, st.Draining
	q.max, q.guaranteed = f.limitOf(st.Max), f.limitOf(st.Guaranteed)
}

// AddNode adds a node.
func (s *Snapshot) AddNode(is *plimsoll.Node) {
	f := s.fold
	f.addNode(is.ID, is.Capacity)
	n := f.nodes[is.ID]
	n.ready, n.cordoned, n.closed = is.Ready, is.Mode != plimsoll.NodeActive, is.Gate.Closed
	if is.OccupiedAt != 0 {
		n.occupied = f.amountsOf(is.Occupied.Resources())
	}
}

// details are the details that tell the states of jobs. A job that was refused was not taken in.
var details = [plimsoll.NumJobStates]plimsoll.ChangeDetail{
	plimsoll.JobNew: plimsoll.AppNew, plimsoll.JobAccepted: plimsoll.AppAccepted,
	plimsoll.JobStarting: plimsoll.AppStarting, plimsoll.JobRunning: plimsoll.AppRunning,
	plimsoll.JobCompleting: plimsoll.AppCompleting, plimsoll.JobCompleted: plimsoll.AppCompleted,
	plimsoll.JobFailing: plimsoll.AppFailing, plimsoll.JobFailed: plimsoll.AppFailed,
	plimsoll.JobResuming: plimsoll.AppResuming, plimsoll.JobExpired: plimsoll.AppExpired,
}

// AddJob adds a job. Its specification has the labels, and the resources of its tasks.
func (s *Snapshot) AddJob(is *plimsoll.Job) {
	f, st := s.fold, &is.Status
	if !st.State.Known() || details[st.State] == 0 {
		return
	}
	if old := f.jobs[st.ID]; old != nil {
		f.remove(old)
	}
	j := f.newJob(st.ID, 0, st.Submitted)
	f.learn(j, &history.Job{
		UID: st.UID, Owner: st.Owner, Queue: st.Queue, Labels: is.Spec.Labels, Submitted: st.Submitted,
	})
	j.State, j.Ended, j.queued, j.early = details[st.State], st.Finished, !st.State.Ended(), true
	for i := range is.Spec.Groups {
		f.groupOf(j, is.Spec.Groups[i].Name, is.Spec.Groups[i].Resources)
	}
}

// AddTask adds a task. One that has ended changes nothing, and neither does one of a job that is
// not in the snapshot: events will tell it.
func (s *Snapshot) AddTask(is *plimsoll.Task) {
	f, j := s.fold, s.fold.jobs[is.Job]
	if is.State == plimsoll.TaskFinished || j == nil || is.Index < 0 || is.Index >= plimsoll.MaxTasksPerJob {
		return
	}
	i := slices.IndexFunc(j.groups, func(g *group) bool { return g.name == is.Group })
	if i < 0 {
		return
	}
	t, known := j.groups[i].tasks[is.Index]
	t.leaveNode()
	t = task{flags: listed}
	if is.Attempt > 0 {
		t.flags |= placed
	} else if is.State == plimsoll.TaskPending && is.Result == plimsoll.ResultNone {
		t.requested = is.Created
	}
	if is.State.OnNode() {
		t.flags |= allocated
		t.since = is.Bound
		if t.node = f.nodes[is.Node]; t.node != nil {
			t.node.tasks++
		}
	}
	f.put(place{j.groups[i], is.Index}, t, known)
}

// Begin returns a fold that begins with a snapshot. at is the time of the newest event before the
// first one that will be applied; if that is not known, of the first one itself, in Unix
// nanoseconds. Nothing is known of the time before.
func Begin(s *Snapshot, at int64) *Fold {
	f := New()
	f.Gap(s, at)
	return f
}

// Gap goes on behind lost events with a snapshot. at is the end of the gap, as in Begin. A job that
// is in both goes on with its life. One that is gone ends at the end of the gap, with the state
// that was known last. The next calls of Apply tell what has changed.
func (f *Fold) Gap(s *Snapshot, at int64) {
	f.clock = max(f.clock, at)
	f.beginBatch()
	f.batch.spent = MaxResultBytes // so all usage is owed
	f.settleAhead()
	for g := f.open.first; g != nil; g = g.next {
		f.count(g)
	}
	f.batch.spent = 0
	f.since, f.open = f.clock, openList{}
	before, next := f.jobs, s.fold
	f.jobs, f.nodes, f.queues = map[string]*job{}, next.nodes, next.queues
	for _, id := range slices.Sorted(maps.Keys(next.jobs)) {
		f.join(next.jobs[id], before[id])
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if j := before[id]; f.jobs[id] != j {
			f.vanish(j)
		}
	}
	f.bytes = next.bytes
	s.fold = New()
}

// vanish ends a life of which nothing more is known.
func (f *Fold) vanish(j *job) {
	if j.gone, j.queued, j.groups, j.tasks = true, false, nil, 0; j.Ended == 0 {
		j.Ended = f.clock
	}
	f.owe(j)
}

// join takes over a job of a list. old has the same id; nil: there is none.
func (f *Fold) join(j, old *job) {
	if old == nil || !old.same(j) {
		f.lives++
		j.Life = f.lives
		f.owe(j)
	} else {
		j = old.becomes(f, j)
	}
	f.jobs[j.ID] = j
	for _, g := range j.groups {
		g.job, g.counted = j, f.clock
		for _, index := range sortedKeys(g.tasks) {
			t := g.tasks[index]
			switch {
			case !t.is(allocated):
			case t.since > f.since:
				t.flags |= ahead
				g.tasks[index] = t
				f.ahead = append(f.ahead, place{g, index})
				f.aheadUntil = max(f.aheadUntil, t.since)
			default:
				g.running++
			}
		}
		if g.running > 0 {
			f.open.add(g)
		}
	}
}

// sameSubmit bounds the distance between the times of a submit and of its event. All submits of one
// turn have times of their own, which are later by a nanosecond each.
const sameSubmit = 1_000_000

// same reports whether a job of a list is this life.
func (j *job) same(is *job) bool {
	if !j.UID.IsZero() && !is.UID.IsZero() {
		return j.UID == is.UID
	}
	return is.Submitted >= j.Submitted-sameSubmit && is.Submitted <= j.Submitted+sameSubmit
}

// becomes gives a life what a list says of it. A task that has waited since before the gap goes on
// waiting.
func (j *job) becomes(f *Fold, is *job) *job {
	for _, g := range is.groups {
		i := slices.IndexFunc(j.groups, func(old *group) bool { return old.name == g.name })
		if i < 0 {
			continue
		}
		for _, index := range sortedKeys(g.tasks) {
			t := g.tasks[index]
			if was := j.groups[i].tasks[index]; !t.is(placed) && t.requested != 0 && was.requested > t.requested {
				t.requested = was.requested
				g.tasks[index] = t
			}
		}
	}
	life, owed, changed := j.Life, j.owed, j.State != is.State || j.Ended != is.Ended || !j.headed
	*j = *is
	if j.Life, j.owed = life, owed; changed {
		f.owe(j)
	}
	return j
}

// settleAhead counts the allocations that a list has shown and no event has told. A leader whose
// clock was wrong has made them.
func (f *Fold) settleAhead() {
	for _, p := range f.ahead {
		t := p.group.tasks[p.index]
		if !t.is(ahead) {
			continue
		}
		t.flags &^= ahead
		p.group.tasks[p.index] = t
		f.use(span{p.group.job, p.group.amounts, 1, max(min(t.since, f.clock), f.since), f.clock})
		f.run(p.group, 1)
	}
	f.ahead, f.aheadUntil = nil, 0
}
