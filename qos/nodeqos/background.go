package nodeqos

import (
	"context"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/qos"
)

// maxBackground is the number of tasks that may be stopped or reclaimed from at a time, each in its
// goroutine. A step without a free place is not done, and planned anew from the next sample.
const maxBackground = 64

// evictTime is the time beyond its grace that stopping a task may take.
const evictTime = 30 * time.Second

// background runs the steps that take their time, outside of the loop.
type background struct {
	ended chan struct{} // signals that take has something to return
	work  sync.WaitGroup
	mu    struct {
		sync.Mutex
		running map[qos.Key]bool
		done    []finished
	}
}

// finished is a background step that has ended.
type finished struct {
	step  qos.Step
	freed int64
	err   error
}

func newBackground() *background {
	b := &background{ended: make(chan struct{}, 1)}
	b.mu.running = map[qos.Key]bool{}
	return b
}

// reserve reserves the place for a step on a task. It reports whether there is one: a task has one
// background step at a time.
func (b *background) reserve(k qos.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.running) >= maxBackground || b.mu.running[k] {
		return false
	}
	b.mu.running[k] = true
	return true
}

// start runs do in a goroutine of its own, in the place that reserve took.
func (b *background) start(
	ctx context.Context, step qos.Step, limit time.Duration, do func(ctx context.Context) (freed int64, err error),
) {
	b.work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		freed, err := do(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.mu.running, step.Key())
		b.mu.done = append(b.mu.done, finished{step, freed, err})
		signal(b.ended)
	})
}

// take returns the steps that have ended since the last call.
func (b *background) take() []finished {
	b.mu.Lock()
	defer b.mu.Unlock()
	done := b.mu.done
	b.mu.done = nil
	return done
}

// release frees a place that was reserved and is not used.
func (b *background) release(k qos.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.running, k)
}

func (b *background) wait() { b.work.Wait() }
