package replica

import "time"

// silenceTick is the interval at which a connection is checked for silence. Silence is counted in
// ticks, not by the clock: a gateway that stood still has missed ticks too, and does not take its
// own pause for the leader's silence.
const silenceTick = 250 * time.Millisecond

// The bounds in ticks. A live leader is heard at least once in a second and a round trip, because
// the connection has pings (transport.Dial).
const (
	checkAfter = 6  // of silence: the ping has had no answer for half a second
	checkEvery = 4  // from the beginning of a check to that of the next one
	lostAfter  = 12 // of silence: the ping has had no answer for two seconds
)

// silence decides when a connection is to be checked and when it is lost. It is pure: its owner
// calls tick at each tick, and suspect for each barrier that has timed out.
type silence struct {
	quiet     int  // ticks in a row without a byte from the leader
	pause     int  // ticks until another check may begin. Invariant: 0 <= pause <= checkEvery
	suspected bool // a barrier has timed out and no check has begun since
}

// tick counts one tick. heard reports whether a byte has come since the last tick.
func (s *silence) tick(heard bool) (check, lost bool) {
	if s.quiet++; heard {
		s.quiet = 0
	}
	s.pause = max(s.pause-1, 0)
	return s.begin(), s.quiet >= lostAfter
}

// suspect notes that a barrier has timed out.
func (s *silence) suspect() (check bool) {
	s.suspected = true
	return s.begin()
}

// begin reports whether a check begins now.
func (s *silence) begin() bool {
	if s.pause > 0 || !s.suspected && s.quiet < checkAfter {
		return false
	}
	s.pause, s.suspected = checkEvery, false
	return true
}
