// Package impure breaks every rule of a pure package. Each violation is followed by a part of what
// is to be said about it.
package impure

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	tm "time"
)

type index map[string]int

func ranges(m map[string]int, named index) (sum int) {
	for _, v := range m { // want "ranges over a map"
		sum += v
	}
	for k := range named { // want "ranges over a map"
		sum += len(k)
	}
	for k := range maps.Keys(m) { // want "maps.Keys gives a random order"
		sum += len(k)
	}
	for _, v := range slices.Collect(maps.Values(m)) { // want "maps.Values gives a random order"
		sum += v
	}
	all := maps.All[map[string]int] // want "maps.All gives a random order"
	for _, v := range all(m) {
		sum += v
	}
	for _, k := range slices.Sorted(maps.Keys(m)) { // in order
		sum += m[k]
	}
	for _, v := range slices.SortedFunc((maps.Values[map[string]int](m)), func(a, b int) int { return a - b }) {
		sum += v
	}
	keys := slices.Collect(maps.Keys(m))
	slices.Sort(keys)
	keys = slices.AppendSeq(keys, maps.Keys(m)) // want "maps.Keys gives a random order"
	slices.Sort(keys[1:])
	return sum + len(keys) + len(maps.Collect(maps.All(m)))
}

func generic[M ~map[K]V, K comparable, V any](m M) (n int) {
	for range m { // want "ranges over a map"
		n++
	}
	return n
}

func slice[S ~[]E, E any](s S) (n int) {
	for range s {
		n++
	}
	return n
}

func clock() tm.Duration {
	now := tm.Now          // want "time.Now reads the clock"
	start := now()         // seen where it was taken
	<-tm.After(0)          // want "time.After reads the clock"
	return tm.Since(start) // want "time.Since reads the clock"
}

func random() int {
	own := rand.New(rand.NewPCG(1, 2))
	return own.IntN(3) + rand.IntN(3) // want "rand.IntN is the global source"
}

func goroutines(a, b chan int) {
	go fmt.Sprint(a) // want "starts no goroutine"
	select {         // want "does not wait"
	case <-a:
	case <-b:
	}
}
