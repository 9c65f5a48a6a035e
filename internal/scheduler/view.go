package scheduler

import (
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/queuerule"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// View answers questions about the state after one turn: why a task waits (Explain), where a job
// would go (Try), how much is left on nodes (Capacities), and which moves would make room
// (PlanMoves). The same question has the same answer each time. One goroutine at a time uses a
// view.
type View struct {
	fleet *placement.Fleet
	chain *placement.Chain
	tree  *queue.Tree
	rules *queuerule.Set
	names state.KnownNames
	now   int64 // Unix seconds
	seed  uint64

	holders map[string][]holder // of strict leaves, by path

	checkSize func(*plimsoll.JobSpec) error // returns an error for a specification that is too large
	records   state.Records                 // nil in a view of the state itself
	movables  func(most int) (list []placement.Movable, all bool, release func())
}

// View returns a view of the state itself, valid until the state changes. Long questions delay the
// turns; see Copy.
func (c *Scheduler) View(s *state.State) *View {
	return &View{
		fleet: s.Fleet, chain: s.Chain(), tree: s.Tree(), rules: s.Rules(), names: s.KnownNames(),
		now: s.Seconds(), seed: c.seed,
		checkSize: s.CheckSize,
		movables: func(most int) ([]placement.Movable, bool, func()) {
			list, all := s.Movables(most)
			return list, all, func() {}
		},
	}
}

// placer returns a placer for one question. Its order of drawing follows from the seed alone.
func (v *View) placer() *placement.Placer {
	return placement.NewPlacer(v.fleet, rand.NewPCG(v.seed^0xd1b54a32d192ed03, v.seed))
}

// Copy is the frozen state of one turn, from which views are made. It is made in parts between the
// turns that follow: see Continue.
type Copy struct {
	view  View // without a fleet
	fleet *placement.Copying
}

// Copy begins a copy of the queues and nodes. Continue copies the nodes; the rest costs O(queues).
func (c *Scheduler) Copy(s *state.State) *Copy {
	tree := s.Tree().Copy()
	return &Copy{
		view: View{
			holders: holders(s, tree),
			chain:   s.Chain(), tree: tree, rules: s.Rules(), names: s.KnownNames(),
			now: s.Seconds(), seed: c.seed,
			checkSize: s.CheckSize,
		},
		fleet: s.Fleet.Copy(),
	}
}

// Continue copies roughly so many more nodes, and reports whether the copy is complete. The owner
// of the state calls it until then, and the state may change between the calls. A complete copy
// never changes.
func (c *Copy) Continue(nodes int) (done bool) { return c.fleet.Continue(nodes) }

// View returns a view of a complete copy, with the records of its revision. Several goroutines may
// each ask for one, at any time.
func (c *Copy) View(records state.Records) *View {
	v := c.view
	v.fleet = c.fleet.Fork()
	v.fleet.Loader = state.Lookups(records)
	v.records = records
	v.movables = func(most int) ([]placement.Movable, bool, func()) {
		return state.RecordedMovables(records, v.fleet, v.chain, most)
	}
	return &v
}
