package state

import (
	"fmt"
	"maps"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// Limits are the limits of the store for one batch. Zero means no limit. The guarantees of this
// package hold for stores that take at least 64 operations and 1 MiB.
type Limits struct {
	Ops   int // records put or deleted
	Bytes int // of records, their keys and the packed events
}

// Budget bounds the changes of a turn: once they reach it, no further step begins. Zero means no
// bound.
type Budget struct {
	Ops   int // records put or deleted in the store
	Bytes int // bytes of these records, as they are bounded in size.go
}

// Part returns n eighths of the budget.
func (b Budget) Part(n int) Budget { return Budget{(b.Ops*n + 7) / 8, (b.Bytes*n + 7) / 8} }

const (
	usualBytes = 16 << 20 // of a batch of a store that sets no limit
	maxStepOps = 2 * plimsoll.MaxPolicies
	// maxSet bounds the bytes of the policies that are applied at once, for any store.
	maxSet    = 2 << 20
	maxSpec   = 1 << 20                      // bytes of a specification, for any store
	specShare = 16                           // a specification takes at most one part in so many of a batch
	maxID     = 128                          // bytes
	maxName   = 63                           // bytes of the name of a resource
	nodeSpare = plimsoll.MaxQOSMessage + 250 // bytes of a node's record beside the registered fields
	// eventWords bounds the bytes of a node's event beside the agent's texts and the node's id.
	eventWords = 120
)

// bounds follow from the limits of the store. A turn begins no further step once its budget is used
// up. Each step fits in the rest of the limits, with the outcome of its command, so a batch is
// within the limits. A step may write rows of several kinds. For example, the report of a task's
// end writes the task, the job's status and the node. If the queue was draining and is empty now,
// the configuration of the queues is written too.
type bounds struct {
	budget  Budget
	stepOps int // records that a step changes; Invariant: budget.Ops + stepOps <= Limits.Ops
	step    int // bytes that a step changes; Invariant: budget.Bytes + step <= Limits.Bytes

	row    int // bytes of a node, a job's status or the configuration of the queues; a quarter of a step
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

// Budget returns the budget of a turn.
func (s *State) Budget() Budget { return s.bounds.budget }

// Over reports whether the turn has used up a budget and must not begin a further step. The first
// step of a turn always has room.
func (s *State) Over(b Budget) bool {
	d := &s.dirty
	ops := 2*len(d.rejected) + len(d.specs) + len(d.jobs) + len(d.tasks) + len(d.nodes) +
		len(d.deletedTasks) + 2*len(d.deletedJobs) + len(d.deletedNodes) +
		len(d.historians) + len(d.policies) + len(d.deletedPolicies) + len(d.outcomes) + len(d.deletedOutcomes) +
		len(d.pasts)
	if d.queueConfig {
		ops++
	}
	if d.archive {
		ops++
	}
	if d.eventSettings {
		ops++
	}
	return b.Ops > 0 && ops >= b.Ops || b.Bytes > 0 && d.bytes > b.Bytes
}

// CheckSize reports whether a specification fits in a batch. A dry run calls it too, to refuse the
// same specifications as a submit.
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

// largestGroup returns the field of the largest group of a specification.
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

// mostStatus bounds the bytes of the job's status at any time, with the events of its tasks.
func mostStatus(spec *plimsoll.JobSpec) int {
	sum := size.JobStatus(spec.ID, spec.Owner, spec.Queue, "", "") + maxMessage + plimsoll.MaxSteps*size.JobStep()
	whose := len(spec.Owner) // whose limit a group may wait for
	for _, group := range spec.OwnerGroups {
		whose = max(whose, len(group))
	}
	sum += max(whose, 1) // the group whose limits hold; "*" is a group too
	for i := range spec.Groups {
		sum += size.GroupStatus(spec.Groups[i].Name, &plimsoll.WaitCause{Queue: spec.Queue}) + whose + maxName +
			size.Of(spec.Groups[i].Resources)
	}
	return sum
}

// checkNodeBytes reports whether a node's record fits in a batch, with the texts of its QoS agent,
// and in the bound on all nodes. old is the known node, or nil.
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

// checkAllNodes reports whether a record of so many bytes fits in the bound on all nodes. A record
// that does not grow always fits.
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

// checkReportBytes reports whether the events of a QoS agent's report fit in a batch.
func (s *State) checkReportBytes(report *plimsoll.NodeReport) error {
	bytes := size.Of(report)
	if report.Occupied != nil {
		bytes += size.Event("", "", "") + maxID + size.Of(report.Occupied.Resources())
	}
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

// checkSetBytes reports whether policies that are applied at once fit in a batch.
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

// checkTreeBytes reports whether a new tree of queues and its events fit in a batch. It returns the
// size of the stored configuration.
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

// replaced returns the stored configuration of a queue and its children after a change to c, and
// the bytes of the events of the change.
func (s *State) replaced(q *queue.Queue, c *plimsoll.QueueConfig) (stored plimsoll.QueueConfig, events int) {
	old := s.tree.ConfigOf(q)
	stored = *c
	stored.Queues = nil
	events = size.Event(q.Path, "", parentText) // it may become a leaf, or a parent
	if q.Draining {
		events += size.Event(q.Path, "", backText)
	}
	if q.Dynamic {
		events += size.Event(q.Path, "", staticText)
	}
	if !maps.Equal(old.Max, c.Max) {
		events += size.Event(q.Path, "", "") + size.Of(c.Max)
	}
	if !maps.Equal(old.Guaranteed, c.Guaranteed) {
		events += size.Event(q.Path, "", "") + size.Of(c.Guaranteed)
	}
	events += limitEventBytes(q.Path, old.Limits, c.Limits)
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
		left, more := s.drained(child) // a dynamic queue may stay as it is
		events += more
		if child.Accounts > 0 {
			stored.Queues = append(stored.Queues, left)
		}
	}
	return stored, events
}

// drained returns the stored configuration of a queue that was removed, and the bytes of the events
// of the queues that go at once.
func (s *State) drained(q *queue.Queue) (stored plimsoll.QueueConfig, events int) {
	stored = s.tree.ConfigOf(q)
	stored.Draining = true
	events = size.Event(q.Path, "", drainingText) // it drains, or goes at once
	for _, child := range q.Children {
		left, more := s.drained(child)
		events += more
		if child.Accounts > 0 {
			stored.Queues = append(stored.Queues, left)
		}
	}
	return stored, events
}

// addedBytes returns the bytes of the events of a new queue and of those below it.
func addedBytes(parent string, c *plimsoll.QueueConfig) int {
	path := c.Name
	if parent != "" {
		path = parent + "." + c.Name
	}
	sum := size.Event(path, "", "")
	if len(c.Queues) > 0 || c.Parent {
		sum += size.Event(path, "", parentText)
	}
	for _, limit := range []plimsoll.Resources{c.Max, c.Guaranteed} {
		if len(limit) > 0 {
			sum += size.Event(path, "", "") + size.Of(limit)
		}
	}
	sum += limitEventBytes(path, nil, c.Limits)
	for i := range c.Queues {
		sum += addedBytes(path, &c.Queues[i])
	}
	return sum
}
