package placement

import (
	"cmp"
	"iter"
	"slices"
)

// Survivor is a server of a batch that passed the chain.
type Survivor struct {
	Slot  int32
	Score float64
}

// Evaluation is the result of a chain on one batch of servers.
type Evaluation struct {
	Survivors []Survivor // best first: the first is the server that Place would choose
	Steps     []Step     // of the stages that ran; a StepSum adds up those of several batches
	Stages    []int      // for each step, the place of its stage in the chain
	Loads     int        // servers whose instances were loaded
	Peak      int        // most loaded instances held at once
}

// Evaluate runs the request's chain over servers that the caller has drawn (RFD 60, phase 4). They
// make one batch, as those of Place do. The seed is for random scores. Vacant slots are ignored.
func (pl *Placer) Evaluate(p *Prepared, slots []int32, seed uint64, now int64) Evaluation {
	b := pl.begin(p, now)
	r := newRecorder(p.chain)
	b.record = r
	defer func() { b.record = nil }()
	b.reset(seed)
	for _, slot := range slots {
		if slot >= 0 && int(slot) < pl.fleet.Len() && pl.fleet.rows[slot].flags&present != 0 {
			b.add(slot)
		}
	}
	r.begin(b)
	b.score = append(b.score[:0], make([]float64, len(b.slots))...)
	var left []int32
	if len(b.set) > 0 {
		left = b.exec(p.chain.root, b.set)
	}
	out := Evaluation{Survivors: make([]Survivor, len(left)), Loads: b.loads, Peak: b.peak}
	for k, i := range left {
		out.Survivors[len(left)-1-k] = Survivor{Slot: b.slots[i], Score: b.score[i]} // the later of equals is better
	}
	b.done()
	slices.SortStableFunc(out.Survivors, func(x, y Survivor) int { return cmp.Compare(y.Score, x.Score) })
	for stage := range r.steps {
		if r.ran[stage] {
			out.Steps, out.Stages = append(out.Steps, r.steps[stage]), append(out.Stages, stage)
		}
	}
	return out
}

// StepSum adds up steps of batches that were evaluated one by one. The zero value is an empty sum.
type StepSum struct {
	steps []Step
	ran   []bool
}

// Add adds the step of one batch. stage is the place of its stage in the chain.
func (m *StepSum) Add(stage int, s *Step) {
	for len(m.steps) <= stage {
		m.steps, m.ran = append(m.steps, Step{}), append(m.ran, false)
	}
	sum := &m.steps[stage]
	m.ran[stage] = true
	sum.Stage, sum.Kind = s.Stage, s.Kind
	sum.Received += s.Received
	sum.Remaining += s.Remaining
	sum.Dropped += s.Dropped
	sum.Refused += s.Refused
	for i := range s.Reasons {
		sum.addReason(&s.Reasons[i])
	}
}

func (s *Step) addReason(r *Reason) {
	i := slices.IndexFunc(s.Reasons, func(known Reason) bool { return known.Text == r.Text })
	switch {
	case i >= 0:
	case len(s.Reasons) < maxReasons:
		i = len(s.Reasons)
		s.Reasons = append(s.Reasons, Reason{Text: r.Text})
	default:
		i = maxReasons - 1
		s.Reasons[i].Text = otherReasons
	}
	sum := &s.Reasons[i]
	sum.Servers += r.Servers
	sum.Examples = append(sum.Examples, r.Examples[:min(len(r.Examples), examples-len(sum.Examples))]...)
}

// otherReasons is the text of all reasons beyond maxReasons.
const otherReasons = "other reasons"

// Steps returns the sum, in the order of the chain, the most frequent reasons first.
func (m *StepSum) Steps() []Step {
	var out []Step
	for i := range m.steps {
		if m.ran[i] {
			s := m.steps[i]
			s.Reasons = slices.Clone(s.Reasons)
			slices.SortStableFunc(s.Reasons, func(a, b Reason) int { return b.Servers - a.Servers })
			out = append(out, s)
		}
	}
	return out
}

// BatchSize returns how many open servers make a batch, in a fleet of so many servers.
func (c *Chain) BatchSize(servers int) int { return c.size(servers) }

// Expanded returns the expression of the chain without definitions.
func (c *Chain) Expanded() Expression { return c.expanded(c.root) }

// Batches draws the servers 0 to n-1 in batches of size open servers, as Place does. Each has a
// seed for its random scores. A batch also has the closed servers that were drawn between the open
// ones. If one batch holds all of many servers, they come in the order of their slots. A batch is
// valid until the next one.
func (d *Draw) Batches(n, size int, open func(int32) bool) iter.Seq2[uint64, []int32] {
	return func(yield func(uint64, []int32) bool) {
		d.resize(n)
		if wholeAtOnce(size, n) {
			yield(d.rng.Uint64(), d.all(n))
			return
		}
		var batch []int32
		for i := 0; i < n; {
			seed := d.rng.Uint64()
			batch = batch[:0]
			for found := 0; i < n && found < size; i++ {
				slot := d.next(i, 1)[0]
				batch = append(batch, slot)
				if open(slot) {
					found++
				}
			}
			if !yield(seed, batch) {
				return
			}
		}
	}
}

// Record returns the record of the server in a slot without its instances. If the record cannot be
// used, its Fault says why. Its maps are shared; do not change them.
func (f *Fleet) Record(slot int32) Server {
	s := f.classes[f.rows[slot].class].record
	s.ID = f.ids[slot]
	return s
}
