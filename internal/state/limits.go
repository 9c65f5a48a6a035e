package state

import (
	"fmt"
	"maps"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// Limits are what the store takes in one batch. Zero means no bound. What is promised of bounds
// holds for stores that take 64 operations and 1 MiB or more.
type Limits struct {
	Ops   int // records put or deleted
	Bytes int // of records, their keys and the packed events
}

// Budget bounds what a turn may change before it begins no further step. Zero means no bound.
type Budget struct {
	Ops   int // records put or deleted in the store
	Bytes int // bound of what they take
}

// Part returns n eighths of the budget.
func (b Budget) Part(n int) Budget { return Budget{(b.Ops*n + 7) / 8, (b.Bytes*n + 7) / 8} }

const (
	usualBytes = 16 << 20 // of a batch of a store that sets no limit
	maxStepOps = 2 * plimsoll.MaxPolicies
	// bytes of the policies that are applied at once, whatever the store takes
	maxSet    = 2 << 20
	maxSpec   = 1 << 20                      // bytes of a specification, the same
	specShare = 16                           // a specification takes at most one part in so many of a batch
	maxID     = 128                          // bytes
	maxName   = 63                           // bytes of the name of a resource
	nodeSpare = plimsoll.MaxQOSMessage + 200 // what a node's record has beside what its agent registers it with
	// what the message of a node's event has beside the texts that the agent sent and the node's id
	eventWords = 120
)

// bounds follow from the limits of the store. A turn begins no further step once its budget is used
// up, and no step changes more than what the budget leaves: so a batch is within the limits. Beside
// the step there is room for the outcome of its command. A step
// that writes a row of one kind may write rows of others: a report of a task's end writes the task,
// the job's status, the node and, if its queue goes with it, the configuration of the queues.
type bounds struct {
	budget  Budget
	stepOps int // Invariant: budget and step together are within the limits
	step    int

	row    int // bytes of a node, of a job's status, of the configuration of the queues: each a quarter of a step
	spec   int // bytes of a specification
	set    int // bytes of the policies that are applied at once
	events int // bytes of the events of a node's report
}

func boundsOf(cfg *Config) bounds {
	b := bounds{stepOps: maxStepOps}
	if ops := cfg.Limits.Ops; ops > 0 {
		b.stepOps = min(ops/2, maxStepOps)
		b.budget.Ops = ops - b.stepOps
	}
	bytes := cfg.Limits.Bytes
	if bytes == 0 {
		bytes = usualBytes
	} else {
		b.budget.Bytes = bytes / 2
	}
	b.step = bytes - bytes/2 - outcomeRow
	b.row, b.events = b.step/4, b.step/2
	b.set = min(maxSet, b.step/2)
	b.spec = min(cfg.MaxSpecBytes, bytes/specShare)
	return b
}

// Budget returns what a turn may change before it begins no further step.
func (s *State) Budget() Budget { return s.bounds.budget }

// Over reports whether the turn has no room left for one more step. There is always room for the
// first.
func (s *State) Over(b Budget) bool {
	d := &s.dirty
	ops := len(d.specs) + len(d.jobs) + len(d.tasks) + len(d.nodes) + len(d.deletedTasks) + 2*len(d.deletedJobs) +
		len(d.deletedNodes) +
		len(d.policies) + len(d.deletedPolicies) + len(d.outcomes) + len(d.deletedOutcomes)
	if d.queueConfig {
		ops++
	}
	return b.Ops > 0 && ops >= b.Ops || b.Bytes > 0 && d.bytes > b.Bytes
}

// CheckSize reports whether a specification is one that a batch has room for. A dry run asks it
// too, so that nothing is tried that a submit would refuse for its size.
func (s *State) CheckSize(spec *plimsoll.JobSpec) error {
	return s.checkSpecBytes(spec, specBytes(spec))
}

func (s *State) checkSpecBytes(spec *plimsoll.JobSpec, bytes int) error {
	if bytes > s.bounds.spec {
		return plimsoll.Invalid(largestGroup(spec), "makes the specification %d bytes long; at most %d are possible; shorten its command, env, constraints or preferences, or make several jobs",
			bytes, s.bounds.spec)
	}
	if status := mostStatus(spec); status > s.bounds.row {
		return plimsoll.Invalid("groups", "have a status of up to %d bytes together; at most %d are possible; use fewer groups or resources, or make several jobs",
			status, s.bounds.row)
	}
	return nil
}

// largestGroup names the group that takes most of a specification.
func largestGroup(spec *plimsoll.JobSpec) string {
	largest, at := -1, 0
	for i := range spec.Groups {
		if bytes := size.Of(&spec.Groups[i]); bytes > largest {
			largest, at = bytes, i
		}
	}
	if largest < 0 {
		return "groups"
	}
	return fmt.Sprintf("groups[%d]", at)
}

// mostStatus bounds the status that a job may ever have, with the events of its tasks.
func mostStatus(spec *plimsoll.JobSpec) int {
	sum := size.JobStatus(spec.ID, spec.Owner, spec.Queue, "") + maxMessage
	for i := range spec.Groups {
		sum += size.GroupStatus(spec.Groups[i].Name, spec.Queue, "", "") + maxName + size.Of(spec.Groups[i].Resources)
	}
	return sum
}

// checkNodeBytes reports whether a batch has room for what is known of a node, and of its QoS agent
// beside that, and whether all nodes have. old is the node if it is known.
func (s *State) checkNodeBytes(old *Node, node *plimsoll.Node) error {
	bytes := nodeBytes(node) + nodeSpare
	if bytes <= s.bounds.row {
		return s.checkAllNodes(old, bytes)
	}
	field := "attributes"
	if size.Of(&node.Facts) > size.Of(node.Attributes) {
		field = "facts"
	}
	return plimsoll.Invalid(field, "makes what is known of the node %d bytes long; at most %d are possible; give fewer attributes, traits and networks, or shorter ones",
		bytes, s.bounds.row)
}

// checkAllNodes reports whether all nodes have room for one of so many bytes. One that does not
// grow always has.
func (s *State) checkAllNodes(old *Node, bytes int) error {
	had := 0
	if old != nil {
		had = nodeBytes(&old.Node) + nodeSpare
	}
	if most := s.cfg.MaxNodeBytes; most > 0 && bytes > had && s.nodeBytes+bytes-had > most {
		return plimsoll.Errorf(plimsoll.CodeExhausted, "nodes: what is known of all nodes takes %d bytes, and this would make it %d; at most %d are possible; "+
			"give nodes fewer attributes, remove those that are gone, or give the coordinator more memory", s.nodeBytes, s.nodeBytes+bytes-had, most)
	}
	return nil
}

// hasRoom reports whether a node's record has room for a list of evictions.
func (s *State) hasRoom(n *Node, list []plimsoll.Eviction) bool {
	row := n.Node
	row.Evictions = list
	return nodeBytes(&row) <= s.bounds.row
}

// checkReportBytes reports whether a batch has room for what a QoS agent tells at once.
func (s *State) checkReportBytes(report *plimsoll.NodeReport) error {
	bytes := size.Of(report)
	for range report.Events {
		bytes += size.Event("", "", "") + maxID + eventWords
	}
	if bytes > s.bounds.events {
		return plimsoll.Invalid(
			"events", "take %d bytes; at most %d are possible in one report; send fewer at once", bytes,
			s.bounds.events,
		)
	}
	return nil
}

// checkSetBytes reports whether a batch has room for policies that are to be applied at once.
func (s *State) checkSetBytes(set []plimsoll.Policy) error {
	if most := s.bounds.stepOps - 1; len(set) > most { // and the outcome
		return plimsoll.Errorf(
			plimsoll.CodeExhausted, "policies: there are %d; at most %d can be applied at once; apply them in parts",
			len(set), most,
		)
	}
	bytes, largest, at := 0, 0, 0
	for i := range set {
		n := policyBytes(&set[i]) + size.Of(&PolicyOutcome{Ref: set[i].Ref()}) // in the outcome
		if bytes += n; n > largest {
			largest, at = n, i
		}
	}
	if bytes > s.bounds.set {
		return plimsoll.Errorf(plimsoll.CodeExhausted, "policies: they take %d bytes; at most %d can be applied at once; apply them in parts, or make %s shorter, which takes %d",
			bytes, s.bounds.set, set[at].Ref(), largest)
	}
	return nil
}

// checkTreeBytes reports whether a batch has room for another tree of queues and its events, and
// returns what it takes as it is stored.
func (s *State) checkTreeBytes(wanted *plimsoll.QueueConfig) (bytes int, err error) {
	stored, events := s.replaced(s.tree.Root, wanted)
	return s.treeFits(&stored, events)
}

func (s *State) treeFits(stored *plimsoll.QueueConfig, events int) (bytes int, err error) {
	if bytes = size.Of(stored); bytes > s.bounds.row {
		return 0, plimsoll.Invalid("queues", "take %d bytes with those that drain; at most %d are possible; use fewer queues, shorter names or fewer amounts, or wait until no queue drains",
			bytes, s.bounds.row)
	}
	if most := s.bounds.step - s.bounds.row; events > most {
		return 0, plimsoll.Invalid(
			"queues",
			"have events of %d bytes if they are replaced at once; at most %d are possible; replace them in parts",
			events, most,
		)
	}
	return bytes, nil
}

// replaced returns what is stored of a queue and those below it once it has another configuration,
// and what the events of that take.
func (s *State) replaced(q *queue.Queue, c *plimsoll.QueueConfig) (stored plimsoll.QueueConfig, events int) {
	old := s.tree.ConfigOf(q)
	stored = *c
	stored.Queues = nil
	events = size.Event(q.Path, "", parentText) // it may become a leaf, or a parent
	if !maps.Equal(old.Max, c.Max) {
		events += size.Event(q.Path, "", "") + size.Of(c.Max)
	}
	if !maps.Equal(old.Guaranteed, c.Guaranteed) {
		events += size.Event(q.Path, "", "") + size.Of(c.Guaranteed)
	}
	wanted := map[string]bool{}
	for i := range c.Queues {
		var below plimsoll.QueueConfig
		var more int
		if child := q.Child(c.Queues[i].Name); child != nil {
			below, more = s.replaced(child, &c.Queues[i])
		} else {
			below, more = c.Queues[i], addedBytes(q.Path, &c.Queues[i])
		}
		wanted[below.Name] = true
		stored.Queues, events = append(stored.Queues, below), events+more
	}
	for _, child := range q.Children {
		if wanted[child.Name] {
			continue
		}
		left, more := s.drained(child)
		events += more
		if child.Accounts > 0 {
			stored.Queues = append(stored.Queues, left)
		}
	}
	return stored, events
}

// drained returns what is stored of a queue that is taken out of the configuration, and what the
// events of those that go at once take.
func (s *State) drained(q *queue.Queue) (stored plimsoll.QueueConfig, events int) {
	stored = s.tree.ConfigOf(q)
	stored.Draining = true
	if q.Accounts == 0 {
		events = size.Event(q.Path, "", "")
	}
	for _, child := range q.Children {
		left, more := s.drained(child)
		events += more
		if child.Accounts > 0 {
			stored.Queues = append(stored.Queues, left)
		}
	}
	return stored, events
}

// addedBytes is what the events of a queue that is new take, and of those below it.
func addedBytes(parent string, c *plimsoll.QueueConfig) int {
	path := c.Name
	if parent != "" {
		path = parent + "." + c.Name
	}
	sum := size.Event(path, "", "")
	for i := range c.Queues {
		sum += addedBytes(path, &c.Queues[i])
	}
	return sum
}
