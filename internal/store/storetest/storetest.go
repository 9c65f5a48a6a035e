// Package storetest is the conformance suite of store.Store. It tests all that the coordinator
// relies on, and every implementation passes it.
//
// An implementation's test calls Run with a function that makes a fresh Harness:
//
//	storetest.Run(t, func(t *testing.T) storetest.Harness {
//		dir := t.TempDir()
//		return storetest.Harness{
//			Open:    func() (store.Store, error) { return pebble.Open(pebble.Config{Dir: dir}) },
//			Openers: storetest.OneOpener,
//		}
//	})
//
// The suite starts nothing of its own, keeps nothing, and ends in seconds. It cannot cut the power:
// each implementation makes crashes in a test of its own. Promises has the workload of such a test,
// and checks the store after it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Openers is the number of callers that may have one store open at a time. It must be declared.
type Openers int

// The possible numbers of callers that have one store open at a time.
const (
	OpenersUndeclared Openers = iota
	OneOpener                 // a second Open is refused with CodeAlreadyRunning
	ManyOpeners               // any number; Lead decides whose batches are accepted
)

// Harness is one store under test. It begins empty.
type Harness struct {
	// Open opens the store, the same one at each call.
	Open func() (store.Store, error)
	// Openers is declared by each implementation, so that no case about two callers is left out by
	// mistake.
	Openers Openers
	// Depose ends the leadership of an open store without its help, as when its lease runs out. A
	// store of ManyOpeners has it.
	Depose func(store.Store) error
	// KnowsChanges tells that LoadSince knows the changes of the last 20 batches at least.
	KnowsChanges bool
}

type testCase struct {
	name string
	run  func(t *testing.T, h Harness)
}

// Run runs the suite. It fails if it ran no case, as with a -run pattern that matches none.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	ran := 0
	for _, group := range [][]testCase{contentCases, sinceCases, orderCases, leaderCases} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				ran++
				h := newHarness(t)
				if h.Openers != OneOpener && h.Openers != ManyOpeners {
					t.Fatal("the harness does not declare Openers")
				}
				if (h.Depose != nil) != (h.Openers == ManyOpeners) {
					t.Fatal("the harness of a store that several open has no Depose, or that of another one has")
				}
				c.run(t, h)
			})
		}
	}
	if ran == 0 {
		t.Fatal("the conformance suite ran no case")
	}
}

// Record is one stored record.
type Record struct {
	Kind  wire.Kind
	Key   string
	Value string
}

// Chunk is one stored chunk of events.
type Chunk struct {
	Revision, FirstID, Count uint64
	Data                     string
}

// Content is all that a store holds.
type Content struct {
	Records  []Record
	Chunks   []Chunk
	Revision uint64
	Time     int64
}

// Read loads a store.
func Read(s store.Store) (Content, error) {
	var c Content
	var err error
	c.Revision, c.Time, err = s.Load(context.Background(),
		func(kind wire.Kind, key string, value []byte) error {
			c.Records = append(c.Records, Record{kind, key, string(value)})
			return nil
		},
		func(revision uint64, chunk wire.EventChunk) error {
			c.Chunks = append(c.Chunks, Chunk{revision, chunk.FirstID, chunk.Count, string(chunk.Data)})
			return nil
		})
	return c, err
}

func open(t *testing.T, h Harness) store.Store {
	t.Helper()
	s, err := h.Open()
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// openAndLead opens the store for a test that leads throughout.
func openAndLead(t *testing.T, h Harness) (store.Store, uint64) {
	t.Helper()
	s := open(t, h)
	return s, lead(t, s)
}

func lead(t *testing.T, s store.Store) uint64 {
	t.Helper()
	epoch, err := s.Lead(context.Background(), nil)
	if err != nil {
		t.Fatalf("lead: %v", err)
	}
	return epoch
}

func reopen(t *testing.T, h Harness, s store.Store) store.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return open(t, h)
}

// commit commits one batch and waits until it is durable.
func commit(t *testing.T, s store.Store, b *wire.Batch) {
	t.Helper()
	p, err := s.Commit(b)
	if err != nil {
		t.Fatalf("commit revision %d: %v", b.Revision, err)
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("wait for revision %d: %v", b.Revision, err)
	}
}

// refused commits a batch that must fail with a code, at once or at Wait.
func refused(t *testing.T, s store.Store, b *wire.Batch, code plimsoll.Code) {
	t.Helper()
	p, err := s.Commit(b)
	if err == nil {
		err = p.Wait()
	}
	var e *plimsoll.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("commit of revision %d: got %v, want an error of code %v", b.Revision, err, code)
	}
}

func holds(t *testing.T, s store.Store, want Content) {
	t.Helper()
	got, err := Read(s)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the store holds something else (-want +got):\n%s", diff)
	}
}

func put(kind wire.Kind, key, value string) wire.Mutation {
	return wire.Mutation{Kind: kind, Key: key, Value: []byte(value)}
}

func del(kind wire.Kind, key string) wire.Mutation { return wire.Mutation{Kind: kind, Key: key} }

// batch makes a batch whose time follows from its revision.
func batch(epoch, revision uint64, mutations ...wire.Mutation) *wire.Batch {
	return &wire.Batch{Epoch: epoch, Revision: revision, Time: timeOf(revision), Mutations: mutations}
}

func timeOf(revision uint64) int64 { return int64(revision) * 1_000_000_007 }

func withEvents(b *wire.Batch, firstID, count uint64) *wire.Batch {
	b.Events = wire.EventChunk{FirstID: firstID, Count: count, Data: fmt.Appendf(nil, "events of %d", b.Revision)}
	return b
}

func chunkOf(b *wire.Batch) Chunk {
	return Chunk{b.Revision, b.Events.FirstID, b.Events.Count, string(b.Events.Data)}
}
