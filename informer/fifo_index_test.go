package informer

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// A line finds each of its keys and no other, in any order of pushes and shifts. The lower halves
// of its places begin again at 0 meanwhile.
func TestALineFindsItsKeysAndNoOthers(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	for range testrun.Count(20, 100, 2000) {
		l := newLine[int]()
		l.head = 1<<32 - uint64(rng.IntN(200))
		l.tail = l.head
		var queued []string
		has := map[string]bool{}
		most, span, shifts := 0, 1+rng.IntN(300), rng.IntN(5)
		for range 500 {
			key := strconv.Itoa(rng.IntN(span))
			e, hash := l.lookUp(key)
			if (e != nil) != has[key] || e != nil && e.key != key {
				t.Fatalf("found %v of %q among %d keys, which is there: %v", e, key, l.len(), has[key])
			}
			if e == nil && rng.IntN(6) > shifts {
				l.append(l.push(key, hash, 0), true, Delta[int]{}, 1, nil)
				queued, has[key] = append(queued, key), true
			} else if len(queued) > 0 {
				var out entry[int]
				l.shift(&out)
				if out.key != queued[0] {
					t.Fatalf("shifted %q, not %q", out.key, queued[0])
				}
				delete(has, out.key)
				queued = queued[1:]
			}
			most = max(most, l.len())
			if n := len(l.index.slots); n > 32 && n > 4*most {
				t.Fatalf("%d slots for at most %d keys", n, most)
			}
			if l.isIndexed && (l.index.used != l.len() || 2*l.index.used > len(l.index.slots)) {
				t.Fatalf("%d of %d slots for %d keys", l.index.used, len(l.index.slots), l.len())
			}
		}
		l.reset()
		if l.index.used != 0 || l.len() != 0 {
			t.Fatalf("%d keys are left", l.index.used)
		}
	}
}
