package coordinator

import (
	"testing"
	"time"
)

// A wall clock that steps back does not make timers stand still, and is not left behind for ever.
func TestTimeGoesOnWhenTheWallClockStepsBack(t *testing.T) {
	const hour, second = int64(time.Hour), int64(time.Second)
	var wall int64
	var elapsed time.Duration
	pass := func(d time.Duration) {
		wall += int64(d)
		elapsed += d
	}
	c := newTermClock(func() int64 { return wall }, func() time.Duration { return elapsed }, 5*second)
	want := func(what string, time int64) {
		t.Helper()
		if got := c.now(); got != time {
			t.Errorf("%s: %d, want %d", what, got, time)
		}
	}
	want("at first the term's least time", 5*second)
	wall = 100 * second
	want("the wall clock is ahead", 100*second)
	pass(10 * time.Second)
	want("it goes on", 110*second)
	wall += hour
	want("it steps forward", 110*second+hour)
	wall -= hour
	want("it steps back", 110*second+hour)
	pass(10 * time.Second)
	want("ten seconds later", 119*second+hour)
	pass(10 * time.Hour)
	want("it has caught up", wall)
	wall -= hour
	for range 1000 {
		before := c.now()
		pass(time.Millisecond)
		if now := c.now(); now <= before {
			t.Fatalf("the time stands still: %d after %d", now, before)
		}
	}
}

// A turn that sleeps for the rest of a time reaches it, although the clock is slow behind a step of
// the wall clock. The last nanoseconds count too.
func TestASleepReachesItsTimeBehindAStep(t *testing.T) {
	var elapsed time.Duration
	const behind = -int64(time.Hour)
	c := newTermClock(
		func() int64 { return behind + int64(elapsed) }, func() time.Duration { return elapsed }, 0,
	)
	wake := c.now() + int64(10*time.Second) + 7
	for sleeps := 0; c.now() < wake; sleeps++ {
		if sleeps == 20 {
			t.Fatalf("%d ns are left after %d sleeps", wake-c.now(), sleeps)
		}
		elapsed += time.Duration(wake - c.now())
	}
}
