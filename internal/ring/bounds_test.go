package ring

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// naive is a ring as simple as can be: a slice of chunks with one low id.
type naive struct {
	bounds Bounds
	chunks []naiveChunk
	low    uint64
	next   uint64
	held   uint64
	unread uint64
}

type naiveChunk struct {
	first  uint64
	events []plimsoll.Event
	size   uint64
}

func (c *naiveChunk) end() uint64 { return c.first + uint64(len(c.events)) }

func (n *naive) append(first uint64, events []plimsoll.Event, size int) {
	if first != n.next {
		n.chunks, n.low = nil, first
	}
	if n.next = first + uint64(len(events)); n.bounds.Events == 0 {
		n.chunks, n.low = nil, n.next
		return
	}
	n.chunks = append(n.chunks, naiveChunk{first, events, uint64(size)})
	n.hide()
}

// oldest returns the oldest chunk with a shown event, and the bytes of the chunks from there on.
func (n *naive) oldest() (c *naiveChunk, bytes uint64) {
	for i := range slices.Backward(n.chunks) {
		if n.chunks[i].end() <= n.low {
			break
		}
		c, bytes = &n.chunks[i], bytes+n.chunks[i].size
	}
	return c, bytes
}

// holds reports whether a reader lacks an event of the oldest chunk, and there is room for it.
func (n *naive) holds(c *naiveChunk, bytes uint64) bool {
	return c.end() > n.held && bytes <= n.bounds.Held && n.bounds.Events > 0
}

func (n *naive) raise(low uint64) {
	for ; n.low < low; n.low++ {
		if n.low >= n.held {
			n.unread++
		}
	}
}

// hide applies the bounds of count and bytes: whole chunks first, then single events.
func (n *naive) hide() {
	many := n.next - min(n.bounds.Events, n.next)
	for c, bytes := n.oldest(); c != nil; c, bytes = n.oldest() {
		large := n.bounds.Bytes > 0 && bytes > n.bounds.Bytes && c.end() < n.next
		switch {
		case n.holds(c, bytes):
			n.raise(min(many, n.held))
			return
		case c.end() > many && !large:
			n.raise(many)
			return
		}
		n.raise(c.end())
	}
}

// expire hides the oldest chunks whose first event is too old, up to the first that is not.
func (n *naive) expire(now int64) {
	if n.bounds.Age == 0 {
		return
	}
	for c, bytes := n.oldest(); c != nil; c, bytes = n.oldest() {
		if c.events[0].Time >= now-n.bounds.Age || n.holds(c, bytes) {
			return
		}
		n.raise(c.end())
	}
}

func (n *naive) shown() (ids []uint64, events []plimsoll.Event) {
	for _, c := range n.chunks {
		for i := range c.events {
			if id := c.first + uint64(i); id >= n.low {
				ids, events = append(ids, id), append(events, c.events[i])
			}
		}
	}
	return ids, events
}

func drawBounds(t *rapid.T) Bounds {
	return Bounds{
		Events: rapid.OneOf(
			rapid.Uint64Range(0, 40), rapid.SampledFrom([]uint64{0, 1, math.MaxUint32}),
		).Draw(t, "events"),
		Bytes: rapid.OneOf(rapid.Uint64Range(0, 3000), rapid.Just(uint64(0))).Draw(t, "bytes"),
		Age:   rapid.OneOf(rapid.Int64Range(0, 30), rapid.Just(int64(0))).Draw(t, "age"),
		Held:  rapid.OneOf(rapid.Uint64Range(0, 5000), rapid.Just(uint64(0))).Draw(t, "held"),
	}
}

// For all histories of appending, gaps, resizing, ageing, holding back and beginning anew, a ring
// shows the same as a slice. Views that were taken before do not change.
func TestRingEqualsASliceThroughResizes(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		r, model := Bounded(Bounds{Events: 20}), &naive{bounds: Bounds{Events: 20}, held: NoHold}
		type frozen struct {
			view   View
			ids    []uint64
			events []plimsoll.Event
		}
		var views []frozen
		now := int64(1000)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, 5).Draw(t, "time")
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			case 0:
				b := drawBounds(t)
				r.SetBounds(b)
				model.bounds = b
				model.hide()
			case 1:
				r.Expire(now)
				model.expire(now)
			case 2:
				next := model.next + rapid.Uint64Range(0, 3).Draw(t, "anew")
				r.Restart(next)
				model.chunks, model.low, model.next = nil, next, next
			case 3, 4:
				from := rapid.OneOf(
					rapid.Uint64Range(model.next-min(model.next, 60), model.next+2), rapid.Just(uint64(NoHold)),
				).Draw(t, "from")
				r.Hold(from)
				model.held = from
				model.hide()
			default:
				events := rapid.SliceOfN(rapid.Custom(drawEvent), 1, 8).Draw(t, "chunk")
				for i := range events {
					events[i].Time = now
				}
				first := model.next
				if rapid.IntRange(0, 15).Draw(t, "gap") == 0 {
					first += rapid.Uint64Range(1, 5).Draw(t, "by")
				}
				data := pack(events)
				r.Append(first, uint64(len(events)), data)
				frame := binary.AppendUvarint([]byte{byte(len(events))}, uint64(len(data)))
				model.append(first, events, len(frame)+len(data))
			}
			ids, events := model.shown()
			views = append(views, frozen{r.View(), ids, events})
			if got := r.View().Next(); got != model.next {
				t.Fatalf("the next id is %d, want %d", got, model.next)
			}
			if got := r.View().Unread(); got != model.unread {
				t.Fatalf("%d events were hidden unread, want %d", got, model.unread)
			}
		}
		for i, f := range views {
			low, high, ok := f.view.Range()
			if ok != (len(f.ids) > 0) || ok && (low != f.ids[0] || high != f.ids[len(f.ids)-1]) {
				t.Fatalf("view %d has %d to %d, %v; want %v", i, low, high, ok, f.ids)
			}
			ids, events := read(t, f.view, low, math.MaxUint64)
			if !slices.Equal(ids, f.ids) || !cmp.Equal(slices.Clip(events), slices.Clip(f.events)) {
				t.Fatalf("view %d shows %v, want %v", i, ids, f.ids)
			}
		}
	})
}

// The memory of a ring follows its events, not its bounds, and stays within the bound of bytes.
func TestMemoryIsBoundedInBytes(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := Bounded(Bounds{Events: math.MaxUint32, Bytes: 1 << 40})
	r.SetBounds(Bounds{Events: math.MaxUint32})
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10 {
		t.Errorf("a ring of 2^32-1 events takes %d bytes before the first", grown)
	}
	const most = 1 << 20
	r.SetBounds(Bounds{Events: math.MaxUint32, Bytes: most})
	data := pack(wave(0, 100))
	for i := range 3 * most / uint64(len(data)) {
		r.Append(i*100, 100, data)
		held := cap(r.open.data)
		for _, s := range r.closed {
			held += cap(s.data)
		}
		if held > most+2*segmentSize {
			t.Fatalf("%d bytes are held for %d", held, most)
		}
	}
	if low, high, ok := r.View().Range(); !ok || high-low < 100*uint64(most/(len(data)+4)-2) {
		t.Errorf("only %d to %d are shown", low, high)
	}
}

// Readers go on with their views, and with fresh ones, while the ring is resized and wraps. The
// race detector watches this test. A reader that goes on at its own id sees every event that is
// still shown, once, in order.
func TestResizeWhileRead(t *testing.T) {
	r := Bounded(Bounds{Events: 1000})
	var mu sync.Mutex
	view, done := r.View(), false
	latest := func() (View, bool) {
		mu.Lock()
		defer mu.Unlock()
		return view, done
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			next, whole := uint64(0), false
			for !whole {
				var v View
				v, whole = latest()
				low, _, ok := v.Range()
				if !ok {
					continue
				}
				next = max(next, low)
				if err := v.Batch(next, 500, func(id uint64, ev *plimsoll.Event) bool {
					if id != next || ev.Object != fmt.Sprintf("job-%d", id/10) {
						t.Errorf("the event %d is about %s, where %d was expected", id, ev.Object, next)
						return false
					}
					next++
					return true
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 1))
	for i := range uint64(1500) {
		if rng.IntN(20) == 0 {
			r.SetBounds(Bounds{
				Events: rng.Uint64N(3000), Bytes: rng.Uint64N(100_000), Age: rng.Int64N(1000),
				Held: rng.Uint64N(200_000),
			})
			r.Hold(i * 10)
		}
		r.Append(i*10, 10, pack(wave(int(i), 10)))
		r.Expire(int64(i))
		mu.Lock()
		view = r.View()
		mu.Unlock()
	}
	mu.Lock()
	done = true
	mu.Unlock()
	readers.Wait()
}

// A ring that shows nothing still carries the id of its next event over.
func TestAnEmptyRingCarriesItsNextIDOver(t *testing.T) {
	for name, empty := range map[string]func(r *Ring){
		"by age":      func(r *Ring) { r.Expire(math.MaxInt64) },
		"by capacity": func(r *Ring) { r.SetBounds(Bounds{}) },
		"anew":        func(r *Ring) { r.Restart(30) },
	} {
		a, b := Bounded(Bounds{Events: 10, Age: 1}), Bounded(Bounds{Events: 10, Age: 1})
		for i := range uint64(3) {
			a.Append(i*10, 10, pack(wave(int(i), 10)))
		}
		empty(a)
		for c := range a.View().Chunks() {
			b.Append(c.FirstID, c.Count, c.Data)
		}
		if _, _, some := b.View().Range(); some || b.View().Next() != 30 {
			t.Errorf("%s: the next id is %d, and there is some: %v", name, b.View().Next(), some)
		}
	}
}

// Events that a reader holds back stay beyond each bound, until they take more bytes than a reader
// can hold back. Then the oldest go, and are counted. When the reader has them, they go too.
func TestHeldEventsStay(t *testing.T) {
	const count = 10
	data := pack(wave(0, count))
	size := uint64(len(data)) + 2 // with its frame
	low := func(r *Ring) uint64 {
		low, _, _ := r.View().Range()
		return low
	}
	for name, b := range map[string]Bounds{
		"count": {Events: 2 * count}, "bytes": {Events: math.MaxUint32, Bytes: 2 * size},
		"age": {Events: math.MaxUint32, Age: 1},
	} {
		b.Held = 5 * size
		r := Bounded(b)
		fill := func(chunks int) {
			for range chunks {
				r.Append(r.View().Next(), count, data)
				r.Expire(math.MaxInt64 / 2)
			}
		}
		r.Hold(0)
		if fill(5); low(r) != 0 || r.View().Unread() != 0 {
			t.Errorf("%s: the ring begins at %d, and %d events were lost", name, low(r), r.View().Unread())
		}
		r.Hold(10)
		if fill(1); low(r) != 10 || r.View().Unread() != 0 {
			t.Errorf("%s: the ring begins at %d, and %d events were lost", name, low(r), r.View().Unread())
		}
		if fill(2); low(r) != 30 || r.View().Unread() != 20 {
			t.Errorf("%s: the ring begins at %d, and %d events were lost", name, low(r), r.View().Unread())
		}
		r.Hold(NoHold)
		r.Expire(math.MaxInt64 / 2)
		if n := r.View().Next() - low(r); low(r) != 0 && n > 2*count || r.View().Unread() != 20 {
			t.Errorf("%s: %d events are shown behind the hold, and %d were lost", name, n, r.View().Unread())
		}
	}
}

// A ring that collects nothing holds nothing back: the setting that turns the collection off frees
// the memory.
func TestARingWithoutCapacityHoldsNothing(t *testing.T) {
	r := Bounded(Bounds{Events: 10, Held: 1 << 20})
	r.Hold(0)
	r.Append(0, 10, pack(wave(0, 10)))
	r.SetBounds(Bounds{Held: 1 << 20})
	r.Append(10, 10, pack(wave(1, 10)))
	if low, high, ok := r.View().Range(); ok {
		t.Errorf("the ring shows %d to %d", low, high)
	}
}
