package placement_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll/placement"
)

// BenchmarkPlace is one placement on a fleet with room, and one that looks at every server in vain.
func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		for _, test := range []struct {
			name string
			asks int64
		}{{"room", 1000}, {"full", 9000}} {
			b.Run(fmt.Sprintf("nodes=%d/%s", n, test.name), func(b *testing.B) {
				servers, d, c, r := fleet(n), draw(1), placement.Default(), cores(test.asks)
				b.ReportAllocs()
				for b.Loop() {
					c.Place(r, servers, d)
				}
			})
		}
	}
}
