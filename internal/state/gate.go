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

// tellTime is how old an event of an agent may be before its message says when it was.
const tellTime = 10 * second

// ReportNode takes in what the QoS agent of a node says: whether the node takes new tasks, what it
// offers beside its capacity, and what was done. A report that was taken before changes nothing.
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
	for i := range report.Events {
		s.emitQOS(n, &report.Events[i])
	}
	return nil
}

// setGate closes a node for new tasks, or opens it; opened says why it is open again.
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

// closedBy says why a node takes no new tasks because of its agent; empty: it takes them.
func (n *Node) closedBy() string {
	if !n.Gate.Closed {
		return ""
	}
	if n.Gate.Reason == "" {
		return "its agent has stopped new tasks"
	}
	return "its agent has stopped new tasks: " + n.Gate.Reason
}

// offer makes the extended resources of a node what its agent offers. What is booked on them stays,
// even if it is more.
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

// emitQOS tells what an agent did as an event: of the task's request if it is about one, of the
// node else.
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

// away keeps the tasks of a group from a node.
type away struct {
	node  *Node
	index int32 // of the task that was evicted last
	until int64
}

// keepAway keeps the group of a task that its node had to evict from the node for a while.
func (s *State) keepAway(n *Node, ref Ref) {
	g := ref.Group
	job, group := g.Job.Spec.ID, g.Spec.Name
	e := plimsoll.Eviction{Job: job, Group: group, Index: ref.Index, Until: later(s.at, s.cfg.EvictedFor)}
	list := slices.DeleteFunc(
		slices.Clone(n.Evictions), func(o plimsoll.Eviction) bool { return o.Job == job && o.Group == group },
	)
	list = append(list, e)
	slices.SortStableFunc(list, func(a, b plimsoll.Eviction) int { return cmp.Compare(a.Until, b.Until) })
	s.stayAway(g, away{n, ref.Index, e.Until})
	for len(list) > 0 && (len(list) > plimsoll.MaxEvictions || !s.hasRoom(n, list)) {
		s.comeBack(n, list[0])
		list = slices.Delete(list, 0, 1)
	}
	s.setEvictions(n, list)
}

func (s *State) setEvictions(n *Node, list []plimsoll.Eviction) {
	n.Evictions = list
	s.markNode(n)
	s.awaitReturn(n)
}

// awaitReturn sets the timer for the first group that may come back.
func (s *State) awaitReturn(n *Node) {
	n.returnAt = 0
	if len(n.Evictions) > 0 {
		n.returnAt = n.Evictions[0].Until
		s.wakeAt(timer{at: n.returnAt, node: n})
	}
}

// returnDue lets the groups whose time has passed come back.
func (s *State) returnDue(n *Node) {
	k := 0
	for k < len(n.Evictions) && n.Evictions[k].Until <= s.at {
		s.comeBack(n, n.Evictions[k])
		k++
	}
	s.setEvictions(n, slices.Clone(n.Evictions[k:]))
}

// comeBack lets the tasks of a group go to a node again. The caller takes the entry out of the
// node.
func (s *State) comeBack(n *Node, e plimsoll.Eviction) {
	if j := s.jobs[e.Job]; j != nil {
		if g := j.group(e.Group); g != nil {
			s.setAway(g, slices.DeleteFunc(slices.Clone(g.away), func(a away) bool { return a.node == n }))
		}
	}
}

// stayAway adds a node to those that a group is kept from.
func (s *State) stayAway(g *Group, a away) {
	list := append(slices.DeleteFunc(slices.Clone(g.away), func(o away) bool { return o.node == a.node }), a)
	slices.SortFunc(list, func(a, b away) int {
		return cmp.Or(cmp.Compare(a.until, b.until), strings.Compare(a.node.ID, b.node.ID))
	})
	s.setAway(g, list)
}

func (s *State) setAway(g *Group, list []away) {
	g.away = list
	s.reclass(g)
}

// forgiveLater lets Continue forgive an ended job, if a node keeps it away.
func (s *State) forgiveLater(j *Job) {
	if slices.ContainsFunc(j.Groups, func(g Group) bool { return len(g.away) > 0 }) {
		s.forgiving = append(s.forgiving, j)
	}
}

// forgive takes an ended job out of the nodes that it was kept from, as far as the budget goes, and
// reports whether it is done. Until then the job is not forgotten: another one could get its id.
func (s *State) forgive(j *Job, budget Budget) bool {
	for i := range j.Groups {
		g := &j.Groups[i]
		for n := len(g.away); n > 0; n-- {
			if s.Over(budget) {
				return false
			}
			node := g.away[n-1].node
			g.away = g.away[:n-1]
			s.setEvictions(node, slices.DeleteFunc(slices.Clone(node.Evictions), func(e plimsoll.Eviction) bool {
				return e.Job == j.Spec.ID && e.Group == g.Spec.Name
			}))
		}
	}
	return true
}

// resumeAway takes up who is kept from where after a load.
func (s *State) resumeAway() {
	for _, n := range s.slots {
		for _, e := range n.Evictions {
			j := s.jobs[e.Job]
			if j == nil {
				continue
			}
			if g := j.group(e.Group); g != nil {
				s.stayAway(g, away{n, e.Index, e.Until})
			}
		}
		s.awaitReturn(n)
	}
}
