package state

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// aheadOfClock is how far an incarnation may be ahead of the leader's clock. Agents count from the
// milliseconds since 1970 of their first start, one for each start, so only a wrong clock or an ill
// will is further ahead.
const aheadOfClock = 24 * time.Hour

// lastIncarnation is the highest incarnation that is believed now.
func (s *State) lastIncarnation() uint64 {
	return uint64(max(time.Duration(s.at)+aheadOfClock, 0).Milliseconds())
}

// fewStarts is how many starts of a known agent are believed whatever the clock says: a leader
// whose clock is behind must not lose its nodes.
const fewStarts = 1000

// checkIncarnation refuses an incarnation from the future: nobody could follow it. n is the node if
// it is known.
func (s *State) checkIncarnation(n *Node, node *plimsoll.Node) error {
	if n != nil && n.Key == node.Key && node.Incarnation >= n.Incarnation && node.Incarnation-n.Incarnation <= fewStarts {
		return nil
	}
	if last := s.lastIncarnation(); node.Incarnation > last {
		return plimsoll.Invalid("incarnation", "%d of node %q is from the future: an agent counts its starts from the milliseconds since 1970 of the "+
			"first one, and now %d is the highest that is believed; set the clocks right", node.Incarnation, node.ID, last)
	}
	return nil
}

// checkClaim reports whether an agent may register as a node that is known.
//
// The agent that has the node's key may, at once, if it has started later than the one that is
// known, or if that one is not heard: then the agent was set back, as by a backup. A node without a
// key, whose agent was of an earlier version, takes the first that comes. Another key has to wait
// until nothing can be started any more in the name of the node: until its tasks were given up, or
// it was removed. So no attempt is handed to two agents.
func (s *State) checkClaim(n *Node, node *plimsoll.Node) error {
	switch {
	case n.Key == "" && node.Key != "":
		return nil
	case n.Key != node.Key:
		return s.checkForeign(n)
	case n.Incarnation > s.lastIncarnation():
		return nil // it was taken in before there was a bound, and does not count
	case n.Key != "" && !n.Ready:
		return nil
	case node.Incarnation < n.Incarnation, node.Incarnation == n.Incarnation && node.Session != n.Session:
		return plimsoll.Errorf(plimsoll.CodeStale, "another agent with the id %q has started since (incarnation %d, yours is %d); give each machine its own id",
			node.ID, n.Incarnation, node.Incarnation)
	}
	return nil
}

// checkForeign reports whether a node can go to an agent that has not its key.
func (s *State) checkForeign(n *Node) error {
	const owned = "node %q belongs to an agent with another key"
	switch {
	case n.Ready:
		return &plimsoll.Error{Code: plimsoll.CodeConflict, Field: "node", Msg: fmt.Sprintf(owned+", which has been heard since %s%s; give this "+
			"machine an id of its own with --node, or stop the other agent and run: plimsoll node remove %[1]s", n.ID, moment(n.heardSince), calledFrom(n))}
	case !n.lost || len(n.tasks) > 0:
		return &plimsoll.Error{Code: plimsoll.CodeConflict, Field: "node", Msg: fmt.Sprintf(owned+", which is not heard, and its tasks are not given up "+
			"yet (that takes %s); give this machine an id of its own with --node, or let it try again", n.ID, time.Duration(s.cfg.LostAfter))}
	}
	return nil
}

func moment(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// calledFrom says where an agent calls from.
func calledFrom(n *Node) string {
	if n.Peer == "" {
		return ""
	}
	return " (from " + n.Peer + ")"
}
