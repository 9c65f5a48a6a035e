package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// contentCases test that stored content comes back.
var contentCases = []testCase{
	{"a new store holds nothing", func(t *testing.T, h Harness) {
		holds(t, open(t, h), Content{})
	}},
	{"load gives records by kind and key and chunks by revision", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		first := withEvents(
			batch(
				epoch, 1, put(wire.KindTask, "b", "3"), put(wire.KindJobSpec, "z", "1"), put(wire.KindTask, "a", "2"),
			),
			0, 3,
		)
		second := withEvents(batch(epoch, 300, put(wire.KindQueueConfig, "", "5"), put(wire.KindNode, "n", "4")), 3, 1)
		commit(t, s, first)
		commit(t, s, second)
		holds(t, s, Content{
			Records: []Record{
				{wire.KindJobSpec, "z", "1"},
				{wire.KindTask, "a", "2"},
				{wire.KindTask, "b", "3"},
				{wire.KindNode, "n", "4"},
				{wire.KindQueueConfig, "", "5"},
			},
			Chunks:   []Chunk{chunkOf(first), chunkOf(second)},
			Revision: 300, Time: timeOf(300),
		})
	}},
	{"the records of one kind are loaded alone, in the order of keys", oneKind},
	{"a put replaces, a delete removes, a delete of nothing does nothing", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(
			t, s,
			batch(
				epoch, 1, put(wire.KindNode, "a", "old"), put(wire.KindNode, "b", "stays"),
				put(wire.KindNode, "c", "goes"),
			),
		)
		commit(
			t, s,
			batch(
				epoch, 2, put(wire.KindNode, "a", "new"), del(wire.KindNode, "c"), del(wire.KindNode, "d"),
				del(wire.KindTask, "b"),
			),
		)
		holds(t, s, Content{
			Records:  []Record{{wire.KindNode, "a", "new"}, {wire.KindNode, "b", "stays"}},
			Revision: 2, Time: timeOf(2),
		})
	}},
	{"the last mutation of a key in a batch counts", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 1, put(
			wire.KindNode, "a", "1",
		), del(wire.KindNode, "a"), put(wire.KindNode, "b", "1"), put(wire.KindNode, "b", "2"),
			del(wire.KindNode, "c"), put(wire.KindNode, "c", "1")))
		holds(t, s, Content{
			Records:  []Record{{wire.KindNode, "b", "2"}, {wire.KindNode, "c", "1"}},
			Revision: 1, Time: timeOf(1),
		})
	}},
	{"an empty value is a value", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 1, wire.Mutation{Kind: wire.KindNode, Key: "a", Value: []byte{}}))
		holds(t, s, Content{Records: []Record{{wire.KindNode, "a", ""}}, Revision: 1, Time: timeOf(1)})
	}},
	{"keys and values may hold any bytes", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		records := []Record{
			{wire.KindTask, "", "\x00"},
			{wire.KindTask, "\x00", "\x00\xff"},
			{wire.KindTask, wire.TaskKey("job", "group", 7), "t"},
			{wire.KindTask, strings.Repeat("k", 500), strings.Repeat("v", 100_000)},
			{wire.KindTask, "é", ""},
			{wire.KindTask, "\xff\xff", "\xff"},
		}
		b := batch(epoch, 1)
		for _, r := range records {
			b.Mutations = append(b.Mutations, put(r.Kind, r.Key, r.Value))
		}
		commit(t, s, b)
		holds(t, s, Content{Records: records, Revision: 1, Time: timeOf(1)})
	}},
	{"what is ephemeral is not stored, and deletes nothing", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 1, put(wire.KindNode, "a", "1")))
		commit(t, s, batch(epoch, 2,
			wire.Mutation{Kind: wire.KindNodeStatus, Key: "n", Value: []byte("busy"), Ephemeral: true},
			wire.Mutation{Kind: wire.KindNode, Key: "a", Ephemeral: true}))
		holds(t, s, Content{Records: []Record{{wire.KindNode, "a", "1"}}, Revision: 2, Time: timeOf(2)})
	}},
	{"a batch with nothing in it still moves revision and time", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 5))
		holds(t, s, Content{Revision: 5, Time: timeOf(5)})
	}},
	{"trimming removes the chunks below a revision and nothing else", trimming},
	{"everything is back after a reopening", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		b := withEvents(batch(epoch, 9, put(wire.KindJobSpec, "j", "spec")), 0, 2)
		commit(t, s, b)
		want := Content{
			Records: []Record{{wire.KindJobSpec, "j", "spec"}}, Chunks: []Chunk{chunkOf(b)}, Revision: 9,
			Time: timeOf(9),
		}
		s = reopen(t, h, s)
		holds(t, s, want)
		commit(t, s, batch(lead(t, s), 10, del(wire.KindJobSpec, "j")))
		want.Records, want.Revision, want.Time = nil, 10, timeOf(10)
		holds(t, reopen(t, h, s), want)
	}},
	{"an error of a callback ends the load and comes back", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, withEvents(batch(epoch, 1, put(wire.KindNode, "a", "1"), put(wire.KindNode, "b", "1")), 0, 1))
		boom := errors.New("boom")
		calls := 0
		fail := func(wire.Kind, string, []byte) error { calls++; return boom }
		pass := func(wire.Kind, string, []byte) error { return nil }
		if _, _, err := s.Load(
			context.Background(), fail, func(uint64, wire.EventChunk) error { return nil },
		); !errors.Is(err, boom) || calls != 1 {
			t.Errorf("records: %d calls and %v, want one call and its error", calls, err)
		}
		if _, _, err := s.Load(
			context.Background(), pass, func(uint64, wire.EventChunk) error { return boom },
		); !errors.Is(err, boom) {
			t.Errorf("events: %v, want the callback's error", err)
		}
	}},
	{"load ends with its context", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 1, put(wire.KindNode, "a", "1")))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, _, err := s.Load(
			ctx, func(wire.Kind, string, []byte) error { return nil },
			func(uint64, wire.EventChunk) error { return nil },
		)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}},
	{"a batch up to the limits is taken, and one beyond leaves nothing", limits},
	{"random batches and reopenings leave what a model says", randomRun},
}

func trimming(t *testing.T, h Harness) {
	s, epoch := openAndLead(t, h)
	want := Content{Records: []Record{{wire.KindNode, "a", "1"}}, Revision: 600, Time: timeOf(600)}
	for i := range uint64(6) {
		b := batch(epoch, (i+1)*100, put(wire.KindNode, "a", "1"))
		if i != 2 { // revision 300 has no events
			withEvents(b, i, 1)
			want.Chunks = append(want.Chunks, chunkOf(b))
		}
		commit(t, s, b)
	}
	for _, step := range []struct {
		keep uint64
		left int
	}{{0, 5}, {100, 5}, {101, 4}, {300, 3}, {250, 3}, {401, 2}, {600, 1}, {601, 0}} {
		if err := s.TrimEvents(step.keep); err != nil {
			t.Fatalf("trim below %d: %v", step.keep, err)
		}
		want.Chunks = want.Chunks[len(want.Chunks)-step.left:]
		if step.left == 0 {
			want.Chunks = nil
		}
		holds(t, s, want)
	}
	last := withEvents(batch(epoch, 700), 9, 9)
	commit(t, s, last)
	want.Chunks, want.Revision, want.Time = []Chunk{chunkOf(last)}, 700, timeOf(700)
	holds(t, reopen(t, h, s), want)
}

func limits(t *testing.T, h Harness) {
	s, epoch := openAndLead(t, h)
	limit := s.Limits()
	revision := uint64(1)
	var m Model
	if limit.Ops > 0 {
		b := batch(epoch, revision)
		for i := range limit.Ops {
			b.Mutations = append(b.Mutations, put(wire.KindTask, fmt.Sprintf("%06d", i), ""))
		}
		b.Mutations = append(
			b.Mutations,
			wire.Mutation{Kind: wire.KindNodeStatus, Key: "free", Value: []byte("of charge"), Ephemeral: true},
		)
		commit(t, s, b)
		m.Apply(b)
		revision++
		over := batch(epoch, revision, append(b.Mutations, put(wire.KindTask, "over", ""))...)
		refused(t, s, over, plimsoll.CodeInvalid)
	}
	if limit.Bytes > 0 {
		b := batch(epoch, revision, put(wire.KindTask, "k", strings.Repeat("v", limit.Bytes-1)))
		commit(t, s, b)
		m.Apply(b)
		revision++
		refused(
			t, s, batch(epoch, revision, put(wire.KindTask, "k", strings.Repeat("w", limit.Bytes))),
			plimsoll.CodeInvalid,
		)
		over := batch(epoch, revision, put(wire.KindTask, "k", ""))
		over.Events = wire.EventChunk{Count: 1, Data: make([]byte, limit.Bytes)}
		refused(t, s, over, plimsoll.CodeInvalid)
	}
	b := batch(epoch, revision, put(wire.KindTask, "after", "all"))
	commit(t, s, b)
	m.Apply(b)
	holds(t, s, m.Content())
}

func randomRun(t *testing.T, h Harness) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s, epoch := openAndLead(t, h)
	var m Model
	for revision := uint64(1); revision <= 200; revision++ {
		b := RandomBatch(rng, epoch, revision, 100)
		commit(t, s, b)
		m.Apply(b)
		switch rng.IntN(20) {
		case 0:
			s = reopen(t, h, s)
			holds(t, s, m.Content())
			epoch = lead(t, s)
		case 1:
			keep := rng.Uint64N(revision + 2)
			if err := s.TrimEvents(keep); err != nil {
				t.Fatalf("trim below %d: %v", keep, err)
			}
			m.Trim(keep)
		case 2:
			holds(t, s, m.Content())
		}
	}
	holds(t, s, m.Content())
}

func oneKind(t *testing.T, h Harness) {
	s, epoch := openAndLead(t, h)
	loader, ok := s.(store.KindLoader)
	if !ok {
		t.Skip("this store is no KindLoader")
	}
	commit(t, s, batch(
		epoch, 1, put(wire.KindTask, "b", "2"), put(wire.KindTask, "a", ""), put(wire.KindTask-1, "\xff", "before"),
		put(wire.KindTask+1, "", "behind"), put(wire.KindOutcome, "o", "3"),
	))
	read := func(kind wire.Kind) (got []Record) {
		t.Helper()
		if err := loader.LoadKind(t.Context(), kind, func(key string, value []byte) error {
			got = append(got, Record{kind, key, string(value)})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := []Record{{wire.KindTask, "a", ""}, {wire.KindTask, "b", "2"}}
	if diff := cmp.Diff(want, read(wire.KindTask)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := read(wire.KindPolicy); len(got) > 0 {
		t.Errorf("a kind without records: %v", got)
	}
	stop := errors.New("stop")
	err := loader.LoadKind(t.Context(), wire.KindTask, func(string, []byte) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want the callback's error", err)
	}
}
