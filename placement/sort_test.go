package placement

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Few keys or many, that differ in one digit, in some, or in all bits: they are sorted, and equal
// ones keep their order.
func TestSortIsStable(t *testing.T) {
	for _, n := range []int{0, 1, 7, 100, manyServers, manyServers + 1, 5000} {
		for _, c := range []struct {
			name       string
			bits, low  int
			everywhere uint64
		}{
			{"one value", 0, 0, 42},
			{"one bit", 1, 30, 1 << 62},
			{"one digit", digit, 12, 1 << 63},
			{"two digits", digit + 1, 20, 0},
			{"three digits", 3 * digit, 5, 1 << 50},
			{"all bits", 64, 0, 0},
		} {
			r := rand.New(rand.NewPCG(uint64(n), uint64(c.bits)))
			b := &Batch{}
			for i := range n {
				key := c.everywhere
				if c.bits > 0 {
					key |= r.Uint64() >> (64 - c.bits) << c.low
				}
				b.keys = append(b.keys, rank{key, int32(i)})
			}
			want := slices.Clone(b.keys)
			slices.SortStableFunc(want, func(a, c rank) int { return cmp.Compare(a.key, c.key) })
			if b.sort(); !slices.Equal(b.keys, want) {
				t.Errorf("%d keys with %s are out of order", n, c.name)
			}
		}
	}
}
