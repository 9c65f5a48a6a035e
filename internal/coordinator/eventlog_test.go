package coordinator

import (
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// packedAt returns a chunk of count events at a time.
func packedAt(at time.Duration, count uint64) *wire.EventChunk {
	var e ring.Encoder
	for range count {
		e.Append(&plimsoll.Event{Time: int64(at), Object: "job"})
	}
	return &wire.EventChunk{Count: count, Data: e.Finish(nil)}
}

// By count, at least as many events stay as the ring shows.
func TestEventLogTrimsByCount(t *testing.T) {
	for _, test := range []struct {
		counts []uint64
		keep   uint64 // 0: nothing to do
		left   uint64
	}{
		{nil, 0, 0},
		{[]uint64{100}, 0, 100},
		{[]uint64{60, 60}, 0, 120},
		{[]uint64{60, 65}, 0, 125}, // without the first there would be too few
		{[]uint64{25, 100}, 2, 100},
		{[]uint64{1000}, 0, 1000},
		{[]uint64{1000, 99}, 0, 1099},
		{[]uint64{1000, 100}, 2, 100},
		{[]uint64{10, 10, 10, 50, 50}, 4, 100},
	} {
		var l eventLog
		for i, n := range test.counts {
			l.add(uint64(i+1), packedAt(0, n))
		}
		keep, _ := l.trim(&plimsoll.EventSettings{RingBufferCapacity: 100}, ring.NoHold, 0)
		if keep != test.keep || l.total.count != test.left {
			t.Errorf("%v: keep from %d, %d left; want %d, %d", test.counts, keep, l.total.count, test.keep, test.left)
		}
	}
}

// By bytes and by age, what the ring does not show goes. The newest chunk stays.
func TestEventLogTrimsByBytesAndAge(t *testing.T) {
	size := int64(len(packedAt(time.Hour, 10).Data))
	for _, test := range []struct {
		settings plimsoll.EventSettings
		now      time.Duration
		keep     uint64
	}{
		{plimsoll.EventSettings{RingBufferCapacity: 1e6}, 1000 * time.Hour, 0},
		{plimsoll.EventSettings{RingBufferCapacity: 1e6, RingBufferBytes: 9 * size}, 0, 0}, // not a fifth too much
		{plimsoll.EventSettings{RingBufferCapacity: 1e6, RingBufferBytes: 5 * size}, 0, 6},
		{plimsoll.EventSettings{RingBufferCapacity: 1e6, RingBufferBytes: 1}, 0, 10},
		{plimsoll.EventSettings{RingBufferCapacity: 1e6, RingBufferAge: 8 * time.Hour}, 10 * time.Hour, 0},
		{plimsoll.EventSettings{RingBufferCapacity: 1e6, RingBufferAge: 4 * time.Hour}, 10 * time.Hour, 6},
		{plimsoll.EventSettings{RingBufferCapacity: 1e6, RingBufferAge: time.Hour}, 90 * time.Hour, 10},
		{plimsoll.EventSettings{RingBufferCapacity: 0}, 0, 10},
	} {
		var l eventLog
		for i := range 10 {
			l.add(uint64(i+1), packedAt(time.Duration(i+1)*time.Hour, 10))
		}
		if keep, _ := l.trim(&test.settings, ring.NoHold, int64(test.now)); keep != test.keep {
			t.Errorf("%+v at %s: keep from %d, want %d", test.settings, test.now, keep, test.keep)
		}
	}
}

// A log of millions of small chunks takes no more memory than one of thousands, and still trims
// close to the bound.
func TestEventLogOfManyChunksIsSmall(t *testing.T) {
	const capacity = 500_000
	var l eventLog
	chunk := packedAt(0, 1)
	for i := range uint64(2 * capacity) {
		l.add(i, chunk)
		if _, ok := l.trim(&plimsoll.EventSettings{RingBufferCapacity: capacity}, ring.NoHold, 0); ok && l.total.count > capacity+500 {
			t.Fatalf("%d events are kept for %d", l.total.count, capacity)
		}
	}
	if len(l.runs) > 6*runsOfLog {
		t.Errorf("%d events are counted in %d runs", l.total.count, len(l.runs))
	}
}
