package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
)

// nodeOutbox holds the QoS loop's reports of the node until a gateway has accepted them. Only the
// newest condition and offers are kept. The newest maxWaitingEvents events are kept, and the number
// of dropped events is reported in their place. All is in memory only: a new agent reports its
// condition anew.
//
// A report keeps its sequence and content until it is accepted. So a report whose answer was lost
// is not accepted twice.
type nodeOutbox struct {
	changed chan struct{} // capacity 1: a report waits

	mu struct {
		sync.Mutex
		now      plimsoll.NodeReport // newest report, without events
		pending  bool                // now, events or shortage are not sent yet
		shortage string              // shortage of the disk for new tasks; empty: none
		events   []plimsoll.QOSEvent
		lost     int   // events dropped since the last report
		lostAt   int64 // time of the last of them
		sequence uint64
		sending  *plimsoll.NodeReport // sent with sequence, and not accepted yet
	}
}

// maxWaitingEvents bounds the waiting events: hours of a node that acts now and then, or minutes of
// one that acts on all its tasks.
const maxWaitingEvents = 2000

func newNodeOutbox() *nodeOutbox { return &nodeOutbox{changed: make(chan struct{}, 1)} }

// add records a report of the loop.
func (n *nodeOutbox) add(r plimsoll.NodeReport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.events = append(n.mu.events, r.Events...)
	if over := len(n.mu.events) - maxWaitingEvents; over > 0 {
		n.mu.lost, n.mu.lostAt = n.mu.lost+over, n.mu.events[over-1].At
		n.mu.events = slices.Clone(n.mu.events[over:])
	}
	r.Events = nil
	n.mu.now, n.mu.pending = r, true
	n.wake()
}

// setShortage records the shortage of the disk for new tasks; empty: none. The node takes no tasks
// while the loop or the disk forbids it.
func (n *nodeOutbox) setShortage(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.shortage, n.mu.pending = why, true
	n.wake()
}

// registered reports a shortage once more, because a newly registered node accepts tasks.
func (n *nodeOutbox) registered() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.shortage != "" {
		n.mu.pending = true
		n.wake()
	}
}

// condition adds the shortage to a report of the loop.
func (n *nodeOutbox) condition(r *plimsoll.NodeReport) {
	if n.mu.shortage == "" {
		return
	}
	why := n.mu.shortage
	if r.SchedulingDisabled && r.SchedulingReason != "" {
		why += "; " + r.SchedulingReason
	}
	r.SchedulingDisabled, r.SchedulingReason = true, cutText(why, plimsoll.MaxQOSMessage)
}

func (n *nodeOutbox) wake() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// next returns the report to send, and its sequence; nil: there is none.
func (n *nodeOutbox) next() (report *plimsoll.NodeReport, sequence uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.sending != nil {
		return n.mu.sending, n.mu.sequence
	}
	if !n.mu.pending {
		return nil, 0
	}
	r := n.mu.now
	n.condition(&r)
	if n.mu.lost > 0 {
		r.Events = append(r.Events, plimsoll.QOSEvent{
			At: n.mu.lostAt, Kind: plimsoll.QOSSkipped,
			Message: fmt.Sprintf("%d older events were dropped, because no gateway has taken them", n.mu.lost),
		})
		n.mu.lost = 0
	}
	some := min(len(n.mu.events), plimsoll.MaxQOSEvents-len(r.Events))
	r.Events = append(r.Events, n.mu.events[:some]...)
	n.mu.events = n.mu.events[some:]
	n.mu.pending = len(n.mu.events) > 0
	n.mu.sending = &r
	n.mu.sequence++
	return n.mu.sending, n.mu.sequence
}

// waiting returns the number of events that wait.
func (n *nodeOutbox) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting := len(n.mu.events)
	if n.mu.sending != nil {
		waiting += len(n.mu.sending.Events)
	}
	return waiting
}

// accepted drops the report of next, which has been accepted or given up.
func (n *nodeOutbox) accepted() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.sending = nil
}

// refused drops the report of next, which will never be accepted. The faulty part is left out, and
// the rest is reported again, so that a closed node stays closed. The faulty part is the offers or
// the use outside of tasks if the error names them, otherwise the events.
func (n *nodeOutbox) refused(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.mu.sending
	n.mu.sending = nil
	var at *plimsoll.Error
	switch {
	case len(r.Extended) > 0 && errors.As(cause, &at) && strings.HasPrefix(at.Field, "extended"):
		n.mu.now.Extended, n.mu.pending = nil, true
		n.mu.events = append(r.Events, n.mu.events...)
	case r.Occupied != nil && errors.As(cause, &at) && strings.HasPrefix(at.Field, "occupied"):
		n.mu.now.Occupied, n.mu.pending = nil, true
		n.mu.events = append(r.Events, n.mu.events...)
	case len(r.Events) > 0:
		n.mu.pending = true
	}
}

// reportNode sends the QoS loop's reports of the node, one at a time.
func (s *sessionManager) reportNode(ctx context.Context, g gateway) error {
	for failures := 0; ; {
		report, sequence := s.nodeOut.next()
		if report == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-s.nodeOut.changed:
			}
			continue
		}
		err := s.sendNodeReport(ctx, g, sequence, report)
		switch {
		case err == nil:
			failures = 0
			s.nodeOut.accepted()
		case ctx.Err() != nil || plimsoll.CodeOf(err) == plimsoll.CodeStale:
			return err
		case plimsoll.CodeOf(err) == plimsoll.CodeInvalid:
			s.events.NodeReportRefused(len(report.Events), err)
			s.nodeOut.refused(err)
		case plimsoll.CodeOf(err) == plimsoll.CodeUnimplemented:
			s.events.Trouble(Trouble{Kind: TroubleOldGateway})
			<-ctx.Done()
			return ctx.Err()
		default:
			if failures++; failures >= reportTries && retryElsewhere(err) {
				return fmt.Errorf("report the node: %w", err)
			}
			if failures == reportTries {
				s.events.Trouble(Trouble{Kind: TroubleNodeReport, Err: err})
			}
			pause(ctx, redial.Jittered(failures, rand.Int64N))
		}
	}
}

// retryElsewhere reports whether another gateway, or a new registration, can help. After any other
// error the session continues, because the tasks need it.
func retryElsewhere(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeOutcomeUnknown, plimsoll.CodeDeadline, plimsoll.CodeNotFound:
		return true
	}
	return false
}

func (s *sessionManager) sendNodeReport(
	ctx context.Context, g gateway, sequence uint64, report *plimsoll.NodeReport,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := g.reportNode(ctx, s.node.ID, s.node.Incarnation, sequence, report)
	if errors.Is(err, context.DeadlineExceeded) {
		return plimsoll.Errorf(
			plimsoll.CodeDeadline, "the gateway did not acknowledge a report of the node within %s", s.timeout,
		)
	}
	return err
}
