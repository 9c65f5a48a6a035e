package remote

import (
	"context"
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Servers lists servers. It may leave out those that do not match the query; RFD 60's phase 1.
type Servers func(ctx context.Context, q placement.Query) ([]placement.Server, error)

// Order is one placement.
type Order struct {
	Request placement.Request
	Tickets []placement.Ticket // those for servers that are not listed do not count
	Chain   *placement.Chain   // nil: placement.Default()
	// Name is that of Chain with the evaluator; empty: the chain is written out. If there is a name
	// and Chain is nil, what the chain asks for is not known here: all servers are listed, and
	// looked at in batches of the default size.
	Name string
	Now  int64 // Unix seconds
	// Everything asks for all servers, also for those that a query would leave out, so that the
	// steps tell of them too.
	Everything bool
}

// Result is what a placement came to.
type Result struct {
	Server  string // the chosen one; empty: none
	Score   float64
	Servers int // listed
	Looked  int // open servers that were looked at
	Batches int
	Loads   int // servers whose instances were loaded
	Peak    int // most instances that an evaluator held at once
	Unsent  int // servers that are closed anyway, of which a batch was too full to tell
	Steps   []placement.Step
	Failed  []PartError // evaluators that could not be asked; their servers were left out
}

// Place has the servers of one list evaluated in batches by one evaluator; see Fleet.Place.
func Place(ctx context.Context, e Evaluator, servers Servers, rng *rand.PCG, o *Order) (Result, error) {
	f, err := NewFleet([]Part{{Evaluator: listed{e, servers}}}, FleetOptions{})
	if err != nil {
		return Result{}, err
	}
	return f.Place(ctx, rng, o)
}

// listed is an evaluator with a list of servers that is known elsewhere.
type listed struct {
	Evaluator
	servers Servers
}

func (l listed) ListServers(ctx context.Context, q placement.Query) ([]placement.Server, error) {
	return l.servers(ctx, q)
}

func (l listed) CountSpread(ctx context.Context, q *SpreadQuestion) ([]placement.SpreadTally, error) {
	if e, ok := l.Evaluator.(PartEvaluator); ok {
		return e.CountSpread(ctx, q)
	}
	return nil, plimsoll.Errorf(plimsoll.CodeUnimplemented, "this evaluator cannot count the instances of a group")
}

func (l listed) Capacity(ctx context.Context, q *CapacityQuestion) ([]Capacity, error) {
	if e, ok := l.Evaluator.(PartEvaluator); ok {
		return e.Capacity(ctx, q)
	}
	return nil, plimsoll.Errorf(plimsoll.CodeUnimplemented, "this evaluator cannot calculate capacities")
}

// query returns what a source may leave out.
func (o *Order) query(chain *placement.Chain) (placement.Query, error) {
	f := placement.NewFleet(placement.NewNames())
	spreads := len(o.Request.Constraints.Spread) + len(o.Request.Preferences.Spread)
	f.Loader.Spreads = func(*placement.Request) ([]placement.GroupSpread, error) {
		return make([]placement.GroupSpread, spreads), nil // they are counted where the instances are known
	}
	p, err := chain.Prepare(f, &o.Request)
	if err != nil {
		return placement.Query{}, err
	}
	defer p.Release()
	if o.Everything || o.Chain == nil && o.Name != "" {
		return placement.Query{}, nil
	}
	return p.Query(), nil
}

// sent is the chain as an evaluator is told of it.
func (o *Order) sent(chain *placement.Chain) Chain {
	if o.Name != "" {
		return Chain{Name: o.Name}
	}
	return Chain{Text: chain.Expanded(), Settings: chain.Settings}
}

// check refuses an answer that does not belong to the batch.
func (e *Evaluation) check(b *Batch) error {
	for _, s := range e.Survivors {
		if s.Place < 0 || s.Place >= len(b.Servers) {
			return plimsoll.Errorf(
				plimsoll.CodeInternal, "the evaluator's answer names server %d of a batch of %d", s.Place,
				len(b.Servers),
			)
		}
	}
	for i := range e.Steps {
		if p := e.Steps[i].Place; p < 0 || p >= maxStages {
			return plimsoll.Errorf(
				plimsoll.CodeInternal, "the evaluator's answer names stage %d; a chain has at most %d", p, maxStages,
			)
		}
	}
	return nil
}

// maxStages is above the most stages that a chain of package placement may have.
const maxStages = 1000
