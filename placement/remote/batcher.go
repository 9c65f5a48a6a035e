package remote

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// batcher draws batches for one placement and sends them to evaluators. The servers of a batch all
// belong to one evaluator.
type batcher struct {
	of      *Fleet
	order   *Order
	chain   *placement.Chain
	fleet   *placement.Fleet // all servers, without instances
	draws   []*partDraw
	tickets map[int32][]placement.Ticket // by slot
	spreads []placement.GroupSpread      // over all evaluators
	steps   placement.StepSum
	result  Result
}

// partDraw draws the servers of one evaluator.
type partDraw struct {
	part  *part
	first int32 // slot of the evaluator's first server
	size  int   // open servers of a batch
	left  int   // servers not yet drawn; 0: draw no more
	next  func() (uint64, []int32, bool)
}

func (f *Fleet) newBatcher(chain *placement.Chain, o *Order) (*batcher, error) {
	d := &batcher{
		of: f, order: o, chain: chain, fleet: placement.NewFleet(placement.NewNames()),
		tickets: map[int32][]placement.Ticket{},
	}
	if err := d.fleet.Names.Check("resources", o.Request.Resources); err != nil {
		return nil, err
	}
	d.fleet.Names.Amounts(o.Request.Resources)
	for _, p := range f.parts {
		n := len(p.servers)
		from := &partDraw{part: p, first: int32(d.fleet.Len()), left: n, size: chain.BatchSize(n)}
		if from.size > MaxServers {
			return nil, plimsoll.Invalid("batch",
				"is %d servers; an evaluator takes at most %d, so make the chain's batches smaller", from.size, MaxServers)
		}
		for i := range p.servers {
			d.fleet.Put(from.first+int32(i), &p.servers[i])
		}
		d.draws = append(d.draws, from)
	}
	for _, t := range o.Tickets {
		if slot := d.fleet.Slot(t.Server); slot >= 0 {
			d.tickets[slot] = append(d.tickets[slot], t)
		}
	}
	d.result.Servers = d.fleet.Len()
	return d, nil
}

// countSpreads has the evaluators count the group of a request with a spread. A constraint needs
// the count of every evaluator; a preference uses the counts of those that answer.
func (d *batcher) countSpreads(ctx context.Context) error {
	r := &d.order.Request
	if len(r.Constraints.Spread)+len(r.Preferences.Spread) == 0 {
		return nil
	}
	q := &SpreadQuestion{
		Request: *r, Tickets: d.order.Tickets, Chain: d.order.sent(d.chain), Names: namesOf(d.fleet.Names),
		Now: d.order.Now,
	}
	parts := make([][]placement.SpreadTally, len(d.of.parts))
	err := d.of.each(ctx, "count the spread", func(ctx context.Context, p *part) error {
		tallies, err := p.Evaluator.CountSpread(ctx, q)
		if err == nil && len(tallies) != len(r.Constraints.Spread)+len(r.Preferences.Spread) {
			err = plimsoll.Errorf(plimsoll.CodeInternal,
				"the evaluator's answer is about %d spreads of another request", len(tallies))
		}
		parts[slices.Index(d.of.parts, p)] = tallies
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range d.of.Failed() {
		if len(r.Constraints.Spread) > 0 {
			return &plimsoll.Error{
				Code: plimsoll.CodeOf(p.Err), Op: "place", Field: "constraints.spread",
				Msg: "cannot be kept: how the group is spread is not known of all servers", Err: p.Err,
			}
		}
	}
	d.spreads = placement.MergeSpreads(parts...)
	return nil
}

// run sends out batches until one has a survivor. An evaluator that does not answer is left out.
func (d *batcher) run(ctx context.Context, rng *rand.PCG) error {
	for _, from := range d.draws {
		open := func(i int32) bool { return d.fleet.Open(from.first + i) }
		next, stop := iter.Pull2(placement.NewDraw(rng).Batches(from.left, from.size, open))
		defer stop()
		from.next = next
	}
	for {
		from := d.pick(rng)
		if from == nil {
			return nil
		}
		seed, drawn, ok := from.next()
		if !ok || from.part.failed != nil {
			from.left = 0
			continue
		}
		from.left -= len(drawn)
		chosen, err := d.evaluate(ctx, from, seed, drawn)
		if err != nil || chosen {
			return err
		}
	}
}

// pick returns the evaluator of the next batch at random, in proportion to its servers left; nil if
// no evaluator has any.
func (d *batcher) pick(rng *rand.PCG) *partDraw {
	total, holders := 0, 0
	var last *partDraw
	for _, from := range d.draws {
		if from.left > 0 {
			total, holders, last = total+from.left, holders+1, from
		}
	}
	if holders <= 1 {
		return last
	}
	n := int(rng.Uint64() % uint64(total))
	for _, from := range d.draws {
		if n -= from.left; n < 0 {
			return from
		}
	}
	return last
}

// evaluate sends out a batch, and reports whether a server of it was chosen.
func (d *batcher) evaluate(ctx context.Context, from *partDraw, seed uint64, drawn []int32) (chosen bool, err error) {
	d.result.Batches++
	b := d.batch(from, seed, drawn)
	var answer *Evaluation
	err = d.of.try(ctx, from.part, func(ctx context.Context) (err error) {
		if answer, err = from.part.Evaluator.Evaluate(ctx, b); err == nil {
			err = answer.check(b)
		}
		return err
	})
	if err != nil {
		from.part.failed = from.part.errorOfBatch(d.result.Batches, b, err)
		if !temporary(err) || ctx.Err() != nil {
			return false, from.part.failed
		}
		from.left = 0
		return false, nil
	}
	d.result.Loads += answer.Loads
	d.result.Peak = max(d.result.Peak, answer.Peak)
	for i := range answer.Steps {
		d.steps.Add(answer.Steps[i].Place, &answer.Steps[i].Step)
	}
	if len(answer.Survivors) == 0 {
		return false, nil
	}
	best := answer.Survivors[0]
	d.result.Server, d.result.Score = b.Servers[best.Place].ID, best.Score
	return true, nil
}

// batch makes a batch of drawn servers. Closed servers are sent for the steps only, as many as fit.
func (d *batcher) batch(from *partDraw, seed uint64, drawn []int32) *Batch {
	o := d.order
	b := &Batch{Request: o.Request, Chain: o.sent(d.chain), Seed: seed, Now: o.Now, Names: namesOf(d.fleet.Names)}
	closed := 0
	for _, i := range drawn {
		slot := from.first + i
		if d.fleet.Open(slot) {
			d.result.Looked++
		} else if closed++; closed > MaxServers-from.size {
			d.result.Unsent++
			continue
		}
		b.Servers = append(b.Servers, d.fleet.Record(slot))
		b.Tickets = append(b.Tickets, d.tickets[slot]...)
	}
	b.Spreads = d.spreadsOf(b)
	return b
}

// spreadsOf returns the spreads for a batch. A spread by node has the counts of the batch's servers
// only.
func (d *batcher) spreadsOf(b *Batch) []placement.GroupSpread {
	if len(d.spreads) == 0 {
		return nil
	}
	r := &b.Request
	out := slices.Clone(d.spreads)
	for i, s := range slices.Concat(r.Constraints.Spread, r.Preferences.Spread) {
		if s.By != placement.SpreadByNode {
			continue
		}
		out[i].Instances = map[string]int32{}
		for k := range b.Servers {
			if id := b.Servers[k].ID; d.spreads[i].Instances[id] > 0 {
				out[i].Instances[id] = d.spreads[i].Instances[id]
			}
		}
	}
	return out
}
