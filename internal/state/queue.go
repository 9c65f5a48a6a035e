package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/queuerule"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Tree returns the tree of queues: the order of the groups, and the limits that hold tasks back.
func (s *State) Tree() *queue.Tree { return s.tree }

// Queue returns a queue by its path, or nil.
func (s *State) Queue(path string) *queue.Queue { return s.tree.Find(path) }

// QueueConfig returns the stored configuration: the configured queues and those that drain.
func (s *State) QueueConfig() plimsoll.QueueConfig { return s.tree.Config() }

// SetQueueConfig replaces the configured tree. A queue that is left out takes no new jobs, and is
// deleted when it is empty. A leaf with jobs cannot become a parent.
func (s *State) SetQueueConfig(c *plimsoll.QueueConfig) error { return s.setQueueConfig(c, false) }

// CheckQueueConfig returns the error that SetQueueConfig would return, and changes nothing.
func (s *State) CheckQueueConfig(c *plimsoll.QueueConfig) error { return s.setQueueConfig(c, true) }

func (s *State) setQueueConfig(c *plimsoll.QueueConfig, dryRun bool) error {
	wanted := configured(c)
	if err := wanted.Validate(); err != nil {
		return err
	}
	rules, err := queuerule.Compile(&wanted)
	if err != nil {
		return err //nolint:wrapcheck // it names the rule
	}
	if err := s.checkTrust(queuerule.Trusting(&wanted)); err != nil {
		return err
	}
	if err := s.tree.CheckConfig(&wanted); err != nil {
		return err
	}
	if err := checkTreeNames(s.Names, &wanted, wanted.Name, plimsoll.Resources{}); err != nil {
		return err
	}
	bytes, err := s.checkTreeBytes(&wanted)
	if err != nil {
		return err
	}
	if err := s.checkDisk(); err != nil || dryRun {
		return err
	}
	s.treeBytes = 0
	s.setRules(&wanted, rules)
	s.countQueueConfig(bytes)
	dynamic, limits := s.dynamicQueues(), s.statedLimits()
	s.tellQueues(s.tree.Configure(&wanted))
	s.tellConfigured(dynamic)
	s.tellNewLimits(limits)
	s.sortNodes(c.Partition)
	s.names.stale = true
	s.reviseStaleNames()
	return nil
}

// RefuseQueueConfig tells that a configuration of the queues was refused, and why.
func (s *State) RefuseQueueConfig(why string) {
	s.emitQueue(
		s.tree.Root, plimsoll.ChangeSet, plimsoll.QueueConfigured, "", nil, plimsoll.QueuesRefusedText(cut(why)),
	)
}

// sortNodes makes the placement try nodes in the order that a queue file states.
func (s *State) sortNodes(p *plimsoll.PartitionConfig) {
	if p == nil {
		p = &plimsoll.PartitionConfig{}
	}
	s.Fleet.OrderBy(p.NodeSort)
}

// The messages of the events for a queue's type, for a queue that drains, and for a dynamic queue
// that is configured now.
const (
	leafText     = "leaf queue: true"
	parentText   = "leaf queue: false"
	drainingText = "draining: true"
	backText     = "draining: false"
	staticText   = "dynamic: false"
)

// tellQueues emits the events of changes in the tree of queues.
func (s *State) tellQueues(changes []queue.Change) {
	for _, c := range changes {
		s.tellQueue(c.Kind, c.Queue)
	}
}

func (s *State) tellQueue(kind queue.ChangeKind, q *queue.Queue) {
	switch kind {
	case queue.Added:
		s.tellAdded(q)
	case queue.MaxSet:
		s.emitQueue(q, plimsoll.ChangeSet, plimsoll.QueueMax, "", s.limit(&q.Max, q.MaxSet), "")
	case queue.GuaranteedSet:
		s.emitQueue(q, plimsoll.ChangeSet, plimsoll.QueueGuaranteed, "", s.limit(&q.Guaranteed, q.GuaranteedSet), "")
	case queue.TypeSet:
		text := parentText
		if q.Leaf {
			text = leafText
		}
		s.emitQueue(q, plimsoll.ChangeSet, plimsoll.QueueType, "", nil, text)
	case queue.DrainingSet:
		text := backText
		if q.Draining {
			text = drainingText
		}
		s.emitQueue(q, plimsoll.ChangeSet, plimsoll.QueueConfigured, "", nil, text)
	case queue.Removed:
		s.names.stale = true
		s.treeBytes = 0
		s.dirty.deletedQueues = append(s.dirty.deletedQueues, q.Path)
		s.markQueueConfig()
		s.emitQueue(q, plimsoll.ChangeRemove, kindOf(q), "", nil, "")
	}
}

// kindOf returns the detail of the events that add and remove a queue.
func kindOf(q *queue.Queue) plimsoll.ChangeDetail {
	if q.Dynamic {
		return plimsoll.QueueDynamic
	}
	return plimsoll.DetailNone
}

// dynamicQueues returns the dynamic queues, parents first.
func (s *State) dynamicQueues() (list []*queue.Queue) {
	s.tree.Root.Walk(func(q *queue.Queue) {
		if q.Dynamic {
			list = append(list, q)
		}
	})
	return list
}

// tellConfigured emits an event for each queue that was dynamic and is configured now.
func (s *State) tellConfigured(dynamic []*queue.Queue) {
	for _, q := range dynamic {
		if !q.Dynamic && s.tree.Find(q.Path) == q {
			s.emitQueue(q, plimsoll.ChangeSet, plimsoll.QueueDynamic, "", nil, staticText)
		}
	}
}

// tellAdded emits the events of a new queue: that it is there, that it is a parent, its maximum and
// guarantee, and its limits for users and groups.
func (s *State) tellAdded(q *queue.Queue) {
	s.emitQueue(q, plimsoll.ChangeAdd, kindOf(q), "", nil, "")
	if !q.Leaf {
		s.tellQueue(queue.TypeSet, q)
	}
	if q.MaxSet != 0 {
		s.tellQueue(queue.MaxSet, q)
	}
	if q.GuaranteedSet != 0 {
		s.tellQueue(queue.GuaranteedSet, q)
	}
	s.tellLimits(q.Path, nil, q.Stated().Limits)
}

// limit returns a limit as resources; nil if there is none.
func (s *State) limit(a *placement.Amounts, set uint32) plimsoll.Resources {
	if set == 0 {
		return nil
	}
	return s.Names.Masked(a, set)
}

// checkTreeNames reports whether the resource names of a tree, together with those in all, have
// slots or can get them.
func checkTreeNames(names *placement.Names, c *plimsoll.QueueConfig, path string, all plimsoll.Resources) error {
	named := []plimsoll.Resources{c.Guaranteed, c.Max}
	if t := c.Template; t != nil {
		named = append(named, t.Guaranteed, t.Max)
	}
	for i := range c.Limits {
		named = append(named, c.Limits[i].Max)
	}
	if t := c.Template; t != nil {
		named = append(named, t.Guaranteed, t.Max)
	}
	for _, r := range named {
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

// configured returns the part of a stored tree that the user has configured: without the queues
// that drain, and without those that placement rules have made.
func configured(c *plimsoll.QueueConfig) plimsoll.QueueConfig {
	wanted := *c
	wanted.Queues = nil
	for i := range c.Queues {
		if !c.Queues[i].Draining && !c.Queues[i].Dynamic {
			wanted.Queues = append(wanted.Queues, configured(&c.Queues[i]))
		}
	}
	return wanted
}

// EmitTree emits the events that add the queues, at the very first start.
func (s *State) EmitTree() {
	s.tree.Root.Walk(s.tellAdded)
	s.markQueueConfig()
}

// setTotal passes the capacity of all nodes to the tree.
func (s *State) setTotal() { s.tree.SetTotal(&s.total) }

// QueueStatus returns the derived status of a queue, which is not stored.
func (s *State) QueueStatus(q *queue.Queue) plimsoll.QueueStatus {
	st := plimsoll.QueueStatus{
		Path: q.Path, Leaf: q.Leaf, Draining: q.Draining, Jobs: q.Accounts, Running: q.Running, Waiting: q.Waiting,
		Allocated: s.Names.Resources(&q.Allocated), Pending: s.Names.Resources(&q.Pending),
		Guaranteed: s.limit(&q.Guaranteed, q.GuaranteedSet), Max: s.limit(&q.Max, q.MaxSet),
		Tasks: q.Tasks, MaxTasks: q.MaxTasks, JobsWaiting: q.Accounts - q.Admitted - q.Dismissed,
	}
	if q == s.tree.Root {
		st.Max = s.Names.Resources(&s.total)
	}
	if p, ok := s.pastOf(q); ok {
		st.Past = p.Mean
	}
	return st
}
