package scheduler

import (
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// View answers questions about what was after one turn: why a task waits (Explain), where a job
// would go (Try), what is left on nodes (Capacities), and which moves would make room (PlanMoves).
// The same question has the same answer each time. A view has one owner.
type View struct {
	fleet *placement.Fleet
	chain *placement.Chain
	tree  *queue.Tree
	names state.KnownNames
	now   int64 // Unix seconds
	seed  uint64

	size     func(*plimsoll.JobSpec) error // why a specification is too large
	movables func(most int) (list []placement.Movable, all bool, release func())
}

// View returns a view of the state itself, good until that changes. Whoever asks much holds up the
// turns; see Copy.
func (c *Scheduler) View(s *state.State) *View {
	return &View{
		fleet: s.Fleet, chain: s.Chain(), tree: s.Tree(), names: s.KnownNames(), now: s.Seconds(), seed: c.seed,
		size: s.CheckSize,
		movables: func(most int) ([]placement.Movable, bool, func()) {
			list, all := s.Movables(most)
			return list, all, func() {}
		},
	}
}

// placer returns a placer for one question, with an order of drawing that follows from the seed
// alone.
func (v *View) placer() *placement.Placer {
	return placement.NewPlacer(v.fleet, rand.NewPCG(v.seed^0xd1b54a32d192ed03, v.seed))
}

// Copy is what views of one turn are made of. It is made in parts between the turns that follow:
// see Continue.
type Copy struct {
	view  View // without a fleet
	fleet *placement.Copying
}

// Copy begins a copy of what questions are about. The nodes are for Continue; the rest costs
// O(queues).
func (c *Scheduler) Copy(s *state.State) *Copy {
	return &Copy{
		view: View{
			chain: s.Chain(), tree: s.Tree().Copy(), names: s.KnownNames(), now: s.Seconds(), seed: c.seed,
			size: s.CheckSize,
		},
		fleet: s.Fleet.Copy(),
	}
}

// Continue copies so many more nodes, about, and reports whether the copy is whole. The owner of
// the state calls it until it is, and the state may change between the calls. Once it is whole the
// copy never changes.
func (c *Copy) Continue(nodes int) (done bool) { return c.fleet.Continue(nodes) }

// View returns a view of a whole copy, with the records of its revision. Several goroutines may ask
// for one each, at any time.
func (c *Copy) View(records state.Records) *View {
	v := c.view
	v.fleet = c.fleet.Fork()
	v.fleet.Loader = state.Lookups(records)
	v.movables = func(most int) ([]placement.Movable, bool, func()) {
		return state.RecordedMovables(records, v.fleet, v.chain, most)
	}
	return &v
}
