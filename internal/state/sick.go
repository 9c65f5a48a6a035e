package state

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
)

// began tells the placement what a report says about the node that was to start an attempt: the
// task runs or has run, or the node could not start it. Two faults in a row make the node sick: no
// task goes there until nodeDue, a new agent or SetNodeMode says otherwise. That is not stored: a
// new leader finds out anew.
func (s *State) began(n *Node, t *Task, report *plimsoll.TaskReport) {
	fault := false
	switch {
	case t.Started != 0: // it was told before
		return
	case report.State == plimsoll.TaskFinished:
		switch report.Result {
		case plimsoll.ResultNodeFault:
			fault = true
		case plimsoll.ResultSucceeded, plimsoll.ResultFailed, plimsoll.ResultOutOfMemory, plimsoll.ResultOutOfDisk,
			plimsoll.ResultTimedOut,
			plimsoll.ResultUnknownExit:
		default:
			return
		}
	case report.State != plimsoll.TaskRunning:
		return
	}
	s.Fleet.Outcome(n.Slot, s.Seconds(), fault)
	until := min(s.cfg.Chain.SickUntil(s.Fleet, n.Slot), math.MaxInt64/second) * second
	if until <= s.at {
		until = 0
	}
	s.setSick(n, until)
}

// recover forgets the faults of a node that somebody has looked after.
func (s *State) recover(n *Node) {
	s.Fleet.Recover(n.Slot)
	s.setSick(n, 0)
}

func (s *State) setSick(n *Node, until int64) {
	if until == n.sickUntil {
		return
	}
	n.sickUntil = until
	s.markNodeStatus(n)
	if until == 0 {
		s.nodeLog.add(n.Slot, NodeGained)
		return
	}
	s.wakeAt(timer{at: until, node: n})
}
