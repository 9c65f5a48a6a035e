package remote

import (
	"context"
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Servers lists servers. It may leave out servers that do not match the query (RFD 60, phase 1).
type Servers func(ctx context.Context, q placement.Query) ([]placement.Server, error)

// Order describes one placement.
type Order struct {
	Request placement.Request
	Tickets []placement.Ticket // tickets for servers that are not listed are ignored
	Chain   *placement.Chain   // nil: placement.Default()
	// Name is the name under which the evaluator knows the chain; empty: the chain is written out.
	// With a name and without Chain, the chain's query and settings are unknown here. All servers
	// are then listed, and looked at in batches of the default size.
	Name string
	Now  int64 // Unix seconds
	// Everything lists all servers, also those that a query would leave out, so that the steps
	// include them.
	Everything bool
}

// Result is the outcome of a placement.
type Result struct {
	Server  string // id of the chosen server; empty: none
	Score   float64
	Servers int // servers listed
	Looked  int // open servers that were looked at
	Batches int
	Loads   int // servers whose instances were loaded
	Peak    int // most instances that an evaluator held at once
	Unsent  int // closed servers left out of full batches, and so of the steps
	Steps   []placement.Step
	Failed  []PartError // evaluators that did not answer; their servers were left out
}

// Place evaluates the servers of one list in batches with one evaluator; see Fleet.Place.
func Place(ctx context.Context, e Evaluator, servers Servers, rng *rand.PCG, o *Order) (Result, error) {
	f, err := NewFleet([]Part{{Evaluator: listed{e, servers}}}, FleetOptions{})
	if err != nil {
		return Result{}, err
	}
	return f.Place(ctx, rng, o)
}

// listed is an evaluator whose list of servers comes from elsewhere.
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

// query returns the filters that a source of servers may apply.
func (o *Order) query(chain *placement.Chain) (placement.Query, error) {
	f := placement.NewFleet(placement.NewNames())
	spreads := len(o.Request.Constraints.Spread) + len(o.Request.Preferences.Spread)
	f.Loader.Spreads = func(*placement.Request) ([]placement.GroupSpread, error) {
		return make([]placement.GroupSpread, spreads), nil // the evaluators count them
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

// sent returns the chain as it is sent to an evaluator.
func (o *Order) sent(chain *placement.Chain) Chain {
	if o.Name != "" {
		return Chain{Name: o.Name}
	}
	return Chain{Text: chain.Expanded(), Settings: chain.Settings}
}

// check refuses an answer that does not fit the batch.
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

// maxStages is more than the most stages of a chain of package placement.
const maxStages = 1000
