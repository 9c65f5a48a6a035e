package informer_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// lockedCopy is a copy that several goroutines read while one changes it.
type lockedCopy struct {
	mu sync.Mutex
	*copied
}

func (s *lockedCopy) Get(key string) (thing, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copied.Get(key)
}

func (s *lockedCopy) Keys() iter.Seq[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Values(slices.Collect(s.copied.Keys()))
}

// apply brings the copy to the state after the changes. The states of each key must grow: nobody
// goes back in time.
func (s *lockedCopy) apply(t *testing.T, d informer.Deltas[thing]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range d.Changes {
		if old, ok := s.things[d.Key]; ok && c.Object.state < old.state {
			t.Errorf("%s: state %d came after %d", d.Key, c.Object.state, old.state)
		}
		s.things[d.Key] = c.Object
	}
}

// TestChangesOfAKeyStayInOrderWithManyProducersAndConsumers has each producer change keys of its
// own, while others resync and compact, and consumers put some of their changes back.
func TestChangesOfAKeyStayInOrderWithManyProducersAndConsumers(t *testing.T) {
	seed, changes := testrun.Seed(t), testrun.Count(1_000, 4_000, 200_000)
	known := &lockedCopy{copied: knows("")}
	q := queue(t, func(c *config) { c.Known = known })
	var producers, others, consumers sync.WaitGroup
	for p := range 3 {
		producers.Go(func() {
			for i := range changes {
				must(t, q.Update(thing{string(rune('a' + p*10 + i%10)), i}))
			}
		})
	}
	done := make(chan struct{})
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				q.Resync()
				q.Compact()
				q.Stats()
			}
		}
	})
	for c := range 4 {
		consumers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			for {
				var err error
				if c < 2 {
					err = q.Pop(context.Background(), func(d informer.Deltas[thing]) error {
						if rng.IntN(10) == 0 {
							return &informer.RequeueError{}
						}
						known.apply(t, d)
						return nil
					})
				} else {
					err = q.Drain(context.Background(), func(b informer.Batch[thing]) error {
						if rng.IntN(10) == 0 {
							return &informer.RequeueError{}
						}
						for d := range b.All() {
							known.apply(t, d)
						}
						return nil
					})
				}
				if errors.Is(err, informer.ErrClosed) {
					return
				}
			}
		})
	}
	producers.Wait()
	close(done)
	others.Wait()
	q.Close()
	consumers.Wait()
	if s := q.Stats(); s.Depth != 0 || s.Processing != 0 || s.Taken-s.Requeued+s.Joined != s.Queued {
		t.Errorf("%+v", s)
	}
	for key, o := range known.things {
		if o.state < changes-10 {
			t.Errorf("%s ends with state %d of %d", key, o.state, changes)
		}
	}
	if len(known.things) != 30 {
		t.Errorf("%d keys came", len(known.things))
	}
}
