package state

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// before orders groups as they stand in the queue: by their job's submission, then by their place in the job.
func before(a, b *Group) bool {
	if a.Job != b.Job {
		return a.Job.Submitted < b.Job.Submitted
	}
	return a.Index < b.Index
}

// shapeOf returns the leaf's shape for what the group asks for, and counts the group as its user.
func (s *State) shapeOf(q *Queue, spec *plimsoll.GroupSpec) *Shape {
	amounts, _ := s.Names.Amounts(spec.Resources)
	h := q.byShape[amounts]
	if h == nil {
		h = &Shape{Queue: q, Request: placement.NewRequest(amounts)}
		q.byShape[amounts] = h
		q.shapes = append(q.shapes, h)
	}
	return h
}

// dropShape forgets a shape that nothing waits in.
func (s *State) dropShape(h *Shape) {
	q := h.Queue
	if h.ready > 0 || q.byShape[h.Request.Amounts] != h {
		return
	}
	delete(q.byShape, h.Request.Amounts)
	q.shapes = slices.DeleteFunc(q.shapes, func(o *Shape) bool { return o == h })
	q.head = nil
}

// changeShape changes a shape and keeps the counts of open shapes up the tree.
func changeShape(h *Shape, change func()) {
	was := h.open()
	change()
	is := h.open()
	if was != is {
		n := int32(1)
		if was {
			n = -1
		}
		for q := h.Queue; q != nil; q = q.Parent {
			q.Open += n
		}
	}
	h.Queue.head = nil
}

// enqueue makes a pending task one that may be placed.
func (s *State) enqueue(g *Group, index int32) {
	t := &g.Tasks[index]
	t.queued = true
	g.pending.push(index)
	g.ready++
	if g.Job.admitted {
		s.list(g, 1)
	}
}

// list counts n more tasks of the group in its shape.
func (s *State) list(g *Group, n int32) {
	if n == 0 {
		return
	}
	h := g.Shape
	if h.ready == 0 && h.Queue.byShape[h.Request.Amounts] != h { // it was dropped while nothing waited in it
		h = s.shapeOf(h.Queue, g.Spec)
		g.Shape, g.listed = h, false
	}
	changeShape(h, func() {
		h.ready += n
		if !g.listed {
			g.listed = true
			h.groups.insert(g, before)
		}
	})
	if h.Blocked != plimsoll.WaitNone {
		s.setWait(g, h.Blocked, h.Reason)
	} else if g.WaitCode == plimsoll.WaitNone || g.WaitCode == plimsoll.WaitRetry {
		s.setWait(g, plimsoll.WaitTurn, "waits for its turn in "+h.Queue.Path)
	}
}

// dequeue takes a task out of those that may be placed. Its entry in g.pending becomes stale.
func (s *State) dequeue(g *Group, t *Task) {
	if !t.queued {
		return
	}
	t.queued = false
	g.ready--
	if g.Job.admitted {
		changeShape(g.Shape, func() { g.Shape.ready-- })
		if h := g.Shape; h.ready == 0 && h.Blocked != plimsoll.WaitNone {
			h.Blocked, h.Reason = plimsoll.WaitNone, ""
		}
	}
	if g.ready == 0 {
		s.clearWait(g)
	}
}

func (s *State) clearWait(g *Group) {
	if g.Counts.Pending == 0 {
		s.setWait(g, plimsoll.WaitNone, "")
	} else {
		s.setWait(g, plimsoll.WaitRetry, "tasks that failed wait for their next attempt")
	}
}

func (s *State) setWait(g *Group, code plimsoll.WaitCode, reason string) {
	if g.WaitCode == code && code != plimsoll.WaitNoNode {
		return
	}
	if g.WaitCode == code && g.WaitReason == reason {
		return
	}
	g.WaitCode, g.WaitReason = code, reason
	s.markStatus(g.Job, false)
}

// Head returns the open shape of a leaf whose first group was submitted first, or nil.
func (q *Queue) Head() *Shape {
	if q.head != nil {
		return q.head
	}
	var best *Shape
	for _, h := range q.shapes {
		if !h.open() {
			continue
		}
		if best == nil || before(h.Group(), best.Group()) {
			best = h
		}
	}
	q.head = best
	return best
}

// Group returns the first group of an open shape.
func (h *Shape) Group() *Group {
	for {
		g := *h.groups.front()
		if g.ready > 0 && g.Job.admitted {
			return g
		}
		h.groups.pop()
		g.listed = false
	}
}

// Next returns the first task of the group that may be placed. The group is one that Group returned.
func (g *Group) Next() Ref {
	for {
		index := *g.pending.front()
		if g.Tasks[index].queued {
			return Ref{g, index}
		}
		g.pending.pop()
	}
}

// Block says that a shape cannot be placed now, and why. It is left alone until Reopen finds a cause to try it again.
func (s *State) Block(h *Shape, code plimsoll.WaitCode, reason string) {
	g := h.Group()
	changeShape(h, func() { h.Blocked, h.Reason = code, reason })
	h.freed = pathFreed(h.Queue)
	h.nodes = s.freed.end()
	if !h.Queue.isShape {
		h.Queue.isShape = true
		s.shaped = append(s.shaped, h.Queue)
	}
	s.setWait(g, code, reason)
}

func pathFreed(q *Queue) uint64 {
	sum := uint64(0)
	for ; q != nil; q = q.Parent {
		sum += q.Freed
	}
	return sum
}

// Reopen unblocks the shapes for which something has changed: the queues above have shrunk, or a node that has freed room
// since takes them. It looks only at those nodes.
func (s *State) Reopen(chain *placement.Chain) {
	kept := s.shaped[:0]
	for _, q := range s.shaped {
		blocked := false
		for _, h := range q.shapes {
			if h.Blocked != plimsoll.WaitNone && s.hasCause(h, chain) {
				changeShape(h, func() { h.Blocked, h.Reason = plimsoll.WaitNone, "" })
			}
			blocked = blocked || h.Blocked != plimsoll.WaitNone
		}
		if q.isShape = blocked; blocked {
			kept = append(kept, q)
		}
	}
	clear(s.shaped[len(kept):])
	s.shaped = kept
}

func (s *State) hasCause(h *Shape, chain *placement.Chain) bool {
	if h.Blocked == plimsoll.WaitQueueMax {
		return pathFreed(h.Queue) != h.freed
	}
	slots, ok := s.freed.since(h.nodes)
	h.nodes = s.freed.end()
	if !ok {
		return true
	}
	for _, slot := range slots {
		if int(slot) < len(s.Servers) && s.Servers[slot].Present && chain.Keeps(h.Request, &s.Servers[slot]) {
			return true
		}
	}
	return false
}

// admit lets a job's tasks be placed if its queues have not reached their number of jobs, and parks it otherwise.
func (s *State) admit(j *Job) {
	if full := fullQueue(j.Queue); full != nil {
		s.park(j, full)
		return
	}
	j.admitted, j.parked = true, false
	for q := j.Queue; q != nil; q = q.Parent {
		q.Admitted++
	}
	for i := range j.Groups {
		s.list(&j.Groups[i], j.Groups[i].ready)
	}
}

func fullQueue(q *Queue) *Queue {
	for ; q != nil; q = q.Parent {
		if q.MaxJobs > 0 && q.Admitted >= q.MaxJobs {
			return q
		}
	}
	return nil
}

func (s *State) park(j *Job, full *Queue) {
	reason := fmt.Sprintf("%s runs its maximum of %d jobs", full.Path, full.MaxJobs)
	for i := range j.Groups {
		if j.Groups[i].ready > 0 {
			s.setWait(&j.Groups[i], plimsoll.WaitQueueMax, reason)
		}
	}
	if j.parked {
		return
	}
	j.parked = true
	q := j.Queue
	q.parked.insert(j, func(a, b *Job) bool { return a.Submitted < b.Submitted })
	if !q.isPark {
		q.isPark = true
		s.parkedIn = append(s.parkedIn, q)
	}
}

// unpark admits parked jobs, each leaf in the order of submission, for as long as there is room.
func (s *State) unpark() {
	kept := s.parkedIn[:0]
	for _, q := range s.parkedIn {
		for q.parked.len() > 0 {
			j := *q.parked.front()
			if j.parked && fullQueue(q) != nil {
				break
			}
			q.parked.pop()
			if j.parked {
				s.admit(j)
			}
		}
		if q.isPark = q.parked.len() > 0; q.isPark {
			kept = append(kept, q)
		}
	}
	clear(s.parkedIn[len(kept):])
	s.parkedIn = kept
}

// release takes an ended job out of the counts of its queues.
func (s *State) release(j *Job) {
	j.parked = false
	if j.admitted {
		j.admitted = false
		for q := j.Queue; q != nil; q = q.Parent {
			q.Admitted--
		}
	}
	for i := range j.Groups {
		s.dropShape(j.Groups[i].Shape)
	}
	s.unpark()
}

// Parked reports whether the job waits until its queues may run more jobs.
func (j *Job) Parked() bool { return j.parked }

// Waits reports whether a pending task waits for the time of its next attempt.
func (t *Task) Waits() bool {
	return t.State == plimsoll.TaskPending && !t.queued && t.NotBefore != 0
}
