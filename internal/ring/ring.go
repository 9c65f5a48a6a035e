package ring

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/plimsoll-dev/plimsoll"
)

// Bounds bound a ring. Each holds by itself: the ring shows what all of them leave.
type Bounds struct {
	Events uint64 // most events; 0: none
	// Bytes is the most that the chunks of the shown events take in their packed form; 0: no bound.
	// The newest chunk is shown all the same. The ring holds at most a segment of 64 KiB more.
	Bytes uint64
	Age   int64 // ns after which an event is hidden; 0: no bound
	// Held is the most bytes of chunks that are shown while a reader holds events back, in their
	// packed form: see Ring.Hold. 0: no reader can.
	Held uint64
}

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
	bounds Bounds
	// Invariant: the ids of closed and open are consecutive. Entries are never changed.
	closed  []segment
	open    segment
	next    uint64 // id of the next event
	low     uint64 // lowest id that is shown; next if there is none
	dropped int    // segments dropped from the front of closed but still in its memory

	// front is the oldest chunk with a shown event, in the first segment; the place behind the last
	// chunk if there is none. shown is the bytes of the chunks from there on.
	// Invariant: front.id <= low. shown <= bounds.Bytes, unless that is 0, one chunk is shown, or
	// the front is held back. Then shown <= bounds.Held.
	front struct {
		id     uint64 // of its first event
		offset int    // in the first segment
	}
	shown uint64

	heldFrom uint64 // see Hold; NoHold: no reader holds events back
	unread   uint64 // events with ids from heldFrom on that were hidden all the same
}

// NoHold is the id with which Ring.Hold lets go of all events.
const NoHold = math.MaxUint64

// New returns an empty ring that shows the newest capacity events. A capacity of zero or less
// turns the collection of events off (event design, "Configuration"). Nothing is allocated for
// events that have not come.
func New(capacity int) *Ring { return Bounded(Bounds{Events: uint64(max(capacity, 0))}) }

// Bounded returns an empty ring with bounds.
func Bounded(b Bounds) *Ring { return &Ring{bounds: b, heldFrom: NoHold} }

// SetBounds changes the bounds. Events keep their ids. Wider bounds do not bring back what was
// hidden.
func (r *Ring) SetBounds(b Bounds) {
	r.bounds = b
	r.hide()
}

// Hold holds the events from an id on back for a reader that does not have them yet. They stay
// although they are beyond a bound, as long as the chunks of the shown events take at most
// Bounds.Held. Events that are hidden already do not come back.
func (r *Ring) Hold(from uint64) {
	r.heldFrom = from
	r.hide()
}

// Append adds a chunk of count events, the first of which has the id firstID. It copies data
// without examining it: a malformed chunk is found when it is read. Ids continue from the last
// chunk. If they do not, all earlier events are dropped, so that the ring never shows a gap. A
// chunk of no events only sets the id of the next one.
func (r *Ring) Append(firstID, count uint64, data []byte) {
	if firstID != r.next {
		r.Restart(firstID)
	}
	if count == 0 {
		return
	}
	r.next = firstID + count
	if r.bounds.Events == 0 {
		r.Restart(r.next)
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
	r.shown += uint64(size)
	r.hide()
}

// Restart drops all events. The next one has the id next.
func (r *Ring) Restart(next uint64) {
	*r = Ring{bounds: r.bounds, next: next, low: next, heldFrom: r.heldFrom, unread: r.unread}
	r.front.id = next
}

// Expire hides the events that are older than the bound on age at a time in Unix nanoseconds. The
// time of a chunk is that of its first event.
func (r *Ring) Expire(now int64) {
	if r.bounds.Age == 0 {
		return
	}
	for r.front.id < r.next {
		front := r.frontChunk()
		if at, ok := front.Time(); !ok || at >= now-r.bounds.Age || r.holds(front.FirstID+front.Count) {
			return
		}
		r.hideFront()
	}
}

// close ends the open segment and frees its unused memory.
func (r *Ring) close() {
	if unused := cap(r.open.data) - len(r.open.data); unused > cap(r.open.data)/8 {
		r.open.data = slices.Clone(r.open.data)
	}
	r.closed = append(r.closed, r.open)
	r.open = segment{}
	r.dropHidden()
}

// hide hides the oldest events, so that the rest is within the bounds of events and bytes, or held
// back.
func (r *Ring) hide() {
	many := uint64(0) // the ids below are beyond the bound of events
	if r.next > r.bounds.Events {
		many = r.next - r.bounds.Events
	}
	for r.front.id < r.next {
		front := r.frontChunk()
		behind := front.FirstID + front.Count
		large := r.bounds.Bytes > 0 && r.shown > r.bounds.Bytes && behind < r.next
		if behind > r.low && (behind > many && !large || r.holds(behind)) {
			break
		}
		r.hideFront()
	}
	if r.holds(NoHold) {
		many = min(many, r.heldFrom)
	}
	r.raise(many)
}

// holds reports whether a chunk whose last event has an id below behind is held back.
func (r *Ring) holds(behind uint64) bool {
	return behind > r.heldFrom && r.shown <= r.bounds.Held && r.bounds.Events > 0
}

// raise hides the events with ids below low.
func (r *Ring) raise(low uint64) {
	if low > r.low {
		r.unread += low - min(max(r.low, r.heldFrom), low)
		r.low = low
	}
}

// hideFront hides the oldest chunk, and drops its segment if no chunk of that is shown.
func (r *Ring) hideFront() {
	s := r.firstSegment()
	chunk, size := s.chunk(r.front.offset, r.front.id)
	r.front.id += chunk.Count
	r.front.offset += size
	r.shown -= uint64(size)
	r.raise(r.front.id)
	r.dropHidden()
}

// dropHidden removes the segments that are wholly hidden. Views may still read the directory of
// these segments. So it is not cleared but copied, once a sixteenth of it is unused.
func (r *Ring) dropHidden() {
	for len(r.closed) > 0 && r.front.offset == len(r.closed[0].data) {
		r.closed = r.closed[1:]
		r.front.offset = 0
		r.dropped++
	}
	if len(r.closed) == 0 && r.front.offset > 0 && r.front.offset == len(r.open.data) {
		r.open, r.front.offset = segment{}, 0
	}
	if r.dropped*16 > len(r.closed) {
		r.closed = slices.Clone(r.closed)
		r.dropped = 0
	}
}

func (r *Ring) firstSegment() *segment {
	if len(r.closed) > 0 {
		return &r.closed[0]
	}
	return &r.open
}

// frontChunk returns the oldest chunk with a shown event. There must be one.
func (r *Ring) frontChunk() Chunk {
	chunk, _ := r.firstSegment().chunk(r.front.offset, r.front.id)
	return chunk
}

// View returns the present content of the ring.
func (r *Ring) View() View {
	return View{low: r.low, closed: r.closed, open: r.open, next: r.next, unread: r.unread}
}

// View is the content of a ring at an instant. It is immutable and safe for concurrent use. The
// zero value is empty.
type View struct {
	low    uint64 // lowest id that is shown; next if there is none
	closed []segment
	open   segment
	next   uint64
	unread uint64
}

// Unread returns how many events the ring has hidden although a reader held them back.
func (v View) Unread() uint64 { return v.unread }

// Next returns the id of the next event to be added.
func (v View) Next() uint64 { return v.next }

// Range returns the lowest and the highest readable id; ok is false if there is none. If a
// reader's next id is below low, the events in between are gone.
func (v View) Range() (low, high uint64, ok bool) {
	if v.low >= v.next {
		return 0, 0, false
	}
	return v.low, v.next - 1, true
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
// id. Their bytes must not be changed. Without events it yields a chunk of none, which holds the id
// of the next one.
func (v View) Chunks() iter.Seq[Chunk] {
	if v.low >= v.next {
		return func(yield func(Chunk) bool) {
			if v.next > 0 {
				yield(Chunk{FirstID: v.next})
			}
		}
	}
	return v.chunksFrom(v.low)
}

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
	for id, offset := s.first, 0; offset < len(s.data); {
		chunk, size := s.chunk(offset, id)
		offset += size
		if id += chunk.Count; id <= start {
			continue
		}
		if !yield(chunk) {
			return false
		}
	}
	return true
}

// chunk returns the chunk at an offset, whose first event has the id first, and its size with its
// frame.
func (s segment) chunk(offset int, first uint64) (c Chunk, size int) {
	data := s.data[offset:]
	count, n := binary.Uvarint(data)
	length, m := binary.Uvarint(data[n:])
	size = n + m + int(length)
	return Chunk{FirstID: first, Count: count, Data: data[n+m : size : size]}, size
}

// Time returns the time of the first event of a chunk in Unix nanoseconds; ok is false if the chunk
// is malformed.
func (c Chunk) Time() (at int64, ok bool) {
	if len(c.Data) == 0 || !isRead(c.Data[0]) {
		return 0, false
	}
	_, n := binary.Uvarint(c.Data[1:])
	if n <= 0 {
		return 0, false
	}
	at, m := binary.Varint(c.Data[1+n:])
	return at, m > 0
}
