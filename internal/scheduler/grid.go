package scheduler

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/plimsoll-dev/plimsoll/placement"
)

// grid indexes the classes that wait for a node by the size of their need. So the classes that fit
// into some room are found without visiting all others. Classes that need the same set of
// resources and about as much cpu share a bin. A bin is ordered by the memory that its classes
// need.
//
// A search costs O(1) if no class fits by cpu or by memory alone. Otherwise it costs O(bins). In
// each bin with enough cpu it also costs the classes with enough memory. There are at most 8 bins
// for each doubling of cpu and each set of resources.
type grid struct {
	bins  []*bin
	least [2]int64 // Invariant: no class needs less of firstSize and secondSize
	stale bool     // the class with the smallest need has left, so least may be too low
}

type bin struct {
	set   uint32  // needed resources, a bit for each index
	level int     // of the need of firstSize
	waits []*wait // ordered by the need of secondSize
}

// The two resources in which most requests differ.
const (
	firstSize  = placement.IndexCPU
	secondSize = placement.IndexMemory
)

// level maps an amount to the level of its bin: by one up to 16, and then by 8 for each doubling.
func level(n int64) int {
	if n < 8 {
		return int(max(n, 0))
	}
	doublings := bits.Len64(uint64(n)) - 4
	return doublings*8 + int(uint64(n)>>doublings)
}

// needSet returns the set of resources that a request needs.
func needSet(amounts *placement.Amounts) (set uint32) {
	for i, n := range amounts {
		if n > 0 {
			set |= 1 << i
		}
	}
	return set
}

func (g *grid) add(w *wait) {
	if len(g.bins) == 0 {
		g.least, g.stale = [2]int64{math.MaxInt64, math.MaxInt64}, false
	}
	g.lower(w)
	i, found := g.find(w)
	if !found {
		g.bins = slices.Insert(g.bins, i, &bin{set: w.set, level: level(w.need[firstSize])})
	}
	b := g.bins[i]
	i, _ = slices.BinarySearchFunc(b.waits, w, bySecond)
	b.waits = slices.Insert(b.waits, i, w)
}

// lower updates least for an added class.
func (g *grid) lower(w *wait) {
	g.least[0], g.least[1] = min(g.least[0], w.need[firstSize]), min(g.least[1], w.need[secondSize])
}

// find returns the position of the bin of a class, and whether there is one.
func (g *grid) find(w *wait) (i int, found bool) {
	lvl := level(w.need[firstSize])
	return slices.BinarySearchFunc(g.bins, w, func(b *bin, w *wait) int {
		return cmp.Or(cmp.Compare(b.set, w.set), cmp.Compare(b.level, lvl))
	})
}

func bySecond(a, b *wait) int {
	return cmp.Or(cmp.Compare(a.need[secondSize], b.need[secondSize]), cmp.Compare(a.number, b.number))
}

// within returns the first class that needs at most have of each of its resources and that ok
// accepts. It returns nil if there is none. have may be negative, as on a node that has shrunk.
// Unless only is 0, the class must need exactly that set of resources.
func (g *grid) within(have *placement.Amounts, only uint32, ok func(*wait) bool) *wait {
	if g.stale {
		g.least, g.stale = [2]int64{math.MaxInt64, math.MaxInt64}, false
		for _, b := range g.bins {
			for _, w := range b.waits {
				g.lower(w)
			}
		}
	}
	if len(g.bins) == 0 || max(have[firstSize], 0) < g.least[0] || max(have[secondSize], 0) < g.least[1] {
		return nil
	}
	most := level(have[firstSize])
	for _, b := range g.bins {
		if only != 0 && b.set != only || b.level > most || !hasSome(have, b.set) {
			continue
		}
		for _, w := range b.waits {
			if b.set&(1<<secondSize) != 0 && w.need[secondSize] > have[secondSize] {
				break
			}
			if covers(have, &w.need, b.set) && ok(w) {
				return w
			}
		}
	}
	return nil
}

// hasSome reports whether have is above zero for each resource of a set.
func hasSome(have *placement.Amounts, set uint32) bool {
	for ; set != 0; set &= set - 1 {
		if have[bits.TrailingZeros32(set)] <= 0 {
			return false
		}
	}
	return true
}

// covers reports whether have is at least need for each resource of a set.
func covers(have, need *placement.Amounts, set uint32) bool {
	for ; set != 0; set &= set - 1 {
		if i := bits.TrailingZeros32(set); need[i] > have[i] {
			return false
		}
	}
	return true
}

// remove removes a class of the grid.
func (g *grid) remove(w *wait) {
	i, _ := g.find(w)
	b := g.bins[i]
	k, _ := slices.BinarySearchFunc(b.waits, w, bySecond)
	b.waits = slices.Delete(b.waits, k, k+1)
	g.stale = g.stale || w.need[firstSize] == g.least[0] || w.need[secondSize] == g.least[1]
	if len(b.waits) == 0 {
		g.bins = slices.Delete(g.bins, i, i+1)
	}
}
