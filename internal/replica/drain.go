package replica

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// Drain asks every gateway to send nothing more. It returns once all that they sent before has been
// answered and the answers were sent, or when ctx ends. Gateways that come later are refused. idle
// is called once no gateway sends any more; it is to answer commands that wait for something.
//
// A gateway that knows that the leader goes keeps its further commands, and sends them to the next
// leader. Drain does not end the streams; Close does.
func (s *Source) Drain(ctx context.Context, idle func()) {
	changed := s.beginDrain()
	for stage := 0; stage < 2; {
		if s.drained(stage) {
			if stage == 0 {
				idle()
			}
			stage++
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// errLeaving is the error for a gateway that comes while the leader hands leadership over.
var errLeaving = plimsoll.Errorf(plimsoll.CodeUnavailable, "this leader hands leadership over; connect again")

func (s *Source) beginDrain() (changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.drain = make(chan struct{}, 1)
	if s.mu.closed == nil {
		s.mu.closed = errLeaving
	}
	for st := range s.mu.streams {
		st.session.closing = closingDue
		notify(st.wake)
	}
	return s.mu.drain
}

// drained reports whether no gateway sends any more (stage 0), and also has all its answers (1).
func (s *Source) drained(stage int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.streams {
		told := st.session.welcome.GetProtocol() >= closingProtocol // an older gateway goes on sending
		if told && !st.halfClosed || stage > 0 && (st.owed > 0 || len(st.session.replies) > 0 || st.sending) {
			return false
		}
	}
	return true
}

// drains notes a step of a stream on the way to its end. The caller holds mu.
func (s *Source) drains() {
	if s.mu.drain != nil {
		notify(s.mu.drain)
	}
}

// halfClose notes that a gateway sends nothing more. It returns false unless the leader has asked
// for that: then the gateway has ended its stream.
func (s *Source) halfClose(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.drain == nil {
		return false
	}
	st.halfClosed = true
	s.drains()
	return true
}

// owe notes that a command of a stream is to be answered.
func (s *Source) owe(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.owed++
}

// closing is a session's place on the way to its end in good order.
type closing uint8

const (
	closingNone closing = iota
	closingDue          // the gateway is to be told
	closingTold
)

func closingMessage() *pb.ReplicateResponse {
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Closing{Closing: &pb.ReplicateClosing{}}}
}
