package state

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
)

// Leave notes that the agent of a node has stopped. The given number of attempts goes on under the
// node's supervisor. The node takes no tasks from now on, and its tasks are given up after
// Config.LostAfter. With empty, nothing runs there and nothing starts before the node registers
// again, so the tasks are given up at once. A repeated call changes nothing.
func (s *State) Leave(id string, incarnation uint64, running int32, empty bool) error {
	n, err := s.CheckReporter(id, incarnation)
	switch {
	case err != nil:
		return err
	case running < 0:
		return plimsoll.Invalid("running", "is negative; give the number of attempts that go on")
	case empty && running > 0:
		return plimsoll.Invalid("empty", "is set, and running says that %d go on; set one of them alone", running)
	}
	if n.Ready {
		why := "its agent was stopped"
		if running > 0 {
			why = fmt.Sprintf("%s; attempts that go on without it: %d", why, running)
		}
		s.notReady(n, why)
	}
	if empty && !n.lost {
		n.lostAt, n.lost, n.left = 0, true, true
		s.scheduleEmptying(n)
	}
	return nil
}

// lossReason says why the tasks of a lost node are given up.
func (n *Node) lossReason() string {
	if n.left {
		return "the agent of node " + n.ID + " was stopped, and the task did not run there"
	}
	return "node " + n.ID + " was not heard from for too long"
}
