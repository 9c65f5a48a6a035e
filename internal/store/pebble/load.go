package pebble

import (
	"context"
	"errors"
	"fmt"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ctxEvery is the number of keys that are read between two checks of the context.
const ctxEvery = 1024

// errLayout marks content that Pebble reads without complaint but that has another layout.
var errLayout = errors.New("not the layout of this store")

// visitor receives the content that a scan finds. Its errors end the scan and are returned
// unchanged.
type visitor struct {
	record func(kind wire.Kind, key string, value []byte) error
	chunk  func(revision uint64, chunk wire.EventChunk) error
	inside bool // a callback is running, so a panic is not Pebble's
}

func (v *visitor) visit(key, value []byte, last meta) error {
	if key[0] == prefixChunk {
		revision, chunk, err := decodeChunk(key, value)
		if err != nil || revision > last.revision {
			return errors.Join(
				errLayout, err, fmt.Errorf("a chunk of revision %d stands behind revision %d", revision, last.revision),
			)
		}
		v.inside = true
		err = v.chunk(revision, chunk)
		v.inside = false
		return err
	}
	kind := wire.Kind(key[0])
	if !validKind(kind) {
		return plimsoll.Errorf(plimsoll.CodeConflict,
			"the store holds a record of kind %d, which this version does not know; use the newer version of plimsoll that wrote it", kind)
	}
	v.inside = true
	err := v.record(kind, string(key[1:]), value)
	v.inside = false
	return err
}

// scan reads the whole store in the order of the keys, and so verifies every checksum. found is
// false if the making of the store was never finished; the store is empty then.
func scan(ctx context.Context, db *lsm.DB, v *visitor) (last meta, found bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			if v.inside {
				panic(r)
			}
			err = &panicError{value: r}
		}
	}()
	at := db.NewSnapshot() // batches may be committed meanwhile
	defer func() { err = errors.Join(err, at.Close()) }()
	last, found, err = readMeta(at)
	if err != nil || found && last.format != formatVersion {
		return last, found, err
	}
	iter, err := at.NewIterWithContext(ctx, &lsm.IterOptions{LowerBound: []byte{prefixMeta + 1}})
	if err != nil {
		return last, found, err
	}
	err = walk(ctx, iter, last, v)
	return last, found, errors.Join(err, iter.Close())
}

func walk(ctx context.Context, iter *lsm.Iterator, last meta, v *visitor) error {
	n := 0
	for valid := iter.First(); valid; valid = iter.Next() {
		if n++; n%ctxEvery == 1 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		value, err := iter.ValueAndErr()
		if err != nil {
			return err
		}
		if err := v.visit(iter.Key(), value, last); err != nil {
			return err
		}
	}
	return nil // Close returns an error of the iterator
}

func readMeta(db lsm.Reader) (meta, bool, error) {
	value, closer, err := db.Get(metaKey)
	if errors.Is(err, lsm.ErrNotFound) {
		return meta{}, false, nil
	}
	if err != nil {
		return meta{}, false, err
	}
	m, err := decodeMeta(value)
	if err != nil {
		err = errors.Join(errLayout, err)
	}
	return m, true, errors.Join(err, closer.Close())
}

// Load implements store.Store.
func (s *Store) Load(ctx context.Context, record func(kind wire.Kind, key string, value []byte) error,
	events func(revision uint64, chunk wire.EventChunk) error,
) (revision uint64, time int64, err error) {
	if err := s.usable(); err != nil {
		return 0, 0, err
	}
	return load(ctx, s.db, s.place, s.fence, record, events)
}

func load(ctx context.Context, db *lsm.DB, at place, fence *fence, record func(
	kind wire.Kind, key string, value []byte,
) error,
	events func(revision uint64, chunk wire.EventChunk) error,
) (revision uint64, time int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	var ours error // error of a callback, which is not about the files
	v := &visitor{
		record: func(kind wire.Kind, key string, value []byte) error {
			ours = record(kind, key, value)
			return ours
		},
		chunk: func(revision uint64, chunk wire.EventChunk) error {
			ours = events(revision, chunk)
			return ours
		},
	}
	last, _, err := scan(ctx, db, v)
	switch {
	case ours != nil || ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return 0, 0, err
	case err != nil:
		return 0, 0, at.damaged(fence.last(), last, err)
	}
	return last.revision, last.time, nil
}

// LoadKind implements store.KindLoader.
func (s *Store) LoadKind(
	ctx context.Context, kind wire.Kind, record func(key string, value []byte) error,
) (err error) {
	if err := s.usable(); err != nil {
		return err
	}
	var ours error // error of the callback, which is not about the files
	v := &visitor{record: func(_ wire.Kind, key string, value []byte) error {
		ours = record(key, value)
		return ours
	}}
	err = v.walkKind(ctx, s.db, kind)
	if err == nil || ours != nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place.damaged(s.fence.last(), s.mu.last, err)
}

// walkKind visits the records of a kind.
func (v *visitor) walkKind(ctx context.Context, db *lsm.DB, kind wire.Kind) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if v.inside {
				panic(r)
			}
			err = &panicError{value: r}
		}
	}()
	iter, err := db.NewIterWithContext(ctx, &lsm.IterOptions{
		LowerBound: []byte{byte(kind)}, UpperBound: []byte{byte(kind) + 1},
	})
	if err != nil {
		return err
	}
	err = walk(ctx, iter, meta{}, v)
	return errors.Join(err, iter.Close())
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.KindLoader = (*Store)(nil)
)
