package informer_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// TestEachBatchLeadsToAStateOfTheSource changes a source at random. The link breaks and misses
// steps, the queue overflows, and the consumer puts batches back. Whenever the consumer has applied
// a batch, its copy is the source's state at the batch's version.
func TestEachBatchLeadsToAStateOfTheSource(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 12))
	overflows := uint64(0)
	for range testrun.Count(50, 300, 20_000) {
		known := knows("")
		q := queue(t, func(c *config) { c.Known, c.MaxBytes = known, 2_000 })
		source, at := map[string]thing{}, version(1)
		history := map[informer.Version]map[string]thing{at: {}}
		must(t, q.Replace(nil, at))
		connected := true
		// list ends a break: the source is listed as a whole.
		list := func() {
			must(t, q.Replace(slices.Collect(maps.Values(source)), at))
			connected = true
		}
		step := func() {
			var changed []thing
			var gone []informer.Deletion[thing]
			for _, i := range rng.Perm(14)[:rng.IntN(4)] {
				o := thing{string(rune('a' + i)), rng.IntN(1_000)}
				if old, ok := source[o.name]; ok && rng.IntN(2) == 0 {
					gone = append(gone, informer.Deletion[thing]{Key: o.name, Object: old})
					delete(source, o.name)
				} else {
					changed = append(changed, o)
					source[o.name] = o
				}
			}
			at.Revision++
			history[at] = maps.Clone(source)
			if !connected {
				return // the step is missed
			}
			if err := q.Change(changed, gone, at); errors.Is(err, informer.ErrRelist) {
				connected = false
			} else {
				must(t, err)
			}
		}
		anything := func() {
			switch n := rng.IntN(20); {
			case n < 16:
				step()
			case n < 17:
				connected = false
			case n < 18:
				q.Resync()
			case !connected:
				list()
			}
		}
		drain := func() {
			err := q.Drain(t.Context(), func(b informer.Batch[thing]) error {
				for range rng.IntN(3) {
					anything()
				}
				if rng.IntN(5) == 0 {
					return &informer.RequeueError{}
				}
				for d := range b.All() {
					if n := d.Newest(); n.Type == informer.Deleted {
						delete(known.things, d.Key)
					} else {
						known.things[d.Key] = n.Object
					}
				}
				if want := history[b.Version]; !maps.Equal(want, known.things) {
					t.Fatalf("at %v the copy is %v, the source was %v", b.Version, known.things, want)
				}
				return nil
			})
			if back := (*informer.RequeueError)(nil); err != nil && !errors.As(err, &back) {
				t.Fatal(err)
			}
		}
		for range 100 {
			if anything(); rng.IntN(6) == 0 && q.Stats().Depth > 0 {
				drain()
			}
		}
		list()
		for q.Stats().Depth > 0 || !maps.Equal(known.things, source) {
			drain()
			if !connected {
				list()
			}
		}
		overflows += q.Stats().Overflows
	}
	if overflows == 0 {
		t.Error("no queue was full: the test did not test it")
	}
}
