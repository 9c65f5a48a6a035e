// Package scheduler runs one scheduling cycle. It takes the task that is next in the queues, asks
// the placement chain for a node, and binds the task there; a class of tasks that no node takes is
// blocked with a code. It goes on until no task can be placed or the turn is full. It also answers
// questions (View): why a task waits (Explain), where a job would go (Try), what is left on nodes
// (Capacities), and which moves would make room (PlanMoves). They cost too much for a turn, so they
// are asked of a copy, which several goroutines may share:
//
//	c := s.Copy(state)
//	for !c.Continue(10_000) { … } // between turns
//	trial, err := c.View(records).Try(spec, "", 0)
//
// Guarantees: when a cycle ends and there is no more, no task that waits could be placed. A class
// that is blocked is tried again only after a change of a node that may let it be placed. Nothing
// is bound over the maximum of a queue, nor over the room of a node, unless the chain has no
// filters for room. The same state, seed and budget give the same bindings in the same order.
// Questions change nothing, not even the order in which nodes are drawn.
//
// It owns the order in which nodes are drawn, the list of classes that wait for a node (waits), and
// the last decisions. Jobs, nodes, queues and the chain are the state's. It starts nothing and
// reads no clock. Its caller is the engine.
//
// Costs: a placement O(depth of the tree + one batch of nodes). A class that finds no node costs
// O(nodes), or a look into a grid if another one that asks for no more waits already. A cycle in
// which nothing has changed costs nothing for what waits. A node that frees room costs O(families +
// classes that fit there); one that is lost or offers less costs O(classes). DESIGN.md has the way,
// the invariants with their tests, and what was rejected.
package scheduler

import (
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// MaxServerLooks bounds how many servers one cycle looks at in vain before it gives way to the next
// turn.
const MaxServerLooks = 2_000_000

// blockLooks is what blocking a class costs that asks no server, in looks at servers.
const blockLooks = 50

const second = int64(1e9)

// KeptDecisions is how many of the last placements can be asked about.
const KeptDecisions = 2000

// Scheduler places tasks.
type Scheduler struct {
	placer    *placement.Placer
	waits     *waits
	seed      uint64
	decisions *placement.Decisions // by task id
}

// New returns a Scheduler for the nodes of a state, which it draws in an order that follows from
// the seed.
func New(s *state.State, seed uint64) *Scheduler {
	placer := placement.NewPlacer(s.Fleet, rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	return &Scheduler{
		placer: placer, waits: newWaits(placer, s.Chain()), seed: seed,
		decisions: placement.NewDecisions(KeptDecisions),
	}
}

// Cycle binds the tasks that can be bound within the budget, and returns how many these were. more
// says that it stopped before it was done.
func (c *Scheduler) Cycle(s *state.State, budget state.Budget) (bound int, more bool) {
	c.waits.wake(s)
	t := s.Tree()
	looks, seen := 0, 0
	for {
		l := t.Next()
		if l == nil && bound > seen { // others may want to be near those that were bound
			if seen = bound; c.waits.poll(s) {
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
		if class.Lacks != "" { // until the state makes another class of it
			t.Block(class.Class, plimsoll.WaitNoResource)
			continue
		}
		w := c.waits.of(class)
		if c.waits.refused(s, w) {
			looks += blockLooks
			continue
		}
		p, _ := s.Prepared(g)
		choice := c.placer.Place(p, s.Seconds())
		if choice.Slot < 0 {
			looks += 2 * s.Fleet.Len()
			c.waits.block(s, w)
			continue
		}
		ref := g.Next()
		c.placer.Note(c.decisions, ref.Task().ID)
		s.Bind(ref, choice.Slot)
		bound++
	}
}
