package placement

import "math/rand/v2"

// Draw is an order in which the servers of a fleet are drawn: a lazy Fisher–Yates shuffle. To draw
// fifty of 100,000 servers costs fifty steps. The draw keeps its slice between placements.
type Draw struct {
	order      []int32
	rng        *rand.PCG
	picks      []int32 // scratch of next
	whole      []int32 // 0, 1, 2 …; scratch of all
	prefetched int32   // sum of prefetched values, which keeps the compiler from dropping the reads
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

// next draws k slots from the i-th on. The slice is valid until the next draw.
func (d *Draw) next(i, k int) []int32 {
	d.picks = d.picks[:0]
	for m := range k {
		rest := uint64(len(d.order) - i - m)
		hi := d.rng.Uint64() >> 32
		d.picks = append(d.picks, int32(i+m+int(hi*rest>>32)))
	}
	for _, j := range d.picks { // read all at once, so that the processor waits for memory once
		d.prefetched += d.order[j]
	}
	for m, j := range d.picks {
		d.order[i+m], d.order[j] = d.order[j], d.order[i+m]
	}
	return d.order[i : i+k]
}

// all returns the slots 0 to n-1 in their order.
func (d *Draw) all(n int) []int32 {
	for len(d.whole) < n {
		d.whole = append(d.whole, int32(len(d.whole)))
	}
	return d.whole[:n]
}
