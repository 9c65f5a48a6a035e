package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// idTable gives ids to rows that the tree of queues knows by an id. Free ids are used again.
type idTable[T any] struct {
	rows []*T    // by id; nil: the id is free
	free []int32 // exactly the free ids
}

func (t *idTable[T]) add(v *T) int32 {
	if k := len(t.free); k > 0 {
		id := t.free[k-1]
		t.free, t.rows[id] = t.free[:k-1], v
		return id
	}
	t.rows = append(t.rows, v)
	return int32(len(t.rows) - 1)
}

func (t *idTable[T]) drop(id int32) {
	t.rows[id] = nil
	t.free = append(t.free, id)
}

// GroupOf returns the group of a lane of the tree.
func (s *State) GroupOf(l *queue.Lane) *Group { return s.lanes.rows[l.ID] }

// enterQueue puts a live job into its queue: an account with a lane for each group. The job is not
// admitted yet. prepared, unless nil, holds the prepared requests of the groups.
func (s *State) enterQueue(j *Job, prepared []*placement.Prepared) {
	j.account.ID = s.accounts.add(j)
	s.tree.Enter(&j.account, j.Queue, owner(j.Spec), j.Submitted)
	for i := range j.Groups {
		g := &j.Groups[i]
		var p *placement.Prepared
		if prepared != nil {
			p = prepared[i]
		}
		g.class = s.classFor(g, p)
		g.lane.ID = s.lanes.add(g)
		s.tree.Add(&g.lane, &j.account, g.class.Class, g.Spec.Priority, int32(i))
	}
}

// owner returns whose limits hold for a job.
func owner(spec *plimsoll.JobSpec) queue.Owner {
	return queue.Owner{User: spec.Owner, Groups: spec.OwnerGroups}
}

// leaveQueue removes an ended job from its queue.
func (s *State) leaveQueue(j *Job) {
	s.tree.Leave(&j.account)
	s.accounts.drop(j.account.ID)
	s.scheduleExclusionDrop(j)
	for i := range j.Groups {
		g := &j.Groups[i]
		s.lanes.drop(g.lane.ID)
		s.leaveClass(g.class)
		g.class = nil
	}
}

// admit lets a job's tasks be placed. If one of its queues runs its maximum of jobs, the job is
// parked instead.
func (s *State) admit(j *Job) {
	s.tree.Admit(&j.account)
	s.tellAdmission(j)
}

// readmit admits parked jobs whose queues have room again, as far as the budget goes.
func (s *State) readmit(budget Budget) {
	for s.tree.Readmitting() && !s.Over(budget) {
		if a := s.tree.Readmit(); a != nil {
			s.tellAdmission(s.accounts.rows[a.ID])
		}
	}
}

// tellAdmission sets the cause of waiting of a job's groups after the job was admitted or parked.
func (s *State) tellAdmission(j *Job) {
	for i := range j.Groups {
		if g := &j.Groups[i]; g.lane.Ready() > 0 {
			s.setWait(g, g.firstCause())
		}
	}
}

// firstCause returns the cause of waiting of a group that the scheduler has not tried yet.
func (g *Group) firstCause() plimsoll.WaitCause {
	if at := g.Job.account.Parked(); at != nil {
		return plimsoll.WaitCause{Code: at.Code(), Queue: at.At().Path, UserOrGroup: at.UserOrGroup()}
	}
	return plimsoll.WaitCause{Code: plimsoll.WaitTurn, Queue: g.Job.Queue.Path}
}

// enqueue lets a pending task be placed.
func (s *State) enqueue(g *Group, index int32) {
	g.Tasks[index].queued = true
	g.pending.push(index)
	if first := s.tree.Ready(&g.lane, 1); first || g.Job.account.Parked() != nil {
		s.setWait(g, g.firstCause())
	}
}

// dequeue keeps a task from being placed. Its entry in g.pending becomes stale.
func (s *State) dequeue(g *Group, t *Task) {
	if t.queued {
		s.tree.Ready(&g.lane, -1)
		s.dequeued(g, t)
	}
}

func (s *State) dequeued(g *Group, t *Task) {
	t.queued = false
	ready := int(g.lane.Ready())
	if g.pending.len() > 2*ready+64 {
		g.tidy()
	}
	if ready == 0 {
		s.clearWait(g)
	}
}

// tidy drops the stale entries of pending, and all but the first entry of each task.
func (g *Group) tidy() {
	kept := g.pending.items[:0]
	for _, index := range g.pending.items[g.pending.head:] {
		if t := &g.Tasks[index]; t.queued {
			t.queued = false
			kept = append(kept, index)
		}
	}
	for _, index := range kept {
		g.Tasks[index].queued = true
	}
	g.pending.items, g.pending.head = kept, 0
}

// Next returns the first task of the group that may be placed. The caller has seen that there is
// one.
func (g *Group) Next() Ref {
	for {
		index := *g.pending.front()
		if g.Tasks[index].queued {
			return Ref{g, index}
		}
		g.pending.pop()
	}
}

func (s *State) clearWait(g *Group) {
	if g.Counts.Pending == 0 || g.Job.Killed {
		s.setWait(g, plimsoll.WaitCause{})
	} else {
		s.setWait(g, plimsoll.WaitCause{Code: plimsoll.WaitRetry})
	}
}

func (s *State) setWait(g *Group, cause plimsoll.WaitCause) {
	if g.Wait == cause {
		return
	}
	s.tellQueueFull(g, &cause)
	g.Wait = cause
	s.text(cause.Queue)
	s.text(cause.Resource)
	s.text(cause.UserOrGroup)
	s.markStatus(g.Job, false)
}

// RecordCauses records the causes of waiting that have changed in the tree, as far as the budget
// goes.
func (s *State) RecordCauses(budget Budget) {
	for s.tree.HasNextCause() && !s.Over(budget) {
		if l, cause, ok := s.tree.NextCause(); ok {
			s.setWait(s.GroupOf(l), s.causeOf(s.GroupOf(l), cause))
		}
	}
}

// causeOf returns the record of a cause of the tree.
func (s *State) causeOf(g *Group, c queue.Cause) plimsoll.WaitCause {
	if c.Code == plimsoll.WaitTurn {
		return g.firstCause()
	}
	if c.Quota != nil {
		return plimsoll.WaitCause{
			Code: c.Code, Queue: c.Quota.At().Path, UserOrGroup: c.Quota.UserOrGroup(),
			Resource: s.Names.Name(c.Resource), Asked: g.class.Amounts()[c.Resource],
		}
	}
	cause := plimsoll.WaitCause{Code: c.Code}
	if c.Code == plimsoll.WaitNoResource {
		cause.Resource, cause.Asked = g.class.Lacks, g.Spec.Resources[g.class.Lacks]
	}
	if c.Code == plimsoll.WaitOrder {
		cause.Queue = g.Job.Queue.Path
	}
	return cause
}

// Parked returns the quota whose maximum of running jobs keeps the job from being admitted; nil if
// the job is not parked.
func (j *Job) Parked() *queue.Quota { return j.account.Parked() }

// HeldBackBy returns the hold that keeps the tasks of a group back in a strict leaf, and the group
// that holds; it is nil if there is none.
func (s *State) HeldBackBy(g *Group) (h queue.Hold, by *Group) {
	h, ok := s.tree.HeldBackBy(&g.lane)
	if !ok {
		return h, nil
	}
	return h, s.lanes.rows[h.Lane]
}

// Waits reports whether a pending task waits for the time of its next attempt.
func (t *Task) Waits() bool {
	return t.State == plimsoll.TaskPending && !t.queued && t.NotBefore != 0
}
