package gateway

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime reads CLOCK_BOOTTIME, which goes on while the machine is suspended. (Go's own monotonic
// clock stands still.)
func boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // a broken invariant: every Linux since 2.6.39 has this clock
	}
	return time.Duration(t.Nano())
}
