package informer

import "hash/maphash"

// hashSeed is the seed of all indexes of keys: nobody outside can choose keys that collide.
var hashSeed = maphash.MakeSeed()

// placeIndex finds places in a line by the hashes of their keys. It is a table with open
// addressing: a search begins at the home of the hash and ends at the first empty slot. A map would
// be searched twice for a new key, once to look for it and once to add it.
//
// Its memory is bounded by that of its line: at most four slots of 8 bytes for each key of the
// largest content since the line gave memory back.
type placeIndex struct {
	// A slot has the hash of a key in its upper half, and the lower half of its place in the lower.
	// 0: the slot is empty. Invariant: at least half of the slots are empty, and no empty slot is
	// between the home of a key and its slot. The length is 0 or a power of two.
	slots []uint64
	used  int
}

// hashOf returns the hash of a key; never 0.
func hashOf(key string) uint32 { return uint32(maphash.String(hashSeed, key)) | 1<<31 }

func (x *placeIndex) home(hash uint32) int { return int(hash) & (len(x.slots) - 1) }

func (x *placeIndex) after(slot int) int { return (slot + 1) & (len(x.slots) - 1) }

// add adds a place whose key is not in the index.
func (x *placeIndex) add(hash uint32, place uint64) {
	if 2*(x.used+1) > len(x.slots) {
		x.grow(x.used + 1)
	}
	x.put(uint64(hash)<<32 | uint64(uint32(place)))
	x.used++
}

func (x *placeIndex) put(slot uint64) {
	at := x.home(uint32(slot >> 32))
	for x.slots[at] != 0 {
		at = x.after(at)
	}
	x.slots[at] = slot
}

// grow makes room for so many keys without the need to grow again.
func (x *placeIndex) grow(keys int) {
	size := 32
	for size < 2*keys {
		size *= 2
	}
	was := x.slots
	x.slots = make([]uint64, size)
	for _, slot := range was {
		if slot != 0 {
			x.put(slot)
		}
	}
}

// remove removes a place that is in the index. Slots behind it move up, so that no search ends too
// early.
func (x *placeIndex) remove(hash uint32, place uint64) {
	hole := x.home(hash)
	for uint32(x.slots[hole]) != uint32(place) {
		hole = x.after(hole)
	}
	x.used--
	for at := x.after(hole); x.slots[at] != 0; at = x.after(at) {
		home := x.home(uint32(x.slots[at] >> 32))
		if (at-home)&(len(x.slots)-1) >= (at-hole)&(len(x.slots)-1) { // its home is not behind the hole
			x.slots[hole] = x.slots[at]
			hole = at
		}
	}
	x.slots[hole] = 0
}

// clear removes all places.
func (x *placeIndex) clear() {
	clear(x.slots)
	x.used = 0
}

// findIndexed returns the place of a key with this hash.
func (l *line[T]) findIndexed(hash uint32, key string) (place uint64, ok bool) {
	x := &l.index
	for at := x.home(hash); x.slots[at] != 0; at = x.after(at) {
		if uint32(x.slots[at]>>32) != hash {
			continue
		}
		place := l.head + uint64(uint32(x.slots[at])-uint32(l.head)) // a line has less than 1<<32 places
		if l.at(place).key == key {
			return place, true
		}
	}
	return 0, false
}
