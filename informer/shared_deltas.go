package informer

import (
	"runtime/debug"
	"slices"
	"unsafe"
)

// handleDeltas applies a batch: the index first, then the handlers.
//
//   - Deleted leaves the index and goes to all handlers, unless the index did not have it.
//   - Added, Updated and Replaced go to the index, and to all handlers as an addition or a change.
//     One that is the same as the indexed object is a Sync.
//   - Sync goes to the handlers whose resync is due, if the index has the object.
//
// A function of the caller that panics here makes the batch fail.
func (s *SharedInformer[T]) handleDeltas(b Batch[T]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if s.batchLost && !b.Replaced {
		return nil // the index lacks what came before
	}
	f := s.fanout
	if b.Len() == 0 && !b.Replaced && !s.index.Snapshot().Version().Before(b.Version) {
		return nil // wakeDrain
	}
	f.atomic.Lock()
	defer f.atomic.Unlock()
	defer s.release()
	some, due := f.start(b.Replaced, b.resynced)
	synced := s.sort(b, due)
	var bytes int64
	if some {
		for i := range s.changes {
			bytes += noticeBytes[T]() + s.weigh(&s.changes[i])
		}
		bytes += syncedBytes(synced)
		f.prepare(len(s.changes), len(synced), bytes)
	}
	if err := s.apply(b); err != nil {
		return err
	}
	s.batchLost = false
	if some {
		st := &step[T]{synced: synced, bytes: bytes}
		s.compare(st, due)
		if f.publish(st) {
			s.told = make(map[string]struct{}, len(st.notices))
			for i := range st.notices {
				s.told[st.notices[i].key] = struct{}{}
			}
		}
	}
	return nil
}

// apply makes s.changes, and sets the former objects. A first list is built beside the empty index,
// which costs less.
func (s *SharedInformer[T]) apply(b Batch[T]) error {
	e := s.edits[0]
	if b.Replaced && len(s.gone) == 0 && s.index.Len() == 0 {
		e.Previous = make([]Previous[T], len(s.changes))
		return s.index.Replace(func(yield func(string, T) bool) {
			for i := range s.changes {
				if c := &s.changes[i]; !yield(c.Key, c.Object) {
					return
				}
			}
		}, b.Version)
	}
	e.Changes = s.changes
	return ApplyAll(b.Version, s.edits)
}

// sort sets s.changes to those of a batch that may change the index. If a resync is due it returns
// the objects that are the same.
func (s *SharedInformer[T]) sort(b Batch[T], due bool) (synced []T) {
	s.changes = slices.Grow(s.changes, b.Len())
	var index *Snapshot[T] // taken only if it is needed: the next writer copies nodes
	for d := range b.All() {
		for i := range d.Changes {
			delta := &d.Changes[i]
			switch delta.Type {
			case Deleted:
				s.changes = append(s.changes, Change[T]{Key: d.Key, Deleted: true})
				s.gone = append(s.gone, *delta)
				continue
			case Added, Updated:
				s.changes = append(s.changes, Change[T]{Key: d.Key, Object: delta.Object})
				continue
			}
			if index == nil {
				index = s.index.Snapshot()
			}
			now, known := index.Get(d.Key)
			switch {
			case delta.Type == Replaced && (i > 0 || !known || !s.same(now, delta.Object)):
				s.changes = append(s.changes, Change[T]{Key: d.Key, Object: delta.Object})
			case known && due:
				synced = append(synced, now)
			}
		}
	}
	return synced
}

// compare makes the notices of the changes that were applied, from the objects that were there.
func (s *SharedInformer[T]) compare(st *step[T], due bool) {
	st.notices = make([]notice[T], 0, len(s.changes))
	gone := s.gone
	for i := range s.changes {
		c, was := &s.changes[i], &s.edits[0].Previous[i]
		if c.Deleted {
			if was.Known {
				st.notices = append(st.notices, deletionNotice(c.Key, was.Object, &gone[0]))
			}
			gone = gone[1:]
			continue
		}
		switch {
		case !was.Known:
			st.notices = append(st.notices, notice[T]{kind: added, key: c.Key, new: c.Object})
		case !s.same(was.Object, c.Object):
			st.notices = append(st.notices, notice[T]{kind: updated, key: c.Key, old: was.Object, new: c.Object})
		case due:
			st.synced = append(st.synced, c.Object)
		}
	}
}

// deletionNotice is the notice of a deletion. If the final state is unknown, it has the indexed
// object.
func deletionNotice[T any](key string, indexed T, d *Delta[T]) notice[T] {
	n := notice[T]{kind: deleted, key: key, old: d.Object, tombstone: d.Tombstone}
	if d.Tombstone {
		n.old = indexed
	}
	return n
}

// syncedBytes is the size of a step's list of unchanged objects. The index holds the objects.
func syncedBytes[T any](synced []T) int64 {
	if len(synced) == 0 {
		return 0
	}
	return max(64, int64(len(synced))*int64(unsafe.Sizeof(synced[0])))
}

func (s *SharedInformer[T]) weigh(c *Change[T]) int64 {
	if c.Deleted {
		return 0 // the index's object was counted when it came
	}
	return int64(s.fanout.size(c.Object))
}

// release forgets the objects of a batch, so that the informer holds no former object.
func (s *SharedInformer[T]) release() {
	e := s.edits[0]
	s.changes, s.gone, e.Changes, e.Previous = emptied(s.changes), emptied(s.gone), nil, emptied(e.Previous)
}

// emptied clears a slice for the next batch. An array above keptBytes is not kept.
func emptied[E any](s []E) []E {
	const keptBytes = 4 << 20
	var e E
	if uintptr(cap(s))*unsafe.Sizeof(e) > keptBytes {
		return nil
	}
	clear(s)
	return s[:0]
}
