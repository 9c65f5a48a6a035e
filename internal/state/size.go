package state

import (
	"math/bits"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// Sizes of records are estimated, never too low (internal/wire has the true form), so that a batch stays within the limits of the
// store. Texts that are set after a record was marked dirty are added by text.
const (
	taskFixed     = 120 // numbers and times, and what stands before texts
	statusFixed   = 128 // the same of a job's status
	groupFixed    = 96  // and of a group in it
	nodeFixed     = 128 // and of a node
	entryBytes    = 16  // what stands around the key and value of an attribute
	resourceBytes = 80  // the longest name, its amount, and what stands around them
	eventBytes    = 32  // an event without its texts
	policyFixed   = 160 // and of a policy, with its key
	ruleFixed     = 48  // numbers and what stands before texts of a rule or requirement
	configBytes   = 48  // a queue in the configuration without its name and resources
)

func taskBytes(r Ref) int {
	return taskFixed + 2*(len(r.Group.Job.Spec.ID)+len(r.Group.Spec.Name)) + len(r.Task().Node) + len(r.Task().Message)
}

// statusBytes counts the resources of the groups too: the events of its tasks hold them, once in a batch.
func statusBytes(j *Job) int {
	size := statusFixed + 2*len(j.Spec.ID) + len(j.Spec.Owner) + len(j.Queue.Path) + len(j.Reason)
	for i := range j.Groups {
		g := &j.Groups[i]
		size += groupFixed + len(g.Spec.Name) + len(g.Wait.Queue) + len(g.Wait.Resource) + len(g.Spec.Resources)*resourceBytes
	}
	return size
}

func nodeBytes(n *plimsoll.Node) int {
	size := nodeFixed + 2*len(n.ID) + len(n.Address) + len(n.Capacity)*resourceBytes
	for _, pair := range plimsoll.SortedPairs(n.Attributes) {
		size += entryBytes + len(pair[0]) + len(pair[1])
	}
	for _, name := range n.Facts.Metrics {
		size += 4 + len(name)
	}
	for i := range n.Evictions {
		size += evictionBytes(&n.Evictions[i])
	}
	return size + 24 + len(n.Gate.Reason)
}

func evictionBytes(e *plimsoll.Eviction) int { return 32 + len(e.Job) + len(e.Group) }

func policyBytes(p *plimsoll.Policy) int {
	size := policyFixed + 2*len(p.Name())
	pairs := func(m map[string]string) {
		for _, pair := range plimsoll.SortedPairs(m) {
			size += entryBytes + len(pair[0]) + len(pair[1])
		}
	}
	if n := p.NodeQOS; n != nil {
		pairs(n.Selector)
		for i := range n.Rules {
			r := &n.Rules[i]
			size += ruleFixed + len(r.Name) + len(r.Metric) + len(r.Waterline) + len(r.Release) + len(r.Action)
		}
	}
	if t := p.TaskQOS; t != nil {
		pairs(t.Labels)
		for i := range t.Match {
			size += ruleFixed
			for _, v := range t.Match[i].Values {
				size += 4 + len(v)
			}
		}
		for _, name := range t.Allowed {
			size += 4 + len(name)
		}
	}
	return size
}

// SpecBytes estimates the encoded size of a specification.
func SpecBytes(spec *plimsoll.JobSpec) int {
	size := 128 + 2*len(spec.ID) + len(spec.Owner) + len(spec.Queue) + len(spec.Token)
	for _, pair := range plimsoll.SortedPairs(spec.Labels) {
		size += entryBytes + len(pair[0]) + len(pair[1])
	}
	for i := range spec.Groups {
		g := &spec.Groups[i]
		size += 128 + len(g.Name) + len(g.WorkDir) + len(g.User) + len(g.UserGroup) + len(g.Resources)*resourceBytes
		for _, arg := range g.Command {
			size += 4 + len(arg)
		}
		for _, pair := range plimsoll.SortedPairs(g.Env) {
			size += entryBytes + len(pair[0]) + len(pair[1])
		}
	}
	return size
}

func treeBytes(q *queue.Queue) int {
	size := 0
	q.Walk(func(q *queue.Queue) {
		size += configBytes + len(q.Name) + (bits.OnesCount32(q.GuaranteedSet)+bits.OnesCount32(q.MaxSet))*resourceBytes
	})
	return size
}

func configTreeBytes(c *plimsoll.QueueConfig) int {
	size := configBytes + len(c.Name) + (len(c.Guaranteed)+len(c.Max))*resourceBytes
	for i := range c.Queues {
		size += configTreeBytes(&c.Queues[i])
	}
	return size
}

// text counts a text that goes into a record that may be dirty already, and returns it.
func (s *State) text(text string) string {
	s.dirty.bytes += len(text)
	return text
}

func (s *State) markQueueConfig() {
	if !s.dirty.queueConfig {
		s.dirty.queueConfig = true
		s.dirty.bytes += treeBytes(s.tree.Root)
	}
}
