package agent

import (
	"context"
	"sync"
)

// watched is the lock of a fake, whose changes can be waited for.
type watched struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
}

func newWatched() *watched { return &watched{changed: make(chan struct{})} }

// change calls do under the lock and wakes every waiter.
func (w *watched) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
	close(w.changed)
	w.changed = make(chan struct{})
}

// look calls read under the lock.
func (w *watched) look(read func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	read()
}

// until waits for a condition. It returns false if ctx ends before.
func (w *watched) until(ctx context.Context, so func() bool) bool {
	for {
		w.mu.Lock()
		changed, ok := w.changed, so()
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}
