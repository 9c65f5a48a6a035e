package informer

import "math/bits"

// Costs of a queued key and of a queued change beside their objects: the place in the ring, the
// slots in the index, and the delta itself. The bound of a queue counts them.
const (
	keyOverhead   = 160
	deltaOverhead = 24
)

// scanned is the number of keys that are compared one by one: for so few the index costs more.
const scanned = 8

// Bounds of the memory that a line keeps while it is empty.
const (
	keptSlots   = 1024 // a ring of this length is never given back
	keptChanges = 8    // a slot keeps a slice of this capacity
	lowTimes    = 64   // a ring used to an eighth this often in a row is given back
)

// entry is one queued key with its changes.
type entry[T any] struct {
	key   string
	bytes int    // its part of the line's bytes; 0 for an object that only Resync has queued
	since int64  // when the key was queued, in nanoseconds of the queue's clock
	list  uint64 // the last Replace that had the key
	place uint64 // in its line
	hash  uint32 // of the key; 0 if the line was not indexed yet
	// initial says that the key belongs to the initial population. Invariant: line.initial counts
	// these entries.
	initial bool
	// loose says that changes were added since the entry was last compact. Invariant: its place is
	// in line.loose.
	loose bool
	// single holds the only change, many holds all if there are several. Invariant: an entry in use
	// has at least one change.
	single [1]Delta[T]
	many   []Delta[T]
}

// changes returns the changes of an entry in use. They live in the entry.
func (e *entry[T]) changes() []Delta[T] {
	if len(e.many) > 0 {
		return e.many
	}
	return e.single[:]
}

// newest returns the last change of an entry in use.
func (e *entry[T]) newest() *Delta[T] {
	changes := e.changes()
	return &changes[len(changes)-1]
}

func (e *entry[T]) deltas() Deltas[T] {
	return Deltas[T]{Key: e.key, Initial: e.initial, Changes: e.changes()}
}

// clear forgets the key and its objects. A small slice is kept for the next key.
func (e *entry[T]) clear() {
	many := e.many
	*e = entry[T]{}
	if cap(many) > 0 && cap(many) <= keptChanges {
		clear(many)
		e.many = many[:0]
	}
}

// line holds entries in the order in which their keys were queued, and finds them by key. A place
// is the number of keys that were queued before.
type line[T any] struct {
	// Invariant: if isIndexed, index has exactly the places from head to tail-1; otherwise it is
	// empty, and there are at most scanned of them. The entry of place p is in
	// ring[p mod len(ring)], and len(ring) is a power of two.
	index      placeIndex
	isIndexed  bool
	ring       []entry[T]
	head, tail uint64

	bytes   int      // the sum of entry.bytes
	changes int      // the sum of the numbers of changes
	initial int      // how many entries have the flag initial
	loose   []uint64 // places of loose entries, and places before head

	peak int // the most entries since the line was last empty
	low  int // how often in a row that was under an eighth of the ring
}

func newLine[T any]() *line[T] {
	return &line[T]{}
}

func (l *line[T]) len() int { return int(l.tail - l.head) }

func (l *line[T]) at(place uint64) *entry[T] { return &l.ring[place&uint64(len(l.ring)-1)] }

// find returns the entry of a key, or nil. It stays where it is until the next push or shift.
func (l *line[T]) find(key string) *entry[T] {
	e, _ := l.lookUp(key)
	return e
}

// lookUp is find. It also returns the hash of the key for push; 0: push takes it if it needs it.
func (l *line[T]) lookUp(key string) (e *entry[T], hash uint32) {
	if l.isIndexed {
		hash = hashOf(key)
		if place, ok := l.findIndexed(hash, key); ok {
			e = l.at(place)
		}
		return e, hash
	}
	for place := l.head; place < l.tail; place++ {
		if e := l.at(place); e.key == key {
			return e, 0
		}
	}
	return nil, 0
}

// push puts a key that is not in the line at its end. The caller adds the first change.
func (l *line[T]) push(key string, hash uint32, since int64) *entry[T] {
	n := l.len()
	if n == len(l.ring) {
		l.grow(2 * n)
	}
	e := l.at(l.tail)
	e.key, e.since, e.place, e.hash = key, since, l.tail, hash
	l.tail++
	l.peak = max(l.peak, n+1)
	switch {
	case l.isIndexed:
		if hash == 0 {
			e.hash = hashOf(key)
		}
		l.index.add(e.hash, e.place)
	case n == scanned:
		l.isIndexed = true
		for place := l.head; place < l.tail; place++ {
			e := l.at(place)
			e.hash = hashOf(e.key)
			l.index.add(e.hash, place)
		}
	}
	return e
}

// reserve makes room for many keys at once.
func (l *line[T]) reserve(keys int) {
	if l.len()+keys <= len(l.ring) {
		return
	}
	l.grow(l.len() + keys)
	l.index.grow(l.len() + keys)
}

// grow makes the ring at least as long as asked.
func (l *line[T]) grow(least int) {
	ring := make([]entry[T], 1<<bits.Len(uint(max(least, 8)-1)))
	for place := l.head; place < l.tail; place++ {
		ring[place&uint64(len(ring)-1)] = *l.at(place)
	}
	l.ring = ring
}

// append adds a change behind the others of the entry. Two deletions in a row become one: a real
// one takes precedence over a tombstone, the older real one over the newer, and the newer tombstone
// over the older. It reports whether the change is one more.
func (l *line[T]) append(e *entry[T], isNew bool, d Delta[T], weight int, size func(T) int) bool {
	if isNew {
		e.single[0] = d
		l.changes++
		l.weigh(e, weight)
		return true
	}
	if last := e.newest(); last.Type == Deleted && d.Type == Deleted {
		if last.Tombstone {
			*last = d
			l.recount(e, size)
		}
		return false
	}
	if len(e.many) == 0 {
		if cap(e.many) == 0 {
			e.many = make([]Delta[T], 0, 2)
		}
		e.many = append(e.many, e.single[0])
		e.single[0] = Delta[T]{}
	}
	e.many = append(e.many, d)
	l.changes++
	l.loosen(e)
	l.weigh(e, weight)
	return true
}

// strip takes all changes from an entry. The caller adds others at once.
func (l *line[T]) strip(e *entry[T]) {
	l.changes -= len(e.changes())
	l.bytes -= e.bytes
	e.bytes = 0
	clear(e.many)
	e.single[0], e.many = Delta[T]{}, e.many[:0]
}

// weigh adds a change of this weight to the bytes. A weight of zero or less is counted as nothing.
func (l *line[T]) weigh(e *entry[T], weight int) {
	if weight <= 0 {
		return
	}
	if e.bytes == 0 {
		weight += keyOverhead + len(e.key)
	}
	e.bytes += weight
	l.bytes += weight
}

// recount computes the bytes of an entry anew from its changes.
func (l *line[T]) recount(e *entry[T], size func(T) int) {
	bytes := keyOverhead + len(e.key)
	for _, d := range e.changes() {
		bytes += deltaOverhead + max(size(d.Object), 0)
	}
	l.bytes += bytes - e.bytes
	e.bytes = bytes
}

func (l *line[T]) setInitial(e *entry[T]) {
	if !e.initial {
		e.initial = true
		l.initial++
	}
}

// loosen notes that the entry may be compacted. Places of keys that are gone are left out when the
// slice is full, so its length stays within a small multiple of the line's.
func (l *line[T]) loosen(e *entry[T]) {
	if e.loose {
		return
	}
	e.loose = true
	if len(l.loose) == cap(l.loose) && len(l.loose) > l.len() {
		kept := l.loose[:0]
		for _, place := range l.loose {
			if place >= l.head && l.at(place).loose {
				kept = append(kept, place)
			}
		}
		l.loose = kept
	}
	l.loose = append(l.loose, e.place)
}

// compact reduces the changes of each loose entry to their net effect.
func (l *line[T]) compact(size func(T) int) (joined int) {
	for _, place := range l.loose {
		e := l.at(place)
		if place < l.head || !e.loose {
			continue
		}
		e.loose = false
		before := len(e.changes())
		rest := net(e.many)
		clear(e.many[len(rest):])
		if e.many = rest; len(rest) == 1 {
			e.single[0] = rest[0]
			clear(rest)
			e.many = rest[:0]
		}
		if cap(e.many) > keptChanges {
			e.many = append([]Delta[T](nil), e.many...)
		}
		joined += before - len(e.changes())
		l.recount(e, size)
	}
	l.changes -= joined
	l.loose = l.loose[:0]
	return joined
}

// shift moves the first entry to a cleared one, which the line then keeps for another key.
func (l *line[T]) shift(to *entry[T]) {
	e := l.at(l.head)
	*to, *e = *e, *to
	if l.isIndexed {
		l.index.remove(to.hash, to.place)
	}
	l.head++
	l.bytes -= to.bytes
	l.changes -= len(to.changes())
	if to.initial {
		l.initial--
	}
	if l.head == l.tail {
		l.emptied()
	}
}

// reset forgets all entries. Its cost grows with their number, and not with the length of the ring.
func (l *line[T]) reset() {
	switch n := l.len(); {
	case !l.isIndexed:
	case n < len(l.ring)/8:
		for place := l.head; place < l.tail; place++ {
			l.index.remove(l.at(place).hash, place)
		}
	default:
		l.index.clear()
	}
	for place := l.head; place < l.tail; place++ {
		l.at(place).clear()
	}
	l.head = l.tail
	l.bytes, l.changes, l.initial = 0, 0, 0
	l.emptied()
}

// emptied gives memory back if the line has long used little of it.
func (l *line[T]) emptied() {
	l.isIndexed = false
	l.loose = l.loose[:0]
	if len(l.ring) > keptSlots && l.peak < len(l.ring)/8 {
		l.low++
	} else {
		l.low = 0
	}
	l.peak = 0
	if l.low >= lowTimes {
		*l = line[T]{}
	}
}
