package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Promises is the list of outcomes that a run was given. They must hold after a crash:
//
//	p := storetest.NewPromises()
//	err := p.Run(ctx, open, rng, storetest.Workload{Batches: 100}) // until the crash
//	given := p.After(p.Before())                                   // with the crash in between
//	s, err := open()
//	err = p.Check(ctx, s, given)
//
// Its methods may be called from any goroutine.
type Promises struct {
	acked     atomic.Uint64 // the last revision whose Wait returned nil
	committed atomic.Uint64 // the last revision that was handed to Commit
	epoch     atomic.Uint64 // the last epoch that Lead returned
	keep      atomic.Uint64 // the highest argument of TrimEvents

	mu       sync.Mutex
	contents map[uint64]Content // by revision, before trimming
}

// NewPromises returns the promises of an empty store.
func NewPromises() *Promises { return &Promises{contents: map[uint64]Content{0: {}}} }

// Workload tells Run its length, and how large values are.
type Workload struct {
	Batches  uint64
	LeadEach uint64 // batches after which Lead is called again; default 40
	Large    int    // bytes of a value that every fourth batch puts or deletes; 0: none does
}

// Run opens a store and commits batches until one fails or all are committed. Up to four batches
// are under way. ctx is that of Lead.
func (p *Promises) Run(
	ctx context.Context, open func() (store.Store, error), rng *rand.Rand, w Workload,
) (err error) {
	s, err := open()
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if w.LeadEach == 0 {
		w.LeadEach = 40
	}
	var model Model
	var under []store.Pending
	wait := func(left int) error {
		for len(under) > left {
			if err := under[0].Wait(); err != nil {
				return fmt.Errorf("wait: %w", err)
			}
			under = under[1:]
			p.acked.Add(1)
		}
		return nil
	}
	for r := uint64(1); r <= w.Batches; r++ {
		if r%w.LeadEach == 1 {
			epoch, err := s.Lead(ctx, nil)
			if err != nil {
				return fmt.Errorf("lead: %w", err)
			}
			p.epoch.Store(epoch)
		}
		b := w.batch(rng, p.epoch.Load(), r)
		model.Apply(b)
		p.mu.Lock()
		p.contents[r] = model.Content()
		p.mu.Unlock()
		p.committed.Store(r)
		pending, err := s.Commit(b)
		if err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		under = append(under, pending)
		if err := wait(rng.IntN(4)); err != nil {
			return err
		}
		if rng.IntN(10) == 0 {
			keep := rng.Uint64N(r + 1)
			p.keep.Store(max(p.keep.Load(), keep))
			if err := s.TrimEvents(keep); err != nil {
				return fmt.Errorf("trim: %w", err)
			}
		}
	}
	return wait(0)
}

func (w *Workload) batch(rng *rand.Rand, epoch, revision uint64) *wire.Batch {
	b := RandomBatch(rng, epoch, revision, 400)
	if w.Large > 0 && revision%4 == 2 {
		large := wire.Mutation{Kind: wire.KindJobSpec, Key: fmt.Sprint("large", rng.IntN(2))}
		if rng.IntN(4) > 0 {
			large.Value = slices.Repeat([]byte{byte(revision)}, w.Large)
		}
		b.Mutations = append(b.Mutations, large)
	}
	return b
}

// Given holds the promises that were given until an instant.
type Given struct {
	acked, committed, epoch, keep uint64
}

// Before returns the promises that were given before the call. The crash comes after it.
func (p *Promises) Before() Given { return Given{acked: p.acked.Load(), epoch: p.epoch.Load()} }

// After adds the calls that were made until now. The crash came before it.
func (p *Promises) After(g Given) Given {
	g.committed, g.keep = p.committed.Load(), p.keep.Load()
	return g
}

// Check looks at a store that was opened after a crash. All acknowledged batches are there, and the
// content is whole batches up to one of them. A standby learns the same from the changes. The next
// leader has a higher epoch, and its batch is taken.
func (p *Promises) Check(ctx context.Context, s store.Store, g Given) error {
	got, err := Read(s)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if got.Revision < g.acked || got.Revision > g.committed {
		return fmt.Errorf(
			"revision %d is there, %d was acknowledged and %d the last committed", got.Revision, g.acked, g.committed,
		)
	}
	want := p.content(got.Revision)
	// A trim may be lost, so trimmed chunks may be back. No chunk that was kept may be gone.
	gone := len(want.Chunks) - len(got.Chunks)
	if gone < 0 || gone > 0 && want.Chunks[gone-1].Revision >= g.keep {
		return fmt.Errorf("%d chunks are there, of %d, trimmed below %d", len(got.Chunks), len(want.Chunks), g.keep)
	}
	if want.Chunks = want.Chunks[gone:]; len(want.Chunks) == 0 {
		want.Chunks = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("revision %d holds something else (-want +got):\n%s", got.Revision, diff)
	}
	if err := p.checkSince(ctx, s, g.acked/2, got); err != nil {
		return err
	}
	epoch, err := s.Lead(ctx, nil)
	if err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	if epoch <= g.epoch {
		return fmt.Errorf("epoch %d was given out again after %d", epoch, g.epoch)
	}
	pending, err := s.Commit(batch(epoch, got.Revision+1, put(wire.KindNode, "node", "after the crash")))
	if err != nil {
		return fmt.Errorf("commit after the crash: %w", err)
	}
	if err := pending.Wait(); err != nil {
		return fmt.Errorf("wait after the crash: %w", err)
	}
	return nil
}

func (p *Promises) content(revision uint64) Content {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.contents[revision]
}

// checkSince compares the records of a standby that was at a revision, after the changes since.
func (p *Promises) checkSince(ctx context.Context, s store.Store, since uint64, want Content) error {
	standby := Model{content: p.content(since)}
	_, _, err := s.LoadSince(ctx, since, func(kind wire.Kind, key string, value []byte) error {
		standby.Apply(&wire.Batch{Mutations: []wire.Mutation{{Kind: kind, Key: key, Value: slices.Clone(value)}}})
		return nil
	}, func(uint64, wire.EventChunk) error { return nil })
	switch {
	case plimsoll.CodeOf(err) == plimsoll.CodeNotFound:
		return nil // this store does not know the changes
	case err != nil:
		return fmt.Errorf("load since %d: %w", since, err)
	}
	if diff := cmp.Diff(want.Records, standby.Content().Records); diff != "" {
		return fmt.Errorf("a standby that was at revision %d holds something else (-want +got):\n%s", since, diff)
	}
	return nil
}
