package nodeqos

import (
	"context"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/qos"
)

// maxErrands is how many tasks may be in the act of being stopped or reclaimed from, each with its
// goroutine. A step for which there is no room is not done, and planned anew from the next sample.
const maxErrands = 64

// evictTime is how long stopping a task may take beyond its grace.
const evictTime = 30 * time.Second

// errands are steps that take their time and are done beside the loop.
type errands struct {
	ended chan struct{} // there is something to take
	work  sync.WaitGroup
	mu    struct {
		sync.Mutex
		running map[qos.Key]bool
		done    []errand
	}
}

// errand is one that has ended.
type errand struct {
	step  qos.Step
	freed int64
	err   error
}

func newErrands() *errands {
	e := &errands{ended: make(chan struct{}, 1)}
	e.mu.running = map[qos.Key]bool{}
	return e
}

// room reports whether another one can be started for a task. It reserves the place.
func (e *errands) room(k qos.Key) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.mu.running) >= maxErrands || e.mu.running[k] {
		return false
	}
	e.mu.running[k] = true
	return true
}

// start does it in a goroutine of its own, in the place that room reserved.
func (e *errands) start(
	ctx context.Context, step qos.Step, limit time.Duration, do func(ctx context.Context) (freed int64, err error),
) {
	e.work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		freed, err := do(ctx)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.mu.running, step.Key())
		e.mu.done = append(e.mu.done, errand{step, freed, err})
		poke(e.ended)
	})
}

// take returns those that have ended since it was called last.
func (e *errands) take() []errand {
	e.mu.Lock()
	defer e.mu.Unlock()
	done := e.mu.done
	e.mu.done = nil
	return done
}

// drop gives back a place that was reserved and is not used.
func (e *errands) drop(k qos.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mu.running, k)
}

func (e *errands) wait() { e.work.Wait() }
