package placement

import (
	"cmp"
	"math/bits"
	"slices"
)

// rank is a server and its sort key.
type rank struct {
	key uint64
	at  int32
}

// ranked returns the servers of a set in the order of their keys. Servers with equal keys keep the
// order of the set.
func (b *Batch) ranked(set []int32, key func(*View) uint64) []rank {
	b.keys = b.keys[:0]
	for _, i := range set {
		b.keys = append(b.keys, rank{key(b.At(i)), i})
	}
	b.sort()
	return b.keys
}

// rankedByFree sorts the servers by their free memory or disk. The keys are XORed with flip: 0 puts
// the least first, all ones put the most first.
func (b *Batch) rankedByFree(set []int32, resource int, flip uint64) []rank {
	b.keysByFree(set, resource, flip)
	b.sort()
	return b.keys
}

func (b *Batch) keysByFree(set []int32, resource int, flip uint64) {
	b.keys = b.keys[:0]
	for _, i := range set {
		b.keys = append(b.keys, rank{ordered(b.fleet.rows[b.slots[i]].free[resource]) ^ flip, i})
	}
}

// manyServers is the size of a set above which other algorithms are faster.
const manyServers = 256

// sort sorts the keys stably: few by merging, many by radix.
func (b *Batch) sort() {
	if len(b.keys) > manyServers {
		b.radix()
		return
	}
	k := b.keys
	if b.ordered() {
		return
	}
	const run = 8
	for start := 0; start < len(k); start += run {
		insertionSort(k[start:min(start+run, len(k))])
	}
	if len(k) <= run {
		return
	}
	b.spare = slices.Grow(b.spare[:0], len(k))[:len(k)]
	for width := run; width < len(k); width *= 2 {
		for start := 0; start < len(k); start += 2 * width {
			middle, end := min(start+width, len(k)), min(start+2*width, len(k))
			merge(b.spare[start:end], k[start:middle], k[middle:end])
		}
		b.keys, b.spare = b.spare, b.keys
		k = b.keys
	}
}

// ordered reports whether the keys are in order, after reversing them if they were in descending
// order. A set often comes in the order that an earlier stage gave it.
func (b *Batch) ordered() bool {
	k := b.keys
	up, down := true, true
	for i := 1; i < len(k); i++ {
		up = up && k[i-1].key <= k[i].key
		down = down && k[i-1].key >= k[i].key
	}
	if up || !down {
		return up
	}
	b.spare = b.spare[:0]
	for end := len(k); end > 0; { // servers with equal keys keep their order
		start := end - 1
		for start > 0 && k[start-1].key == k[start].key {
			start--
		}
		b.spare = append(b.spare, k[start:end]...)
		end = start
	}
	b.keys, b.spare = b.spare, b.keys
	return true
}

func insertionSort(k []rank) {
	for i := 1; i < len(k); i++ {
		x := k[i]
		j := i
		for ; j > 0 && k[j-1].key > x.key; j-- {
			k[j] = k[j-1]
		}
		k[j] = x
	}
}

// merge merges two sorted runs; of equal keys those of the first run come first.
func merge(out, a, c []rank) {
	switch {
	case len(c) == 0 || a[len(a)-1].key <= c[0].key:
		copy(out[copy(out, a):], c)
		return
	case c[len(c)-1].key < a[0].key:
		copy(out[copy(out, c):], a)
		return
	}
	i, j := 0, 0
	for n := range out {
		if j == len(c) || i < len(a) && a[i].key <= c[j].key {
			out[n] = a[i]
			i++
		} else {
			out[n] = c[j]
			j++
		}
	}
}

// digit is the number of bits that radix sorts by at a time.
const digit = 11

// radix sorts by the bits in which keys differ, because amounts of memory end with many zeros. If
// these bits and the key's place fit into eight bytes, they are packed: eight bytes move, not
// sixteen.
func (b *Batch) radix() {
	varying := uint64(0)
	for i := range b.keys {
		varying |= b.keys[i].key ^ b.keys[0].key
	}
	low := bits.TrailingZeros64(varying)
	width, place := bits.Len64(varying)-low, bits.Len(uint(len(b.keys)))
	if varying == 0 {
		return
	}
	if width+place > 64 {
		slices.SortStableFunc(b.keys, func(a, c rank) int { return cmp.Compare(a.key, c.key) })
		return
	}
	b.spare = slices.Grow(b.spare[:0], len(b.keys))[:len(b.keys)]
	if width <= digit {
		b.count(low)
		return
	}
	b.packed, b.unpacked = slices.Grow(b.packed[:0], len(b.keys))[:len(b.keys)], slices.Grow(
		b.unpacked[:0], len(b.keys),
	)[:len(b.keys)]
	src, dst := b.packed, b.unpacked
	for i := range b.keys {
		src[i] = b.keys[i].key>>low<<place | uint64(i)
	}
	for shift := place; shift < place+width; shift += digit {
		var starts [1<<digit + 1]int32
		for _, n := range src {
			starts[n>>shift&(1<<digit-1)+1]++
		}
		for i := 1; i < len(starts); i++ {
			starts[i] += starts[i-1]
		}
		for _, n := range src {
			d := &starts[n>>shift&(1<<digit-1)]
			dst[*d] = n
			*d++
		}
		src, dst = dst, src
	}
	for i, n := range src {
		b.spare[i] = b.keys[n&(1<<place-1)]
	}
	b.keys, b.spare = b.spare, b.keys
}

// count sorts keys that differ in one digit only: each goes to its final place at once.
func (b *Batch) count(low int) {
	var starts [1<<digit + 1]int32
	for i := range b.keys {
		starts[b.keys[i].key>>low&(1<<digit-1)+1]++
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	for i := range b.keys {
		d := &starts[b.keys[i].key>>low&(1<<digit-1)]
		b.spare[*d] = b.keys[i]
		*d++
	}
	b.keys, b.spare = b.spare, b.keys
}

// dropLowest returns a set, in its order, without the k servers with the lowest keys. Of equal keys
// the first ones are dropped.
func (b *Batch) dropLowest(set []int32, k int) []int32 {
	varying := uint64(0)
	for i := range b.keys {
		varying |= b.keys[i].key ^ b.keys[0].key
	}
	shift := max(0, bits.Len64(varying)-digit)
	mask := uint64(1)<<digit - 1
	var counts [1 << digit]int
	for i := range b.keys {
		counts[b.keys[i].key>>shift&mask]++
	}
	limit := uint64(0) // digit below which all keys are dropped
	for ; k >= counts[limit]; limit++ {
		k -= counts[limit]
	}
	edge := b.spare[:0] // keys with the digit limit, of which the k lowest are dropped
	for i := range b.keys {
		if b.keys[i].key>>shift&mask == limit {
			edge = append(edge, b.keys[i])
		}
	}
	b.spare = edge
	slices.SortFunc(edge, func(a, c rank) int { return cmp.Compare(a.key, c.key) })
	last, ties := edge[max(k-1, 0)].key, 0 // the highest dropped key, and how many servers with it are dropped
	for n := k - 1; n >= 0 && edge[n].key == last; n-- {
		ties++
	}
	kept := set[:0]
	for i := range b.keys {
		switch key := b.keys[i].key; {
		case key > last:
			kept = append(kept, b.keys[i].at)
		case key < last:
		case ties > 0:
			ties--
		default:
			kept = append(kept, b.keys[i].at)
		}
	}
	return kept
}

// ordered maps an amount to a key of the same order.
func ordered(n int64) uint64 { return uint64(n) ^ 1<<63 }
