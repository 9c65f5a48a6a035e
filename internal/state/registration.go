package state

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// aheadOfClock is how far an incarnation may be ahead of the leader's clock. An agent's first
// incarnation is the time of its first start, in milliseconds since 1970; each start adds one. Only
// a wrong clock or an attacker is further ahead.
const aheadOfClock = 24 * time.Hour

// lastIncarnation returns the highest incarnation that is believed now.
func (s *State) lastIncarnation() uint64 {
	return uint64(max(time.Duration(s.at)+aheadOfClock, 0).Milliseconds())
}

// fewStarts is the number of starts of a known agent that are believed at any time of the clock. So
// a leader whose clock is behind does not lose its nodes.
const fewStarts = 1000

// checkIncarnation refuses an incarnation from the future, because no later start of the agent
// could exceed it. n is the known node, or nil.
func (s *State) checkIncarnation(n *Node, node *plimsoll.Node) error {
	if n != nil && n.Key == node.Key && node.Incarnation >= n.Incarnation &&
		node.Incarnation-n.Incarnation <= fewStarts {
		return nil
	}
	if last := s.lastIncarnation(); node.Incarnation > last {
		return plimsoll.Invalid("incarnation", "%d of node %q is from the future: an agent counts its starts from the milliseconds since 1970 of the "+
			"first one, and now %d is the highest that is believed; set the clocks right", node.Incarnation, node.ID, last)
	}
	return nil
}

// checkClaim reports whether an agent may register as a known node.
//
// An agent with the node's key may register at once if it started later than the known one. If the
// known one is not heard, an earlier start is accepted too: the agent was restored from a backup. A
// node without a key, from an agent of an earlier version, accepts the first key. An agent with
// another key has to wait until the node's tasks were given up or the node was removed. So no
// attempt is handed to two agents.
func (s *State) checkClaim(n *Node, node *plimsoll.Node) error {
	switch {
	case n.Key == "" && node.Key != "":
		return nil
	case n.Key != node.Key:
		return s.checkForeign(n)
	case n.Incarnation > s.lastIncarnation():
		return nil // the known incarnation is older than the bound, and is ignored
	case n.Key != "" && !n.Ready:
		return nil
	case node.Incarnation < n.Incarnation, node.Incarnation == n.Incarnation && node.Session != n.Session:
		return plimsoll.Errorf(
			plimsoll.CodeStale,
			"another agent with the id %q has started since (incarnation %d, yours is %d); give each machine its own id",
			node.ID, n.Incarnation, node.Incarnation,
		)
	}
	return nil
}

// checkForeign reports whether a node can pass to an agent with another key.
func (s *State) checkForeign(n *Node) error {
	const owned = "node %q belongs to an agent with another key"
	switch {
	case n.Ready:
		return &plimsoll.Error{Code: plimsoll.CodeConflict, Field: "node", Msg: fmt.Sprintf(
			owned+", which has been heard since %s%s; give this machine an id of its own with --node, "+
				"or stop the other agent and run: plimsoll node remove %[1]s",
			n.ID, moment(n.heardSince), calledFrom(n),
		)}
	case !n.lost || len(n.tasks) > 0:
		return &plimsoll.Error{Code: plimsoll.CodeConflict, Field: "node", Msg: fmt.Sprintf(
			owned+", which is not heard, and its tasks are not given up yet (that takes %s); "+
				"give this machine an id of its own with --node, or let it try again",
			n.ID, time.Duration(s.cfg.LostAfter),
		)}
	}
	return nil
}

func moment(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// calledFrom returns the address of a node's agent, as a part of a sentence; empty if it is
// unknown.
func calledFrom(n *Node) string {
	if n.Peer == "" {
		return ""
	}
	return " (from " + n.Peer + ")"
}
