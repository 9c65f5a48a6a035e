package informer

import "iter"

// Rebuild is a content that is built beside the one of an Indexer, and takes its place at once.
// Readers and writers go on meanwhile. It is used by one goroutine.
type Rebuild[T any] struct {
	indexer *Indexer[T]
	content content[T]
}

// Rebuild begins an empty content with the Indexer's indexes.
func (x *Indexer[T]) Rebuild() *Rebuild[T] {
	r := &Rebuild[T]{indexer: x}
	x.mu.Lock()
	indexes := x.mu.content.indexes
	x.mu.Unlock()
	r.content.init(indexes)
	r.content.loading = true
	return r
}

// Put puts an object. It costs least if keys come in their order. Of a key that is put twice the
// last object stays; Put returns the former one. After an error the Rebuild must not be used.
func (r *Rebuild[T]) Put(key string, object T) (Previous[T], error) {
	return r.content.change(&Change[T]{Key: key, Object: object})
}

// Swap puts the new content in the place of the Indexer's, in O(1), unless AddIndex was called
// meanwhile. Changes that were applied since Rebuild was called are lost, unless they had a higher
// version: then Swap is an error, and the content stays as it is. The Rebuild must not be used
// afterwards.
func (r *Rebuild[T]) Swap(v Version) error {
	x := r.indexer
	r.content.loading = false
	x.mu.Lock()
	defer x.mu.Unlock()
	if v != (Version{}) && v.Before(x.mu.version) {
		return staleVersion(v, x.mu.version)
	}
	for len(r.content.indexes) < len(x.mu.content.indexes) { // AddIndex was called meanwhile
		if err := r.content.addIndex(x.mu.content.indexes[len(r.content.indexes)]); err != nil {
			return err
		}
	}
	x.mu.content = r.content
	r.content = content[T]{}
	x.commit(v)
	return nil
}

// Replace replaces the whole content by the given objects, at once: it is built beside the current
// one. The version is as in Apply. After an error the content is as it was. A key that is given
// twice has the last object.
func (x *Indexer[T]) Replace(objects iter.Seq2[string, T], v Version) error {
	r := x.Rebuild()
	for key, object := range objects {
		if _, err := r.Put(key, object); err != nil {
			return err
		}
	}
	return r.Swap(v)
}

// ReplaceList is Replace with the keys of the key function.
func (x *Indexer[T]) ReplaceList(objects []T, v Version) error {
	r := x.Rebuild()
	for _, object := range objects {
		key, err := x.keyOf(object)
		if err == nil {
			_, err = r.Put(key, object)
		}
		if err != nil {
			return err
		}
	}
	return r.Swap(v)
}
