package ring

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

func drawEvent(t *rapid.T) plimsoll.Event {
	id := rapid.OneOf(
		rapid.StringMatching(`job-[0-9]{1,2}`),
		rapid.StringMatching(`job-[0-9]\.map\.[0-9]{1,3}`),
		rapid.StringMatching(`node-[0-9]{1,2}`),
		rapid.Just(""),
		rapid.String(),
	)
	ev := plimsoll.Event{
		Type:      plimsoll.EventType(rapid.OneOf(rapid.Uint8Range(0, 5), rapid.Uint8()).Draw(t, "type")),
		Change:    plimsoll.ChangeType(rapid.Uint8().Draw(t, "change")),
		Detail:    plimsoll.ChangeDetail(rapid.Uint16().Draw(t, "detail")),
		Time:      rapid.OneOf(rapid.Int64(), rapid.Just(int64(1_700_000_000_000_000_000))).Draw(t, "time"),
		Object:    id.Draw(t, "object"),
		Reference: id.Draw(t, "reference"),
		Message:   rapid.OneOf(rapid.Just(""), rapid.String()).Draw(t, "message"),
	}
	if rapid.Bool().Draw(t, "resources") {
		names := rapid.SampledFrom([]string{"cpu", "memory", "nvidia.com/gpu", ""})
		ev.Resources = rapid.MapOfN(names, rapid.Int64(), 0, 3).Draw(t, "amounts")
	}
	if rapid.Bool().Draw(t, "head") {
		texts := rapid.OneOf(rapid.SampledFrom([]string{"", "alice", "team"}), rapid.String())
		at := rapid.OneOf(rapid.Just(ev.Time), rapid.Int64()).Draw(t, "submitted")
		ev.Head = &plimsoll.JobHead{
			UID: plimsoll.MakeUID(at, rapid.Uint64().Draw(t, "revision")), Owner: texts.Draw(t, "owner"),
		}
		if labels := rapid.MapOfN(texts, texts, 0, 3).Draw(t, "labels"); len(labels) > 0 {
			ev.Head.Labels = labels
		}
	}
	if isBlank(&ev) {
		ev.Object = "job"
	}
	return ev
}

func pack(events []plimsoll.Event) []byte {
	var e Encoder
	for i := range events {
		e.Append(&events[i])
	}
	return e.Finish(nil)
}

func unpack(data []byte) (events []plimsoll.Event, err error) {
	for ev, err := range Decode(data) {
		if err != nil {
			return nil, err
		}
		events = append(events, ev)
	}
	return events, nil
}

func read(t interface{ Fatal(...any) }, v View, start, count uint64) (ids []uint64, events []plimsoll.Event) {
	err := v.Batch(start, count, func(id uint64, ev *plimsoll.Event) bool {
		ids, events = append(ids, id), append(events, *ev)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids, events
}

// A chunk holds every packed event unchanged. The bytes do not depend on chunks that the encoder
// packed before.
func TestChunkHoldsWhatWasPacked(t *testing.T) {
	var used Encoder
	testrun.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(drawEvent), 0, 40).Draw(t, "events")
		data := pack(events)
		got, err := unpack(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(slices.Clip(events), got); diff != "" && len(events)+len(got) > 0 {
			t.Fatal(diff)
		}
		for i := range events {
			used.Append(&events[i])
		}
		if used.Len() != len(events) {
			t.Fatalf("Len is %d after %d events", used.Len(), len(events))
		}
		if again := used.Finish([]byte("x")); string(again) != "x"+string(data) {
			t.Fatal("an encoder that was used before packs the same events in other bytes")
		}
	})
}

// For all events, chunks, capacities and questions, a batch equals the same part of a plain slice
// of the newest events.
func TestBatchEqualsSlice(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(0, 50).Draw(t, "capacity")
		r := New(capacity)
		var model []plimsoll.Event // all events ever appended
		type frozen struct {
			view View
			n    int
		}
		var views []frozen
		check := func(v View, n int) {
			low, high, ok := v.Range()
			wantLow := max(0, n-capacity)
			if ok != (n > 0 && capacity > 0) || ok && (low != uint64(wantLow) || high != uint64(n-1)) {
				t.Fatalf("range of %d events in a ring of %d is %d to %d, %v", n, capacity, low, high, ok)
			}
			start := rapid.IntRange(0, n+2).Draw(t, "start")
			count := rapid.OneOf(rapid.Uint64Range(0, 60), rapid.Just(uint64(math.MaxUint64))).Draw(t, "count")
			ids, got := read(t, v, uint64(start), count)
			var want []plimsoll.Event
			if ok && start >= wantLow && start < n {
				want = model[start : start+int(min(count, uint64(n-start)))]
			}
			if diff := cmp.Diff(slices.Clip(want), got); diff != "" && len(want)+len(got) > 0 {
				t.Fatalf("batch of %d from %d: %s", count, start, diff)
			}
			for i, id := range ids {
				if id != uint64(start+i) {
					t.Fatalf("event %d of a batch from %d has id %d", i, start, id)
				}
			}
		}
		for range rapid.IntRange(0, 8).Draw(t, "chunks") {
			events := rapid.SliceOfN(rapid.Custom(drawEvent), 1, 12).Draw(t, "events")
			r.Append(uint64(len(model)), uint64(len(events)), pack(events))
			model = append(model, events...)
			views = append(views, frozen{r.View(), len(model)})
		}
		for _, f := range views { // older views too: a view does not change
			check(f.view, f.n)
		}
	})
}

// A second ring fed with the chunks of a view shows the same.
func TestChunksCarryTheRingOver(t *testing.T) {
	a, b := New(100), New(100)
	for i := range 50 {
		a.Append(uint64(i*7), 7, pack(wave(i, 7)))
	}
	for c := range a.View().Chunks() {
		b.Append(c.FirstID, c.Count, c.Data)
	}
	low, high, _ := a.View().Range()
	if low2, high2, ok := b.View().Range(); !ok || low2 != low || high2 != high || low != 250 || high != 349 {
		t.Fatalf("ranges are %d to %d and %d to %d", low, high, low2, high2)
	}
	_, want := read(t, a.View(), low, 1000)
	_, got := read(t, b.View(), low, 1000)
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 100 {
		t.Fatal(diff)
	}
}

// wave makes n events that differ in their texts.
func wave(seed, n int) []plimsoll.Event {
	events := make([]plimsoll.Event, n)
	for i := range events {
		events[i] = plimsoll.Event{
			Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Detail: plimsoll.AppAlloc, Time: int64(seed),
			Object:    fmt.Sprintf("job-%d", seed),
			Reference: plimsoll.TaskID(fmt.Sprintf("job-%d", seed), "map", int32(i)),
		}
	}
	return events
}

// Event storage: "The slice has a configurable, limited set of entries." Memory is freed as the
// ring goes on.
func TestRingDropsWhatIsHidden(t *testing.T) {
	r := New(1000)
	for i := range 3000 {
		r.Append(uint64(i*100), 100, pack(wave(i, 100)))
		held := cap(r.open.data)
		for _, s := range r.closed {
			held += cap(s.data)
		}
		if held > 3*segmentSize {
			t.Fatalf("a ring of 1000 events holds %d bytes after %d chunks", held, i+1)
		}
	}
	if low, high, ok := r.View().Range(); !ok || low != 299_000 || high != 299_999 {
		t.Fatalf("range is %d to %d, %v", low, high, ok)
	}
}

// Event storage: "allow multiple events to be stored for an ObjectID. This is required as one
// object could trigger multiple events in a short time and all are important to track."
func TestOneObjectHasAsManyEventsAsHappened(t *testing.T) {
	events := make([]plimsoll.Event, 50)
	for i := range events {
		events[i] = plimsoll.Event{
			Type: plimsoll.EventApp, Change: plimsoll.ChangeSet, Detail: plimsoll.ChangeDetail(i), Time: 7,
			Object: "app",
		}
	}
	r := New(len(events))
	r.Append(0, uint64(len(events)), pack(events))
	var got []plimsoll.Event
	if err := r.View().Batch(0, math.MaxUint64, func(_ uint64, ev *plimsoll.Event) bool {
		got = append(got, *ev)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(events, got); d != "" {
		t.Errorf("-told +held:\n%s", d)
	}
}

// Event storage: "Nil, or empty, events will not be added to the storage."
func TestEmptyEventsAreLeftOut(t *testing.T) {
	var e Encoder
	e.Append(nil)
	e.Append(&plimsoll.Event{})
	e.Append(&plimsoll.Event{Time: 7, Resources: plimsoll.Resources{}})
	if data := e.Finish(nil); e.Len() != 0 || data != nil {
		t.Fatalf("%d events were added: %x", e.Len(), data)
	}
}

// Configuration: "setting a size of 0 effectively turns off the event collection system."
func TestCapacityZeroHoldsNothing(t *testing.T) {
	for _, capacity := range []int{0, -1} {
		r := New(capacity)
		r.Append(0, 3, pack(wave(0, 3)))
		if _, _, ok := r.View().Range(); ok || r.View().Next() != 3 {
			t.Errorf("a ring of %d holds something, or has lost count", capacity)
		}
	}
	var v View
	if _, _, ok := v.Range(); ok {
		t.Error("the zero view holds something")
	}
}

// REST: "Every event is assigned a unique id starting from 0. The ring buffer maintains the current
// available highest and lowest ID." "If start refers to an ID which doesn't exist in the buffer,
// then an empty response is returned". "If the requested count is larger than the available number
// of events all events are returned."
func TestBatchAnswersAsDesigned(t *testing.T) {
	r := New(10)
	if _, _, ok := r.View().Range(); ok {
		t.Fatal("an empty ring has a range")
	}
	for i := range 4 {
		r.Append(uint64(i*4), 4, pack(wave(i, 4)))
		if i == 0 {
			if low, high, ok := r.View().Range(); !ok || low != 0 || high != 3 {
				t.Fatalf("the first chunk has the range %d to %d, %v", low, high, ok)
			}
		}
	}
	for _, test := range []struct {
		start, count uint64
		want         []uint64
	}{
		{6, 3, []uint64{6, 7, 8}},
		{15, 1, []uint64{15}},
		{14, math.MaxUint64, []uint64{14, 15}},
		{13, 1 << 63, []uint64{13, 14, 15}},
		{6, 0, nil},
		{5, 3, nil},  // overrun
		{0, 3, nil},  // overrun
		{16, 3, nil}, // not there yet
		{math.MaxUint64, math.MaxUint64, nil},
	} {
		if ids, _ := read(t, r.View(), test.start, test.count); !slices.Equal(ids, test.want) {
			t.Errorf("batch of %d from %d gave %v, want %v", test.count, test.start, ids, test.want)
		}
	}
}

// A reader may stop in the middle of a batch.
func TestBatchStopsWhenAsked(t *testing.T) {
	r := New(10)
	r.Append(0, 5, pack(wave(0, 5)))
	r.Append(5, 5, pack(wave(1, 5)))
	calls := 0
	err := r.View().Batch(1, 100, func(uint64, *plimsoll.Event) bool { calls++; return calls < 6 })
	if err != nil || calls != 6 {
		t.Errorf("fn was called %d times, and the batch ended with %v", calls, err)
	}
}

// A ring never shows a gap: events before one are dropped.
func TestGapDropsWhatCameBefore(t *testing.T) {
	r := New(10)
	r.Append(0, 3, pack(wave(0, 3)))
	r.Append(3, 0, nil) // nothing
	r.Append(5, 2, pack(wave(1, 2)))
	if low, high, ok := r.View().Range(); !ok || low != 5 || high != 6 {
		t.Errorf("range is %d to %d, %v", low, high, ok)
	}
	r.Append(0, 1, pack(wave(2, 1))) // a new instance begins from 0 again
	if low, high, ok := r.View().Range(); !ok || low != 0 || high != 0 {
		t.Errorf("range is %d to %d, %v", low, high, ok)
	}
}

// YuniKorn cuts a message at MaxEventMessage bytes and ends it in dots. The encoder does so too,
// and does not split a character.
func TestLongTextsAreCut(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"as long as possible", strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		{"one byte longer", strings.Repeat("x", 1025), strings.Repeat("x", 1021) + "..."},
		{"a character at the end", strings.Repeat("x", 1020) + "世界", strings.Repeat("x", 1020) + "..."},
		{"a character that just fits", strings.Repeat("x", 1018) + "世界界", strings.Repeat("x", 1018) + "世..."},
		{"no characters at all", strings.Repeat("\x80", 2000), strings.Repeat("\x80", 1018) + "..."},
	} {
		got, err := unpack(pack([]plimsoll.Event{{Object: "o", Message: test.in}}))
		if err != nil || got[0].Message != test.want {
			t.Errorf(
				"%s: it was cut to %d bytes, ending in %q; %v", test.name, len(got[0].Message), got[0].Message[1010:],
				err,
			)
		}
		if utf8.ValidString(test.in) && !utf8.ValidString(got[0].Message) {
			t.Errorf("%s: a character was split", test.name)
		}
	}
	long := strings.Repeat("y", 5000)
	got, err := unpack(pack([]plimsoll.Event{{Object: long, Reference: long}}))
	if err != nil || len(got[0].Object) != maxText || len(got[0].Reference) != maxText {
		t.Errorf("an id of 5000 bytes was not cut: %v", err)
	}
}

// Malformed chunks are errors, found when they are read.
func TestMalformedChunks(t *testing.T) {
	good := pack(wave(3, 3))
	for _, test := range []struct {
		name  string
		count uint64
		data  []byte
	}{
		{"empty", 3, nil},
		{"another version", 3, append([]byte{9}, good[1:]...)},
		{"cut off", 3, good[:len(good)-1]},
		{"longer", 3, append(slices.Clone(good), 0)},
		{"another count", 4, good},
	} {
		r := New(10)
		r.Append(0, test.count, test.data)
		var e *plimsoll.Error
		err := r.View().Batch(0, 10, func(uint64, *plimsoll.Event) bool { return true })
		if !errors.As(err, &e) || e.Code != plimsoll.CodeCorrupt {
			t.Errorf("%s: reading it gave %v", test.name, err)
		}
	}
	for n := 1; n < len(good); n++ {
		if _, err := unpack(good[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were taken for a chunk", n, len(good))
		}
	}
}

// An event with a number that this version does not know is kept unchanged.
func TestUnknownTypesAreKept(t *testing.T) {
	want := []plimsoll.Event{
		{Type: 200, Change: 201, Detail: 65535, Time: -1, Object: "a", Reference: "a", Message: "a"},
	}
	got, err := unpack(pack(want))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// The tables of a large chunk do not slow down the small ones that follow for ever.
func TestTablesShrink(t *testing.T) {
	var e Encoder
	big := wave(1, 10_000)
	for i := range big {
		e.Append(&big[i])
	}
	e.Finish(nil)
	small := wave(2, 3)
	for range shrinkAfter + 1 {
		for i := range small {
			e.Append(&small[i])
		}
		e.Finish(nil)
	}
	if e.peak > 100 {
		t.Errorf("after many small chunks the tables still have room for %d texts", e.peak)
	}
	if got, err := unpack(
		func() []byte { e.Append(&small[0]); return e.Finish(nil) }(),
	); err != nil || !cmp.Equal(got, small[:1]) {
		t.Error(got, err)
	}
}

// A view is read by other goroutines while the ring goes on, and does not change. The race
// detector watches this test.
func TestViewsAreReadWhileTheRingGrows(t *testing.T) {
	views := make(chan View, 8)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for v := range views {
				low, high, ok := v.Range()
				n := uint64(0)
				err := v.Batch(low, math.MaxUint64, func(id uint64, ev *plimsoll.Event) bool {
					if want := fmt.Sprintf("job-%d", id/100); id != low+n || ev.Object != want {
						t.Errorf("event %d is about %s, want %s", id, ev.Object, want)
					}
					n++
					return true
				})
				if err != nil || !ok || n != high-low+1 {
					t.Errorf("%d events of %d to %d, %v, %v", n, low, high, ok, err)
				}
			}
		})
	}
	r := New(20_000)
	for i := range 1000 {
		r.Append(uint64(i*100), 100, pack(wave(i, 100)))
		if i%20 == 0 {
			views <- r.View()
		}
	}
	close(views)
	readers.Wait()
}

// In the steady state nothing is allocated for an event.
func TestEncoderAllocatesNothing(t *testing.T) {
	turns := newWorkload(100).turns(4, 5)
	var e Encoder
	var dst []byte
	packAll := func() {
		for _, turn := range turns {
			for i := range turn {
				e.Append(&turn[i])
			}
			dst = e.Finish(dst[:0])
		}
	}
	packAll()
	if perEvent := testing.AllocsPerRun(10, packAll) / float64(count(turns)); perEvent > 0.01 {
		t.Errorf("%v allocations for an event", perEvent)
	}
}

// Memory usage of historical elements: a chunk of repetitive batch workloads stays small. The
// design's interned records take 66 bytes an event and more.
func TestEventsAreSmall(t *testing.T) {
	for _, test := range []struct {
		name   string
		turns  [][]plimsoll.Event
		atMost float64
	}{
		{"jobs of a hundred tasks", newWorkload(100).turns(20, 5), 8},
		{"every end is a turn of its own", newWorkload(100).turns(1, 1), 18},
		{"jobs of one task, and nothing else in their turns", newWorkload(1).turns(1, 1), 25},
	} {
		size := 0
		for _, turn := range test.turns {
			size += len(pack(turn))
		}
		if perEvent := float64(size) / float64(count(test.turns)); perEvent > test.atMost {
			t.Errorf("%s: %.1f bytes an event, want at most %.0f", test.name, perEvent, test.atMost)
		}
	}
}

// A chunk of version 1, as it was written: a job of two tasks, and an event with unknown numbers.
const oldChunk = "01138080d0e2c6bfce972f001201010010706970656c696e652d303030303030300014a36504000a726f6f742e62" +
	"6174636806000ae132060012ab32000300e8070280808080080180808040060110072e6d61696e2e30040602160131000a81330600" +
	"13fb4b0180c8e50603000a6e6f64652d30343737340700128b32010606001aab320106060013eb4b01030703313533080706060806" +
	"06000aa13306001bfb4b0180c8e5060707001a8b7d010606001beb4b0108080c0606000a81340600ff090895af01f58f9bf0c6bfce" +
	"972f000001780500016d"

// Stores have chunks of older versions.
func TestOlderVersionsAreRead(t *testing.T) {
	data, err := hex.DecodeString(oldChunk)
	if err != nil {
		t.Fatal(err)
	}
	submitted, bound, ended := newWorkload(2).next()
	want := slices.Concat(submitted, bound, ended, []plimsoll.Event{
		{Type: 9, Change: 8, Detail: 700, Time: 5, Object: "x", Message: "m"},
	})
	want[0].Head = nil
	got, err := unpack(data)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if at, ok := (Chunk{Data: data}).Time(); !ok || at != want[0].Time {
		t.Errorf("the time of the chunk is %d, %t", at, ok)
	}
}
