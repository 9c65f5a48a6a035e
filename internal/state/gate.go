package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// tellTime is the age of an agent's event from which its message gives the event's own time.
const tellTime = 10 * second

// ReportNode applies a report of a node's QoS agent: whether the node takes new tasks, its extended
// resources, the use outside of its tasks, and the actions of the agent. A repeated report changes
// nothing.
func (s *State) ReportNode(id string, incarnation, sequence uint64, report *plimsoll.NodeReport) error {
	n, err := s.CheckReporter(id, incarnation)
	if err != nil {
		return err
	}
	if incarnation != n.Incarnation || !n.Ready {
		return plimsoll.Errorf(
			plimsoll.CodeNotFound, "node %q is not registered with incarnation %d, or was given up; register it first",
			id, incarnation,
		)
	}
	if sequence > plimsoll.MaxSequence {
		return plimsoll.Invalid("sequence", "%d is absurd; an agent counts its reports from 1", sequence)
	}
	if sequence <= n.Gate.Sequence {
		return nil
	}
	if err := report.Validate(); err != nil {
		return err
	}
	if err := s.checkReportBytes(report); err != nil {
		return err
	}
	if err := s.Names.Check("extended", report.Extended); err != nil {
		return err
	}
	node := plimsoll.Node{Capacity: withOffers(n.Capacity, report.Extended)}
	if err := s.checkTotal(n, &node); err != nil {
		return err
	}
	n.Gate.Sequence = sequence
	s.markNode(n)
	s.setGate(n, report.SchedulingDisabled, report.SchedulingReason, "its agent takes new tasks again")
	s.offer(n, report.Extended)
	if report.Occupied != nil {
		n.occupied = report.Occupied
		s.tellOccupied(n)
	}
	for i := range report.Events {
		s.emitQOS(n, &report.Events[i])
	}
	return nil
}

// tellOccupied tells the reported use of a node outside of its tasks, if it differs enough from the
// one of the last event. If that event is too recent, a timer tells the newest use later.
func (s *State) tellOccupied(n *Node) {
	use := *n.occupied
	if n.OccupiedAt != 0 && !use.Differs(n.Occupied, n.Capacity) {
		n.occupied = nil
		return
	}
	due := later(n.OccupiedAt, int64(plimsoll.OccupiedEvery))
	if n.OccupiedAt != 0 && n.OccupiedAt <= s.at && s.at < due { // unless the clock was set back
		if n.tellAt != due {
			n.tellAt = due
			s.wakeAt(timer{at: due, node: n})
		}
		return
	}
	n.occupied, n.Occupied, n.OccupiedAt = nil, use, s.at
	s.markNode(n)
	s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeOccupied, "", use.Resources(), "")
}

// setGate closes a node for new tasks, or opens it. opened is the reason for opening.
func (s *State) setGate(n *Node, closed bool, reason, opened string) {
	if !closed {
		reason = ""
	}
	was := n.Gate
	if n.Gate.Closed, n.Gate.Reason = closed, reason; n.Gate == was {
		return
	}
	s.markNode(n)
	s.book(n)
	if closed == was.Closed {
		return
	}
	message := "schedulable: true (" + opened + ")"
	if closed {
		message = "schedulable: false (its agent has stopped new tasks: " + reason + ")"
	} else {
		s.nodeLog.add(n.Slot, NodeGained)
	}
	s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeSchedulable, "", nil, cutEvent(message))
}

// closedReason says why the node's agent has stopped new tasks; empty if it has not.
func (n *Node) closedReason() string {
	if !n.Gate.Closed {
		return ""
	}
	if n.Gate.Reason == "" {
		return "its agent has stopped new tasks"
	}
	return "its agent has stopped new tasks: " + n.Gate.Reason
}

// offer sets the extended resources of a node to the offers of its agent. Tasks that are booked on
// them stay, even if they take more.
func (s *State) offer(n *Node, offers plimsoll.Resources) {
	if capacity := withOffers(n.Capacity, offers); !maps.Equal(capacity, n.Capacity) {
		s.resize(n, capacity)
	}
}

// withOffers returns a capacity with other extended resources.
func withOffers(capacity, offers plimsoll.Resources) plimsoll.Resources {
	out := maps.Clone(capacity)
	for _, name := range []string{plimsoll.ExtCPU, plimsoll.ExtMemory} {
		delete(out, name)
		if amount := offers[name]; amount > 0 {
			if out == nil {
				out = plimsoll.Resources{}
			}
			out[name] = amount
		}
	}
	return out
}

// emitQOS emits an event for an action of an agent. It is an event of the task's request if the
// action was on a task, otherwise of the node.
func (s *State) emitQOS(n *Node, e *plimsoll.QOSEvent) {
	message := e.Text()
	if e.At > 0 && e.At < s.at-tellTime {
		message = time.Unix(0, e.At).UTC().Format(time.RFC3339) + " " + message
	}
	if e.Task == "" {
		s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeQOSDetail, "", nil, cutEvent(message))
		return
	}
	message += fmt.Sprintf(" (on node %s", n.ID)
	if e.Attempt > 0 {
		message += fmt.Sprintf(", attempt %d", e.Attempt)
	}
	s.emit(plimsoll.Event{
		Type: plimsoll.EventRequest, Change: plimsoll.ChangeSet, Detail: plimsoll.AllocQOSDetail, Object: e.Task,
		Message: cutEvent(message + ")"),
	})
}

func cutEvent(text string) string { return cutTo(text, plimsoll.MaxEventMessage) }

// exclusion keeps the tasks of a group from a node until a time.
type exclusion struct {
	node  *Node
	index int32 // index of the task that was evicted last
	until int64
}

// excludeNode excludes a node for the group of a task that the node has evicted. If the node's
// record is full, the exclusion that ends first is dropped.
func (s *State) excludeNode(n *Node, ref Ref) {
	g := ref.Group
	job, group := g.Job.Spec.ID, g.Spec.Name
	e := plimsoll.Eviction{Job: job, Group: group, Index: ref.Index, Until: later(s.at, s.cfg.EvictedFor)}
	list := slices.DeleteFunc(
		slices.Clone(n.Evictions), func(o plimsoll.Eviction) bool { return o.Job == job && o.Group == group },
	)
	list = append(list, e)
	slices.SortStableFunc(list, func(a, b plimsoll.Eviction) int { return cmp.Compare(a.Until, b.Until) })
	s.addExclusion(g, exclusion{n, ref.Index, e.Until})
	for len(list) > 0 && (len(list) > plimsoll.MaxEvictions || !s.hasRoom(n, list)) {
		s.endExclusion(n, list[0])
		list = slices.Delete(list, 0, 1)
	}
	s.setEvictions(n, list)
}

func (s *State) setEvictions(n *Node, list []plimsoll.Eviction) {
	n.Evictions = list
	s.markNode(n)
	s.scheduleExclusionEnd(n)
}

// scheduleExclusionEnd sets the timer for the end of a node's first exclusion.
func (s *State) scheduleExclusionEnd(n *Node) {
	n.exclusionEnd = 0
	if len(n.Evictions) > 0 {
		n.exclusionEnd = n.Evictions[0].Until
		s.wakeAt(timer{at: n.exclusionEnd, node: n})
	}
}

// endDueExclusions ends the exclusions of a node whose time has passed.
func (s *State) endDueExclusions(n *Node) {
	k := 0
	for k < len(n.Evictions) && n.Evictions[k].Until <= s.at {
		s.endExclusion(n, n.Evictions[k])
		k++
	}
	s.setEvictions(n, slices.Clone(n.Evictions[k:]))
}

// endExclusion lets the tasks of a group go to a node again. The caller removes the eviction from
// the node's record.
func (s *State) endExclusion(n *Node, e plimsoll.Eviction) {
	if j := s.jobs[e.Job]; j != nil {
		if g := j.group(e.Group); g != nil {
			others := slices.DeleteFunc(slices.Clone(g.exclusions), func(x exclusion) bool { return x.node == n })
			s.setExclusions(g, others)
		}
	}
}

// addExclusion adds an exclusion to a group, and replaces an earlier one of the same node.
func (s *State) addExclusion(g *Group, a exclusion) {
	list := append(slices.DeleteFunc(slices.Clone(g.exclusions), func(o exclusion) bool { return o.node == a.node }), a)
	slices.SortFunc(list, func(a, b exclusion) int {
		return cmp.Or(cmp.Compare(a.until, b.until), strings.Compare(a.node.ID, b.node.ID))
	})
	s.setExclusions(g, list)
}

func (s *State) setExclusions(g *Group, list []exclusion) {
	g.exclusions = list
	s.reclass(g)
}

// scheduleExclusionDrop lets Continue drop the exclusions of an ended job, if it has any.
func (s *State) scheduleExclusionDrop(j *Job) {
	if slices.ContainsFunc(j.Groups, func(g Group) bool { return len(g.exclusions) > 0 }) {
		s.excluded = append(s.excluded, j)
	}
}

// dropExclusions removes the evictions of an ended job from the records of nodes, as far as the
// budget goes. It reports whether all are gone. Until then the job is not forgotten: a later job
// with its id would inherit the exclusions.
func (s *State) dropExclusions(j *Job, budget Budget) bool {
	for i := range j.Groups {
		g := &j.Groups[i]
		for n := len(g.exclusions); n > 0; n-- {
			if s.Over(budget) {
				return false
			}
			node := g.exclusions[n-1].node
			g.exclusions = g.exclusions[:n-1]
			s.setEvictions(node, slices.DeleteFunc(slices.Clone(node.Evictions), func(e plimsoll.Eviction) bool {
				return e.Job == j.Spec.ID && e.Group == g.Spec.Name
			}))
		}
	}
	return true
}

// loadExclusions finds the exclusions of groups in the loaded records of nodes.
func (s *State) loadExclusions() {
	for _, n := range s.slots {
		for _, e := range n.Evictions {
			j := s.jobs[e.Job]
			if j == nil {
				continue
			}
			if g := j.group(e.Group); g != nil {
				s.addExclusion(g, exclusion{n, e.Index, e.Until})
			}
		}
		s.scheduleExclusionEnd(n)
	}
}
