package ring

import (
	"encoding/binary"
	"iter"
	"slices"
	"sort"

	"github.com/plimsoll-dev/plimsoll"
)

// DefaultCapacity is the number of events in a ring unless another is configured (event design,
// "Configuration").
const DefaultCapacity = 100_000

// segmentSize is the approximate size of a segment: small enough to drop, large enough to keep the
// directory small.
const segmentSize = 64 << 10

// Chunk is a packed run of events with consecutive ids.
type Chunk struct {
	FirstID uint64
	Count   uint64
	Data    []byte
}

// segment is a run of chunks in one piece of memory, each behind its count of events and its
// length. Written bytes do not change, so a View may hold a shorter slice of a segment that still
// grows.
type segment struct {
	first uint64 // id of its first event
	data  []byte
}

// Ring holds the newest events. It has one writer. The zero value holds none.
type Ring struct {
	capacity uint64
	// Invariant: the ids of closed and open are consecutive. Entries are never changed.
	closed  []segment
	open    segment
	next    uint64 // id of the next event
	dropped int    // segments dropped from the front of closed but still in its memory
}

// New returns an empty ring that shows the newest capacity events. A capacity of zero or less
// turns the collection of events off (event design, "Configuration").
func New(capacity int) *Ring {
	return &Ring{capacity: uint64(max(capacity, 0))}
}

// Append adds a chunk of count events, the first of which has the id firstID. It copies data
// without examining it: a malformed chunk is found when it is read. Ids continue from the last
// chunk. If they do not, all earlier events are dropped, so that the ring never shows a gap.
func (r *Ring) Append(firstID, count uint64, data []byte) {
	if count == 0 {
		return
	}
	if firstID != r.next {
		r.closed, r.open, r.dropped = nil, segment{}, 0
	}
	r.next = firstID + count
	if r.capacity == 0 {
		return
	}
	var header [2 * binary.MaxVarintLen64]byte
	frame := binary.AppendUvarint(header[:0], count)
	frame = binary.AppendUvarint(frame, uint64(len(data)))
	size := len(frame) + len(data)
	if len(r.open.data) > 0 && len(r.open.data)+size > segmentSize {
		r.close()
	}
	if len(r.open.data) == 0 {
		r.open.first = firstID
	}
	if need := len(r.open.data) + size; need > cap(r.open.data) {
		grown := make([]byte, len(r.open.data), max(need, min(2*need, segmentSize)))
		copy(grown, r.open.data)
		r.open.data = grown
	}
	r.open.data = append(append(r.open.data, frame...), data...)
	r.drop()
}

// close ends the open segment and frees its unused memory.
func (r *Ring) close() {
	if unused := cap(r.open.data) - len(r.open.data); unused > cap(r.open.data)/8 {
		r.open.data = slices.Clone(r.open.data)
	}
	r.closed = append(r.closed, r.open)
	r.open = segment{}
}

// drop removes segments that are wholly hidden. Views may still read the directory of these
// segments. So it is not cleared but copied, once a sixteenth of it is unused.
func (r *Ring) drop() {
	low := r.View().low()
	for len(r.closed) > 0 {
		after := r.open.first
		if len(r.closed) > 1 {
			after = r.closed[1].first
		}
		if after > low {
			break
		}
		r.closed = r.closed[1:]
		r.dropped++
	}
	if r.dropped*16 > len(r.closed) {
		r.closed = slices.Clone(r.closed)
		r.dropped = 0
	}
}

// View returns the present content of the ring.
func (r *Ring) View() View {
	return View{capacity: r.capacity, closed: r.closed, open: r.open, next: r.next}
}

// View is the content of a ring at an instant. It is immutable and safe for concurrent use. The
// zero value is empty.
type View struct {
	capacity uint64
	closed   []segment
	open     segment
	next     uint64
}

// Next returns the id of the next event to be added.
func (v View) Next() uint64 { return v.next }

// low returns the lowest id that is shown, or next if there is none.
func (v View) low() uint64 {
	low := v.next
	switch {
	case len(v.closed) > 0:
		low = v.closed[0].first
	case len(v.open.data) > 0:
		low = v.open.first
	}
	if v.next > v.capacity {
		low = max(low, v.next-v.capacity)
	}
	return low
}

// Range returns the lowest and the highest readable id; ok is false if there is none. If a
// reader's next id is below low, the events in between are gone.
func (v View) Range() (low, high uint64, ok bool) {
	if low = v.low(); low >= v.next {
		return 0, 0, false
	}
	return low, v.next - 1, true
}

// Batch calls fn for at most count events, from the id start on, in order, until fn returns false.
// If no event has the id start, it calls fn for none, and Range returns the possible ids (event
// design, "REST"). If there are fewer than count, it ends with the last.
//
// The event is valid only during the call. Its texts and resources stay valid, but the resources
// must not be changed. An error reports a malformed chunk.
func (v View) Batch(start, count uint64, fn func(id uint64, ev *plimsoll.Event) bool) error {
	low, _, ok := v.Range()
	if !ok || start < low || start >= v.next {
		return nil
	}
	end := start + min(count, v.next-start)
	var d decoder
	for chunk := range v.chunksFrom(start) {
		if chunk.FirstID >= end {
			return nil
		}
		if more, err := d.batch(chunk, start, end, fn); err != nil || !more {
			return err
		}
	}
	return nil
}

// Chunks yields the chunks with shown events, oldest first. The first may begin below the lowest
// id. Their bytes must not be changed.
func (v View) Chunks() iter.Seq[Chunk] { return v.chunksFrom(v.low()) }

// chunksFrom yields the chunks whose last id is at least start.
func (v View) chunksFrom(start uint64) iter.Seq[Chunk] {
	return func(yield func(Chunk) bool) {
		i := sort.Search(len(v.closed), func(i int) bool { return v.closed[i].first > start })
		for i = max(i-1, 0); i <= len(v.closed); i++ {
			s := v.open
			if i < len(v.closed) {
				s = v.closed[i]
			}
			if !s.chunksFrom(start, yield) {
				return
			}
		}
	}
}

func (s segment) chunksFrom(start uint64, yield func(Chunk) bool) bool {
	id, data := s.first, s.data
	for len(data) > 0 {
		count, n := binary.Uvarint(data)
		size, m := binary.Uvarint(data[n:])
		data = data[n+m:]
		chunk := Chunk{FirstID: id, Count: count, Data: data[:size:size]}
		if data, id = data[size:], id+count; id <= start {
			continue
		}
		if !yield(chunk) {
			return false
		}
	}
	return true
}
