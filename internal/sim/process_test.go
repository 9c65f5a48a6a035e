package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// process has the facts that the parts of a role need about the process that they run in: whether
// it is stopped or dead, and the time on its clocks.
//
// Goroutines cannot be stopped. So a stopped process goes on computing, but nothing of it goes out,
// nothing comes in, and its clock stands still (network, session). When it goes on, its clock
// jumps, and all that it was about to send is sent.
type process struct {
	name string

	mu struct {
		sync.Mutex
		thaw    chan struct{} // closed when the process goes on; nil: it is not stopped
		stopped time.Time     // since when
		dead    chan struct{} // closed when it was killed
		step    time.Duration // of its wall clock
	}
}

func newProcess(name string) *process {
	p := &process{name: name}
	p.mu.dead = make(chan struct{})
	return p
}

var errKilled = errors.New("the process was killed")

// stop stops the process, and goOn lets it go on.
func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.thaw == nil {
		p.mu.thaw, p.mu.stopped = make(chan struct{}), time.Now()
	}
}

func (p *process) goOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.thaw != nil {
		close(p.mu.thaw)
		p.mu.thaw = nil
	}
}

// kill ends the process at once: nothing goes out any more.
func (p *process) kill() {
	p.mu.Lock()
	select {
	case <-p.mu.dead:
	default:
		close(p.mu.dead)
	}
	p.mu.Unlock()
	p.goOn()
}

func (p *process) killed() <-chan struct{} { return p.mu.dead }

func (p *process) isKilled() bool {
	select {
	case <-p.mu.dead:
		return true
	default:
		return false
	}
}

// runs returns nil once the process is not stopped, and an error if it is dead or ctx ends first.
func (p *process) runs(ctx context.Context) error {
	for {
		p.mu.Lock()
		thaw := p.mu.thaw
		p.mu.Unlock()
		if p.isKilled() {
			return errKilled
		}
		if thaw == nil {
			return ctx.Err()
		}
		select {
		case <-thaw:
		case <-p.mu.dead:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// boottime is the clock that no step changes. It stands still while the process is stopped, as
// nobody looks at it then.
func (p *process) boottime() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.thaw != nil {
		return p.mu.stopped
	}
	return time.Now()
}

// wall is the wall clock in Unix nanoseconds.
func (p *process) wall() int64 {
	p.mu.Lock()
	step := p.mu.step
	p.mu.Unlock()
	return p.boottime().Add(step).UnixNano()
}

// stepClock steps the wall clock.
func (p *process) stepClock(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.step += d
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// dice draws from a seed for any goroutine.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, stream))} }

func (d *dice) intN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// between draws a duration.
func (d *dice) between(least, most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return least + time.Duration(d.rng.Int64N(int64(most-least)+1))
}
