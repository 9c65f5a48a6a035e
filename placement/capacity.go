package placement

import "github.com/plimsoll-dev/plimsoll"

// Capacity is the room left on a server (RFD 60's serverCapacity).
type Capacity struct {
	Server    string
	Why       string             // why the server is not counted; empty: it is counted
	Free      plimsoll.Resources // amount left of every resource that the server has; negative if more is booked
	Whole     plimsoll.Resources
	Instances int
	Most      int // instances that the server takes; 0: no bound
}

// capacityExpression lists the stages that a server passes if its capacity is counted.
func capacityExpression() Expression {
	return Pipe(
		Named("setup"), Named("running"), Named("invalid-servers"), Named("load-instances"), Named("calculate-tickets"),
		Named("calculate-unreserved"),
	)
}

// CapacityChain returns the chain that Capacities runs, made of the given stages. A profile may
// replace the package's stages with its own here.
func CapacityChain(stages []Stage) (*Chain, error) {
	return NewChain(capacityExpression(), stages, nil, DefaultSettings())
}

// Capacities returns the room left on servers, in their order. Instances are loaded only for
// servers whose capacity is counted.
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
