package remote

import (
	"context"
	"fmt"
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
	// Name is that of Chain with the evaluator; empty: the chain is written out. If there is a name and Chain is nil, what the chain
	// asks for is not known here: all servers are listed, and looked at in batches of the default size.
	Name string
	Now  int64 // Unix seconds
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
}

// Place has the servers evaluated in batches, drawn in an order that follows from rng, and chooses the best of the first batch in which
// one is left. Only when every server was looked at is the answer none, and the steps, added up over all batches, say why. An error
// of a batch is an error that names it, and nothing is placed.
func Place(ctx context.Context, e Evaluator, servers Servers, rng *rand.PCG, o *Order) (Result, error) {
	if err := placeable(&o.Request); err != nil {
		return Result{}, err
	}
	chain := o.Chain
	if chain == nil {
		chain = placement.Default()
	}
	f := placement.NewFleet(placement.NewNames())
	query, err := o.query(chain, f)
	if err != nil {
		return Result{}, err
	}
	list, err := servers(ctx, query)
	if err != nil {
		return Result{}, fmt.Errorf("list servers: %w", err)
	}
	for i := range list {
		record := list[i]
		record.Instances = nil
		f.Put(int32(i), &record)
	}
	size := chain.BatchSize(f.Len())
	if size > MaxServers {
		return Result{}, plimsoll.Invalid("batch", "is %d servers; an evaluator takes at most %d, so make the chain's batches smaller", size, MaxServers)
	}
	d := dealer{order: o, chain: chain, fleet: f, size: size, tickets: map[int32][]placement.Ticket{}}
	for _, t := range o.Tickets {
		if slot := f.Slot(t.Server); slot >= 0 {
			d.tickets[slot] = append(d.tickets[slot], t)
		}
	}
	d.result.Servers = f.Len()
	err = d.run(ctx, e, placement.NewDraw(rng))
	d.result.Steps = d.steps.Steps()
	if err != nil {
		return Result{}, err
	}
	return d.result, nil
}

// query returns what a source may leave out.
func (o *Order) query(chain *placement.Chain, f *placement.Fleet) (placement.Query, error) {
	p, err := chain.Prepare(f, &o.Request)
	if err != nil {
		return placement.Query{}, err
	}
	defer p.Release()
	if o.Chain == nil && o.Name != "" {
		return placement.Query{}, nil
	}
	return p.Query(), nil
}

// dealer has batch after batch evaluated.
type dealer struct {
	order   *Order
	chain   *placement.Chain
	fleet   *placement.Fleet
	size    int
	tickets map[int32][]placement.Ticket // by slot
	steps   placement.StepSum
	result  Result
}

func (d *dealer) run(ctx context.Context, e Evaluator, draw *placement.Draw) error {
	for seed, slots := range draw.Deal(d.fleet.Len(), d.size, d.fleet.Open) {
		d.result.Batches++
		b := d.batch(seed, slots)
		answer, err := e.Evaluate(ctx, b)
		if err == nil {
			err = answer.check(b)
		}
		if err != nil {
			return &plimsoll.Error{
				Code: plimsoll.CodeOf(err), Op: "place",
				Msg: fmt.Sprintf("batch %d, of %d servers with %q first, could not be evaluated", d.result.Batches, len(b.Servers), b.Servers[0].ID), Err: err,
			}
		}
		d.result.Loads += answer.Loads
		d.result.Peak = max(d.result.Peak, answer.Peak)
		for i := range answer.Steps {
			d.steps.Add(answer.Steps[i].Place, &answer.Steps[i].Step)
		}
		if len(answer.Survivors) > 0 {
			best := answer.Survivors[0]
			d.result.Server, d.result.Score = b.Servers[best.Place].ID, best.Score
			return nil
		}
	}
	return nil
}

// batch makes a batch of servers that were drawn. Of closed ones only as many go with it as there is room for: they are sent so that
// the steps tell of them.
func (d *dealer) batch(seed uint64, slots []int32) *Batch {
	o := d.order
	b := &Batch{Request: o.Request, Chain: Chain{Name: o.Name}, Seed: seed, Now: o.Now}
	if o.Name == "" {
		b.Chain.Text, b.Chain.Settings = d.chain.Text, d.chain.Settings
	}
	for i := range d.fleet.Names.Len() {
		b.Names = append(b.Names, d.fleet.Names.Name(i))
	}
	closed := 0
	for _, slot := range slots {
		if d.fleet.Open(slot) {
			d.result.Looked++
		} else if closed++; closed > MaxServers-d.size {
			d.result.Unsent++
			continue
		}
		b.Servers = append(b.Servers, d.fleet.Record(slot))
		b.Tickets = append(b.Tickets, d.tickets[slot]...)
	}
	return b
}

// check refuses an answer that does not belong to the batch.
func (e *Evaluation) check(b *Batch) error {
	for _, s := range e.Survivors {
		if s.Place < 0 || s.Place >= len(b.Servers) {
			return plimsoll.Errorf(plimsoll.CodeInternal, "the evaluator's answer names server %d of a batch of %d", s.Place, len(b.Servers))
		}
	}
	for i := range e.Steps {
		if p := e.Steps[i].Place; p < 0 || p >= maxStages {
			return plimsoll.Errorf(plimsoll.CodeInternal, "the evaluator's answer names stage %d; a chain has at most %d", p, maxStages)
		}
	}
	return nil
}

// maxStages is above the most stages that a chain of package placement may have.
const maxStages = 1000
