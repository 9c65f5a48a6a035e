// Package store keeps the active state durably: atomic fenced batches, everything back at load, and
// leadership.
//
// It is given encoded records and does not look inside them. It owns the files of its data
// directory and a lock on them. It does no caching and no compaction of the history by itself:
// TrimEvents says what may go.
//
// Guarantees: a batch is in the store whole or not at all; when Wait returns nil it survives a
// crash of the machine; batches become durable in the order of their Commits; a deposed leader can
// commit nothing. Cost: a commit costs its bytes and one fsync, shared by all batches that wait for
// one at the same time; Load costs what is stored.
//
// The coordinator is its only caller. Implementations pass the suite in package storetest.
package store

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Limits bound one batch. The engine closes a turn when it reaches one of them. Zero means no
// bound.
type Limits struct {
	Ops   int // mutations that are stored
	Bytes int // of their keys and values, and of the packed events
}

// Measure returns what of a batch counts against Limits.
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

// Pending is a batch on its way to the disk.
type Pending interface {
	// Wait returns when the batch is durable, or with the reason why it is not. It is called
	// exactly once.
	Wait() error
}

// Store keeps the active state. Commit and TrimEvents are called by one goroutine at a time; Wait
// of several batches may be called by another.
type Store interface {
	// Limits bound a batch.
	Limits() Limits
	// Lead makes the caller the leader, durably, and returns its epoch, higher than every one
	// before.
	Lead(ctx context.Context) (epoch uint64, err error)
	// Load calls record for each stored record in the order of kind and key, and events for each
	// stored chunk of events in the order of revision. The bytes are valid only during the call. It
	// returns the revision and time of the last batch.
	Load(ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
		events func(revision uint64, chunk wire.EventChunk) error) (revision uint64, time int64, err error)
	// Commit begins to write a batch: mutations that are not ephemeral, its events, and its
	// revision and time. It fails with CodeStale if the caller does not lead with the batch's
	// epoch, and with CodeInvalid if the batch is beyond the limits or its revision is not after
	// the last; nothing of it is stored then, and the store goes on. After any other failure, of
	// Commit or of a Wait, nothing more is accepted. The batch must not be changed until Wait has
	// returned.
	Commit(batch *wire.Batch) (Pending, error)
	// Confirm returns nil if the caller leads at an instant after the call began.
	Confirm(ctx context.Context) error
	// TrimEvents removes the chunks of events of revisions below keep.
	TrimEvents(keep uint64) error
	// Close waits for what is under way and gives leadership and files back. After the first call
	// it does nothing.
	Close() error
}
