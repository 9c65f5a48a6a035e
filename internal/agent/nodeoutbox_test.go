package agent

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
)

func closed(reason string, messages ...string) plimsoll.NodeReport {
	r := plimsoll.NodeReport{SchedulingDisabled: reason != "", SchedulingReason: reason}
	for i, m := range messages {
		r.Events = append(r.Events, plimsoll.QOSEvent{At: int64(i + 1), Kind: plimsoll.QOSThrottled, Message: m})
	}
	return r
}

// sent checks the next report, as "sequence reason events…".
func (n *nodeOutbox) sent(t *testing.T, want string) {
	t.Helper()
	report, sequence := n.next()
	if report == nil {
		if want != "" {
			t.Errorf("nothing waits, want %s", want)
		}
		return
	}
	got := fmt.Sprintf("%d %s", sequence, report.SchedulingReason)
	for _, e := range report.Events {
		got += " " + e.Message
	}
	if got != want {
		t.Errorf("to send: %s\nwant: %s", got, want)
	}
	if err := report.Validate(); err != nil {
		t.Error(err)
	}
}

// The newest condition is reported, with all events. A report without answer is repeated unchanged,
// so that it is not accepted twice.
func TestNodeReportsAreRepeatedUnchanged(t *testing.T) {
	n := newNodeOutbox()
	n.sent(t, "")
	n.add(closed("a", "1"))
	n.add(closed("b", "2"))
	n.sent(t, "1 b 1 2")
	n.add(closed("c", "3"))
	n.sent(t, "1 b 1 2")
	n.accepted()
	n.add(closed("d"))
	n.sent(t, "2 d 3")
	n.accepted()
	n.sent(t, "")
	n.add(closed("d")) // the same condition may be reported again
	n.sent(t, "3 d")
}

// If too many events wait, the oldest are dropped, and their number is reported in their place.
func TestTooManyEvents(t *testing.T) {
	n := newNodeOutbox()
	var all []string
	for i := range maxWaitingEvents + 7 {
		all = append(all, fmt.Sprint(i))
		n.add(closed("", fmt.Sprint(i)))
	}
	var got []string
	reports := 0
	for {
		report, _ := n.next()
		if report == nil {
			break
		}
		if reports++; len(report.Events) > plimsoll.MaxQOSEvents {
			t.Errorf("%d events in one report", len(report.Events))
		}
		for _, e := range report.Events {
			got = append(got, e.Message)
		}
		n.accepted()
	}
	if !strings.HasPrefix(got[0], "7 older events were dropped") {
		t.Errorf("the first event says %q", got[0])
	}
	if diff := cmp.Diff(all[7:], got[1:]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if want := maxWaitingEvents/plimsoll.MaxQOSEvents + 1; reports != want {
		t.Errorf("%d reports, want %d", reports, want)
	}
}

// Only the faulty part of a refused report is left out. If that is the offers or the
// use outside of tasks, the events are still reported. If that is the events, the condition is.
func TestRefusedNodeReports(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		b.sessions.nodeOut = newNodeOutbox()
		b.run()
		b.sessions.nodeOut.add(closed("busy", strings.Repeat("x", plimsoll.MaxQOSMessage+1)))
		after(time.Second)
		if told, closed := c.told(); len(told) != 0 || !closed || len(c.nodeReports) != 1 {
			t.Errorf("told %v, closed %v, in %d reports", told, closed, len(c.nodeReports))
		}
		bad := closed("busy")
		bad.Extended = plimsoll.Resources{"gold": 1}
		bad.Events = closed("", "not lost").Events
		b.sessions.nodeOut.add(bad)
		after(time.Second)
		if told, closed := c.told(); len(told) != 1 || told[0] != "not lost" || !closed ||
			len(c.nodeReports) != 2 || c.nodeReports[1].Report.Extended != nil {
			t.Errorf("told %v, closed %v, in %v", told, closed, c.nodeReports)
		}
		bad = closed("busy", "not lost either")
		bad.Occupied = &plimsoll.NodeUse{CPU: -1}
		b.sessions.nodeOut.add(bad)
		after(time.Second)
		if told, closed := c.told(); len(told) != 2 || told[1] != "not lost either" || !closed ||
			len(c.nodeReports) != 3 || c.nodeReports[2].Report.Occupied != nil {
			t.Errorf("told %v, closed %v, in %v", told, closed, c.nodeReports)
		}
	})
}

// Every report arrives once, whatever fails on the way. Each registration repeats the condition.
func TestNodeReportsOverABadNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		b.sessions.nodeOut = newNodeOutbox()
		var registrations atomic.Int64
		b.sessions.registered = func() { registrations.Add(1) }
		b.run()
		c.disconnect(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"))
		b.sessions.nodeOut.add(closed("a", "1"))
		after(time.Hour)
		b.sessions.nodeOut.add(closed("b", "2"))
		c.change(func() { c.lostAnswers = 2 * reportTries })
		c.disconnect(nil)
		after(2 * time.Minute)
		told, _ := c.told()
		if diff := cmp.Diff([]string{"1", "2"}, told); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		before := registrations.Load()
		c.look(func() {
			if before != int64(c.registers) || before < 3 {
				t.Errorf(
					"the loop heard of %d registrations of %d; %d failures in a row end a session", before, c.registers,
					reportTries,
				)
			}
		})
		c.change(func() { c.registered = false }) // a gateway that does not know the node
		after(10 * time.Second)
		if got := registrations.Load(); got != before+1 {
			t.Errorf("the loop heard of %d registrations, want one more than %d", got, before)
		}
	})
}

// A gateway of an older version does not accept reports of the node, and all else continues.
func TestAGatewayWithoutNodeReports(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		c.noNews = plimsoll.Errorf(plimsoll.CodeUnimplemented, "no such call")
		b.gateways["a"] = local{c}
		b.sessions.nodeOut = newNodeOutbox()
		b.run()
		b.sessions.nodeOut.add(closed("a", "1"))
		after(time.Hour)
		if c.registers != 1 {
			t.Errorf("%d registrations, want one", c.registers)
		}
		c.change(func() { c.noNews = nil })
		c.disconnect(nil) // the next gateway is newer
		after(time.Minute)
		if told, _ := c.told(); len(told) != 1 {
			t.Errorf("told %v", told)
		}
	})
}

// A coordinator without room for reports of the node keeps the session and all other messages.
func TestNodeReportsWithoutRoomAtTheCoordinator(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		c.noNews = plimsoll.Errorf(plimsoll.CodeExhausted, "no room for another resource")
		b.gateways["a"] = local{c}
		b.sessions.nodeOut = newNodeOutbox()
		b.run()
		b.sessions.nodeOut.add(closed("a", "1"))
		after(time.Hour)
		if c.registers != 1 || c.watches != 1 {
			t.Errorf("%d registrations over %d streams, want one over one", c.registers, c.watches)
		}
		c.change(func() { c.noNews = nil })
		after(time.Minute)
		if told, _ := c.told(); len(told) != 1 {
			t.Errorf("told %v", told)
		}
	})
}
