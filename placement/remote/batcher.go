package remote

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// dealer has batch after batch evaluated for one placement. A batch is of servers of one evaluator.
type dealer struct {
	of      *Fleet
	order   *Order
	chain   *placement.Chain
	fleet   *placement.Fleet // all servers, without what runs on them
	hands   []*hand
	tickets map[int32][]placement.Ticket // by slot
	spreads []placement.GroupSpread      // over all evaluators
	steps   placement.StepSum
	result  Result
}

// hand is the servers of one evaluator that were not yet drawn.
type hand struct {
	part  *part
	first int32 // slot of its first server
	size  int   // of its batches
	left  int
	next  func() (uint64, []int32, bool)
}

func (f *Fleet) newDealer(chain *placement.Chain, o *Order) (*dealer, error) {
	d := &dealer{
		of: f, order: o, chain: chain, fleet: placement.NewFleet(placement.NewNames()),
		tickets: map[int32][]placement.Ticket{},
	}
	if err := d.fleet.Names.Check("resources", o.Request.Resources); err != nil {
		return nil, err
	}
	d.fleet.Names.Amounts(o.Request.Resources)
	for _, p := range f.parts {
		h := &hand{part: p, first: int32(d.fleet.Len()), left: len(p.servers), size: chain.BatchSize(len(p.servers))}
		if h.size > MaxServers {
			return nil, plimsoll.Invalid("batch",
				"is %d servers; an evaluator takes at most %d, so make the chain's batches smaller", h.size, MaxServers)
		}
		for i := range p.servers {
			d.fleet.Put(h.first+int32(i), &p.servers[i])
		}
		d.hands = append(d.hands, h)
	}
	for _, t := range o.Tickets {
		if slot := d.fleet.Slot(t.Server); slot >= 0 {
			d.tickets[slot] = append(d.tickets[slot], t)
		}
	}
	d.result.Servers = d.fleet.Len()
	return d, nil
}

// countSpreads has the group of a request counted that is to be spread. A bound on the spread needs
// the count of every evaluator; a preference goes by those that answer.
func (d *dealer) countSpreads(ctx context.Context) error {
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

// run has batches evaluated until a server is left of one. An evaluator that does not answer is
// left out.
func (d *dealer) run(ctx context.Context, rng *rand.PCG) error {
	for _, h := range d.hands {
		open := func(i int32) bool { return d.fleet.Open(h.first + i) }
		next, stop := iter.Pull2(placement.NewDraw(rng).Deal(h.left, h.size, open))
		defer stop()
		h.next = next
	}
	for {
		h := d.pick(rng)
		if h == nil {
			return nil
		}
		seed, drawn, ok := h.next()
		if !ok || h.part.failed != nil {
			h.left = 0
			continue
		}
		h.left -= len(drawn)
		chosen, err := d.evaluate(ctx, h, seed, drawn)
		if err != nil || chosen {
			return err
		}
	}
}

// pick returns the evaluator of the next batch: each as likely as it has servers left; nil: none
// has.
func (d *dealer) pick(rng *rand.PCG) *hand {
	total, holders := 0, 0
	var last *hand
	for _, h := range d.hands {
		if h.left > 0 {
			total, holders, last = total+h.left, holders+1, h
		}
	}
	if holders <= 1 {
		return last
	}
	n := int(rng.Uint64() % uint64(total))
	for _, h := range d.hands {
		if n -= h.left; n < 0 {
			return h
		}
	}
	return last
}

// evaluate has a batch evaluated, and says whether a server of it was chosen.
func (d *dealer) evaluate(ctx context.Context, h *hand, seed uint64, drawn []int32) (chosen bool, err error) {
	d.result.Batches++
	b := d.batch(h, seed, drawn)
	var answer *Evaluation
	err = d.of.try(ctx, h.part, func(ctx context.Context) (err error) {
		if answer, err = h.part.Evaluator.Evaluate(ctx, b); err == nil {
			err = answer.check(b)
		}
		return err
	})
	if err != nil {
		h.part.failed = h.part.errorOfBatch(d.result.Batches, b, err)
		if !temporary(err) || ctx.Err() != nil {
			return false, h.part.failed
		}
		h.left = 0
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

// batch makes a batch of servers that were drawn. Of closed ones only as many go with it as there
// is room for: they are sent so that the steps tell of them.
func (d *dealer) batch(h *hand, seed uint64, drawn []int32) *Batch {
	o := d.order
	b := &Batch{Request: o.Request, Chain: o.sent(d.chain), Seed: seed, Now: o.Now, Names: namesOf(d.fleet.Names)}
	closed := 0
	for _, i := range drawn {
		slot := h.first + i
		if d.fleet.Open(slot) {
			d.result.Looked++
		} else if closed++; closed > MaxServers-h.size {
			d.result.Unsent++
			continue
		}
		b.Servers = append(b.Servers, d.fleet.Record(slot))
		b.Tickets = append(b.Tickets, d.tickets[slot]...)
	}
	b.Spreads = d.spreadsOf(b)
	return b
}

// spreadsOf are the spreads as a batch needs them: of one by node, the counts of its own servers.
func (d *dealer) spreadsOf(b *Batch) []placement.GroupSpread {
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
