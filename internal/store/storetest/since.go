package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// sinceCases test what a standby reads that holds the state at a revision.
var sinceCases = []testCase{
	{"nothing has changed since the last revision", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		b := withEvents(batch(epoch, 7, put(wire.KindNode, "a", "1")), 0, 1)
		commit(t, s, b)
		want := Content{
			Records: []Record{{wire.KindNode, "a", "1"}}, Chunks: []Chunk{chunkOf(b)}, Revision: 7, Time: timeOf(7),
		}
		if known := catchUp(t, s, &want, 7, want); !known {
			t.Fatal("the last revision is not known")
		}
	}},
	{"the changes since a revision that is not there yet are not known", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 7, put(wire.KindNode, "a", "1")))
		if known := catchUp(t, s, &Content{}, 8, Content{}); known {
			t.Fatal("a future revision is known")
		}
	}},
	{"a standby that is behind gets what it lacks, or is told that it is not known", behind},
	{"an error of a callback ends the load of changes and comes back", func(t *testing.T, h Harness) {
		if !h.KnowsChanges {
			return // there are no calls
		}
		s, epoch := openAndLead(t, h)
		commit(t, s, batch(epoch, 1))
		commit(t, s, withEvents(batch(epoch, 2, put(wire.KindNode, "a", "1"), put(wire.KindNode, "b", "1")), 0, 1))
		boom := errors.New("boom")
		pass := func(wire.Kind, string, []byte) error { return nil }
		fail := func(wire.Kind, string, []byte) error { return boom }
		failChunk := func(uint64, wire.EventChunk) error { return boom }
		if _, _, err := s.LoadSince(t.Context(), 1, fail, failChunk); !errors.Is(err, boom) {
			t.Errorf("records: %v, want the callback's error", err)
		}
		if _, _, err := s.LoadSince(t.Context(), 1, pass, failChunk); !errors.Is(err, boom) {
			t.Errorf("events: %v, want the callback's error", err)
		}
	}},
}

// catchUp lets a standby read the changes that it lacks. It compares the standby's state then with
// the expected one. It returns false if the store does not know the changes.
func catchUp(t *testing.T, s store.Store, standby *Content, since uint64, want Content) (known bool) {
	t.Helper()
	calls := 0
	var got Model
	got.content = *standby
	got.content.Records, got.content.Chunks = slices.Clone(standby.Records), slices.Clone(standby.Chunks)
	revision, time, err := s.LoadSince(context.Background(), since,
		func(kind wire.Kind, key string, value []byte) error {
			calls++
			got.Apply(&wire.Batch{Mutations: []wire.Mutation{{Kind: kind, Key: key, Value: slices.Clone(value)}}})
			return nil
		},
		func(revision uint64, chunk wire.EventChunk) error {
			calls++
			if revision <= since {
				t.Errorf("a chunk of revision %d is given to who holds %d", revision, since)
			}
			chunk.Data = slices.Clone(chunk.Data)
			got.Apply(&wire.Batch{Revision: revision, Events: chunk})
			return nil
		})
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		if calls > 0 {
			t.Fatalf("%d calls were made before the changes turned out to be unknown", calls)
		}
		return false
	}
	if err != nil {
		t.Fatalf("load since %d: %v", since, err)
	}
	c := got.Content()
	c.Revision, c.Time = revision, time
	if diff := cmp.Diff(want, c); diff != "" {
		t.Fatalf("a standby that was at revision %d holds something else (-want +got):\n%s", since, diff)
	}
	return true
}

func behind(t *testing.T, h Harness) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s, epoch := openAndLead(t, h)
	var m Model
	states := []Content{m.Content()}
	var under []store.Pending
	for revision := uint64(1); revision <= 100; revision++ {
		b := RandomBatch(rng, epoch, revision, 20)
		p, err := s.Commit(b)
		if err != nil {
			t.Fatalf("commit revision %d: %v", revision, err)
		}
		under = append(under, p)
		m.Apply(b)
		states = append(states, m.Content())
		if rng.IntN(4) > 0 {
			continue // several batches are under way
		}
		for _, p := range under {
			if err := p.Wait(); err != nil {
				t.Fatalf("wait: %v", err)
			}
		}
		under = nil
		if rng.IntN(10) == 0 {
			s = reopen(t, h, s)
			epoch = lead(t, s)
		}
		since := revision - min(revision, rng.Uint64N(40))
		known := catchUp(t, s, &states[since], since, m.Content())
		if lag := revision - since; h.KnowsChanges && lag <= 20 && !known {
			t.Fatalf("the changes of the last %d batches are not known", lag)
		}
	}
	for _, p := range under {
		if err := p.Wait(); err != nil {
			t.Fatalf("wait: %v", err)
		}
	}
}
