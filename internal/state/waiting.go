package state

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

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

// request returns what the tasks of a group ask for.
func request(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) *placement.Request {
	r := &placement.Request{
		Owner: spec.Owner, Job: spec.ID, Group: g.Name, Resources: g.Resources, Constraints: g.Constraints, Preferences: g.Preferences,
	}
	r.Constraints.Class = realRatios(g.Constraints.Class)
	return r
}

// instance returns what a task of a group is to the fleet.
func instance(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) *placement.Instance {
	in := &placement.Instance{Owner: spec.Owner, Job: spec.ID, Labels: spec.Labels, Resources: g.Resources}
	if len(g.Constraints.Spread)+len(g.Preferences.Spread) > 0 {
		in.Group = g.Name
	}
	return in
}

// request returns what the tasks of the group ask for; of one that is refused, what is left without its constraints.
func (g *Group) request() *placement.Request {
	if g.Refused != "" {
		return &placement.Request{Owner: g.Job.Spec.Owner, Resources: g.Spec.Resources}
	}
	r := request(g.Job.Spec, g.Spec)
	list := g.away[max(0, len(g.away)-placement.MaxExclusions):]
	for i := range list {
		r.Except = append(r.Except, placement.Exclusion{Server: list[i].node.ID, Why: g.whyAway(&list[i])})
	}
	return r
}

// whyAway says why the group does not go to a node.
func (g *Group) whyAway(a *away) string {
	return fmt.Sprintf("its task %s was evicted from it, so no task of %s goes there until %s", taskID(g.Job.Spec.ID, g.Spec.Name, a.index),
		g.Spec.Name, time.Unix(0, a.until).UTC().Format(time.RFC3339))
}

// reshape puts a group into the shape for what it asks for now.
func (s *State) reshape(g *Group) {
	h, n := g.Shape, int32(0)
	if h.Prepared == nil { // it never waits again
		return
	}
	if g.Job.admitted {
		n = g.ready
	}
	if g.listed {
		h.groups.items = append(h.groups.items[:h.groups.head], slices.DeleteFunc(h.groups.items[h.groups.head:], func(o *Group) bool { return o == g })...)
		g.listed = false
	}
	changeShape(h, func() { h.ready -= n })
	if h.ready == 0 {
		h.Blocked, h.Reason = plimsoll.WaitNone, ""
		s.dropShape(h)
	}
	g.Shape = s.shapeOf(h.Queue, g)
	s.list(g, n)
}

// key appends what tells the group's request from others.
func (g *Group) key(b []byte) []byte { return append(g.request().AppendKey(b), g.Refused...) }

// refusals returns for each group of a stored job why the chain does not understand it, if it does not: expressions may have had other
// rules when it was taken in.
func (s *State) refusals(spec *plimsoll.JobSpec) []string {
	out := make([]string, len(spec.Groups))
	for i := range spec.Groups {
		p, err := s.cfg.Chain.Prepare(s.Fleet, request(spec, &spec.Groups[i]))
		if err != nil {
			out[i] = fmt.Sprintf("what it asks for is not understood any more, so submit the job anew: groups[%d].%s", i, err)
			continue
		}
		p.Release()
	}
	return out
}

// Prepared returns what the tasks of a group ask for, made ready; the caller calls release when it is done with it.
func (s *State) Prepared(g *Group) (p *placement.Prepared, release func()) {
	if h := g.Shape; h.kept() {
		return h.Prepared, func() {}
	}
	p = s.prepare(g.request())
	return p, p.Release
}

// kept reports whether the shape is one of its leaf, and was not dropped.
func (h *Shape) kept() bool { return h.Prepared != nil && h.Queue.byShape[h.key] == h }

// prepare makes a request ready that prepareGroups has accepted.
func (s *State) prepare(r *placement.Request) *placement.Prepared {
	p, err := s.cfg.Chain.Prepare(s.Fleet, r)
	if err != nil {
		panic(fmt.Sprintf("a request that was checked is refused: %v", err))
	}
	return p
}

// looseShape returns a shape for a group that never waits again.
func (s *State) looseShape(q *Queue, _ *Group) *Shape { return &Shape{Queue: q} }

// shapeOf returns the leaf's shape for what the group asks for, which prepareGroups has accepted.
func (s *State) shapeOf(q *Queue, g *Group) *Shape { return s.shapeFor(q, g, nil) }

// shapeFor is shapeOf with what the group asks for made ready already, unless that is nil. The shape keeps it, or it is released.
func (s *State) shapeFor(q *Queue, g *Group, prepared *placement.Prepared) *Shape {
	s.scratch = g.key(s.scratch[:0])
	h := q.byShape[string(s.scratch)]
	switch {
	case h == nil && prepared == nil:
		prepared = s.prepare(g.request())
	case h != nil && prepared != nil:
		prepared.Release()
	}
	if h == nil {
		h = &Shape{Queue: q, Prepared: prepared, Refused: g.Refused, key: string(s.scratch), place: len(q.shapes)}
		q.byShape[h.key] = h
		q.shapes = append(q.shapes, h)
	}
	return h
}

// dropShape forgets a shape that nothing waits in.
func (s *State) dropShape(h *Shape) {
	q := h.Queue
	if h.ready > 0 || h.Prepared == nil || q.byShape[h.key] != h {
		return
	}
	delete(q.byShape, h.key)
	h.Prepared.Release()
	last := len(q.shapes) - 1
	q.shapes[h.place] = q.shapes[last]
	q.shapes[h.place].place = h.place
	q.shapes[last] = nil
	q.shapes = q.shapes[:last]
}

// changeShape changes a shape, and keeps the open shapes of its leaf and their counts up the tree.
func changeShape(h *Shape, change func()) {
	was := h.open()
	change()
	is := h.open()
	if was == is {
		return
	}
	n := int32(1)
	if is {
		h.front = *h.groups.front()
		heap.Push(&h.Queue.open, h)
	} else {
		n = -1
		heap.Remove(&h.Queue.open, h.rank)
		h.front = nil
	}
	for q := h.Queue; q != nil; q = q.Parent {
		q.Open += n
	}
}

// shapeHeap is a heap (container/heap) of open shapes, the one with the first front on top.
type shapeHeap []*Shape

// Len is part of container/heap.
func (a shapeHeap) Len() int { return len(a) }

// Less is part of container/heap.
func (a shapeHeap) Less(i, j int) bool { return before(a[i].front, a[j].front) }

// Swap is part of container/heap.
func (a shapeHeap) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].rank, a[j].rank = i, j
}

// Push is part of container/heap.
func (a *shapeHeap) Push(h any) {
	shape := h.(*Shape) // container/heap hands over what it was given
	shape.rank = len(*a)
	*a = append(*a, shape)
}

// Pop is part of container/heap.
func (a *shapeHeap) Pop() any {
	last := len(*a) - 1
	h := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return h
}

// enqueue makes a pending task one that may be placed.
func (s *State) enqueue(g *Group, index int32) {
	t := &g.Tasks[index]
	t.queued = true
	g.pending.push(index)
	g.ready++
	switch {
	case g.Job.admitted:
		s.list(g, 1)
	case g.Job.parked:
		s.setWait(g, plimsoll.WaitQueueMax, ParkedReason(g.Job.Queue))
	}
}

// list counts n more tasks of the group in its shape.
func (s *State) list(g *Group, n int32) {
	if n == 0 {
		return
	}
	h := g.Shape
	if h.ready == 0 && h.Queue.byShape[h.key] != h { // it was dropped while nothing waited in it
		h = s.shapeOf(h.Queue, g)
		g.Shape, g.listed = h, false
	}
	if !g.listed {
		g.listed = true
		h.groups.insert(g, before)
	}
	changeShape(h, func() { h.ready += n })
	if h.open() && before(g, h.front) {
		h.front = g
		heap.Fix(&h.Queue.open, h.rank)
	}
	if h.Blocked != plimsoll.WaitNone {
		s.setWait(g, h.Blocked, h.Reason)
		return
	}
	if g.WaitCode != plimsoll.WaitTurn {
		s.setWait(g, plimsoll.WaitTurn, "waits for its turn in "+h.Queue.Path)
	}
	h.untold = true
}

// dequeue takes a task out of those that may be placed. Its entry in g.pending becomes stale.
func (s *State) dequeue(g *Group, t *Task) {
	if !t.queued {
		return
	}
	t.queued = false
	g.ready--
	if g.pending.len() > 2*int(g.ready)+64 {
		g.tidy()
	}
	if h := g.Shape; g.Job.admitted {
		changeShape(h, func() { h.ready-- })
		if h.ready == 0 {
			h.Blocked, h.Reason = plimsoll.WaitNone, ""
		}
	}
	if g.ready == 0 {
		s.clearWait(g)
	}
}

// tidy drops the stale entries of pending, and all but the first of a task that stands in it twice.
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

func (s *State) clearWait(g *Group) {
	if g.Counts.Pending == 0 || g.Job.Killed {
		s.setWait(g, plimsoll.WaitNone, "")
	} else {
		s.setWait(g, plimsoll.WaitRetry, "tasks that failed wait for their next attempt")
	}
}

func (s *State) setWait(g *Group, code plimsoll.WaitCode, reason string) {
	reason = cutTo(reason, maxWaitReason)
	if g.WaitCode == code && g.WaitReason == reason {
		return
	}
	g.WaitCode, g.WaitReason = code, s.text(reason)
	s.markStatus(g.Job, false)
}

// Head returns the open shape of a leaf whose first group was submitted first, or nil.
func (q *Queue) Head() *Shape {
	for len(q.open) > 0 {
		h := q.open[0]
		g := h.Group()
		if g == h.front {
			return h
		}
		h.front = g
		heap.Fix(&q.open, 0)
	}
	return nil
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

// Block says that a shape cannot be placed now, and why; by is the queue that forbids it, if one does. It is left alone until
// Reopen finds a cause to try it again.
func (s *State) Block(h *Shape, code plimsoll.WaitCode, by *Queue, reason string) {
	g := h.Group()
	reason = cutTo(reason, maxWaitReason)
	changeShape(h, func() { h.Blocked, h.Reason = code, reason })
	h.freed = pathFreed(h.Queue)
	h.nodes, h.lessened, h.came = s.freed.end(), s.lessened, s.came.end()
	h.relations, h.distant = h.Prepared.Relations(), h.Prepared.Distant()
	if !h.Queue.isShape {
		h.Queue.isShape = true
		s.shaped = append(s.shaped, h.Queue)
	}
	s.setWait(g, code, reason)
	if code != h.told || by != h.toldBy || s.configured != h.toldIn {
		h.told, h.toldBy, h.toldIn, h.untold = code, by, s.configured, true
	}
	if h.untold && !h.isTell {
		h.isTell = true
		s.telling = append(s.telling, h)
	}
}

// Tell gives the groups of blocked shapes the reason of their shape, as far as the budget goes. That is done when the cause is another
// one than they were told, not when only the use of it is, so that many groups can wait at no cost.
func (s *State) Tell(budget Budget) { s.telling = work(s.telling, budget, s.tellGroups) }

func (s *State) tellGroups(h *Shape, budget Budget) bool {
	if h.Blocked != plimsoll.WaitNone {
		for _, g := range h.groups.items[h.groups.head:] {
			if g.ready == 0 || !g.Job.admitted || g.WaitCode == h.Blocked && g.WaitReason == h.Reason {
				continue
			}
			if s.Over(budget) {
				return false
			}
			s.setWait(g, h.Blocked, h.Reason)
		}
		h.untold = false
	}
	h.isTell = false
	return true
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
func (s *State) Reopen(placer *placement.Placer) {
	kept := s.shaped[:0]
	for _, q := range s.shaped {
		blocked := false
		for _, h := range q.shapes {
			if h.Blocked != plimsoll.WaitNone && s.hasCause(h, placer) {
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

func (s *State) hasCause(h *Shape, placer *placement.Placer) bool {
	switch {
	case h.Refused != "":
		return false
	case h.Blocked == plimsoll.WaitQueueMax:
		return pathFreed(h.Queue) != h.freed
	case (h.Blocked == plimsoll.WaitNoNodes) != (s.eligible == 0):
		return true // the reason is another one now
	case h.Blocked != plimsoll.WaitNoNodes && h.lessened != s.lessened:
		return true // it may be too large now, or nothing may be for it
	case h.Prepared.Distant() != h.distant:
		return true // its spread is another one, or its volumes are elsewhere
	}
	slots, ok := s.freed.since(h.nodes)
	h.nodes = s.freed.end()
	if !ok || s.cameNear(h, placer) || placer.KeepsAny(h.Prepared, slots, s.Seconds()) {
		return true
	}
	if h.Blocked == plimsoll.WaitNoNode {
		return false
	}
	for _, slot := range slots {
		eligible, fitsEmpty := placer.Suits(h.Prepared, slot, s.Seconds())
		if eligible && h.Blocked == plimsoll.WaitNotEligible || fitsEmpty && h.Blocked == plimsoll.WaitTooLarge {
			return true
		}
	}
	return false
}

// cameNear reports whether a node takes a shape to which something has come that it is to be near to. What it is to be far from and
// has gone has freed room.
func (s *State) cameNear(h *Shape, placer *placement.Placer) bool {
	slots, ok := s.came.since(h.came)
	h.came = s.came.end()
	relations := h.Prepared.Relations()
	if relations == h.relations {
		return false
	}
	h.relations = relations
	return !ok || placer.KeepsAny(h.Prepared, slots, s.Seconds())
}

// admit lets a job's tasks be placed if its queues have not reached their number of jobs, and parks it otherwise.
func (s *State) admit(j *Job) {
	if fullQueue(j.Queue) != nil {
		s.park(j)
	} else {
		s.letIn(j)
	}
}

func (s *State) letIn(j *Job) {
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

// ParkedReason says why the jobs that are parked in a leaf wait.
func ParkedReason(leaf *Queue) string {
	full := fullQueue(leaf)
	if full == nil {
		return "waits to be let into " + leaf.Path
	}
	return fmt.Sprintf("%s runs as many jobs as it may: %d of %d", full.Path, full.Admitted, full.MaxJobs)
}

func (s *State) park(j *Job) {
	reason := ParkedReason(j.Queue)
	for i := range j.Groups {
		if j.Groups[i].ready > 0 {
			s.setWait(&j.Groups[i], plimsoll.WaitQueueMax, reason)
		}
	}
	j.parked = true
	q := j.Queue
	q.parked.insert(j, func(a, b *Job) bool { return a.Submitted < b.Submitted })
	if !q.isPark {
		q.isPark = true
		s.parkedIn = append(s.parkedIn, q)
	}
}

// tellParked gives parked jobs the reason that holds under new limits.
func (s *State) tellParked() {
	for _, q := range s.parkedIn {
		reason := ParkedReason(q)
		for _, j := range q.parked.items[q.parked.head:] {
			for i := range j.Groups {
				if g := &j.Groups[i]; j.parked && g.ready > 0 {
					s.setWait(g, plimsoll.WaitQueueMax, reason)
				}
			}
		}
	}
}

// unpark lets parked jobs in, each leaf in the order of submission, for as long as there is room.
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
				s.letIn(j)
			}
		}
		if q.isPark = q.parked.len() > 0; q.isPark {
			kept = append(kept, q)
		}
	}
	clear(s.parkedIn[len(kept):])
	s.parkedIn = kept
}

// release takes an ended job out of the counts and lists of its queues.
func (s *State) release(j *Job) {
	if j.parked {
		j.parked = false
		j.Queue.parked.leave(func(o *Job) bool { return o.parked })
	}
	if j.admitted {
		j.admitted = false
		for q := j.Queue; q != nil; q = q.Parent {
			q.Admitted--
		}
	}
	s.forgiveLater(j)
	for i := range j.Groups {
		g := &j.Groups[i]
		if g.listed {
			g.Shape.groups.leave(func(o *Group) bool { return o.Job.admitted })
		}
		s.dropShape(g.Shape)
	}
	s.unpark()
}

// Parked reports whether the job waits until its queues may run more jobs.
func (j *Job) Parked() bool { return j.parked }

// Waits reports whether a pending task waits for the time of its next attempt.
func (t *Task) Waits() bool {
	return t.State == plimsoll.TaskPending && !t.queued && t.NotBefore != 0
}
