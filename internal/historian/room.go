package historian

import (
	"context"
	"sync"
)

// room is a bound in bytes, for one that takes and one that gives back.
type room struct {
	most int64
	mu   struct {
		sync.Mutex
		taken int64
		freed chan struct{} // closed when some is given back
	}
}

func newRoom(most int64) *room {
	r := &room{most: most}
	r.mu.freed = make(chan struct{})
	return r
}

// take waits until there is room for n bytes; a larger piece waits until it is alone. It reports
// false if ctx ended first.
func (r *room) take(ctx context.Context, n int64) bool {
	for {
		r.mu.Lock()
		if r.mu.taken == 0 || r.mu.taken+n <= r.most {
			r.mu.taken += n
			r.mu.Unlock()
			return true
		}
		freed := r.mu.freed
		r.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *room) giveBack(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.taken -= n
	close(r.mu.freed)
	r.mu.freed = make(chan struct{})
}
