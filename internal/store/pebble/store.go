// Package pebble is a store.Store on Pebble: one directory of the local disk, one process.
//
// It gives the guarantees of package store. A batch is one write to Pebble's log and is synced
// together with all that wait at the same time; Commit returns before that, so that the next batch
// can be made meanwhile. It owns the directory, a lock on it, and Pebble's goroutines, which end
// with Close. It keeps no record in memory beyond Pebble's small buffers.
//
// The lock on the directory is the fence between leaders: whoever has it is the only one who can
// write, the kernel frees it when the process ends, and so to hold an open Store is to lead. The
// epoch is raised all the same, durably, for those who hear from two leaders in turn.
//
// Keys: the kind of record (one byte) and its key; event chunks behind every record, by revision;
// one record of the store's own in front, which every batch writes, with the format, a count of the
// batches, the epoch, and revision and time. Pebble opens much that is damaged: it takes a log or a
// manifest that lost its end for one that a crash has torn, and does not miss a log that is gone.
// The count shows what is missing in the middle (see audit), and a witness beside Pebble's files
// shows what is missing at the end, so that damage never passes for the loss of what nobody was
// promised.
//
// Damage is refused when the store is opened, after everything was read and before anything was
// changed. After the first failed write the store is closed to all others (see fence): what a disk
// holds after a failed sync is known only to the next who opens it. If Pebble hangs on such a
// failure its goroutines and up to a few MemTableBytes are left behind for each Store that fails
// so; they cannot write. The directory can be opened again in the same process after Close.
//
// It holds 64 descriptors back (see reserve): when the rest of the process has taken all others,
// commits go on.
//
// Cost: a commit costs its bytes twice (log and memory) and a share of a sync; opening reads
// everything once, Load once more. The design follows etcd's backend (one writer, the revision in
// every batch) and Pebble's own advice to let go of a disk at the first error.
//
// The coordinator opens it. It does no compaction of history (TrimEvents does what it is told) and
// no backup.
package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The defaults of Config.
const (
	DefaultOps           = 50_000
	DefaultBytes         = 16 << 20
	DefaultCacheBytes    = 16 << 20
	DefaultMemTableBytes = 8 << 20
)

const minMemTableBytes = 16 << 10

// Config says where a store is and how large its buffers are. All but Dir may be left zero.
type Config struct {
	Dir           string       // made if it is not there
	FS            vfs.FS       // default: the operating system's
	Logger        *slog.Logger // default: nothing is logged
	Limits        store.Limits // default: DefaultOps, DefaultBytes
	CacheBytes    int64        // of blocks read from tables
	MemTableBytes int64        // of batches in memory until they are written to a table
}

func (c Config) withDefaults() Config {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Limits.Ops == 0 {
		c.Limits.Ops = DefaultOps
	}
	if c.Limits.Bytes == 0 {
		c.Limits.Bytes = DefaultBytes
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.MemTableBytes == 0 {
		c.MemTableBytes = DefaultMemTableBytes
	}
	return c
}

// Validate reports the first field that is wrong.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Dir == "":
		return plimsoll.Invalid("store.dir", "is empty; name the directory for the store")
	case c.Limits.Ops < 0 || c.Limits.Bytes < 0:
		return plimsoll.Invalid("store.limits", "are negative; leave them 0 for the default")
	case c.CacheBytes < 0:
		return plimsoll.Invalid("store.cacheBytes", "is negative; leave it 0 for the default")
	case c.MemTableBytes < minMemTableBytes || c.MemTableBytes > 1<<30:
		return plimsoll.Invalid(
			"store.memTableBytes", "is %d, which is not between %d and %d", c.MemTableBytes, minMemTableBytes, 1<<30,
		)
	}
	return nil
}

// Store is an open store. See Open.
type Store struct {
	cfg     Config
	place   place
	db      *lsm.DB
	fence   *fence
	lock    io.Closer
	witness *witness
	files   *reserve

	epoch  atomic.Uint64 // of the caller of Lead; 0 before
	closed atomic.Bool

	mu struct {
		sync.Mutex
		last      meta // of the last batch or epoch that was handed to Pebble
		trimmed   uint64
		abandoned bool // Pebble panicked or hangs while it holds its own locks: it cannot be closed
	}
}

// Limits implements store.Store.
func (s *Store) Limits() store.Limits { return s.cfg.Limits }

// usable returns why the store takes nothing, or nil.
func (s *Store) usable() error {
	if s.closed.Load() {
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "the store in %s is closed", s.place.dir)
	}
	if err := s.fence.err(); err != nil {
		return s.failure(err)
	}
	return nil
}

// failure words the reason why the store takes no more.
func (s *Store) failure(cause error) error {
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Op: "write store", Err: cause, Msg: fmt.Sprintf(
		"the store in %s failed and takes no more; look after its disk, what was acknowledged is there", s.place.dir)}
}

// Lead implements store.Store.
func (s *Store) Lead(ctx context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	next := s.mu.last
	next.commits++
	next.epoch++
	if err := s.writeMeta(next); err != nil {
		return 0, err
	}
	// An epoch must not be given out twice, so it is in the witness before anybody hears of it.
	if err := s.witness.note(next, witnessSyncBytes); err != nil {
		s.fence.shut(err)
		return 0, s.failure(err)
	}
	s.epoch.Store(next.epoch)
	return next.epoch, nil
}

// writeMeta writes the store's own record alone, and returns when it is durable. The caller holds
// mu.
func (s *Store) writeMeta(next meta) error {
	batch := s.db.NewBatch()
	if err := batch.Set(metaKey, next.encode(), nil); err != nil {
		return fmt.Errorf("encode the store's own record: %w", err)
	}
	if err := s.apply(batch, lsm.Sync); err != nil {
		return err
	}
	if err := s.syncWait(batch); err != nil {
		return err
	}
	s.mu.last = next
	return batch.Close()
}

// syncWait returns when a batch is durable. A log that failed is known to the fence, not to Pebble.
func (s *Store) syncWait(batch *lsm.Batch) error {
	if err := batch.SyncWait(); err != nil {
		s.fence.shut(err)
	}
	if err := s.fence.err(); err != nil {
		return s.failure(err)
	}
	return nil
}

// Commit implements store.Store.
func (s *Store) Commit(batch *wire.Batch) (store.Pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	if err := s.admit(batch); err != nil {
		return nil, err
	}
	next := s.mu.last
	next.commits++
	next.revision, next.time = batch.Revision, batch.Time
	b, err := s.encode(batch, next)
	if err != nil {
		return nil, fmt.Errorf("encode revision %d: %w", batch.Revision, err)
	}
	size := b.Len()
	if err := s.apply(b, lsm.Sync); err != nil {
		return nil, err
	}
	s.mu.last = next
	return &pending{store: s, batch: b, last: next, size: size}, nil
}

// admit refuses a batch that must not be stored.
func (s *Store) admit(batch *wire.Batch) error {
	if epoch := s.epoch.Load(); epoch == 0 || batch.Epoch != epoch {
		return plimsoll.Errorf(
			plimsoll.CodeStale, "revision %d comes from the leader of epoch %d, and epoch %d leads", batch.Revision,
			batch.Epoch, epoch,
		)
	}
	if batch.Revision <= s.mu.last.revision {
		return plimsoll.Invalid(
			"batch", "revision %d is not after %d, which is stored", batch.Revision, s.mu.last.revision,
		)
	}
	if err := checkKinds(batch); err != nil {
		return err
	}
	return s.cfg.Limits.Check(batch)
}

// encode copies a batch into one of Pebble's.
func (s *Store) encode(batch *wire.Batch, next meta) (*lsm.Batch, error) {
	const perOp = 16 // headroom for Pebble's lengths
	ops, bytes := store.Measure(batch)
	b := s.db.NewBatchWithSize(bytes + (ops+2)*perOp + metaSize + chunkHeader)
	if err := b.Set(metaKey, next.encode(), nil); err != nil { // first: see auditor
		return nil, err
	}
	for i := range batch.Mutations {
		m := &batch.Mutations[i]
		if m.Ephemeral {
			continue
		}
		var key []byte
		if m.Value == nil {
			op := b.DeleteDeferred(1 + len(m.Key))
			key = op.Key
			fillKey(key, m)
			if err := op.Finish(); err != nil {
				return nil, err
			}
			continue
		}
		op := b.SetDeferred(1+len(m.Key), len(m.Value))
		fillKey(op.Key, m)
		copy(op.Value, m.Value)
		if err := op.Finish(); err != nil {
			return nil, err
		}
	}
	if batch.Events.Count > 0 {
		op := b.SetDeferred(chunkKeySize, chunkHeader+len(batch.Events.Data))
		appendChunkKey(op.Key[:0], batch.Revision)
		binary.BigEndian.PutUint64(op.Value, batch.Events.FirstID)
		binary.BigEndian.PutUint64(op.Value[8:], batch.Events.Count)
		copy(op.Value[chunkHeader:], batch.Events.Data)
		if err := op.Finish(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func fillKey(dst []byte, m *wire.Mutation) {
	dst[0] = byte(m.Kind)
	copy(dst[1:], m.Key)
}

// apply hands a batch to Pebble, in a goroutine of its own: where Pebble waits for a flush that
// will not come, or panics with its locks held, it is left behind. The caller holds mu.
func (s *Store) apply(b *lsm.Batch, opts *lsm.WriteOptions) error {
	done := make(chan error, 1)
	go func() {
		done <- guard(func() error {
			if opts.Sync {
				return s.db.ApplyNoSyncWait(b, opts)
			}
			return s.db.Apply(b, opts)
		})
	}()
	select {
	case err := <-done:
		if err != nil {
			s.mu.abandoned = true
			s.fence.shut(err)
		}
	case <-s.fence.hung:
		s.mu.abandoned = true
	}
	if err := s.fence.err(); err != nil {
		return s.failure(err)
	}
	return nil
}

type pending struct {
	store *Store
	batch *lsm.Batch
	last  meta
	size  int
}

// Wait implements store.Pending.
func (p *pending) Wait() error {
	if err := p.store.syncWait(p.batch); err != nil {
		return err
	}
	// The batch is durable, whatever becomes of the witness. If that cannot be written the fence is
	// shut now, and the next Commit says so.
	if err := p.store.witness.note(p.last, p.size); err != nil {
		p.store.fence.shut(err)
		p.store.cfg.Logger.Warn("the witness of the store could not be written", "dir", p.store.place.dir, "error", err)
	}
	return p.batch.Close()
}

// Confirm implements store.Store. Nobody can have led since Lead while this process holds the
// directory's lock, and it holds it until Close; so there is nobody to ask.
func (s *Store) Confirm(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.epoch.Load() == 0 {
		return plimsoll.Errorf(
			plimsoll.CodeStale, "the store in %s is open, but its caller does not lead yet", s.place.dir,
		)
	}
	return ctx.Err()
}

// TrimEvents implements store.Store. It is not synced: a chunk that comes back after a crash does
// no harm.
func (s *Store) TrimEvents(keep uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if keep <= s.mu.trimmed {
		return nil
	}
	b := s.db.NewBatch()
	// What an earlier call has removed is left out, because tombstones that overlap make each other
	// dear.
	if err := b.DeleteRange(appendChunkKey(nil, s.mu.trimmed), appendChunkKey(nil, keep), nil); err != nil {
		return fmt.Errorf("trim events below revision %d: %w", keep, err)
	}
	if err := s.apply(b, lsm.NoSync); err != nil {
		return err
	}
	s.mu.trimmed = keep
	return b.Close()
}

// Close implements store.Store. Batches whose Wait was not called yet are durable after it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Swap(true) {
		return nil
	}
	defer s.files.close()
	err := s.closePebble()
	if cause := s.fence.err(); cause != nil {
		err = errors.Join(s.failure(cause), err)
	} else if err == nil {
		err = s.witness.note(s.mu.last, witnessSyncBytes)
	}
	if err = errors.Join(err, s.witness.close(), s.lock.Close()); err != nil {
		return fmt.Errorf("close store in %s: %w", s.place.dir, err)
	}
	return nil
}

// closePebble closes Pebble, or leaves it behind if it cannot be closed. The caller holds mu.
func (s *Store) closePebble() error {
	if s.mu.abandoned {
		return nil // its retries wait for closing, for good
	}
	close(s.fence.closing)
	return guard(s.db.Close)
}
