package coordinator

import (
	"sync"
	"time"
)

// termClock is the time of a term's turns. It is the wall clock as long as that goes on. When the
// wall clock steps back, the time goes on too, at nine tenths of its rate, until the wall clock has
// caught up: otherwise retries, grace periods and timeouts would stand still for as long as the
// step. The turns, the archiver and /metrics read it.
type termClock struct {
	wall    func() int64         // Unix nanoseconds
	elapsed func() time.Duration // since some instant; no step of the wall clock changes it

	mu struct {
		sync.Mutex
		last int64         // time of the last reading; at first the least time of the term
		at   time.Duration // elapsed at the last reading
	}
}

func newTermClock(wall func() int64, elapsed func() time.Duration, least int64) *termClock {
	c := &termClock{wall: wall, elapsed: elapsed}
	c.mu.last, c.mu.at = least, elapsed()
	return c
}

// sinceNow returns a function for termClock.elapsed.
func sinceNow() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// now returns the time. It never goes back. Behind any span it is later, however short: a turn that
// sleeps for the rest of a time would otherwise wait for the last nanoseconds again and again.
func (c *termClock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.elapsed()
	span := int64(at - c.mu.at)
	c.mu.last, c.mu.at = max(c.wall(), c.mu.last+span-span/10), at
	return c.mu.last
}
