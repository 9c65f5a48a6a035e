package informer

import (
	"context"
	"slices"
)

// waiting holds the versions that somebody waits for, in their order, without repetition.
type waiting []waiter

type waiter struct {
	version Version
	waiters int
	reached chan struct{} // closed when the version is reached
}

// WaitFor waits until the content has the version or a later one; a Snapshot taken afterwards does
// too. It fails only when ctx ends. Any number of goroutines may wait; those for one version share
// an entry.
func (x *Indexer[T]) WaitFor(ctx context.Context, v Version) error {
	x.mu.Lock()
	if !x.mu.version.Before(v) {
		x.mu.Unlock()
		return nil
	}
	reached := x.mu.waiting.join(v)
	x.mu.Unlock()
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		x.mu.Lock()
		defer x.mu.Unlock()
		x.mu.waiting.leave(v)
		return ctx.Err()
	}
}

func (w waiting) find(v Version) (int, bool) {
	return slices.BinarySearchFunc(w, v, func(e waiter, v Version) int { return e.version.Compare(v) })
}

func (w *waiting) join(v Version) <-chan struct{} {
	i, found := w.find(v)
	if !found {
		*w = slices.Insert(*w, i, waiter{version: v, reached: make(chan struct{})})
	}
	(*w)[i].waiters++
	return (*w)[i].reached
}

// leave takes one waiter away. The version may have been reached meanwhile.
func (w *waiting) leave(v Version) {
	i, found := w.find(v)
	if !found {
		return
	}
	if (*w)[i].waiters--; (*w)[i].waiters == 0 {
		*w = slices.Delete(*w, i, i+1)
	}
}

// release wakes those who wait for v or less.
func (w *waiting) release(v Version) {
	n := 0
	for n < len(*w) && !v.Before((*w)[n].version) {
		close((*w)[n].reached)
		n++
	}
	if n > 0 {
		*w = slices.Delete(*w, 0, n)
	}
}
