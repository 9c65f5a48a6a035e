package state

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Queue is a queue's row.
type Queue struct {
	Path          string
	Name          string
	Parent        *Queue
	Children      []*Queue // by name
	Leaf          bool
	Draining      bool
	Guaranteed    placement.Amounts
	GuaranteedSet uint32
	Max           placement.Amounts
	MaxSet        uint32
	MaxJobs       int32

	Allocated placement.Amounts // Invariant: the sum over the tasks on nodes below it
	Pending   placement.Amounts // Invariant: the sum over the pending tasks below it
	Jobs      int32             // that have not ended
	Admitted  int32             // that have not ended and may be placed
	Running   int32             // tasks on nodes
	Waiting   int32             // pending tasks

	Open  int32  // shapes below it that have something to place and are not blocked
	Freed uint64 // raised when it shrinks or its limits change

	shapes  []*Shape // of a leaf, in any order that follows from what happened
	byShape map[string]*Shape
	open    shapeHeap // the open ones
	parked  fifo[*Job]
	isShape bool // it stands in State.shaped
	isPark  bool // it stands in State.parkedIn
	dirty   bool
	config  bool // it stands in the configuration
}

// Shape is the pending groups of a leaf that ask for the same, in the order of submission.
type Shape struct {
	Queue    *Queue
	Prepared *placement.Prepared // nil: its groups never wait again
	Refused  string              // as that of its groups
	Blocked  plimsoll.WaitCode   // WaitNone: it may be tried
	Reason   string

	key       string // in Queue.byShape
	relations uint64 // blocked for want of a node: Prepared.Relations that was seen
	distant   uint64 // the same: Prepared.Distant
	came      uint64 // the same: the end of the log of bindings

	groups fifo[*Group] // groups without ready tasks are stale
	ready  int32        // tasks that may be placed
	place  int          // in Queue.shapes
	rank   int          // in Queue.open, while it is open
	front  *Group       // while it is open. Invariant: no group with ready tasks stands before it

	freed    uint64 // blocked by a queue: the sum of Freed over its path that was seen
	nodes    uint64 // blocked for want of a node: the end of the free log that was seen
	lessened uint64 // the same: State.lessened that was seen

	told   plimsoll.WaitCode // the cause that its groups were told
	toldBy *Queue            // and the queue that it was about
	toldIn uint64            // and under which configuration
	untold bool              // some groups were not
	isTell bool              // it stands in State.telling
}

func (h *Shape) open() bool { return h.ready > 0 && h.Blocked == plimsoll.WaitNone }

func (s *State) buildTree(c plimsoll.QueueConfig) {
	s.Root = s.addQueue(nil, &c)
}

func (s *State) addQueue(parent *Queue, c *plimsoll.QueueConfig) *Queue {
	q := &Queue{Name: c.Name, Path: c.Name, Parent: parent, config: !c.Draining, Draining: c.Draining}
	if parent != nil {
		q.Path = parent.Path + "." + c.Name
		i, _ := slices.BinarySearchFunc(parent.Children, q, byName)
		parent.Children = slices.Insert(parent.Children, i, q)
	}
	s.queues[q.Path] = q
	s.setLimits(q, c)
	q.Leaf = len(c.Queues) == 0 && !c.Parent
	if q.Leaf {
		q.byShape = map[string]*Shape{}
	}
	s.markQueue(q)
	for i := range c.Queues {
		s.addQueue(q, &c.Queues[i])
	}
	return q
}

func byName(a, b *Queue) int { return strings.Compare(a.Name, b.Name) }

func (s *State) setLimits(q *Queue, c *plimsoll.QueueConfig) {
	q.Guaranteed, q.GuaranteedSet = s.Names.Amounts(c.Guaranteed)
	q.Max, q.MaxSet = s.Names.Amounts(c.Max)
	q.MaxJobs = c.MaxJobs
	q.Freed++
}

// QueueConfig returns the tree as it is stored: the configured queues, and those that drain.
func (s *State) QueueConfig() plimsoll.QueueConfig { return s.configOf(s.Root) }

func (s *State) configOf(q *Queue) plimsoll.QueueConfig {
	c := s.ownConfig(q)
	for _, child := range q.Children {
		c.Queues = append(c.Queues, s.configOf(child))
	}
	return c
}

// ownConfig returns a queue as it is stored, without those below it.
func (s *State) ownConfig(q *Queue) plimsoll.QueueConfig {
	c := plimsoll.QueueConfig{Name: q.Name, Parent: !q.Leaf, MaxJobs: q.MaxJobs, Draining: q.Draining}
	if q.GuaranteedSet != 0 {
		c.Guaranteed = s.Names.Masked(&q.Guaranteed, q.GuaranteedSet)
	}
	if q.MaxSet != 0 {
		c.Max = s.Names.Masked(&q.Max, q.MaxSet)
	}
	return c
}

// SetQueueConfig replaces the configured tree. A queue that is no longer there takes no new jobs and goes when it is empty.
// A leaf with jobs cannot become a parent.
func (s *State) SetQueueConfig(c *plimsoll.QueueConfig) error {
	wanted := withoutDraining(c)
	if err := wanted.Validate(); err != nil {
		return err
	}
	if err := s.checkTree(s.Root, &wanted); err != nil {
		return err
	}
	if err := checkTreeNames(s.Names, &wanted, wanted.Name, plimsoll.Resources{}); err != nil {
		return err
	}
	bytes, err := s.checkTreeBytes(&wanted)
	if err != nil {
		return err
	}
	s.countQueueConfig(bytes)
	s.applyTree(s.Root, &wanted)
	s.configured++
	s.unpark()
	s.tellParked()
	return nil
}

// checkTreeNames reports whether all names of resources in a tree, and those in all, are known or can be taken in together.
func checkTreeNames(names *placement.Names, c *plimsoll.QueueConfig, path string, all plimsoll.Resources) error {
	for _, r := range []plimsoll.Resources{c.Guaranteed, c.Max} {
		for _, name := range r.Names() {
			all[name] = 0
		}
	}
	if err := names.Check(path+".resources", all); err != nil {
		return err
	}
	for i := range c.Queues {
		if err := checkTreeNames(names, &c.Queues[i], path+"."+c.Queues[i].Name, all); err != nil {
			return err
		}
	}
	return nil
}

func withoutDraining(c *plimsoll.QueueConfig) plimsoll.QueueConfig {
	wanted := *c
	wanted.Queues = nil
	for i := range c.Queues {
		if !c.Queues[i].Draining {
			wanted.Queues = append(wanted.Queues, withoutDraining(&c.Queues[i]))
		}
	}
	return wanted
}

func (s *State) checkTree(q *Queue, c *plimsoll.QueueConfig) error {
	becomesParent := len(c.Queues) > 0 || c.Parent
	if q.Leaf && becomesParent && q.Jobs > 0 {
		return plimsoll.Errorf(plimsoll.CodeConflict, "%s holds %d jobs and cannot become a parent of queues; wait until they have ended", q.Path, q.Jobs)
	}
	if !q.Leaf && !becomesParent && len(q.Children) > 0 && q.Jobs > 0 {
		return plimsoll.Errorf(plimsoll.CodeConflict, "%s has queues with jobs and cannot become a leaf; wait until they have ended", q.Path)
	}
	for i := range c.Queues {
		if child := q.child(c.Queues[i].Name); child != nil {
			if err := s.checkTree(child, &c.Queues[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (q *Queue) child(name string) *Queue {
	for _, c := range q.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (s *State) applyTree(q *Queue, c *plimsoll.QueueConfig) {
	old := s.configOf(q)
	s.setLimits(q, c)
	q.config = true
	q.Draining = false
	if !sameResources(old.Max, c.Max) {
		s.emitQueue(q, plimsoll.ChangeSet, plimsoll.QueueMax, "", c.Max, "")
	}
	if !sameResources(old.Guaranteed, c.Guaranteed) {
		s.emitQueue(q, plimsoll.ChangeSet, plimsoll.QueueGuaranteed, "", c.Guaranteed, "")
	}
	s.markQueue(q)
	for i := range c.Queues {
		if child := q.child(c.Queues[i].Name); child != nil {
			s.applyTree(child, &c.Queues[i])
			continue
		}
		s.addQueue(q, &c.Queues[i])
		s.emitAdded(q.child(c.Queues[i].Name))
	}
	for _, child := range slices.Clone(q.Children) {
		if !slices.ContainsFunc(c.Queues, func(o plimsoll.QueueConfig) bool { return o.Name == child.Name }) {
			s.drainQueue(child)
		}
	}
	s.setType(q, len(c.Queues) == 0 && !c.Parent)
}

func sameResources(a, b plimsoll.Resources) bool {
	if len(a) != len(b) {
		return false
	}
	for _, name := range a.Names() {
		if v, ok := b[name]; !ok || v != a[name] {
			return false
		}
	}
	return true
}

// What the event of a queue's type says.
const (
	leafText   = "leaf queue: true"
	parentText = "leaf queue: false"
)

func (s *State) setType(q *Queue, leaf bool) {
	leaf = leaf && len(q.Children) == 0
	if q.Leaf == leaf {
		return
	}
	q.Leaf = leaf
	q.byShape, q.shapes = nil, nil
	text := parentText
	if leaf {
		q.byShape = map[string]*Shape{}
		text = leafText
	}
	s.emitQueue(q, plimsoll.ChangeSet, plimsoll.QueueType, "", nil, text)
}

// EmitTree emits the events of the queues that are there at the very first start.
func (s *State) EmitTree() {
	s.emitAdded(s.Root)
	s.markQueueConfig()
}

func (s *State) emitAdded(q *Queue) {
	s.emitQueue(q, plimsoll.ChangeAdd, plimsoll.DetailNone, "", nil, "")
	for _, child := range q.Children {
		s.emitAdded(child)
	}
}

func (s *State) drainQueue(q *Queue) {
	q.config, q.Draining = false, true
	s.markQueue(q)
	for _, child := range slices.Clone(q.Children) {
		s.drainQueue(child)
	}
	s.dropIfEmpty(q)
}

// dropIfEmpty removes a queue that is out of the configuration once nothing is left in it, and then its parents alike.
func (s *State) dropIfEmpty(q *Queue) {
	for q.Parent != nil && s.queues[q.Path] == q && !q.config && q.Jobs == 0 && len(q.Children) == 0 {
		parent := q.Parent
		parent.Children = slices.DeleteFunc(parent.Children, func(c *Queue) bool { return c == q })
		delete(s.queues, q.Path)
		s.dirty.deletedQueues = append(s.dirty.deletedQueues, q.Path)
		s.markQueueConfig()
		s.emitQueue(q, plimsoll.ChangeRemove, plimsoll.DetailNone, "", nil, "")
		q = parent
	}
}

// addAllocated books amounts of a task that goes on a node (sign 1) or leaves it (sign -1).
func (s *State) addAllocated(q *Queue, a *placement.Amounts, sign int32) {
	for ; q != nil; q = q.Parent {
		if sign > 0 {
			q.Allocated.Add(a)
		} else {
			q.Allocated.Sub(a)
			q.Freed++
		}
		q.Running += sign
		s.markQueue(q)
	}
}

func (s *State) addPending(q *Queue, a *placement.Amounts, sign int32) {
	for ; q != nil; q = q.Parent {
		if sign > 0 {
			q.Pending.Add(a)
		} else {
			q.Pending.Sub(a)
		}
		q.Waiting += sign
		s.markQueue(q)
	}
}

func (s *State) addJobs(q *Queue, n int32) {
	for ; q != nil; q = q.Parent {
		q.Jobs += n
		s.markQueue(q)
	}
}

// QueueStatus returns what is derived of a queue.
func (s *State) QueueStatus(q *Queue) plimsoll.QueueStatus {
	st := plimsoll.QueueStatus{
		Path: q.Path, Leaf: q.Leaf, Draining: q.Draining, Jobs: q.Jobs, Running: q.Running, Waiting: q.Waiting,
		Allocated: s.Names.Resources(&q.Allocated), Pending: s.Names.Resources(&q.Pending),
	}
	if q.GuaranteedSet != 0 {
		st.Guaranteed = s.Names.Masked(&q.Guaranteed, q.GuaranteedSet)
	}
	if q.MaxSet != 0 {
		st.Max = s.Names.Masked(&q.Max, q.MaxSet)
	}
	if q == s.Root {
		st.Max = s.Names.Resources(&s.total)
	}
	return st
}
