package state

import (
	"math"

	"github.com/plimsoll-dev/plimsoll"
)

// noteStart tells the fleet whether a node could start an attempt: the task runs or has run, or the
// report is a fault of the node. Two faults in a row make the node sick: it takes no tasks until
// nodeDue, a new agent or SetNodeMode ends that. Sickness is not stored; a new leader counts anew.
func (s *State) noteStart(n *Node, t *Task, report *plimsoll.TaskReport) {
	fault := false
	switch {
	case t.Started != 0: // an earlier report said so
		return
	case report.State == plimsoll.TaskFinished:
		switch report.Result {
		case plimsoll.ResultNodeFault:
			fault = true
		case plimsoll.ResultSucceeded, plimsoll.ResultFailed, plimsoll.ResultOutOfMemory, plimsoll.ResultOutOfDisk,
			plimsoll.ResultTimedOut, plimsoll.ResultUnknownExit:
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

// forgetFaults clears the faults of a node, after a new start of its agent or a new mode.
func (s *State) forgetFaults(n *Node) {
	s.Fleet.Recover(n.Slot)
	s.setSick(n, 0)
}

func (s *State) setSick(n *Node, until int64) {
	if until == n.sickUntil {
		return
	}
	n.sickUntil = until
	s.countNode(n)
	s.markNodeStatus(n)
	if until == 0 {
		s.nodeLog.add(n.Slot, NodeGained)
		return
	}
	s.wakeAt(timer{at: until, node: n})
}
