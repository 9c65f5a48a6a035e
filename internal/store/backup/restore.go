package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Options say how a file is put into a store.
type Options struct {
	// Force replaces what the store holds, also if that is newer than the file.
	Force bool
	// Move also takes over the events and goes on with their ids. The caller vouches that the store
	// from which the file was made has taken nothing since. Otherwise ids that were given out
	// after the backup would be given out again.
	Move bool
	// DryRun ends before the first record is written.
	DryRun bool
	// Progress is called now and then with the records that are written, of all. It may be nil.
	Progress func(done, all uint64)
	// Misfit is called for each object of the file that the store cannot take, before anything is
	// written. It may be nil: the error names the first ones.
	Misfit func(object string)
}

// Bounds of a batch where the store has none, or larger ones.
const (
	batchOps   = 2_000 // stores also bound the keys of a batch, which Limits does not say
	batchBytes = 4 << 20
	underWay   = 4 // batches that are committed and not yet durable
)

// Restore writes a checked file into a store, which the caller has opened and which no coordinator
// uses. It raises the epoch above that of the file, so that a leader of before counts as older.
// Before it writes a record, it fails with CodeConflict if the store is not empty. It fails with
// CodeInvalid if the store cannot take all that the file holds. If it fails later, the store holds
// an unfinished import, which only another Restore replaces.
func Restore(ctx context.Context, f *File, st store.Store, o Options) error {
	if err := f.fits(ctx, st.Limits(), o.Misfit); err != nil {
		return err
	}
	epoch, err := LeadAlone(ctx, st)
	if err != nil {
		return fmt.Errorf("take the store: %w", err)
	}
	old, err := survey(ctx, st)
	if err != nil {
		return fmt.Errorf("read what the store holds: %w", err)
	}
	if err := old.replaceable(f, epoch-1, o); err != nil {
		return err
	}
	if o.DryRun {
		return nil
	}
	for epoch <= f.content.Epoch {
		if epoch, err = LeadAlone(ctx, st); err != nil {
			return fmt.Errorf("raise the epoch: %w", err)
		}
	}
	w := &restorer{st: st, epoch: epoch, last: old.revision, file: f, options: o}
	if err := w.run(ctx, old); err != nil {
		return fmt.Errorf("restore %s: %w; the store has a part of it, run the import again", f.path, err)
	}
	return nil
}

// LeadAlone leads with a store, and fails if another process does.
func LeadAlone(ctx context.Context, st store.Store) (uint64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	epoch, err := st.Lead(ctx, func(leader string) {
		cancel(plimsoll.Errorf(
			plimsoll.CodeAlreadyRunning, "the coordinator %s leads with this store; stop all its coordinators first", leader,
		))
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return 0, cause
	}
	return epoch, err
}

// present is the content of a store before a restore.
type present struct {
	revision   uint64
	time       int64
	records    []wire.Mutation // that delete what is there
	chunks     int
	unfinished bool // an earlier restore did not end
}

func survey(ctx context.Context, st store.Store) (*present, error) {
	p := new(present)
	var err error
	p.revision, p.time, err = st.Load(ctx, func(kind wire.Kind, key string, _ []byte) error {
		p.records = append(p.records, wire.Mutation{Kind: kind, Key: key})
		p.unfinished = p.unfinished || kind == wire.KindImport
		return nil
	}, func(uint64, wire.EventChunk) error {
		p.chunks++
		return nil
	})
	return p, err
}

// replaceable returns an error if a restore may not replace what the store holds.
func (p *present) replaceable(f *File, epoch uint64, o Options) error {
	empty := len(p.records) == 0 && p.chunks == 0
	if empty || p.unfinished || o.Force {
		return nil
	}
	age := "it is not older than the backup"
	if epoch < f.content.Epoch || epoch == f.content.Epoch && p.revision < f.content.Revision {
		age = "it is older than the backup"
	}
	return plimsoll.Errorf(plimsoll.CodeConflict,
		"the store holds %d records at epoch %d and revision %d, and the backup is of epoch %d and revision %d: %s; "+
			"restore into an empty store, or add --force to replace what it holds", len(p.records), epoch, p.revision,
		f.content.Epoch, f.content.Revision, age)
}

// maxNamed bounds the objects that an error names.
const maxNamed = 5

// fits names all objects of the file that the store cannot take.
func (f *File) fits(ctx context.Context, limits store.Limits, misfit func(object string)) error {
	var named []string
	misfits := 0
	check := func(b wire.Batch, what string) {
		err := limits.Check(&b)
		if err == nil {
			return
		}
		_, size := store.Measure(&b)
		object := fmt.Sprintf("%s (%d bytes)", what, size)
		if misfits++; misfits <= maxNamed {
			named = append(named, object)
		}
		if misfit != nil {
			misfit(object)
		}
	}
	_, _, err := f.Load(ctx, func(kind wire.Kind, key string, value []byte) error {
		if err := f.checkOwn(kind, value); err != nil {
			return err
		}
		if kind == 0 || kind >= wire.NumKinds {
			return plimsoll.Errorf(plimsoll.CodeConflict,
				"the record %q has the kind %d, which this version does not know; use version %s of plimsoll, or a later one",
				key, kind, f.content.Version)
		}
		one := []wire.Mutation{{Kind: kind, Key: key, Value: value}}
		check(wire.Batch{Mutations: one}, fmt.Sprintf("record %q of kind %d", key, kind))
		return nil
	}, func(revision uint64, chunk wire.EventChunk) error {
		check(wire.Batch{Events: chunk}, fmt.Sprintf("the events of revision %d", revision))
		return nil
	})
	if err != nil || misfits == 0 {
		return err
	}
	if misfits > maxNamed {
		named = append(named, fmt.Sprintf("and %d more", misfits-maxNamed))
	}
	return plimsoll.Invalid("file", "holds %d objects that this store cannot take in one batch of %d bytes: %s", misfits,
		limits.Bytes, strings.Join(named, ", "))
}

// checkOwn checks the records that a restore itself deals with.
func (f *File) checkOwn(kind wire.Kind, value []byte) error {
	switch kind {
	case wire.KindImport:
		return plimsoll.Errorf(
			plimsoll.CodeConflict, "the backup was made of an unfinished import; take another one",
		)
	case wire.KindEventIDs:
		if _, err := wire.DecodeEventIDs(value); err != nil {
			return plimsoll.Errorf(plimsoll.CodeCorrupt, "the record of the ids of events cannot be read: %v", err)
		}
	}
	return nil
}

// restorer writes the content of a file in batches.
type restorer struct {
	st      store.Store
	epoch   uint64
	last    uint64 // revision of the last batch
	file    *File
	options Options
	batch   wire.Batch
	bytes   int
	under   []store.Pending
	done    uint64 // records of the file that were given to the store
	next    uint64 // id behind the last event
	ids     wire.EventIDs
}

func (w *restorer) run(ctx context.Context, old *present) (err error) {
	defer func() {
		for _, p := range w.under {
			err = errors.Join(err, p.Wait())
		}
	}()
	w.add(wire.Mutation{Kind: wire.KindImport, Value: []byte{}}) // in the first batch, whichever that is
	if err := w.clear(old); err != nil {
		return err
	}
	if err := w.events(ctx); err != nil {
		return err
	}
	if err := w.records(ctx); err != nil {
		return err
	}
	if !w.options.Move {
		w.ids = wire.EventIDs{First: w.next}
	}
	if w.options.Move && w.ids == (wire.EventIDs{}) {
		return w.end()
	}
	if err := w.put(wire.Mutation{Kind: wire.KindEventIDs, Value: wire.AppendEventIDs(nil, w.ids)}); err != nil {
		return err
	}
	return w.end()
}

// clear removes what the store holds.
func (w *restorer) clear(old *present) error {
	for _, m := range old.records {
		if m.Kind == wire.KindImport {
			continue
		}
		if err := w.put(m); err != nil {
			return err
		}
	}
	if len(old.records) > 0 || old.chunks > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if old.chunks > 0 {
		if err := w.st.TrimEvents(w.last + 1); err != nil {
			return fmt.Errorf("remove the events: %w", err)
		}
	}
	return nil
}

// end takes the mark of an unfinished import away, once all else is durable.
func (w *restorer) end() error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.wait(0); err != nil {
		return err
	}
	w.add(wire.Mutation{Kind: wire.KindImport})
	return w.flush()
}

// events writes the chunks of events, each with its revision, if they are wanted. Where the store
// is further than the first of them, all are moved behind its revision.
func (w *restorer) events(ctx context.Context) error {
	shift, first := uint64(0), true
	_, _, err := w.file.Load(ctx, func(wire.Kind, string, []byte) error { return nil },
		func(revision uint64, chunk wire.EventChunk) error {
			w.next = chunk.FirstID + chunk.Count
			if !w.options.Move {
				return nil
			}
			if first && revision <= w.last {
				shift = w.last
			}
			first = false
			w.batch.Events = chunk
			w.batch.Events.Data = append([]byte(nil), chunk.Data...)
			return w.commit(revision + shift)
		})
	w.last = max(w.last, w.file.content.Revision+shift)
	return err
}

// records writes the records of the file.
func (w *restorer) records(ctx context.Context) error {
	_, _, err := w.file.Load(ctx, func(kind wire.Kind, key string, value []byte) error {
		w.done++
		if kind == wire.KindEventIDs {
			ids, err := wire.DecodeEventIDs(value)
			if err != nil {
				return err
			}
			w.ids, w.next = ids, max(w.next, ids.First)
			return nil // written last
		}
		return w.put(wire.Mutation{Kind: kind, Key: key, Value: append([]byte{}, value...)})
	}, func(uint64, wire.EventChunk) error { return nil })
	return err
}

// put adds a record to the batch, behind a commit if the batch has no room for it.
func (w *restorer) put(m wire.Mutation) error {
	limits := w.st.Limits()
	ops, bytes := orLess(limits.Ops, batchOps), orLess(limits.Bytes, batchBytes)
	if size := len(m.Key) + len(m.Value); len(w.batch.Mutations) >= ops || w.bytes > 0 && w.bytes+size > bytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.add(m)
	return nil
}

func orLess(limit, most int) int {
	if limit == 0 || limit > most {
		return most
	}
	return limit
}

func (w *restorer) add(m wire.Mutation) {
	w.batch.Mutations = append(w.batch.Mutations, m)
	w.bytes += len(m.Key) + len(m.Value)
}

func (w *restorer) flush() error {
	if len(w.batch.Mutations) == 0 {
		return nil
	}
	return w.commit(w.last + 1)
}

// commit begins to write the batch with a revision. It waits while many are under way.
func (w *restorer) commit(revision uint64) error {
	b := w.batch
	b.Epoch, b.Revision, b.Time = w.epoch, revision, w.file.content.Time
	w.batch, w.bytes = wire.Batch{}, 0
	p, err := w.st.Commit(&b)
	if err != nil {
		return fmt.Errorf("write revision %d: %w", revision, err)
	}
	w.last = revision
	w.under = append(w.under, p)
	if w.options.Progress != nil {
		w.options.Progress(w.done, w.file.content.Records)
	}
	return w.wait(underWay - 1)
}

// wait returns once at most left batches are under way.
func (w *restorer) wait(left int) error {
	for len(w.under) > left {
		p := w.under[0]
		w.under = w.under[1:]
		if err := p.Wait(); err != nil {
			return err
		}
	}
	return nil
}
