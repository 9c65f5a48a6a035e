package informer

import (
	"strconv"
	"testing"
	"time"
)

func newTestQueue(t *testing.T) *DeltaFIFO[*int] {
	t.Helper()
	keys := [...]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	q, err := NewDeltaFIFO(FIFOConfig[*int]{
		Key: func(n *int) (string, error) {
			if *n < len(keys) {
				return keys[*n], nil
			}
			return strconv.Itoa(*n), nil
		},
		Now: func() time.Time { return time.Time{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func drainOnce(t *testing.T, q *DeltaFIFO[*int]) {
	t.Helper()
	if err := q.Drain(t.Context(), func(Batch[*int]) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func addKeys(t *testing.T, q *DeltaFIFO[*int], keys, times int) {
	t.Helper()
	for range times {
		for n := range keys {
			if err := q.Add(&n); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestNoObjectIsKeptAfterItWasTaken(t *testing.T) {
	q := newTestQueue(t)
	addKeys(t, q, 100, 3)
	for range 40 {
		if err := q.Pop(t.Context(), func(Deltas[*int]) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	addKeys(t, q, 10, 9)
	drainOnce(t, q)
	for _, l := range []*line[*int]{q.mu.line, q.mu.batch, {ring: []entry[*int]{q.mu.popped}}} {
		for i := range l.ring {
			e := &l.ring[i]
			for _, d := range append(e.single[:], e.many[:cap(e.many)]...) {
				if e.key != "" || d.Object != nil || cap(e.many) > keptChanges {
					t.Fatalf("slot %d of %d still has %+v", i, len(l.ring), e)
				}
			}
		}
		if l.index.used > 0 {
			t.Errorf("%d keys are still indexed", l.index.used)
		}
	}
}

func TestTheMemoryOfABurstIsGivenBack(t *testing.T) {
	const burst = 20_000
	for name, take := range map[string]func(q *DeltaFIFO[*int]){
		"Drain": func(q *DeltaFIFO[*int]) { drainOnce(t, q) },
		"Pop": func(q *DeltaFIFO[*int]) {
			for q.Stats().Depth > 0 {
				if err := q.Pop(t.Context(), func(Deltas[*int]) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			for range 2 { // each of the two lines has its burst
				addKeys(t, q, burst, 1)
				take(q)
			}
			if n := len(q.mu.line.ring); n < burst {
				t.Errorf("the ring has %d slots", n)
			}
			for range 2 * (lowTimes + 1) {
				addKeys(t, q, 12, 1)
				take(q)
			}
			if n := len(q.mu.line.ring) + len(q.mu.batch.ring); n > 2*keptSlots {
				t.Errorf("%d slots are kept", n)
			}
		})
	}
}

func TestPlacesOfLooseKeysDoNotPileUp(t *testing.T) {
	q := newTestQueue(t)
	n := new(int)
	for range 10_000 { // the queue is never empty, and nothing is compacted
		if err := q.Update(n); err != nil {
			t.Fatal(err)
		}
		next := *n + 1
		n = &next
		for range 2 {
			if err := q.Update(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Pop(t.Context(), func(Deltas[*int]) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := cap(q.mu.line.loose); n > 16 {
		t.Errorf("%d places are kept", n)
	}
}

func TestAddPopAndDrainAllocateNothing(t *testing.T) {
	q := newTestQueue(t)
	var objects [12]int
	for i := range objects {
		objects[i] = i
	}
	pop, drain := func(Deltas[*int]) error { return nil }, func(Batch[*int]) error { return nil }
	ctx := t.Context()
	fill := func() {
		for i := range objects {
			_, _ = q.Add(&objects[i]), q.Update(&objects[i]) // no error is possible here
		}
	}
	for name, round := range map[string]func(){
		"Pop": func() {
			fill()
			for range objects {
				_ = q.Pop(ctx, pop) // no error is possible here
			}
		},
		"Drain": func() {
			fill()
			_ = q.Drain(ctx, drain) // no error is possible here
		},
	} {
		if n := testing.AllocsPerRun(1000, round); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if depth := q.Stats().Depth; depth > 0 {
			t.Errorf("%s: %d keys are left", name, depth)
		}
	}
}
