package informer

// Loader takes in the messages of one stream at a time: a list in parts, which replaces the
// content of an Indexer when it is complete, and then changes. While a list arrives, readers of the
// Indexer see the content of before. For a source that is opened again after each break see
// Reflector.
//
//	r := informer.NewLoader(index)
//	r.Begin()                      // a stream was opened
//	err := r.Apply(part, informer.Version{})
//	err = r.Complete(version)      // the list replaces the content
//	err = r.Apply(changes, version)
//
// Apply and Complete look at the version of a list when it is complete, and at that of changes
// between lists. A Loader bounds nothing: its caller bounds the messages that it hands over. It is
// used by one goroutine at a time.
type Loader[T any] struct {
	index *Indexer[T]
	list  *Rebuild[T] // the list that arrives; nil between lists
}

// NewLoader makes a loader for an Indexer. Nobody else should write to the Indexer.
func NewLoader[T any](index *Indexer[T]) *Loader[T] { return &Loader[T]{index: index} }

// Index returns the Indexer.
func (r *Loader[T]) Index() *Indexer[T] { return r.index }

// Begin announces a list. The parts of an earlier one are dropped.
func (r *Loader[T]) Begin() { r.list = r.index.Rebuild() }

// Drop drops the parts of a list, because its stream has ended.
func (r *Loader[T]) Drop() { r.list = nil }

// Listing reports whether a list has begun that is not complete.
func (r *Loader[T]) Listing() bool { return r.list != nil }

// Apply takes in a part of the list or, between lists, changes of the content, all or none. A
// list whose part cannot be taken in is dropped: it could not be complete.
func (r *Loader[T]) Apply(changes []Change[T], v Version) error {
	if r.list == nil {
		return r.index.Apply(changes, v)
	}
	for i := range changes {
		if _, err := r.list.content.change(&changes[i]); err != nil {
			r.list = nil
			return err
		}
	}
	return nil
}

// Complete ends the list, which becomes the content. It does nothing between lists.
func (r *Loader[T]) Complete(v Version) error {
	if r.list == nil {
		return nil
	}
	list := r.list
	r.list = nil
	return list.Swap(v)
}

// NewPlainIndexer makes an Indexer without indexes that is changed by key alone, by Apply.
func NewPlainIndexer[T any]() *Indexer[T] {
	x := &Indexer[T]{id: indexerIDs.Add(1)}
	x.mu.content.init(nil)
	return x
}
