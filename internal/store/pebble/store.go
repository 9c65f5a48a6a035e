// Package pebble is a store.Store on Pebble: one directory of the local disk, one process.
//
// It gives the guarantees of package store. A batch is one write to Pebble's log. It is synced
// together with all batches that wait at the same time. Commit returns before the sync, so that
// the next batch can be made meanwhile. The package owns the directory, a lock on it, and Pebble's
// goroutines, which end with Close. It keeps no record in memory beyond Pebble's small buffers.
//
//	s, err := pebble.Open(pebble.Config{Dir: dir})
//	epoch, err := s.Lead(ctx, nil)
//	revision, time, err := s.Load(ctx, record, events)
//	pending, err := s.Commit(batch) // batch.Epoch is epoch
//	err = pending.Wait()            // nil: the batch survives a crash
//
// The lock on the directory is the fence between leaders: only its holder can write. The kernel
// releases it when the process ends. So to hold an open Store is to lead. The epoch is raised
// durably all the same, for peers that hear from two leaders in turn.
//
// A key is the kind of record (one byte) and the record's key. Event chunks, by revision, come
// behind all records. The store's own record comes first, and every batch writes it. It holds the
// format, a count of the batches, the epoch, and the revision and time.
//
// Pebble opens many damaged stores without an error. It takes a log or manifest that lost its end
// for one torn by a crash, and does not notice a missing log. Therefore the count reveals batches
// that are missing in the middle (see audit). A witness beside Pebble's files reveals batches
// missing at the end. So damage is never mistaken for the loss of unacknowledged data.
//
// Damage is refused when the store is opened, after everything was read and before anything was
// changed. After the first failed write the store accepts nothing more (see fence): only the next
// opening shows which data a disk holds after a failed sync. If Pebble hangs on such a failure,
// its goroutines and up to a few MemTableBytes stay behind. They cannot write. After Close, the
// directory can be opened again in the same process.
//
// It keeps 64 descriptors in reserve (see reserve). Commits go on when the rest of the process has
// taken all others.
//
// Cost: a commit costs its bytes twice (log and memory) and a share of a sync. Opening reads
// everything once, Load once more. The design follows etcd's backend: one writer, and the revision
// in every batch. Giving up the disk at the first error is Pebble's own advice.
//
// The coordinator opens it. It neither compacts history on its own (TrimEvents is called for that)
// nor makes backups.
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

// Config says where a store is and how large its buffers are. Zero values have defaults, except
// for Dir.
type Config struct {
	Dir           string       // created if it does not exist
	FS            vfs.FS       // default: the operating system's
	Logger        *slog.Logger // default: nothing is logged
	Limits        store.Limits // default: DefaultOps, DefaultBytes
	CacheBytes    int64        // size of the cache of blocks read from tables
	MemTableBytes int64        // size of the batches in memory until they are written to a table
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

// Store is an open store, made by Open.
type Store struct {
	cfg     Config
	place   place
	db      *lsm.DB
	fence   *fence    // Invariant: every file of db is opened through it
	lock    io.Closer // held from before db is opened until after it is closed
	witness *witness  // Invariant: it claims only durable batches
	files   *reserve  // the file system below the fence

	epoch  atomic.Uint64 // epoch of the caller of Lead; 0 before
	closed atomic.Bool

	mu struct {
		sync.Mutex
		last    meta   // last batch or epoch that was handed to Pebble
		trimmed uint64 // chunks of revisions below it were removed
		// Pebble panicked or hangs while it holds its own locks, so it cannot be closed.
		abandoned bool
	}
}

// Limits implements store.Store.
func (s *Store) Limits() store.Limits { return s.cfg.Limits }

// usable returns the reason for which the store accepts nothing, or nil.
func (s *Store) usable() error {
	if s.closed.Load() {
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "the store in %s is closed", s.place.dir)
	}
	if err := s.fence.err(); err != nil {
		return s.failure(err)
	}
	return nil
}

// failure words the reason for which the store accepts nothing more.
func (s *Store) failure(cause error) error {
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Op: "write store", Err: cause, Msg: fmt.Sprintf(
		"the store in %s failed and takes no more; look after its disk, what was acknowledged is there", s.place.dir)}
}

// Lead implements store.Store. It never waits: to hold the open store is to lead.
func (s *Store) Lead(ctx context.Context, _ func(leader string)) (uint64, error) {
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
	// An epoch must not be given out twice, so it is in the witness before it is returned.
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

// syncWait returns when a batch is durable. The fence knows of a failed log; Pebble does not.
func (s *Store) syncWait(batch *lsm.Batch) error {
	if err := batch.SyncWait(); err != nil {
		s.fence.shut(err)
	}
	if err := s.fence.err(); err != nil {
		return s.failure(err)
	}
	return nil
}

// Deposed implements store.Store. Nobody else can lead while the store is open.
func (s *Store) Deposed() <-chan struct{} { return nil }

// LoadSince implements store.Store. Only the last revision is known.
func (s *Store) LoadSince(
	ctx context.Context, since uint64, _ func(wire.Kind, string, []byte) error,
	_ func(uint64, wire.EventChunk) error,
) (uint64, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.usable(), ctx.Err()); err != nil {
		return 0, 0, err
	}
	if since != s.mu.last.revision {
		return 0, 0, plimsoll.Errorf(
			plimsoll.CodeNotFound, "the store in %s is at revision %d and does not know the changes since %d",
			s.place.dir, s.mu.last.revision, since,
		)
	}
	return s.mu.last.revision, s.mu.last.time, nil
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

// encode copies a batch into a batch of Pebble's.
func (s *Store) encode(batch *wire.Batch, next meta) (*lsm.Batch, error) {
	const perOp = 16 // room for Pebble's length fields
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

// apply hands a batch to Pebble, in a goroutine of its own. If Pebble waits for a flush that will
// not come, or panics with its locks held, the goroutine is abandoned. The caller holds mu.
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
	// The batch is durable, whatever happens to the witness. If the witness cannot be written, the
	// fence is shut now and the next Commit returns the error.
	if err := p.store.witness.note(p.last, p.size); err != nil {
		p.store.fence.shut(err)
		p.store.cfg.Logger.Warn("the witness of the store could not be written", "dir", p.store.place.dir, "error", err)
	}
	return p.batch.Close()
}

// Confirm implements store.Store. The process holds the directory's lock from Open until Close, so
// nobody else can have led since Lead.
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

// TrimEvents implements store.Store. It is not synced: a chunk that reappears after a crash is
// harmless.
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
	// The range leaves out chunks that an earlier call removed, because overlapping tombstones
	// slow each other down.
	if err := b.DeleteRange(appendChunkKey(nil, s.mu.trimmed), appendChunkKey(nil, keep), nil); err != nil {
		return fmt.Errorf("trim events below revision %d: %w", keep, err)
	}
	if err := s.apply(b, lsm.NoSync); err != nil {
		return err
	}
	s.mu.trimmed = keep
	return b.Close()
}

// Close implements store.Store. A batch whose Wait was not called yet is durable after it.
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

// closePebble closes Pebble, or abandons it if it cannot be closed. The caller holds mu.
func (s *Store) closePebble() error {
	if s.mu.abandoned {
		return nil // its retries wait for closing for ever
	}
	close(s.fence.closing)
	return guard(s.db.Close)
}
