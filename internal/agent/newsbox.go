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

// newsbox holds what the QoS loop says of the node until a gateway has taken it. Of the condition
// and the offers only the newest counts; of the events the newest newsBound are kept, and how many
// are lost is told in their place. It is in memory only: a new agent tells its condition anew.
//
// A report keeps its sequence and its content until it is taken, because one that was taken
// although its answer was lost is not taken again.
type newsbox struct {
	changed chan struct{} // capacity 1: something waits to be sent

	mu struct {
		sync.Mutex
		now      plimsoll.NodeReport // without events
		untold   bool                // now, events or the shortage wait
		shortage string              // what the disk lacks for new tasks; empty: nothing
		events   []plimsoll.QOSEvent
		lost     int   // events that were dropped since the last report
		lostAt   int64 // when the last of them was made
		sequence uint64
		sending  *plimsoll.NodeReport // was sent with sequence and is not taken yet
	}
}

// newsBound is how many events wait at most: hours of a node that acts now and then, minutes of one
// that acts on all it has.
const newsBound = 2000

func newNewsbox() *newsbox { return &newsbox{changed: make(chan struct{}, 1)} }

// add takes in what the loop says.
func (n *newsbox) add(r plimsoll.NodeReport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.events = append(n.mu.events, r.Events...)
	if over := len(n.mu.events) - newsBound; over > 0 {
		n.mu.lost, n.mu.lostAt = n.mu.lost+over, n.mu.events[over-1].At
		n.mu.events = slices.Clone(n.mu.events[over:])
	}
	r.Events = nil
	n.mu.now, n.mu.untold = r, true
	n.wake()
}

// setShortage says what the disk lacks for new tasks; empty: nothing. The node takes none as long
// as the loop or the disk forbids it.
func (n *newsbox) setShortage(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.shortage, n.mu.untold = why, true
	n.wake()
}

// registered has a shortage told once more: a node that registers is open.
func (n *newsbox) registered() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.shortage != "" {
		n.mu.untold = true
		n.wake()
	}
}

// condition adds what the disk lacks to what the loop says.
func (n *newsbox) condition(r *plimsoll.NodeReport) {
	if n.mu.shortage == "" {
		return
	}
	why := n.mu.shortage
	if r.SchedulingDisabled && r.SchedulingReason != "" {
		why += "; " + r.SchedulingReason
	}
	r.SchedulingDisabled, r.SchedulingReason = true, cutText(why, plimsoll.MaxQOSMessage)
}

func (n *newsbox) wake() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// next returns the report to send, and its sequence; nil: there is none.
func (n *newsbox) next() (report *plimsoll.NodeReport, sequence uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.sending != nil {
		return n.mu.sending, n.mu.sequence
	}
	if !n.mu.untold {
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
	n.mu.untold = len(n.mu.events) > 0
	n.mu.sending = &r
	n.mu.sequence++
	return n.mu.sending, n.mu.sequence
}

// waiting is how many events wait.
func (n *newsbox) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting := len(n.mu.events)
	if n.mu.sending != nil {
		waiting += len(n.mu.sending.Events)
	}
	return waiting
}

// taken says that the report that next returned last has been taken, or is given up.
func (n *newsbox) taken() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.sending = nil
}

// refused says that it will never be taken. What is at fault is left out, and the rest told once
// more, so that a node that must be closed is: the offers if the error is about them, and else the
// events.
func (n *newsbox) refused(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.mu.sending
	n.mu.sending = nil
	var at *plimsoll.Error
	switch {
	case len(r.Extended) > 0 && errors.As(cause, &at) && strings.HasPrefix(at.Field, "extended"):
		n.mu.now.Extended, n.mu.untold = nil, true
		n.mu.events = append(r.Events, n.mu.events...)
	case len(r.Events) > 0:
		n.mu.untold = true
	}
}

// reportNode sends what the QoS loop says of the node, one report at a time.
func (s *speaker) reportNode(ctx context.Context, g gateway) error {
	for failures := 0; ; {
		report, sequence := s.news.next()
		if report == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-s.news.changed:
			}
			continue
		}
		err := s.sendNews(ctx, g, sequence, report)
		switch {
		case err == nil:
			failures = 0
			s.news.taken()
		case ctx.Err() != nil || plimsoll.CodeOf(err) == plimsoll.CodeStale:
			return err
		case plimsoll.CodeOf(err) == plimsoll.CodeInvalid:
			s.events.NodeReportRefused(len(report.Events), err)
			s.news.refused(err)
		case plimsoll.CodeOf(err) == plimsoll.CodeUnimplemented:
			s.events.Trouble(Trouble{Kind: TroubleOldGateway})
			<-ctx.Done()
			return ctx.Err()
		default:
			if failures++; failures >= reportTries && elsewhere(err) {
				return fmt.Errorf("report the node: %w", err)
			}
			if failures == reportTries {
				s.events.Trouble(Trouble{Kind: TroubleNodeReport, Err: err})
			}
			pause(ctx, redial.Jittered(failures, rand.Int64N))
		}
	}
}

// elsewhere reports whether another gateway, or a new registration, can help. What cannot be helped
// must not cost the tasks their session.
func elsewhere(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeOutcomeUnknown, plimsoll.CodeDeadline, plimsoll.CodeNotFound:
		return true
	}
	return false
}

func (s *speaker) sendNews(ctx context.Context, g gateway, sequence uint64, report *plimsoll.NodeReport) error {
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
