package informer

import (
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/plimsoll-dev/plimsoll"
)

// Snapshot is an immutable view of an Indexer at one version. Any number of goroutines may read it
// without a lock, for as long as they like. Its objects belong to all readers; nobody may change
// them.
type Snapshot[T any] struct {
	version Version
	objects *btree.Map[string, T]
	indexes []Index[T]
	lists   []*btree.Map[string, *keyList] // of each index
	read    atomic.Bool                    // somebody took the snapshot
}

// SnapshotOf returns a snapshot of objects that belong to no Indexer. It has no indexes.
func SnapshotOf[T any](objects iter.Seq2[string, T]) *Snapshot[T] {
	var c content[T]
	c.init(nil)
	for key, object := range objects {
		c.objects.Set(key, object)
	}
	return c.freeze(Version{})
}

// Version is the version of the last change that the snapshot holds.
func (s *Snapshot[T]) Version() Version { return s.version }

// Len returns the number of objects.
func (s *Snapshot[T]) Len() int { return s.objects.Len() }

// Get returns the object of a key.
func (s *Snapshot[T]) Get(key string) (T, bool) { return s.objects.Get(key) }

// Same reports whether two snapshots share their objects. It compares pointers: false does not mean
// that the objects differ.
func (s *Snapshot[T]) Same(other *Snapshot[T]) bool {
	return other != nil && s.objects == other.objects
}

// All yields all objects in the order of their keys.
func (s *Snapshot[T]) All() iter.Seq2[string, T] { return s.objects.Scan }

// Keys yields all keys in their order.
func (s *Snapshot[T]) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		s.objects.Scan(func(key string, _ T) bool { return yield(key) })
	}
}

// Range yields, in key order, the objects whose keys begin with prefix and are greater than after.
// An empty after stands for the beginning.
func (s *Snapshot[T]) Range(prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		s.objects.Ascend(max(prefix, after), func(key string, object T) bool {
			if !strings.HasPrefix(key, prefix) {
				return false
			}
			return after != "" && key == after || yield(key, object)
		})
	}
}

// Backward yields, in descending key order, the objects whose keys are less than before. An empty
// before stands for the end.
func (s *Snapshot[T]) Backward(before string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		if before == "" {
			s.objects.Reverse(yield)
			return
		}
		s.objects.Descend(before, func(key string, object T) bool { return key == before || yield(key, object) })
	}
}

// Cursor returns a cursor over all objects, before the first. It can be kept between the parts of
// a long transfer.
func (s *Snapshot[T]) Cursor() Cursor[T] { return Cursor[T]{records: s.objects.Iter()} }

// Cursor stands at an object of a snapshot. It is used by one goroutine.
type Cursor[T any] struct {
	records btree.MapIter[string, T]
	began   bool
}

// Next moves to the next object, in key order. It is false at the end.
func (c *Cursor[T]) Next() bool {
	if !c.began {
		c.began = true
		return c.records.First()
	}
	return c.records.Next()
}

// Seek moves to the first object whose key is not less than the given one. It is false if there is
// none.
func (c *Cursor[T]) Seek(key string) bool {
	c.began = true
	return c.records.Seek(key)
}

// Key is the key of the object at which the cursor stands.
func (c *Cursor[T]) Key() string { return c.records.Key() }

// Object is the object at which the cursor stands.
func (c *Cursor[T]) Object() T { return c.records.Value() }

// ByIndex yields, in key order, the objects that an index has under any of the values.
func (s *Snapshot[T]) ByIndex(name string, values ...string) (iter.Seq2[string, T], error) {
	return s.IndexRange(name, "", "", values...)
}

// IndexRange is ByIndex for the keys that begin with prefix and are greater than after, as in
// Range. An object that has several of the values comes once. The cost of an object grows with the
// number of values.
func (s *Snapshot[T]) IndexRange(name, prefix, after string, values ...string) (iter.Seq2[string, T], error) {
	keys, err := s.IndexKeys(name, prefix, after, values...)
	if err != nil {
		return nil, err
	}
	return func(yield func(string, T) bool) {
		for key := range keys {
			object, _ := s.objects.Get(key) // an index has keys of existing objects only
			if !yield(key, object) {
				return
			}
		}
	}, nil
}

// IndexKeys yields the keys of IndexRange. It does not look at the objects.
func (s *Snapshot[T]) IndexKeys(name, prefix, after string, values ...string) (iter.Seq[string], error) {
	byValue, err := s.index(name)
	if err != nil {
		return nil, err
	}
	return func(yield func(string) bool) {
		from := max(prefix, after)
		union := make(union, 0, len(values))
		for _, value := range values {
			if list, ok := byValue.Get(value); ok {
				union = union.with(list, from)
			}
		}
		for key, ok := union.next(); ok; key, ok = union.next() {
			if !strings.HasPrefix(key, prefix) {
				return
			}
			if after != "" && key == after {
				continue
			}
			if !yield(key) {
				return
			}
		}
	}, nil
}

// IndexValues yields the values of an index in their order, each with the number of its objects.
func (s *Snapshot[T]) IndexValues(name string) (iter.Seq2[string, int], error) {
	byValue, err := s.index(name)
	if err != nil {
		return nil, err
	}
	return func(yield func(string, int) bool) {
		byValue.Scan(func(value string, list *keyList) bool { return yield(value, list.len()) })
	}, nil
}

// IndexFrom yields the keys under each value of an index, in the order of the values, behind the
// value after: those that are greater, or less if descending is set. An empty after stands for the
// beginning. The keys under one value are in ascending order.
func (s *Snapshot[T]) IndexFrom(name, after string, descending bool) (iter.Seq2[string, string], error) {
	byValue, err := s.index(name)
	if err != nil {
		return nil, err
	}
	return func(yield func(value, key string) bool) {
		each := func(value string, list *keyList) bool {
			if after != "" && value == after {
				return true
			}
			if list.keys == nil {
				return yield(value, list.one)
			}
			more := true
			list.keys.Scan(func(key string, _ struct{}) bool {
				more = yield(value, key)
				return more
			})
			return more
		}
		switch {
		case !descending:
			byValue.Ascend(after, each)
		case after == "":
			byValue.Reverse(each)
		default:
			byValue.Descend(after, each)
		}
	}, nil
}

// CountByIndex returns the number of objects that an index has under a value.
func (s *Snapshot[T]) CountByIndex(name, value string) (int, error) {
	byValue, err := s.index(name)
	if err != nil {
		return 0, err
	}
	if list, ok := byValue.Get(value); ok {
		return list.len(), nil
	}
	return 0, nil
}

// Indexes returns the names of the indexes.
func (s *Snapshot[T]) Indexes() []string {
	names := make([]string, len(s.indexes))
	for i := range names {
		names[i] = s.indexes[i].Name
	}
	return names
}

func (s *Snapshot[T]) index(name string) (*btree.Map[string, *keyList], error) {
	for i := range s.indexes {
		if s.indexes[i].Name == name {
			return s.lists[i], nil
		}
	}
	names := s.Indexes()
	slices.Sort(names)
	return nil, &plimsoll.Error{
		Code: plimsoll.CodeNotFound, Field: "index", Msg: "there is no index " + quoted(name) + "; there are: " +
			strings.Join(names, ", "),
	}
}

// union walks several lists of keys in the order of the keys. It has no list that has ended.
type union []place

// place is a place in a list of keys.
type place struct {
	key  string
	rest btree.MapIter[string, struct{}] // has ended if the list has one key
	more bool
}

func (u union) with(list *keyList, from string) union {
	if list.keys == nil {
		if list.one < from {
			return u
		}
		return append(u, place{key: list.one})
	}
	p := place{rest: list.keys.Iter(), more: true}
	if !p.rest.Seek(from) {
		return u
	}
	p.key = p.rest.Key()
	return append(u, p)
}

// next returns the least key, and leaves it behind in every list.
func (u *union) next() (key string, ok bool) {
	if len(*u) == 0 {
		return "", false
	}
	key = (*u)[0].key
	for i := range (*u)[1:] {
		key = min(key, (*u)[i+1].key)
	}
	for i := 0; i < len(*u); i++ {
		p := &(*u)[i]
		if p.key != key {
			continue
		}
		if p.more && p.rest.Next() {
			p.key = p.rest.Key()
			continue
		}
		*u = slices.Delete(*u, i, i+1)
		i--
	}
	return key, true
}
