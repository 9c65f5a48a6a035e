package replica

import "time"

// silenceTick is how often a connection is looked at. Silence is counted in looks and not by the
// clock: a gateway that stood still itself has missed looks, and blames nobody for it.
const silenceTick = 250 * time.Millisecond

// In ticks. A leader that answers is heard at least once in a second and a round trip, for the
// connection has pings (transport.Dial).
const (
	checkAfter = 6  // of silence: the ping has had no answer for half a second
	checkEvery = 4  // from the beginning of a check to that of the next one
	lostAfter  = 12 // of silence: the ping has had no answer for two seconds
)

// silence decides when a connection is to be checked and when it is lost. It is pure: its owner
// tells it of each tick, and of each barrier that has timed out.
type silence struct {
	quiet   int  // ticks in a row in which nothing came
	pause   int  // ticks until another check may begin. Invariant: 0 <= pause <= checkEvery
	doubted bool // a barrier has timed out and no check has begun since
}

// tick counts one look at the connection. heard says whether something came since the last.
func (s *silence) tick(heard bool) (check, lost bool) {
	if s.quiet++; heard {
		s.quiet = 0
	}
	s.pause = max(s.pause-1, 0)
	return s.begin(), s.quiet >= lostAfter
}

// doubt takes in that a barrier has timed out.
func (s *silence) doubt() (check bool) {
	s.doubted = true
	return s.begin()
}

// begin reports whether a check begins now.
func (s *silence) begin() bool {
	if s.pause > 0 || !s.doubted && s.quiet < checkAfter {
		return false
	}
	s.pause, s.doubted = checkEvery, false
	return true
}
