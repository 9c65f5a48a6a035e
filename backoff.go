package plimsoll

import "time"

// Backoff says how long to wait before a failed operation is tried again. The first wait is First;
// each further failure doubles it, up to Longest.
//
//	redial := plimsoll.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}
//	pause := redial.Jittered(failures, rand.Int64N)
type Backoff struct{ First, Longest time.Duration }

// Delay returns how long to wait after the n-th failure in a row, n from 1.
func (b Backoff) Delay(n int) time.Duration {
	d := b.First
	for i := 1; i < n && d < b.Longest; i++ {
		if d > b.Longest/2 {
			return b.Longest // doubling could overflow
		}
		d *= 2
	}
	return min(d, b.Longest)
}

// Jittered returns Delay with half of it random. Callers that failed at the same instant then do
// not all come back together. random returns a number from 0 to below its argument, as rand.Int64N
// does.
func (b Backoff) Jittered(n int, random func(int64) int64) time.Duration {
	d := b.Delay(n)
	return d/2 + time.Duration(random(int64(d/2)+1))
}
