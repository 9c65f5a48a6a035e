package plimsoll_test

import (
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// The delay doubles from the first to the longest; jitter takes away up to half of it.
func TestBackoffDoublesAndIsRandomByHalf(t *testing.T) {
	b := plimsoll.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}
	least, most := func(int64) int64 { return 0 }, func(n int64) int64 { return n - 1 }
	for n, want := range map[int]time.Duration{
		-1: 100 * time.Millisecond, 0: 100 * time.Millisecond, 1: 100 * time.Millisecond, 2: 200 * time.Millisecond,
		4: 800 * time.Millisecond,
		6: 3200 * time.Millisecond, 7: 5 * time.Second, 1 << 40: 5 * time.Second,
	} {
		if got := b.Delay(n); got != want {
			t.Errorf("after failure %d: %s, want %s", n, got, want)
		}
		if low, high := b.Jittered(n, least), b.Jittered(n, most); low != want/2 || high != want {
			t.Errorf("after failure %d: between %s and %s, want between %s and %s", n, low, high, want/2, want)
		}
	}
	if got := (plimsoll.Backoff{First: time.Minute, Longest: time.Second}).Delay(1); got != time.Second {
		t.Errorf("the longest does not bound the first: %s", got)
	}
	if got := (plimsoll.Backoff{First: 1, Longest: 1<<63 - 1}).Delay(1 << 20); got != 1<<63-1 {
		t.Errorf("a long bound overflows: %d", got)
	}
	if got := (plimsoll.Backoff{}).Jittered(3, most); got != 0 {
		t.Errorf("the zero value waits for %s", got)
	}
}
