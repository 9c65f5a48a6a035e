package placement

import (
	"fmt"
	"slices"
	"strings"
)

// examples is how many servers are named for each reason.
const examples = 10

// StepKind says on which facts a stage decides.
type StepKind uint8

// The kinds of stages.
const (
	Closed      StepKind = iota // the server takes no instances at all now
	NotEligible                 // the server does not suit this request, full or empty
	NoRoom                      // the server's instances leave no room; it could take the request at another time
	NotBest                     // the server could take the request, but others are preferred
)

var stepKindNames = [...]string{"closed", "not eligible", "no room", "not best"}

// String returns the kind in words.
func (k StepKind) String() string {
	if int(k) >= len(stepKindNames) {
		return fmt.Sprintf("unknown(%d)", uint8(k))
	}
	return stepKindNames[k]
}

// Step counts the servers that reached a stage, and the servers that it dropped.
type Step struct {
	Stage     string
	Kind      StepKind
	Received  int
	Remaining int
	Dropped   int
	Refused   int      // only from Explain: how many of all servers this filter refuses by itself
	Reasons   []Reason // most frequent first
}

// Reason is a cause for which servers were dropped.
type Reason struct {
	Text     string
	Servers  int
	Examples []string // ids of at most ten of the servers, in the order in which they were looked at
}

func (s *Step) drop(text, id string) {
	i := slices.IndexFunc(s.Reasons, func(r Reason) bool { return r.Text == text })
	if i < 0 {
		i = len(s.Reasons)
		if i == maxReasons {
			i, text = maxReasons-1, "other reasons"
			s.Reasons[i].Text = text
		} else {
			s.Reasons = append(s.Reasons, Reason{Text: text})
		}
	}
	r := &s.Reasons[i]
	r.Servers++
	if len(r.Examples) < examples {
		r.Examples = append(r.Examples, id)
	}
}

// maxReasons bounds the reasons of one step; all further reasons are counted as one.
const maxReasons = 100

// recorder counts the servers that each stage receives and drops, over all batches.
type recorder struct {
	steps  []Step // by stage of the chain
	ran    []bool
	total  int
	given  []int32
	kept   []bool           // by place in the batch
	reason map[int32]string // last reason by slot; nil: not wanted
}

func newRecorder(c *Chain) *recorder {
	r := &recorder{steps: make([]Step, len(c.stages)), ran: make([]bool, len(c.stages))}
	for i := range c.stages {
		r.steps[i].Stage, r.steps[i].Kind = c.stages[i].Name, c.stages[i].kind()
	}
	return r
}

func (s *Stage) kind() StepKind {
	switch {
	case s.Closes:
		return Closed
	case s.Keep == nil && s.Reads != ReadsRecord && s.Gives == 0, s.Name == "reservoir":
		return NotBest
	case s.Reads != ReadsRecord || s.Gives != 0:
		return NoRoom
	}
	return NotEligible
}

func (r *recorder) begin(b *Batch) { r.total += len(b.slots) }

func (r *recorder) before(set []int32) { r.given = append(r.given[:0], set...) }

func (r *recorder) after(b *Batch, stage int, set []int32) {
	step := &r.steps[stage]
	r.ran[stage] = true
	step.Received += len(r.given)
	step.Remaining += len(set)
	if len(set) == len(r.given) {
		return
	}
	r.kept = append(r.kept[:0], make([]bool, len(b.slots))...)
	for _, i := range set {
		r.kept[i] = true
	}
	for _, i := range r.given {
		if r.kept[i] {
			continue
		}
		step.Dropped++
		v := b.At(i)
		text := b.chain.stages[stage].reason(v)
		step.drop(text, v.ID())
		if r.reason != nil {
			r.reason[v.slot] = step.Stage + ": " + text
		}
	}
}

func (s *Stage) reason(v *View) string {
	if s.Why == nil {
		return "refused by " + s.Name
	}
	return s.Why(v)
}

// list returns the steps of the stages that ran, and of stages that refuse servers but received
// none.
func (r *recorder) list() []Step {
	var out []Step
	for i := range r.steps {
		if r.ran[i] || r.steps[i].Refused > 0 {
			slices.SortStableFunc(r.steps[i].Reasons, func(a, b Reason) int { return b.Servers - a.Servers })
			out = append(out, r.steps[i])
		}
	}
	return out
}

// PlaceRecorded draws and chooses as Place does, and also returns the steps of the stages, summed
// over all batches.
func (pl *Placer) PlaceRecorded(p *Prepared, now int64) (Choice, []Step) {
	r := newRecorder(p.chain)
	pl.batch.record = r
	defer func() { pl.batch.record = nil }()
	c := pl.Place(p, now)
	return c, r.list()
}

// Explanation describes one request on every server of a fleet.
type Explanation struct {
	Servers  int // servers of the fleet
	Open     int // servers that take instances now
	Eligible int // servers that suit the request, open or not, full or empty
	FitEmpty int // eligible servers that would have room if they were empty
	Fit      int // servers that could take the request now
	Steps    []Step
	Spreads  []SpreadCount // of the request's hard spreads, in their order
}

// Explain runs the chain over every server at once. The steps say which servers each stage dropped
// and why, and how many servers each filter refuses by itself. Explain draws nothing and changes
// nothing.
func (pl *Placer) Explain(p *Prepared, now int64) Explanation {
	b := pl.begin(p, now)
	x := Explanation{Servers: pl.fleet.servers, Spreads: p.spreadCounts()}
	r := newRecorder(p.chain)
	b.record = r
	defer func() { b.record = nil }()
	b.reset(0)
	for slot := range pl.fleet.rows {
		if pl.fleet.rows[slot].flags&present != 0 {
			b.add(int32(slot))
		}
	}
	r.begin(b)
	b.run(0)
	pl.refusals(b, r, &x) // after the run, which may have loaded instances
	b.done()
	x.Steps = r.list()
	return x
}

func decidesEligibility(s *Stage) bool { return s.kind() == NotEligible }

// refusals asks every filter about every server. The instances of servers that were not loaded are
// unknown, but such a server is refused by another filter, or its load failed.
func (pl *Placer) refusals(b *Batch, r *recorder, x *Explanation) {
	for i := range b.slots {
		v := b.At(int32(i))
		for stage := range b.chain.stages {
			if s := &b.chain.stages[stage]; s.Keep != nil && !b.p.skips[stage] && s.kind() != NotBest && !s.Keep(v) {
				r.steps[stage].Refused++
			}
		}
		if v.class.open {
			x.Open++
		}
		if b.holds(b.chain.root, v, func(*Stage) bool { return true }) {
			x.Fit++
		}
		if b.holds(b.chain.root, v, decidesEligibility) {
			x.Eligible++
			if b.p.fitsEmpty(v) {
				x.FitEmpty++
			}
		}
	}
}

// Suits reports whether a server is eligible for the request, open or not, full or empty. fitsEmpty
// says whether it would have room if it were empty.
func (pl *Placer) Suits(p *Prepared, slot int32, now int64) (eligible, fitsEmpty bool) {
	if pl.fleet.rows[slot].flags&present == 0 {
		return false, false
	}
	b := pl.begin(p, now)
	b.reset(0)
	b.add(slot)
	v := b.At(0)
	if !b.holds(p.chain.root, v, decidesEligibility) {
		return false, false
	}
	return true, p.fitsEmpty(v)
}

// fitsEmpty reports whether the server would have room if it were empty.
func (p *Prepared) fitsEmpty(v *View) bool {
	for i := range p.fleet.Names.Len() {
		if p.amounts[i] > 0 && v.class.free(i, 0) < p.needs[i] {
			return false
		}
	}
	return true
}

// Verdict is the answer of one filter about one server.
type Verdict struct {
	Stage string
	Kind  StepKind
	Why   string // empty: the filter keeps the server
}

// ExplainServer asks each filter about one server, also after one has refused it.
func (pl *Placer) ExplainServer(p *Prepared, slot int32, now int64) []Verdict {
	b := pl.begin(p, now)
	b.reset(0)
	b.add(slot)
	if pl.fleet.lazy() {
		b.applyTickets(b.load(b.set))
		defer b.done()
	}
	var out []Verdict
	for i := range p.chain.stages {
		s := &p.chain.stages[i]
		if s.Keep == nil || p.skips[i] {
			continue
		}
		v := Verdict{Stage: s.Name, Kind: s.kind()}
		if view := b.At(0); !s.Keep(view) {
			v.Why = s.reason(view)
		}
		out = append(out, v)
	}
	return out
}

// Summary says in one line why servers were dropped: "2 of 3 nodes: not enough cpu; 1 of 3 nodes:
// draining".
func (x *Explanation) Summary() string {
	if x.Servers == 0 {
		return "there is no node"
	}
	var parts []string
	for _, step := range x.Steps {
		if step.Kind == NotBest {
			continue
		}
		for _, reason := range step.Reasons {
			parts = append(parts, fmt.Sprintf("%d of %d nodes: %s", reason.Servers, x.Servers, reason.Text))
		}
		if step.Stage != "spread" || step.Dropped == 0 {
			continue
		}
		for i := range x.Spreads {
			if c := &x.Spreads[i]; c.Counted < c.Values {
				parts = append(parts, c.String())
			}
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%d of %d nodes have room", x.Fit, x.Servers)
	}
	return strings.Join(parts, "; ")
}
