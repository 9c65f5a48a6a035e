package state

import (
	"fmt"
	"maps"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Register registers a new or a known node through a gateway and returns the number of the
// registration. An incarnation older than the known one is refused with CodeStale, and a key other
// than the node's with CodeConflict; see checkClaim.
func (s *State) Register(node *plimsoll.Node, gateway string) (registration uint64, err error) {
	if err := node.Validate(); err != nil {
		return 0, err
	}
	n := s.nodes[node.ID]
	if err := s.checkIncarnation(n, node); err != nil {
		return 0, err
	}
	if n != nil {
		if err := s.checkClaim(n, node); err != nil {
			return 0, err
		}
	}
	if err := s.Names.Check("capacity", node.Capacity); err != nil {
		return 0, err
	}
	if err := s.checkNodeBytes(n, node); err != nil {
		return 0, err
	}
	if err := s.checkTotal(n, node); err != nil {
		return 0, err
	}
	if n == nil {
		if len(s.nodes) >= s.cfg.MaxNodes {
			return 0, plimsoll.Errorf(
				plimsoll.CodeExhausted, "%d nodes are known, as many as are possible", len(s.nodes),
			)
		}
		first := *node
		first.Mode, first.Ready, first.Registered = plimsoll.NodeActive, true, s.at
		first.Gate, first.Evictions = plimsoll.NodeGate{}, nil
		first.Occupied, first.OccupiedAt = plimsoll.NodeUse{}, 0
		n = s.addNode(first)
		s.nodeLog.add(n.Slot, NodeGained)
		s.emitNode(n, plimsoll.ChangeAdd, plimsoll.DetailNone, "", n.Capacity, "Node added to the scheduler")
		s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeReady, "", nil, "ready: true")
		s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeSchedulable, "", nil, "schedulable: true")
		s.emitQueue(s.tree.Root, plimsoll.ChangeSet, plimsoll.QueueMax, "", s.Names.Resources(&s.total), "")
	} else {
		s.update(n, node)
	}
	s.registrations++
	n.Gateway, n.Registration, n.deadline = gateway, s.registrations, 0
	return n.Registration, nil
}

// checkTotal reports whether the capacities of all nodes can still be added up without overflow.
func (s *State) checkTotal(old *Node, node *plimsoll.Node) error {
	total := s.total
	if old != nil {
		total.Sub(s.Fleet.Capacity(old.Slot))
	}
	for _, name := range node.Capacity.Names() {
		if i := s.Names.Index(name); i >= 0 && total[i] > mostAsked-node.Capacity[name] {
			return plimsoll.Errorf(plimsoll.CodeExhausted, "capacity.%s: all nodes together would have more than can be counted, %s",
				name, plimsoll.FormatQuantity(name, mostAsked))
		}
	}
	return nil
}

func (s *State) addNode(node plimsoll.Node) *Node {
	n := &Node{Node: node, heardSince: s.at}
	if k := len(s.vacant); k > 0 {
		n.Slot, s.vacant = s.vacant[k-1], s.vacant[:k-1]
	} else {
		n.Slot = int32(len(s.slots))
		s.slots = append(s.slots, nil)
	}
	s.slots[n.Slot] = n
	s.Fleet.Put(n.Slot, server(n))
	s.total.Add(s.Fleet.Capacity(n.Slot))
	s.countNodeNames(n.Capacity, 1)
	s.countEligible(n.Slot, 1)
	s.nodes[n.ID] = n
	s.countNode(n)
	s.markNode(n)
	s.markNodeStatus(n)
	s.setTotal()
	s.reviseNames()
	return n
}

// server returns a node as a server of the placement.
func server(n *Node) *placement.Server {
	s := placement.NewServer(n.ID, n.Capacity)
	s.Labels, s.NodeFacts = n.Attributes, n.Facts
	s.Metrics = nil // the placement has no use for metrics
	s.Overprovision = realRatios(n.Facts.Overprovision)
	if !n.Ready {
		s.Status = "not heard from"
	}
	if n.Mode != plimsoll.NodeActive {
		s.Reserved = n.Mode.String()
	} else {
		s.Reserved = n.closedReason()
	}
	return &s
}

// realRatios returns over-provisioning without ratios equal to 1, which change no capacity.
func realRatios(ratios map[string]float64) map[string]float64 {
	out := maps.Clone(ratios)
	maps.DeleteFunc(out, func(_ string, ratio float64) bool { return placement.SameRatio(ratio, 1) })
	return out
}

func (s *State) countEligible(slot int32, n int) {
	if s.Fleet.Open(slot) {
		s.eligible += n
	}
}

// book updates the node's server in the fleet.
func (s *State) book(n *Node) {
	s.countEligible(n.Slot, -1)
	s.Fleet.Put(n.Slot, server(n))
	s.countEligible(n.Slot, 1)
	s.countNode(n)
}

func (s *State) update(n *Node, node *plimsoll.Node) {
	started := n.Incarnation != node.Incarnation || n.Key != node.Key
	known := !started && n.Address == node.Address && n.Session == node.Session && n.Peer == node.Peer
	capacity := node.Capacity
	if started {
		s.forgetFaults(n)
		n.occupied = nil
		n.Gate.Sequence = 0
		s.setGate(n, false, "", "its agent has started anew")
	} else {
		capacity = withOffers(capacity, n.Capacity) // the agent's offers go on
	}
	same := maps.Equal(n.Attributes, node.Attributes) && n.Facts.Equal(&node.Facts)
	n.Incarnation, n.Address, n.Attributes, n.Facts = node.Incarnation, node.Address, node.Attributes, node.Facts
	n.Key, n.Session, n.Peer = node.Key, node.Session, node.Peer
	if !maps.Equal(n.Capacity, capacity) {
		s.resize(n, capacity)
	} else if !same {
		s.book(n)
		n.shrunk = !s.Fleet.Holds(n.Slot)
		s.nodeLog.add(n.Slot, NodeLost) // some requests may no longer fit
		s.nodeLog.add(n.Slot, NodeGained)
	}
	if !known || !same {
		s.markNode(n)
	}
	if !n.Ready {
		s.setReady(n, true)
		s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeReady, "", nil, "ready: true")
	}
}

// resize changes the capacity of a node.
func (s *State) resize(n *Node, capacity plimsoll.Resources) {
	was := *s.Fleet.Capacity(n.Slot)
	s.countNodeNames(n.Capacity, -1)
	n.Capacity = capacity
	s.book(n)
	s.countNodeNames(n.Capacity, 1)
	is := s.Fleet.Capacity(n.Slot)
	s.total.Sub(&was)
	s.total.Add(is)
	s.setTotal()
	n.shrunk = !s.Fleet.Holds(n.Slot)
	s.nodeLog.add(n.Slot, NodeLost)
	s.nodeLog.add(n.Slot, NodeGained)
	s.markNode(n)
	s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeCapacity, "", n.Capacity, "")
	s.emitQueue(s.tree.Root, plimsoll.ChangeSet, plimsoll.QueueMax, "", s.Names.Resources(&s.total), "")
	s.reviseNames()
}

func (s *State) setReady(n *Node, ready bool) {
	n.Ready = ready
	s.book(n)
	n.deadline, n.lostAt = 0, 0
	s.markNode(n)
	if ready {
		n.lost, n.left, n.heardSince = false, false, s.at
		s.nodeLog.add(n.Slot, NodeGained)
		return
	}
	s.scheduleLoss(n)
}

// scheduleLoss sets the time at which the tasks of a node that is not ready are given up.
func (s *State) scheduleLoss(n *Node) {
	n.lostAt = later(s.at, s.cfg.LostAfter)
	s.wakeAt(timer{at: n.lostAt, node: n})
}

// Silent notes that a gateway no longer hears a node. A node that has registered again since is
// left alone: registration is the one that the gateway saw.
func (s *State) Silent(id string, registration uint64) {
	if n := s.nodes[id]; n != nil && n.Registration == registration && n.Ready {
		s.notReady(n, "its agent is not heard")
	}
}

func (s *State) notReady(n *Node, why string) {
	s.setReady(n, false)
	s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeReady, "", nil, "ready: false ("+why+")")
	// The agent reports its gate and offers anew when it is back.
	s.setGate(n, false, "", "nothing is known of its QoS agent any more")
	s.offer(n, nil)
	n.occupied = nil
}

// GatewayLost notes that the leader no longer hears a gateway. The gateway's nodes may register
// elsewhere within Config.NodeGrace.
func (s *State) GatewayLost(gateway string) {
	for _, n := range s.slots {
		if n != nil && n.Ready && n.Gateway == gateway {
			s.grantGrace(n)
		}
	}
}

// grantGrace gives a node Config.NodeGrace to register again. A gateway that is lost repeatedly
// does not prolong that time.
func (s *State) grantGrace(n *Node) {
	if n.deadline == 0 {
		n.deadline = later(s.at, s.cfg.NodeGrace)
		s.wakeAt(timer{at: n.deadline, node: n})
	}
}

// nodeDue acts on the deadlines of a node that have passed.
func (s *State) nodeDue(n *Node) {
	if n.deleted {
		return
	}
	if n.deadline != 0 && n.deadline <= s.at {
		n.deadline = 0
		s.notReady(n, "it has not registered again")
	}
	if n.exclusionEnd != 0 && n.exclusionEnd <= s.at {
		s.endDueExclusions(n)
	}
	if n.sickUntil != 0 && n.sickUntil <= s.at {
		s.setSick(n, 0)
	}
	if n.occupied != nil && n.tellAt <= s.at {
		s.tellOccupied(n)
	}
	if n.lostAt != 0 && n.lostAt <= s.at {
		n.lostAt, n.lost = 0, true
		s.scheduleEmptying(n)
	}
}

// scheduleEmptying lets Continue stop or give up the tasks of a node.
func (s *State) scheduleEmptying(n *Node) {
	if !n.emptying {
		n.emptying = true
		s.emptying = append(s.emptying, n)
	}
}

// emptyNode gives up the tasks of a lost node, or stops those of a draining node. It works as far
// as the budget goes, and reports whether it is done.
func (s *State) emptyNode(n *Node, budget Budget) bool {
	for i := len(n.tasks) - 1; i >= 0; i-- {
		if s.Over(budget) {
			return false
		}
		ref := n.tasks[i]
		switch {
		case n.lost:
			result := plimsoll.ResultLost
			if ref.Task().State == plimsoll.TaskStopping {
				result = ref.Task().Result
			}
			s.end(ref, result, -1, n.lossReason(), s.at)
		case n.Mode == plimsoll.NodeDraining && ref.Task().State != plimsoll.TaskStopping:
			s.stopTask(ref, plimsoll.ResultEvicted, "node "+n.ID+" is drained")
		}
	}
	n.emptying = false
	return true
}

// SetNodeMode opens a node for tasks (active), closes it (cordoned), or closes it and stops its
// tasks (draining).
func (s *State) SetNodeMode(id string, mode plimsoll.NodeMode) error {
	n := s.nodes[id]
	if n == nil {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no node %q", id)
	}
	if !mode.Known() {
		return plimsoll.Invalid("mode", "is not one of active, cordoned, draining")
	}
	if n.Mode == mode {
		return nil
	}
	wasActive := n.Mode == plimsoll.NodeActive
	n.Mode = mode
	s.book(n)
	s.markNode(n)
	if active := mode == plimsoll.NodeActive; active != wasActive {
		s.emitNode(n, plimsoll.ChangeSet, plimsoll.NodeSchedulable, "", nil, fmt.Sprintf("schedulable: %t", active))
	}
	switch mode {
	case plimsoll.NodeActive:
		s.forgetFaults(n)
		s.nodeLog.add(n.Slot, NodeGained)
	case plimsoll.NodeDraining:
		s.scheduleEmptying(n)
	}
	return nil
}

// RemoveNode deletes a node that has no task and is not ready.
func (s *State) RemoveNode(id string) error {
	n := s.nodes[id]
	switch {
	case n == nil:
		return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no node %q", id)
	case len(n.tasks) > 0:
		return plimsoll.Errorf(
			plimsoll.CodeConflict,
			"node %q holds %d tasks; drain it, or wait until a node that is not heard is given up", id, len(n.tasks),
		)
	case n.Ready:
		return plimsoll.Errorf(
			plimsoll.CodeConflict, "node %q is alive and would register again; stop its agent first", id,
		)
	}
	for _, e := range n.Evictions {
		s.endExclusion(n, e)
	}
	s.total.Sub(s.Fleet.Capacity(n.Slot))
	s.countNodeNames(n.Capacity, -1)
	s.setTotal()
	s.uncountNode(n)
	s.countEligible(n.Slot, -1)
	s.nodeLog.add(n.Slot, NodeLost)
	s.Fleet.Remove(n.Slot)
	s.slots[n.Slot] = nil
	s.vacant = append(s.vacant, n.Slot)
	delete(s.nodes, id)
	s.nodeBytes -= n.countedBytes
	n.deleted = true
	s.dirty.deletedNodes = append(s.dirty.deletedNodes, id)
	s.dirty.bytes += len(id)
	s.emitNode(n, plimsoll.ChangeRemove, plimsoll.NodeDecomission, "", n.Capacity, "")
	s.emitQueue(s.tree.Root, plimsoll.ChangeSet, plimsoll.QueueMax, "", s.Names.Resources(&s.total), "")
	s.reviseNames()
	return nil
}

// CheckReporter returns the node for which an agent reports, or why the agent may not report.
func (s *State) CheckReporter(id string, incarnation uint64) (*Node, error) {
	n := s.nodes[id]
	if n == nil {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "there is no node %q; register it first", id)
	}
	switch {
	case incarnation < n.Incarnation:
		return nil, plimsoll.Errorf(plimsoll.CodeStale, "another agent with the id %q has started since", id)
	case incarnation > n.Incarnation:
		return nil, plimsoll.Errorf(
			plimsoll.CodeNotFound, "node %q is not registered with incarnation %d; register it first", id, incarnation,
		)
	}
	return n, nil
}

// Report applies an agent's report about one attempt. A repeated report changes nothing.
func (s *State) Report(n *Node, job, group string, index int32, report *plimsoll.TaskReport) {
	if ref, ok := s.FindTask(job, group, index); ok {
		s.report(n, ref, report)
	}
}

// NodeStatus returns the derived status of a node, which is not stored.
func (s *State) NodeStatus(n *Node) plimsoll.NodeStatus {
	return plimsoll.NodeStatus{
		ID: n.ID, Allocated: s.Names.Resources(s.Fleet.Used(n.Slot)), Tasks: int32(len(n.tasks)),
		SickUntil: n.sickUntil,
	}
}
