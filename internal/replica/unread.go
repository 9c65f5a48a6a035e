package replica

import (
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// unreadTimeout is how long one Send of a stream may take. A gateway that has not read its stream
// for so long is cut off: it holds a connection and the replies that wait for it.
const unreadTimeout = time.Minute

// sendTimer returns a timer that cuts a stream off. It is stopped; each Send starts it anew.
func (s *Source) sendTimer(st *stream) *time.Timer {
	timer := time.AfterFunc(unreadTimeout, func() { s.unread(st) })
	timer.Stop()
	return timer
}

// cause returns why a stream has ended: what ended its session, which a Receive or a Send may only
// have felt, or else err.
func (s *Source) cause(st *stream, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := st.session.err; ended != nil && !errors.Is(ended, errStreamEnded) {
		return ended
	}
	return err
}

// unread ends the session of a gateway that does not read its stream.
func (s *Source) unread(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.sending || st.session.phase == phaseEnded {
		return
	}
	st.end(
		plimsoll.Errorf(
			plimsoll.CodeExhausted, "the gateway has not read its stream for %s; connect again", unreadTimeout,
		),
	)
	if f := s.config.Events.Unread; f != nil {
		f(st.gateway)
	}
}
