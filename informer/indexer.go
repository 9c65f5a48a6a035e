package informer

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll"
)

// largeApply is the number of changes from which Apply publishes the content before it changes it.
// So no reader waits for a long batch. A shorter one copies nothing if nobody has read since the
// last; a reader that comes during it waits for its end, at worst about a tenth of a second.
const largeApply = 1 << 16

// indexerIDs numbers the indexers: ApplyAll locks them in this order.
var indexerIDs atomic.Uint64

// Index is one index of an Indexer.
type Index[T any] struct {
	Name string
	// Values appends the values of an object to to and returns the result. An object is found under
	// each of them; one without values is not in the index. The values depend on the object alone.
	// Values must not call the Indexer. An error or a panic makes the whole Apply an error.
	Values func(object T, to []string) ([]string, error)
}

// IndexerConfig is the configuration of an Indexer. Its zero value makes a store without indexes
// that is changed by key.
type IndexerConfig[T any] struct {
	Key     KeyFunc[T] // of Add, Update, Delete and ReplaceList; nil: these are errors
	Indexes []Index[T]
}

// Change is one change of an Apply: the object of a key, or its deletion.
type Change[T any] struct {
	Key     string
	Object  T // ignored if Deleted
	Deleted bool
}

// Previous is the object that a change replaced or deleted.
type Previous[T any] struct {
	Object T
	Known  bool // false: there was no object with the key
}

// Indexer is an ordered store of objects by key, with any number of indexes. Writers may call it
// from any goroutine; a change becomes visible whole or not at all. Readers use snapshots, which
// cost O(1) and never change. No reader holds up a writer, however long it reads.
//
// Objects belong to the Indexer and its readers: nobody may change them after they were given. If
// index values change in place, the next change of the key is an error, or the key stays at the old
// value.
//
// The Indexer bounds nothing. It holds what its callers put, and each snapshot in use keeps the
// parts of the content that have changed since.
type Indexer[T any] struct {
	key KeyFunc[T]
	id  uint64

	// published is the snapshot of the content as it is; nil: the content has changed since.
	published atomic.Pointer[Snapshot[T]]

	mu struct {
		sync.Mutex
		content  content[T]
		version  Version       // Invariant: never falls
		previous []Previous[T] // reused by Apply
		waiting  waiting
	}
}

// NewIndexer makes an empty Indexer.
func NewIndexer[T any](config IndexerConfig[T]) (*Indexer[T], error) {
	for i, index := range config.Indexes {
		if err := checkIndex(config.Indexes[:i], index); err != nil {
			return nil, err
		}
	}
	x := &Indexer[T]{key: config.Key, id: indexerIDs.Add(1)}
	x.mu.content.init(slices.Clone(config.Indexes))
	return x, nil
}

func checkIndex[T any](others []Index[T], index Index[T]) error {
	if index.Values == nil {
		return &plimsoll.Error{
			Code: plimsoll.CodeInvalid, Op: "add an index", Field: "Values",
			Msg: "is nil; it has to return index values",
		}
	}
	if slices.ContainsFunc(others, func(other Index[T]) bool { return other.Name == index.Name }) {
		return &plimsoll.Error{
			Code: plimsoll.CodeAlreadyExists, Op: "add an index", Field: "Name",
			Msg: "another index is named " + quoted(index.Name) + "; choose a new name",
		}
	}
	return nil
}

// AddIndex adds an index, and fills it from the objects that are there. Writers wait meanwhile;
// readers see the content without the index until it is complete.
func (x *Indexer[T]) AddIndex(index Index[T]) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := checkIndex(x.mu.content.indexes, index); err != nil {
		return err
	}
	x.publish()
	if err := x.mu.content.addIndex(index); err != nil {
		return err
	}
	x.published.Store(x.mu.content.freeze(x.mu.version))
	return nil
}

// Apply makes all changes, in their order, or none of them. The version is that of the content
// afterwards; the zero value leaves it as it is, and one that is lower is an error. Without changes
// Apply only raises the version.
func (x *Indexer[T]) Apply(changes []Change[T], v Version) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	err := x.change(changes, v, &x.mu.previous)
	if err == nil {
		x.commit(v)
	}
	x.mu.previous = forget(x.mu.previous)
	return err
}

// Edit holds the changes of one Indexer in an ApplyAll.
type Edit[T any] struct {
	Indexer *Indexer[T]
	Changes []Change[T]
	// Previous is set by ApplyAll: the former object of each of Changes. Its array is reused.
	Previous []Previous[T]
}

// ApplyAll makes the changes of several indexers, or none of them, and gives each the version. An
// indexer may appear once. The edits are sorted. Snapshots of several indexers may show some before
// and some after it.
func ApplyAll[T any](v Version, edits []*Edit[T]) error {
	for i := range edits {
		if edits[i] == nil || edits[i].Indexer == nil {
			return plimsoll.Errorf(plimsoll.CodeInvalid, "edit %d has no Indexer", i)
		}
	}
	slices.SortFunc(edits, func(a, b *Edit[T]) int { return cmp.Compare(a.Indexer.id, b.Indexer.id) })
	for i := 1; i < len(edits); i++ {
		if edits[i].Indexer == edits[i-1].Indexer {
			return plimsoll.Errorf(plimsoll.CodeInvalid, "two edits of one Indexer; join their changes")
		}
	}
	for i := range edits {
		mu := &edits[i].Indexer.mu
		mu.Lock()
		defer mu.Unlock()
	}
	for i := range edits {
		e := edits[i]
		if err := e.Indexer.change(e.Changes, v, &e.Previous); err != nil {
			for i--; i >= 0; i-- {
				edits[i].Indexer.mu.content.undo(edits[i].Changes, edits[i].Previous)
			}
			return err
		}
	}
	for i := range edits {
		edits[i].Indexer.commit(v)
	}
	return nil
}

// change makes changes that nobody sees yet. It undoes them if it fails. The caller holds mu.
func (x *Indexer[T]) change(changes []Change[T], v Version, previous *[]Previous[T]) error {
	if v != (Version{}) && v.Before(x.mu.version) {
		return staleVersion(v, x.mu.version)
	}
	if len(changes) >= largeApply {
		x.publish()
	}
	content := &x.mu.content
	content.ops = content.ops[:0]
	*previous = (*previous)[:0]
	for i := range changes {
		was, err := content.change(&changes[i])
		*previous = append(*previous, was)
		if err != nil {
			content.undo(changes[:i+1], *previous)
			*previous = (*previous)[:0]
			return err
		}
	}
	return nil
}

func staleVersion(v, latest Version) error {
	return plimsoll.Errorf(
		plimsoll.CodeStale, "version %v is before version %v, which the index already has", v, latest,
	)
}

// commit makes the changes visible. The caller holds mu.
func (x *Indexer[T]) commit(v Version) {
	if v != (Version{}) {
		x.mu.version = v
	}
	if was := x.published.Load(); was != nil {
		// A snapshot that was read lets expect another reader: the writer makes the next one, and
		// no reader takes the lock.
		if was.read.Load() {
			x.published.Store(x.mu.content.freeze(x.mu.version))
		} else {
			x.published.Store(nil)
		}
	}
	x.mu.content.ops = forget(x.mu.content.ops)
	x.mu.waiting.release(x.mu.version)
}

// publish makes the content visible to readers that hold no lock. The caller holds mu.
func (x *Indexer[T]) publish() *Snapshot[T] {
	s := x.published.Load()
	if s == nil {
		s = x.mu.content.freeze(x.mu.version)
		x.published.Store(s)
	}
	return s
}

// Snapshot returns an immutable view of the content. It holds every change whose Apply returned
// before the call. It costs O(1); the next writer copies the few tree nodes that it changes.
func (x *Indexer[T]) Snapshot() *Snapshot[T] {
	s := x.published.Load()
	if s == nil {
		x.mu.Lock()
		s = x.publish()
		x.mu.Unlock()
	}
	if !s.read.Load() {
		s.read.Store(true)
	}
	return s
}

// Version returns the version of the content.
func (x *Indexer[T]) Version() Version { return x.Snapshot().Version() }

// Len returns the number of objects.
func (x *Indexer[T]) Len() int { return x.Snapshot().Len() }

// Get returns the object of a key. Its error is always nil: an Indexer is the KnownObjects of a
// DeltaFIFO, whose lookups may fail. To read several objects take a Snapshot.
func (x *Indexer[T]) Get(key string) (object T, known bool, err error) {
	object, known = x.Snapshot().Get(key)
	return object, known, nil
}

// Keys yields all keys in their order.
func (x *Indexer[T]) Keys() iter.Seq[string] { return x.Snapshot().Keys() }

// Add puts an object in place of the one with the same key. It leaves the version as it is.
func (x *Indexer[T]) Add(object T) error { return x.applyOne(object, false) }

// Update is Add.
func (x *Indexer[T]) Update(object T) error { return x.applyOne(object, false) }

// Delete deletes the object with the key of the given one. One that is not there is no error.
func (x *Indexer[T]) Delete(object T) error { return x.applyOne(object, true) }

func (x *Indexer[T]) applyOne(object T, deleted bool) error {
	key, err := x.keyOf(object)
	if err != nil {
		return err
	}
	return x.Apply([]Change[T]{{Key: key, Object: object, Deleted: deleted}}, Version{})
}

func (x *Indexer[T]) keyOf(object T) (key string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = plimsoll.Errorf(plimsoll.CodeInternal, "the key function panicked: %v", r)
		}
	}()
	if x.key == nil {
		return "", &plimsoll.Error{
			Code: plimsoll.CodeInvalid, Field: "IndexerConfig.Key", Msg: "is nil; set it, or use Apply and Replace",
		}
	}
	key, err = x.key(object)
	if err == nil && key == "" {
		err = plimsoll.Errorf(plimsoll.CodeInvalid, "the key function returned an empty key")
	}
	return key, err
}

// forget drops the references in a slice that is used again, and the slice if it is large.
func forget[E any](s []E) []E {
	if cap(s) > 1024 {
		return nil
	}
	clear(s)
	return s[:0]
}
