package placement

import "math/rand/v2"

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
