package informer

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/btree"

	"github.com/plimsoll-dev/plimsoll"
)

// content is the content of an Indexer: the objects by key, and for each index the keys by value.
// One goroutine at a time uses it.
type content[T any] struct {
	indexes []Index[T] // never changed in place: snapshots share it
	objects *btree.Map[string, T]
	lists   []keyLists  // of each index
	ops     []operation // what was done to lists, for undo

	// Invariant: frozen is nil, or a copy of objects as they are now.
	frozen *btree.Map[string, T]
	// loading is set while keys are expected in their order.
	loading bool

	was, now [8]string // room for the index values of one object
}

// keyLists are the lists of keys of an index, by index value. No list is empty.
type keyLists struct {
	byValue *btree.Map[string, *keyList]
	// generation is that of the lists that no snapshot has.
	generation uint64
	// Invariant: frozen is nil, or a copy of byValue as it is now.
	frozen *btree.Map[string, *keyList]
}

// keyList is the ordered set of the keys that have an index value. A list of an older generation
// than its index belongs to snapshots and is never changed.
type keyList struct {
	generation uint64
	value      string
	one        string                       // the only key, if keys is nil
	keys       *btree.Map[string, struct{}] // stores nothing beside the key
}

// operation is a key that was put into the list of a value, or taken out.
type operation struct {
	index      int
	added      bool
	value, key string
}

func (c *content[T]) init(indexes []Index[T]) {
	c.indexes = indexes
	c.objects = btree.NewMap[string, T](0)
	c.lists = make([]keyLists, len(indexes))
	for i := range c.lists {
		c.lists[i].byValue = btree.NewMap[string, *keyList](0)
	}
}

// change makes one change and returns the former object. After an error it is made in part, and
// undo takes it back.
func (c *content[T]) change(ch *Change[T]) (was Previous[T], err error) {
	switch {
	case ch.Deleted:
		was.Object, was.Known = c.objects.Delete(ch.Key)
	case c.loading:
		was.Object, was.Known = c.objects.Load(ch.Key, ch.Object)
	default:
		was.Object, was.Known = c.objects.Set(ch.Key, ch.Object)
	}
	if ch.Deleted && !was.Known {
		return was, nil
	}
	c.frozen = nil
	for i := range c.indexes {
		var before, after []string
		if was.Known {
			if before, err = c.values(i, ch.Key, was.Object, c.was[:0]); err != nil {
				return was, err
			}
		}
		if !ch.Deleted {
			if after, err = c.values(i, ch.Key, ch.Object, c.now[:0]); err != nil {
				return was, err
			}
		}
		if err = c.reindex(i, ch.Key, before, after); err != nil {
			return was, err
		}
	}
	return was, nil
}

// values returns the values of an object in an index, in their order and without repetition.
func (c *content[T]) values(i int, key string, object T, room []string) (values []string, err error) {
	index := &c.indexes[i]
	defer func() {
		if r := recover(); r != nil {
			err = indexError(index.Name, key, plimsoll.Errorf(plimsoll.CodeInternal, "the function panicked: %v", r))
		}
	}()
	if values, err = index.Values(object, room); err != nil {
		return nil, indexError(index.Name, key, err)
	}
	if len(values) > 1 {
		if &values[0] != &room[:1][0] {
			values = slices.Clone(values) // it may belong to the object
		}
		slices.Sort(values)
		values = slices.Compact(values)
	}
	return values, nil
}

func indexError(index, key string, err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeInvalid, Op: "index an object", Field: "index " + quoted(index),
		Msg: "no values for the object with the key " + quoted(key), Err: err,
	}
}

func quoted(text string) string { return strconv.Quote(text[:min(len(text), 200)]) }

// reindex moves a key from the values in before to those in after, which are sorted.
func (c *content[T]) reindex(i int, key string, before, after []string) error {
	for len(before) > 0 || len(after) > 0 {
		var ok, added bool
		var value string
		switch {
		case len(before) > 0 && len(after) > 0 && before[0] == after[0]:
			before, after = before[1:], after[1:]
			continue
		case len(after) == 0 || len(before) > 0 && before[0] < after[0]:
			value, before = before[0], before[1:]
			ok = c.lists[i].remove(value, key)
		default:
			value, after = after[0], after[1:]
			added = true
			ok = c.lists[i].add(value, key, c.loading)
		}
		if !ok {
			return indexError(c.indexes[i].Name, key, plimsoll.Errorf(
				plimsoll.CodeInternal, "the object was changed after it was stored, or its values depend on more than it"),
			)
		}
		if !c.loading {
			c.ops = append(c.ops, operation{i, added, value, key})
		}
	}
	return nil
}

// undo takes changes back, of which previous holds the former objects.
func (c *content[T]) undo(changes []Change[T], previous []Previous[T]) {
	for _, op := range slices.Backward(c.ops) {
		if op.added {
			c.lists[op.index].remove(op.value, op.key)
		} else {
			c.lists[op.index].add(op.value, op.key, false)
		}
	}
	c.ops = forget(c.ops)
	for i, was := range slices.Backward(previous) {
		if was.Known {
			c.objects.Set(changes[i].Key, was.Object)
		} else {
			c.objects.Delete(changes[i].Key)
		}
	}
	c.frozen = nil
}

// addIndex adds an index and fills it. After an error there is no such index.
func (c *content[T]) addIndex(index Index[T]) error {
	indexes, lists := c.indexes, c.lists
	c.indexes = append(slices.Clone(indexes), index)
	c.lists = append(slices.Clone(lists), keyLists{byValue: btree.NewMap[string, *keyList](0)})
	c.loading = true
	defer func() { c.loading = false }()
	var err error
	c.objects.Scan(func(key string, object T) bool {
		var values []string
		if values, err = c.values(len(indexes), key, object, c.now[:0]); err == nil {
			err = c.reindex(len(indexes), key, nil, values)
		}
		return err == nil
	})
	if err != nil {
		c.indexes, c.lists = indexes, lists
	}
	return err
}

// freeze returns the content as a snapshot. It costs O(1) for each index.
func (c *content[T]) freeze(v Version) *Snapshot[T] {
	s := &Snapshot[T]{version: v, indexes: c.indexes, lists: make([]*btree.Map[string, *keyList], len(c.lists))}
	if c.frozen == nil {
		c.frozen = c.objects.Copy()
	}
	s.objects = c.frozen
	for i := range c.lists {
		l := &c.lists[i]
		if l.frozen == nil {
			l.frozen = l.byValue.Copy()
			l.generation++
		}
		s.lists[i] = l.frozen
	}
	return s
}

// add puts a key into the list of a value. It reports whether the key was not there.
func (l *keyLists) add(value, key string, loading bool) bool {
	list, ok := l.byValue.Get(value)
	if !ok {
		value = strings.Clone(value) // it may be part of an object
		l.frozen = nil
		l.byValue.Set(value, &keyList{generation: l.generation, value: value, one: key})
		return true
	}
	list = l.own(list)
	if list.keys == nil {
		if list.one == key {
			return false
		}
		list.keys = btree.NewMap[string, struct{}](0)
		list.keys.Set(list.one, struct{}{})
		list.one = ""
	}
	var there bool
	if loading {
		_, there = list.keys.Load(key, struct{}{})
	} else {
		_, there = list.keys.Set(key, struct{}{})
	}
	return !there
}

// remove takes a key out of the list of a value. It reports whether the key was there.
func (l *keyLists) remove(value, key string) bool {
	list, ok := l.byValue.Get(value)
	if !ok {
		return false
	}
	list = l.own(list)
	if list.keys == nil {
		if list.one != key {
			return false
		}
	} else {
		if _, ok = list.keys.Delete(key); !ok {
			return false
		}
		if list.keys.Len() > 0 {
			return true
		}
	}
	l.byValue.Delete(value)
	return true
}

// own returns a list that no snapshot has: the given one or a copy of it, in its place.
func (l *keyLists) own(list *keyList) *keyList {
	l.frozen = nil
	if list.generation == l.generation {
		return list
	}
	mine := &keyList{generation: l.generation, value: list.value, one: list.one}
	if list.keys != nil {
		mine.keys = list.keys.Copy()
	}
	l.byValue.Set(mine.value, mine)
	return mine
}

func (l *keyList) len() int {
	if l.keys == nil {
		return 1
	}
	return l.keys.Len()
}
