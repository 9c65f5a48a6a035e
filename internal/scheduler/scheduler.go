// Package scheduler runs one scheduling cycle. It takes the next task of the queues, asks the
// placement chain for a node, and binds the task there. A class is a request that several tasks
// have in common (state.Class). A class that no node takes is blocked with a code, the cause that
// users see. A cycle is part of a turn, one pass of the engine's loop. It ends when no task can be
// placed or the budget of the turn is used up.
//
// It also answers questions (View): why a task waits (Explain), where a job would go (Try), how
// much is left on nodes (Capacities), and which moves would make room (PlanMoves). Questions cost
// too much for a turn. So they are asked of a copy, which several goroutines may share:
//
//	c := s.Copy(state)
//	for !c.Continue(10_000) { … } // between turns
//	trial, err := c.View(records).Try(spec, "", 0)
//
// Guarantees: after a cycle that was not cut short (more is false), no waiting task could be
// placed. A blocked class is tried again only after a change of a node that may let it be placed.
// No binding exceeds the maximum of a queue. None exceeds the room of a node, unless the chain has
// no filters for room. The same state, seed and budget give the same bindings in the same order.
// Questions change nothing, not even the order in which nodes are drawn.
//
// The package owns the order in which nodes are drawn, the list of classes that wait for a node
// (waits), and the last decisions. Jobs, nodes, queues and the chain are the state's. It starts
// nothing and reads no clock. Its caller is the engine.
//
// Costs: a placement costs O(depth of the tree + one batch of nodes). A class that finds no node
// costs O(nodes). If a waiting class needs at most as much, it costs only a search in a grid. A
// cycle in which nothing has changed costs nothing for waiting classes. A node that frees room
// costs O(families + classes that fit there). A node that is lost or offers less costs O(classes).
// DESIGN.md has the algorithm, the invariants with their tests, and the rejected alternatives.
package scheduler

import (
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// MaxServerLooks bounds how many servers one cycle evaluates in vain before it leaves the rest to
// the next turn.
const MaxServerLooks = 2_000_000

// blockLooks is the cost, in evaluated servers, of blocking a class without asking any server.
const blockLooks = 50

const second = int64(1e9)

// KeptDecisions is the number of recent placements whose decisions are kept.
const KeptDecisions = 2000

// Scheduler places tasks. One goroutine at a time uses it.
type Scheduler struct {
	placer    *placement.Placer
	waits     *waits
	seed      uint64
	decisions *placement.Decisions // keyed by task id
}

// New returns a Scheduler for the nodes of a state. The order in which it draws them follows from
// the seed.
func New(s *state.State, seed uint64) *Scheduler {
	placer := placement.NewPlacer(s.Fleet, rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	c := &Scheduler{
		placer: placer, waits: newWaits(placer, s.Chain()), seed: seed,
		decisions: placement.NewDecisions(KeptDecisions),
	}
	s.Tree().SetRivals(c.rivals(s))
	return c
}

// Cycle binds the tasks that can be bound within the budget, and returns their number. more
// reports that it stopped before it was done.
func (c *Scheduler) Cycle(s *state.State, budget state.Budget) (bound int, more bool) {
	c.waits.wake(s)
	t := s.Tree()
	looks, boundAtPoll := 0, 0
	for {
		l := t.Next()
		if l == nil && bound > boundAtPoll { // other tasks may prefer to be near those that were bound
			if boundAtPoll = bound; c.waits.poll(s) {
				l = t.Next()
			}
		}
		if l == nil {
			t.Settle()
			return bound, false
		}
		if s.Over(budget) || looks > MaxServerLooks {
			return bound, true
		}
		g := s.GroupOf(l)
		class := g.Class()
		if class.Refused {
			t.Block(class.Class, plimsoll.WaitNotUnderstood)
			continue
		}
		if class.Lacks != "" { // the state makes a new class when a node has the resource
			t.Block(class.Class, plimsoll.WaitNoResource)
			continue
		}
		w := c.waits.of(class)
		if c.waits.refused(s, w) {
			looks += blockLooks
			continue
		}
		ref := g.Next()
		if c.placeElsewhere(s, ref) {
			bound++
			continue
		}
		p, _ := s.Prepared(g)
		choice := c.placer.Place(p, s.Seconds())
		if choice.Slot < 0 {
			looks += 2 * s.Fleet.Len() // Place and, for the code, Refusal
			c.waits.block(s, w)
			continue
		}
		if s.Avoids(ref) != "" {
			looks += s.Fleet.Len() // placeElsewhere has asked every server
		}
		c.placer.Note(c.decisions, ref.Task().ID)
		s.Bind(ref, choice.Slot)
		bound++
	}
}

// placeElsewhere binds a task that avoids the node of its last attempt to another node, and reports
// whether there was one. Otherwise it may go to that node again.
func (c *Scheduler) placeElsewhere(s *state.State, ref state.Ref) bool {
	p := s.PreparedElsewhere(ref)
	if p == nil {
		return false
	}
	defer p.Release()
	choice := c.placer.Place(p, s.Seconds())
	if choice.Slot < 0 {
		return false
	}
	c.placer.Note(c.decisions, ref.Task().ID)
	s.Bind(ref, choice.Slot)
	return true
}
