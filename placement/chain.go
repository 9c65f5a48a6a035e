package placement

import (
	"math/rand/v2"

	"github.com/plimsoll-dev/plimsoll"
)

// DefaultBatch is how many servers are looked at before a choice is made (RFD 60, phase 3).
const DefaultBatch = 50

// Server is a machine of the fleet as the chain sees it.
type Server struct {
	ID       string
	Present  bool // the slot holds a server
	Ready    bool // its agent is heard
	Mode     plimsoll.NodeMode
	Capacity Amounts
	Used     Amounts // Invariant: 0 <= Used, and Used <= Capacity unless the capacity shrank
}

// Eligible reports whether the server is heard and open for tasks.
func (s *Server) Eligible() bool { return s.Ready && s.Mode == plimsoll.NodeActive }

// Holds reports whether what is used is within the capacity.
func (s *Server) Holds() bool {
	for i := range s.Used {
		if s.Used[i] > s.Capacity[i] {
			return false
		}
	}
	return true
}

// Request is what is to be placed. Make it with NewRequest, and keep it for tasks that are alike.
type Request struct {
	Amounts Amounts
	custom  []int // indexes of custom resources that are asked for
}

// NewRequest returns a request for the amounts.
func NewRequest(amounts Amounts) *Request {
	r := &Request{Amounts: amounts}
	for i := firstCustom; i < len(amounts); i++ {
		if amounts[i] > 0 {
			r.custom = append(r.custom, i)
		}
	}
	return r
}

// Stage is one filter of the chain.
type Stage struct {
	Name string
	// Keep reports whether the server stays.
	Keep func(*Request, *Server) bool
	// Why says in a few words why a server was dropped, the same words for servers that were dropped alike.
	Why func(*Request, *Server, *Names) string
}

// Chain is a list of filters and a score. It is immutable and can be shared.
type Chain struct {
	Stages []Stage
	Score  func(*Request, *Server) int64 // the highest wins; nil: all are equal
	Batch  int                           // servers that are looked at before a choice is made; 0: DefaultBatch
}

// Default returns the chain that the scheduler uses, in RFD 60's order.
func Default() *Chain {
	return &Chain{
		Batch: DefaultBatch,
		Score: packed,
		Stages: []Stage{
			{"running", func(_ *Request, s *Server) bool { return s.Ready }, func(*Request, *Server, *Names) string { return "not heard from" }},
			{
				"schedulable",
				func(_ *Request, s *Server) bool { return s.Mode == plimsoll.NodeActive },
				func(_ *Request, s *Server, _ *Names) string { return s.Mode.String() },
			},
			minStage("min-cpu", IndexCPU),
			minStage("min-memory", IndexMemory),
			minStage("min-disk", IndexDisk),
			{"min-custom", func(r *Request, s *Server) bool { return r.lackingCustom(s) < 0 }, func(r *Request, s *Server, n *Names) string {
				return "not enough " + n.Name(r.lackingCustom(s))
			}},
		},
	}
}

func minStage(name string, i int) Stage {
	return Stage{
		Name: name,
		Keep: func(r *Request, s *Server) bool { return r.Amounts[i] == 0 || r.Amounts[i] <= s.Capacity[i]-s.Used[i] },
		Why:  func(_ *Request, _ *Server, n *Names) string { return "not enough " + n.Name(i) },
	}
}

func (r *Request) lackingCustom(s *Server) int {
	for _, i := range r.custom {
		if r.Amounts[i] > s.Capacity[i]-s.Used[i] {
			return i
		}
	}
	return -1
}

// FitsEmpty reports whether the server would have room if nothing ran on it.
func (r *Request) FitsEmpty(s *Server) bool {
	for i, amount := range r.Amounts {
		if amount > s.Capacity[i] {
			return false
		}
	}
	return true
}

// packed prefers the fuller server, as the original does by default (score-unreserved-ram: the least free memory wins).
func packed(_ *Request, s *Server) int64 {
	score := int64(0)
	for _, i := range [...]int{IndexMemory, IndexCPU} {
		if free, whole := s.Capacity[i]-s.Used[i], s.Capacity[i]; whole > 0 {
			score -= int64(float64(free) / float64(whole) * (1 << 20))
		}
	}
	return score
}

// Keeps reports whether the server passes every filter.
func (c *Chain) Keeps(r *Request, s *Server) bool {
	for i := range c.Stages {
		if !c.Stages[i].Keep(r, s) {
			return false
		}
	}
	return true
}

// Draw is an order in which the servers of a fleet are drawn: a lazy Fisher–Yates shuffle, so that drawing fifty of 100,000
// costs fifty steps. It keeps its slice between placements.
type Draw struct {
	order []int32
	rng   *rand.PCG
}

// NewDraw returns a Draw that takes its randomness from rng.
func NewDraw(rng *rand.PCG) *Draw { return &Draw{rng: rng} }

// resize makes the draw hold the slots 0 to n-1, in any order.
func (d *Draw) resize(n int) {
	if len(d.order) > n {
		kept := d.order[:0]
		for _, slot := range d.order {
			if int(slot) < n {
				kept = append(kept, slot)
			}
		}
		d.order = kept
	}
	for len(d.order) < n {
		d.order = append(d.order, int32(len(d.order)))
	}
}

// at draws the i-th slot.
func (d *Draw) at(i int) int32 {
	rest := uint64(len(d.order) - i)
	hi := d.rng.Uint64() >> 32
	j := i + int(hi*rest>>32)
	d.order[i], d.order[j] = d.order[j], d.order[i]
	return d.order[i]
}

// Place returns the slot of the server that the chain chooses, or -1 if every server was looked at and none passed.
func (c *Chain) Place(r *Request, fleet []Server, d *Draw) int {
	d.resize(len(fleet))
	batch := c.Batch
	if batch <= 0 {
		batch = DefaultBatch
	}
	for start := 0; start < len(fleet); start += batch {
		best, bestScore := -1, int64(0)
		for i := start; i < min(start+batch, len(fleet)); i++ {
			slot := d.at(i)
			s := &fleet[slot]
			if !s.Present || !c.Keeps(r, s) {
				continue
			}
			score := int64(0)
			if c.Score != nil {
				score = c.Score(r, s)
			}
			if best < 0 || score > bestScore {
				best, bestScore = int(slot), score
			}
		}
		if best >= 0 {
			return best
		}
	}
	return -1
}
