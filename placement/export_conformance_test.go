package placement

import "slices"

// RunStep has the servers that one stage received and kept.
type RunStep struct {
	Stage       string
	Given, Kept []string
}

// Run is one run of a chain over all servers of a fleet together, in the order of their slots.
type Run struct {
	Steps  []RunStep
	Kept   []string
	Scores map[string]float64
	Free   map[string]Amounts // as the chain left it
	Used   map[string]Amounts // as the chain took it to be
	Counts map[string]int     // instances
	Chosen string
	Score  float64
}

// RunInOrder runs a chain without drawing. intn gives the random numbers.
func (pl *Placer) RunInOrder(p *Prepared, now int64, intn func(int) int) Run {
	out := Run{
		Scores: map[string]float64{}, Free: map[string]Amounts{}, Used: map[string]Amounts{}, Counts: map[string]int{},
	}
	names := func(b *Batch, set []int32) []string {
		list := []string{}
		for _, i := range set {
			list = append(list, b.At(i).ID())
		}
		return list
	}
	spied := *p.chain
	spied.stages = slices.Clone(p.chain.stages)
	for i := range spied.stages {
		stage, skip := p.chain.stages[i], p.skips[i]
		spied.stages[i].Batch = func(b *Batch, set []int32) []int32 {
			step := RunStep{Stage: stage.Name, Given: names(b, set)}
			if !skip {
				set = b.filter(&stage, set)
			}
			step.Kept = names(b, set)
			out.Steps = append(out.Steps, step)
			return set
		}
	}
	b := pl.begin(p, now)
	b.p.skips, b.chain, b.intn = make([]bool, len(spied.stages)), &spied, intn
	b.record = newRecorder(&spied) // stages run one after the other
	defer func() { b.record = nil }()
	b.reset(1)
	for slot := range pl.fleet.rows {
		if pl.fleet.rows[slot].flags&present != 0 {
			b.add(int32(slot))
		}
	}
	best := b.run(0)
	b.intn = nil
	if n := len(out.Steps); n > 0 {
		out.Kept = out.Steps[n-1].Kept
	}
	for i := range b.slots {
		v := b.At(int32(i))
		out.Scores[v.ID()], out.Counts[v.ID()] = b.score[i], v.Count()
		var free, used Amounts
		for k := range pl.fleet.Names.Len() {
			free[k], used[k] = v.Free(k), v.Used(k)
		}
		out.Free[v.ID()], out.Used[v.ID()] = free, used
	}
	if best >= 0 {
		out.Chosen, out.Score = b.At(best).ID(), b.score[best]
	}
	b.done()
	return out
}
