package testrun

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Bubble is synctest.Test, with a single processor under the race detector.
//
// The timers of a bubble have one context of the race detector together (Go 1.26, runtime, time.go,
// unlockAndRun). A timer that is due at once runs in the goroutine that sets it. So two goroutines
// may use the context at the same time, and the process ends with a fault in the detector. With one
// processor they cannot, and the detector finds races as before: it compares the order of
// synchronization, not times.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if race {
		processors.one()
		defer processors.restore()
	}
	synctest.Test(t, f)
}

// processors counts the bubbles that want a single processor. Tests may run in parallel.
var processors counter

type counter struct {
	mu      sync.Mutex
	bubbles int
	before  int // GOMAXPROCS without a bubble
}

func (c *counter) one() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bubbles++; c.bubbles == 1 {
		c.before = runtime.GOMAXPROCS(1)
	}
}

func (c *counter) restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bubbles--; c.bubbles == 0 {
		runtime.GOMAXPROCS(c.before)
	}
}
