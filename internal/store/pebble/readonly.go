package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Reader is a store that is only read, without writing a byte, so that it works on a full disk. It
// holds the directory's lock as a Store does. Content that it recovers from the logs stays in
// memory.
type Reader struct {
	cfg    Config
	place  place
	db     *lsm.DB
	fence  *fence // shut
	lock   io.Closer
	last   meta
	led    atomic.Bool
	closed atomic.Bool
}

var errReadOnly = errors.New("the store is only read")

// OpenReadOnly opens the store in cfg.Dir without changing a file. It fails if no store was ever
// made there.
func OpenReadOnly(cfg Config) (*Reader, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	at, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	lock, err := at.lock()
	if err != nil {
		return nil, err
	}
	r, err := openReader(cfg, at, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return r, nil
}

func openReader(cfg Config, at place, lock io.Closer) (*Reader, error) {
	found, err := at.inspect(cfg)
	if err != nil {
		return nil, err
	}
	if !found.exists {
		return nil, at.explainKnown(syscall.ENOSPC)
	}
	r := &Reader{cfg: cfg, place: at, fence: newFence(at.fs), lock: lock, last: found.meta}
	r.fence.shut(errReadOnly)
	if r.db, err = openPebble(cfg, at, r.fence, true); err != nil {
		return nil, at.explain(r.fence.last(), err)
	}
	return r, nil
}

// Limits implements store.Store.
func (r *Reader) Limits() store.Limits { return r.cfg.Limits }

// Lead returns an epoch after the last one. The epoch is not stored, so the next leader may get
// the same.
func (r *Reader) Lead(ctx context.Context, _ func(leader string)) (uint64, error) {
	r.led.Store(true)
	return r.last.epoch + 1, ctx.Err()
}

// Load implements store.Store.
func (r *Reader) Load(ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
	events func(revision uint64, chunk wire.EventChunk) error,
) (revision uint64, time int64, err error) {
	if r.closed.Load() {
		return 0, 0, plimsoll.Errorf(plimsoll.CodeUnavailable, "the store in %s is closed", r.place.dir)
	}
	return load(ctx, r.db, r.place, r.fence, record, events)
}

// Deposed implements store.Store. Nobody else can lead while the store is open.
func (r *Reader) Deposed() <-chan struct{} { return nil }

// LoadSince implements store.Store. A reader always loads everything.
func (r *Reader) LoadSince(
	context.Context, uint64, func(wire.Kind, string, []byte) error, func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	return 0, 0, plimsoll.Errorf(
		plimsoll.CodeNotFound, "the store in %s is only read, and knows no changes", r.place.dir,
	)
}

// Commit refuses every batch.
func (r *Reader) Commit(*wire.Batch) (store.Pending, error) {
	return nil, &plimsoll.Error{Code: plimsoll.CodeUnavailable, Op: "write store", Err: errReadOnly, Msg: fmt.Sprintf(
		"the store in %s is only read, because its disk is full", r.place.dir)}
}

// Confirm implements store.Store. The lock proves that nobody else leads.
func (r *Reader) Confirm(ctx context.Context) error {
	if r.closed.Load() || !r.led.Load() {
		return plimsoll.Errorf(plimsoll.CodeStale, "nobody leads with the store in %s", r.place.dir)
	}
	return ctx.Err()
}

// TrimEvents does nothing. Later leaders trim.
func (r *Reader) TrimEvents(uint64) error { return nil }

// Close implements store.Store.
func (r *Reader) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	close(r.fence.closing)
	if err := errors.Join(guard(r.db.Close), r.lock.Close()); err != nil {
		return fmt.Errorf("close the store in %s: %w", r.place.dir, err)
	}
	return nil
}

var _ store.Store = (*Reader)(nil)
