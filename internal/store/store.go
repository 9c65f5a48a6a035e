// Package store keeps the active state durably: atomic fenced batches, a load of everything, and
// leadership.
//
// It receives encoded records and does not look inside them. It owns the files of its data
// directory and a lock on them. It does no caching, and compacts history only when TrimEvents is
// called.
//
// Guarantees: a batch is in the store whole or not at all. When Wait returns nil, the batch
// survives a crash of the machine. Batches become durable in the order of their Commits. A deposed
// leader can commit nothing.
//
// Cost: a commit costs its bytes and one fsync, shared by all batches that wait for one at the
// same time. Load costs the bytes that are stored.
//
// The coordinator is its only caller:
//
//	epoch, err := s.Lead(ctx, waiting)
//	revision, time, err := s.Load(ctx, record, events)
//	pending, err := s.Commit(batch) // a batch of this epoch
//	err = pending.Wait()
//
// Implementations pass the suite in package storetest.
package store

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Limits bound one batch. The engine closes a turn when it reaches one of them. Zero means no
// bound.
type Limits struct {
	Ops   int // stored mutations
	Bytes int // bytes of their keys and values, and of the packed events
}

// Measure returns the amounts of a batch that count against Limits.
func Measure(batch *wire.Batch) (ops, bytes int) {
	bytes = len(batch.Events.Data)
	for i := range batch.Mutations {
		m := &batch.Mutations[i]
		if m.Ephemeral {
			continue
		}
		ops++
		bytes += len(m.Key) + len(m.Value)
	}
	return ops, bytes
}

// Check returns a CodeInvalid error if the batch is beyond the limits.
func (l Limits) Check(batch *wire.Batch) error {
	ops, bytes := Measure(batch)
	if l.Ops > 0 && ops > l.Ops {
		return plimsoll.Invalid(
			"batch", "revision %d has %d operations, the store takes %d in one batch; split it", batch.Revision, ops,
			l.Ops,
		)
	}
	if l.Bytes > 0 && bytes > l.Bytes {
		return plimsoll.Invalid(
			"batch", "revision %d has %d bytes, the store takes %d in one batch; split it", batch.Revision, bytes,
			l.Bytes,
		)
	}
	return nil
}

// Pending is a batch that is being written.
type Pending interface {
	// Wait returns when the batch is durable, or with the reason for which it is not. It is called
	// exactly once.
	Wait() error
}

// KindLoader is a Store that can load the records of one kind. A leader that has a copy of the
// replicated records needs it: some are stored and not replicated, or replicated in another form.
// Without it such a leader loads everything.
type KindLoader interface {
	// LoadKind calls record for each stored record of a kind, in the order of keys, as Load does.
	LoadKind(ctx context.Context, kind wire.Kind, record func(key string, value []byte) error) error
}

// Store keeps the active state. Commit and TrimEvents are called by one goroutine at a time.
// Another goroutine may call Wait for several batches.
type Store interface {
	// Limits bound a batch.
	Limits() Limits
	// Lead makes the caller the leader, durably, and returns its epoch. The epoch is higher than
	// every earlier one. While another process leads, Lead waits. It calls waiting with the
	// leader's address, which may be empty, at first and at each change. waiting may be nil.
	Lead(ctx context.Context, waiting func(leader string)) (epoch uint64, err error)
	// Deposed returns a channel that is closed when the leadership which Lead gained has ended
	// without Close: another process leads, or this one can no longer prove that it leads. Then
	// Commit and Confirm fail with CodeStale. A store that only one process can have open never
	// closes it.
	Deposed() <-chan struct{}
	// Load calls record for each stored record, in the order of kind and key. It calls events for
	// each stored chunk of events, in the order of revision. The bytes are valid only during the
	// call. It returns the revision and time of the last batch. Batches may be committed meanwhile;
	// what Load tells is the state at the revision that it returns.
	Load(ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
		events func(revision uint64, chunk wire.EventChunk) error) (revision uint64, time int64, err error)
	// LoadSince is Load for a caller that holds the state at a revision. It calls record for each
	// record that was changed since, in no order, with a nil value if it was deleted. It calls
	// events for each chunk of a later revision, in the order of revision. It fails with
	// CodeNotFound, before the first call, if the store does not know all changes since the
	// revision; then only Load is left.
	LoadSince(ctx context.Context, since uint64, record func(kind wire.Kind, key string, value []byte) error,
		events func(revision uint64, chunk wire.EventChunk) error) (revision uint64, time int64, err error)
	// Commit begins to write a batch: its mutations that are not ephemeral, its events, and its
	// revision and time. It fails with CodeStale if the caller does not lead with the batch's
	// epoch. It fails with CodeInvalid if the batch is beyond the limits or its revision is not
	// after the last. Such a batch leaves no trace, and the store goes on. After any other
	// failure, of Commit or of a Wait, nothing more is accepted. The batch must not be changed
	// until Wait has returned.
	Commit(batch *wire.Batch) (Pending, error)
	// Confirm returns nil if the caller leads at an instant after the call began.
	Confirm(ctx context.Context) error
	// TrimEvents removes the chunks of events of revisions below keep.
	TrimEvents(keep uint64) error
	// Close waits for batches and calls that are under way, and gives up leadership and files. A
	// second call does nothing.
	Close() error
}
