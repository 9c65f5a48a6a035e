package replica

import (
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// unreadTimeout bounds one Send of a stream. A gateway that has not read its stream for so long is
// cut off, because it holds a connection and its unsent replies.
const unreadTimeout = time.Minute

// turnTimeout bounds one Send of a stream that holds one of the turns for a snapshot. Then the turn
// goes to the next stream: gateways that are gone must not keep the others waiting.
const turnTimeout = 2 * time.Second

// turnTimer returns a stopped timer that takes the turn of a stream.
func (s *Source) turnTimer(st *stream) *time.Timer {
	timer := time.AfterFunc(turnTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if st.sending {
			s.mu.transfers.yield(&st.session)
		}
	})
	timer.Stop()
	return timer
}

// sendTimer returns a stopped timer that cuts a stream off. Each Send starts it anew.
func (s *Source) sendTimer(st *stream) *time.Timer {
	timer := time.AfterFunc(unreadTimeout, func() { s.unread(st) })
	timer.Stop()
	return timer
}

// cause returns the cause of a stream's end. The error of its session comes first: err, from a
// Receive or a Send, may be a mere consequence of it.
func (s *Source) cause(st *stream, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended := st.session.err; ended != nil && !errors.Is(ended, errStreamEnded) {
		return ended
	}
	return err
}

// unread cuts off a gateway that does not read its stream.
func (s *Source) unread(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.sending || st.session.phase == phaseEnded {
		return
	}
	st.endFor(
		endUnread, plimsoll.Errorf(
			plimsoll.CodeExhausted, "the gateway has not read its stream for %s; connect again", unreadTimeout,
		),
	)
	if f := s.config.Events.Unread; f != nil {
		f(st.gateway)
	}
}
