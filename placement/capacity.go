package placement

import "github.com/plimsoll-dev/plimsoll"

// Capacity is what is left on a server (RFD 60's serverCapacity).
type Capacity struct {
	Server    string
	Why       string             // why it is not counted; empty: it is
	Free      plimsoll.Resources // what is left of every resource that it has; negative if more is booked
	Whole     plimsoll.Resources
	Instances int
	Most      int // instances that it takes; 0: no bound
}

// capacityStages are those whose servers have a capacity to tell of.
func capacityExpression() Expression {
	return Pipe(
		Named("setup"), Named("running"), Named("invalid-servers"), Named("load-instances"), Named("calculate-tickets"),
		Named("calculate-unreserved"),
	)
}

// CapacityChain returns the chain that Capacities runs, made of given stages, with which a profile
// may replace those of the package.
func CapacityChain(stages []Stage) (*Chain, error) {
	return NewChain(capacityExpression(), stages, nil, DefaultSettings())
}

// Capacities returns what is left on servers, in their order. Instances are loaded for those that
// have a capacity to tell of.
func (pl *Placer) Capacities(chain *Chain, slots []int32, now int64) ([]Capacity, error) {
	p, err := chain.Prepare(pl.fleet, &Request{AnyClass: true})
	if err != nil {
		return nil, err
	}
	defer p.Release()
	b := pl.begin(p, now)
	r := newRecorder(chain)
	r.reason = map[int32]string{}
	b.record = r
	defer func() { b.record = nil }()
	b.reset(0)
	for _, slot := range slots {
		b.add(slot)
	}
	b.run(0)
	defer b.done()
	out := make([]Capacity, 0, len(slots))
	for i, slot := range slots {
		v := b.At(int32(i))
		c := Capacity{
			Server: v.ID(), Why: r.reason[slot], Whole: v.class.record.Capacity, Instances: v.Count(),
			Most: int(v.class.record.MaxTasks),
		}
		if c.Why == "" {
			c.Free = plimsoll.Resources{}
			for k := range pl.fleet.Names.Len() {
				if name := pl.fleet.Names.Name(k); k < firstCustom || v.class.whole[k] > 0 {
					c.Free[name] = v.Free(k)
				}
			}
		}
		out = append(out, c)
	}
	return out, nil
}
