package remote

import (
	"context"
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll/placement"
)

// Explain says why no server takes an order: the steps of all evaluators over all servers. The
// numbers of eligible servers, and of those with room if they were empty, follow from the records.
// Explain returns nil if a server takes the order.
func (f *Fleet) Explain(ctx context.Context, rng *rand.PCG, o *Order) (*placement.Explanation, error) {
	all := *o
	all.Everything = true
	result, err := f.Place(ctx, rng, &all)
	if err != nil || result.Server != "" {
		return nil, err
	}
	chain := o.Chain
	if chain == nil {
		chain = placement.Default()
	}
	empty := placement.NewFleet(placement.NewNames())
	for _, p := range f.parts {
		for i := range p.servers {
			empty.Put(int32(empty.Len()), &p.servers[i])
		}
	}
	p, err := chain.Prepare(empty, &o.Request)
	if err != nil {
		return nil, err
	}
	defer p.Release()
	x := placement.NewPlacer(empty, rng).Explain(p, o.Now)
	x.Fit, x.Steps = 0, result.Steps
	return &x, nil
}
