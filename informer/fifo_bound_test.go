package informer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
)

func TestAConfigurationIsRefusedWithItsField(t *testing.T) {
	for field, c := range map[string]config{"Key": {}, "MaxBytes": {Key: keyOf, MaxBytes: -1}} {
		var e *plimsoll.Error
		_, err := informer.NewDeltaFIFO(c)
		if !errors.As(err, &e) || e.Field != field || e.Code != plimsoll.CodeInvalid {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestABadObjectChangesNothing(t *testing.T) {
	errTransform := errors.New("not transformed")
	q := queue(t, func(c *config) {
		c.Transform = func(t thing) (thing, error) {
			if t.state == 9 {
				return thing{}, errTransform
			}
			return t, nil
		}
	})
	gone := func(key string, state int, unknown bool) []informer.Deletion[thing] {
		return []informer.Deletion[thing]{{Key: key, Object: thing{key, state}, Tombstone: unknown}}
	}
	for name, c := range map[string]struct {
		err   error
		cause error
		field string
	}{
		"Add":                {q.Add(th("!1")), errNoName, "key"},
		"Update":             {q.Update(th("a9")), errTransform, "object"},
		"Delete":             {q.Delete(th("!1")), errNoName, "key"},
		"an empty key":       {q.Add(thing{}), nil, "key"},
		"Replace":            {q.Replace(things("a1 !1"), version(2)), errNoName, "objects.[1].key"},
		"Replace, transform": {q.Replace(things("a1 b1 c9"), version(2)), errTransform, "objects.[2].object"},
		"Change":             {q.Change(things("a1 !1"), nil, version(2)), errNoName, "objects.[1].key"},
		"Change, deleted":    {q.Change(things("a1"), gone("", 1, true), version(2)), nil, "deleted[0].key"},
		"Change, transform": {
			q.Change(things("a1"), gone("b", 9, false), version(2)), errTransform, "deleted[0].object",
		},
	} {
		var e *plimsoll.Error
		if !errors.As(c.err, &e) || e.Code != plimsoll.CodeInvalid || e.Field != c.field {
			t.Errorf("%s: %v in %q", name, c.err, e.Field)
		}
		if c.cause != nil && !errors.Is(c.err, c.cause) {
			t.Errorf("%s: %v does not wrap its cause", name, c.err)
		}
	}
	isEmpty(t, q)
	synced(t, q, false) // a change that was refused does not populate
	if v := q.Stats().Version; !v.IsZero() {
		t.Error(v)
	}
}

func TestChangeQueuesAStepWhole(t *testing.T) {
	q := queue(t, withKnown(knows("")))
	must(t, q.Change(things("a1 b1"), []informer.Deletion[thing]{
		{Key: "c", Object: th("c1")}, {Key: "d", Tombstone: true},
	}, version(1)))
	same(t, popAll(t, q), "a: Updated 1", "b: Updated 1", "c: Deleted 1", "d: Deleted 0?")
}

func TestAVersionNeverGoesBack(t *testing.T) {
	q := queue(t, nil)
	must(t, q.Change(things("a1"), nil, version(5)), q.Change(things("b1"), nil, version(5)))
	for _, err := range []error{
		q.Change(things("c1"), nil, version(4)), q.Replace(things("c1"), version(4)),
	} {
		if plimsoll.CodeOf(err) != plimsoll.CodeStale || !strings.Contains(err.Error(), "1.4 is before 1.5") {
			t.Error(err)
		}
	}
	must(t, q.Change(things("d1"), nil, informer.Version{}), q.Change(nil, nil, informer.Version{Epoch: 2}))
	got, at := drained(t, q)
	if same(t, got, "a: Updated 1", "b: Updated 1", "d: Updated 1"); at != (informer.Version{Epoch: 2}) {
		t.Error(at)
	}
}

func TestCompactLeavesTheNetEffect(t *testing.T) {
	for _, c := range []struct{ changes, want string }{
		{"A1", "Added 1"},
		{"A1 U2 U3", "Added 3"},
		{"U1 A2", "Updated 2"},
		{"S1 U2", "Updated 2"},
		{"U1 S2", "Updated 2"},
		{"R1 U2", "Replaced 2"},
		{"A1 U2 D3", "Deleted 3"},
		{"D1 A2", "Deleted 1, Added 2"},
		{"D1 A2 U3 S4", "Deleted 1, Added 4"},
		{"A1 D2 A3 D4", "Deleted 2"},
		{"A1 D2 A3 D4 A5 D6 A7", "Deleted 2, Added 7"},
		{"A1 T2 A3 D4", "Deleted 2?"},
		{"T1 D2 A3", "Deleted 2, Added 3"},
	} {
		t.Run(c.changes, func(t *testing.T) {
			q := queue(t, nil)
			d := informer.Deltas[thing]{Key: "a"}
			for text := range strings.FieldsSeq(c.changes) {
				change := informer.Delta[thing]{Object: thing{"a", int(text[1] - '0')}}
				change.Type = informer.DeltaType(strings.Index("AUDRS", text[:1]))
				if text[0] == 'T' {
					change.Type, change.Tombstone = informer.Deleted, true
				}
				d.Changes = append(d.Changes, change)
			}
			must(t, q.AddIfNotPresent(d))
			q.Compact()
			q.Compact()
			if s := q.Stats(); s.Changes > 2 {
				t.Errorf("%+v", s)
			}
			same(t, popAll(t, q), "a: "+c.want)
			isEmpty(t, q)
		})
	}
}

func TestAStalledKeyTakesBoundedMemory(t *testing.T) {
	q := queue(t, func(c *config) { c.MaxBytes = 10_000 })
	must(t, q.Replace(things("a0 b0"), informer.Version{}))
	for i := range 10_000 {
		must(t, q.Update(thing{"a", i}))
		if i%5 == 0 {
			must(t, q.Delete(thing{"a", i}), q.Add(thing{"a", i}))
		}
		if s := q.Stats(); s.Bytes > s.Limit || s.Overflows > 0 {
			t.Fatalf("%+v", s)
		}
	}
	got, _ := drained(t, q)
	same(t, got, "a: Deleted 0, Added 9999", "b: Replaced 0")
}

// full fills a queue until it refuses a change, and returns how many keys it took.
func full(t *testing.T, q *informer.DeltaFIFO[thing]) (keys int) {
	t.Helper()
	for {
		err := q.Add(thing{string(rune('A' + keys)), keys})
		if errors.Is(err, informer.ErrRelist) {
			if plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
				t.Error(err)
			}
			return keys
		}
		must(t, err)
		keys++
	}
}

func TestAFullQueueDropsItsContentAndAsksForAList(t *testing.T) {
	var told []informer.Overflow
	known := knows("x1 y1")
	q := queue(t, func(c *config) {
		c.MaxBytes, c.Known = 3000, known
		c.Events.Overflow = func(o informer.Overflow) { told = append(told, o) }
	})
	keys := full(t, q)
	if keys != 3000/(100+24+160+1) {
		t.Errorf("%d keys of 100 bytes were queued", keys)
	}
	if len(told) != 1 || told[0].Keys != keys+1 || told[0].Limit != 3000 || told[0].Bytes <= 3000 {
		t.Errorf("%+v", told)
	}
	isEmpty(t, q)
	for name, err := range map[string]error{
		"Add": q.Add(th("a1")), "Update": q.Update(th("a1")), "Delete": q.Delete(th("x1")),
		"DeleteKey": q.DeleteKey("x", th("x1"), true), "Change": q.Change(things("a1"), nil, version(7)),
		"AddIfNotPresent": q.AddIfNotPresent(informer.Deltas[thing]{Key: "a", Changes: make([]delta, 1)}),
	} {
		if !errors.Is(err, informer.ErrRelist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	isEmpty(t, q)
	must(t, q.Replace(things("a1 x2"), version(7)), q.Add(th("b1")))
	got, at := drained(t, q)
	if same(t, got, "a: Replaced 1", "x: Replaced 2", "y: Deleted 1?", "b: Added 1"); at != version(7) {
		t.Error(at)
	}
	if s := q.Stats(); s.Overflows != 1 || s.Dropped != uint64(keys)+1 || s.Lists != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAnOverflowForgetsVersionsThatNobodyWasTold(t *testing.T) {
	q := queue(t, func(c *config) { c.MaxBytes = 3000 })
	must(t, q.Change(nil, nil, version(1)))
	drained(t, q)
	must(t, q.Change(things("a1"), nil, version(2)))
	full(t, q)
	if v := q.Stats().Version; v != version(1) {
		t.Error(v)
	}
	q.Close() // a consumer is not handed an empty batch that claims version 2
	err := q.Drain(t.Context(), func(b informer.Batch[thing]) error { t.Errorf("%+v", b); return nil })
	if !errors.Is(err, informer.ErrClosed) {
		t.Error(err)
	}
}

func TestAnInitialPopulationThatWasDroppedBeginsAnew(t *testing.T) {
	q := queue(t, func(c *config) { c.MaxBytes = 3000 })
	must(t, q.Replace(things("a1 b1"), informer.Version{}))
	pop(t, q)
	full(t, q)
	synced(t, q, false)
	must(t, q.Replace(things("b1 c1"), informer.Version{}))
	pop(t, q)
	synced(t, q, false)
	pop(t, q)
	synced(t, q, true)
}

func TestTheInitialPopulationIncludesWhatIsInProcess(t *testing.T) {
	q := queue(t, func(c *config) { c.MaxBytes = 3000 })
	must(t, q.Replace(things("a1 b1"), informer.Version{}), q.Delete(th("a2")))
	must(t, q.Pop(t.Context(), func(informer.Deltas[thing]) error {
		full(t, q)
		must(t, q.Replace(nil, informer.Version{}))
		synced(t, q, false)
		return nil
	}))
	synced(t, q, true)
}

func TestAListOfAnySizeFits(t *testing.T) {
	q := queue(t, func(c *config) { c.MaxBytes = 1000 })
	list := things("a1 b1 c1 d1 e1 f1 g1 h1")
	for range 3 { // also over itself: the queued objects give way
		must(t, q.Replace(list, informer.Version{}))
	}
	s := q.Stats()
	if s.Depth != 8 || s.Limit != 2*8*(100+24+160+1) || s.Bytes > s.Limit || s.Overflows != 0 {
		t.Errorf("%+v", s)
	}
	must(t, q.Replace(things("a1"), informer.Version{}))
	if s := q.Stats(); s.Limit != 1000 || s.Bytes > s.Limit {
		t.Errorf("%+v", s)
	}
	synced(t, q, false)
	same(t, popAll(t, q), "a: Replaced 1") // what came before the list did not fit beside it
	synced(t, q, true)
}

func TestAResyncOfALargeCopyDoesNotFillTheQueue(t *testing.T) {
	known := knows("")
	for i := range 1000 {
		name := string(rune('A' + i))
		known.things[name] = thing{name, i}
	}
	q := queue(t, func(c *config) { c.Known, c.MaxBytes = known, 1000 })
	q.Resync()
	if s := q.Stats(); s.Depth != 1000 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	must(t, q.Update(thing{"B", 5}), q.Update(thing{"A", 5}))
	if s := q.Stats(); s.Depth != 1000 || s.Bytes != 2*(160+1+24+100) {
		t.Errorf("%+v", s)
	}
	popAll(t, q)
	isEmpty(t, q)
}

func TestStatsTellDepthAgeAndRate(t *testing.T) {
	now := time.Unix(1000, 0)
	q := queue(t, func(c *config) { c.Now, c.Size = func() time.Time { return now }, nil })
	if s := q.Stats(); s != (informer.FIFOStats{Limit: informer.DefaultMaxBytes}) {
		t.Errorf("%+v", s)
	}
	must(t, q.Add(th("a1")))
	now = now.Add(3 * time.Second)
	must(t, q.Add(th("b1")), q.Update(th("a2")), q.Delete(th("b2")), q.Delete(th("b3")))
	now = now.Add(4 * time.Second)
	want := informer.FIFOStats{
		Depth: 2, Changes: 4, Bytes: 2*161 + 4*(24+1024), Limit: informer.DefaultMaxBytes, Oldest: 7 * time.Second,
		Queued: 5, Joined: 1,
	}
	if s := q.Stats(); s != want {
		t.Errorf("%+v", s)
	}
	pop(t, q)
	if s := q.Stats(); s.Oldest != 4*time.Second || s.Taken != 2 || s.Depth != 1 {
		t.Errorf("%+v", s)
	}
}

func TestContentThatIsPutBackIsDroppedOnlyWhenAProducerIsTold(t *testing.T) {
	q := queue(t, func(c *config) { c.MaxBytes = 1000 })
	fill := func(names string) {
		for _, o := range things(names) {
			must(t, q.Add(o))
		}
	}
	fill("a1 b1 c1")
	err := q.Drain(t.Context(), func(informer.Batch[thing]) error {
		fill("d1 e1 f1")
		return &informer.RequeueError{}
	})
	if s := q.Stats(); err == nil || s.Depth != 6 || s.Bytes <= s.Limit || s.Bytes > 2*s.Limit || s.Overflows != 0 {
		t.Errorf("%v, %+v", err, s)
	}
	must(t, q.Drain(t.Context(), func(informer.Batch[thing]) error {
		fill("g1") // beside six keys in process there is room for one more
		if err := q.Add(th("h1")); !errors.Is(err, informer.ErrRelist) {
			t.Errorf("Add returned %v", err)
		}
		return nil
	}))
	isEmpty(t, q)
}

// A step of which a part is queued would show a state that the source never had.
func TestASizeThatPanicsQueuesNoStepInPart(t *testing.T) {
	q, err := informer.NewDeltaFIFO(informer.FIFOConfig[*row]{
		Key: rowKey, Size: func(r *row) int { return len(r.name) }, // not for a tombstone without its object
	})
	if err != nil {
		t.Fatal(err)
	}
	a, b := &row{name: "a"}, &row{name: "b"}
	must(t, q.Change([]*row{a, b}, nil, version(1)), q.Change(nil, []informer.Deletion[*row]{{Key: "a"}}, version(2)))
	must(t, q.Replace([]*row{b}, version(3))) // finds the tombstone
	if got := q.Stats(); got.Version != version(3) || got.Depth != 2 {
		t.Errorf("stats %+v", got)
	}
}
