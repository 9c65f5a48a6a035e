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

// sent checks the report that is to be sent, as "sequence reason events…".
func (n *newsbox) sent(t *testing.T, want string) {
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

// The newest condition is told, with all events; what was sent and not answered is repeated as it
// was, so that it is not taken twice.
func TestNewsAreRepeatedAsTheyWere(t *testing.T) {
	n := newNewsbox()
	n.sent(t, "")
	n.add(closed("a", "1"))
	n.add(closed("b", "2"))
	n.sent(t, "1 b 1 2")
	n.add(closed("c", "3"))
	n.sent(t, "1 b 1 2")
	n.taken()
	n.add(closed("d"))
	n.sent(t, "2 d 3")
	n.taken()
	n.sent(t, "")
	n.add(closed("d")) // what was told once may be told again
	n.sent(t, "3 d")
}

// Of more events than can wait the oldest are given up, and their number is told in their place.
func TestTooManyEvents(t *testing.T) {
	n := newNewsbox()
	var all []string
	for i := range newsBound + 7 {
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
		n.taken()
	}
	if !strings.HasPrefix(got[0], "7 older events were dropped") {
		t.Errorf("the first event says %q", got[0])
	}
	if diff := cmp.Diff(all[7:], got[1:]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if want := newsBound/plimsoll.MaxQOSEvents + 1; reports != want {
		t.Errorf("%d reports, want %d", reports, want)
	}
}

// Of a report that is refused for good only what is at fault is left out: the offers, with which
// the events are told all the same, or the events, without which the condition is.
func TestNewsThatAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		b.speaker.news = newNewsbox()
		b.run()
		b.speaker.news.add(closed("busy", strings.Repeat("x", plimsoll.MaxQOSMessage+1)))
		after(time.Second)
		if told, closed := c.told(); len(told) != 0 || !closed || len(c.news) != 1 {
			t.Errorf("told %v, closed %v, in %d reports", told, closed, len(c.news))
		}
		bad := closed("busy")
		bad.Extended = plimsoll.Resources{"gold": 1}
		bad.Events = closed("", "not lost").Events
		b.speaker.news.add(bad)
		after(time.Second)
		if told, closed := c.told(); len(told) != 1 || told[0] != "not lost" || !closed || len(
			c.news,
		) != 2 || c.news[1].Report.Extended != nil {
			t.Errorf("told %v, closed %v, in %v", told, closed, c.news)
		}
	})
}

// What could not be sent is sent when it can, once, whatever breaks on the way; and each
// registration has the condition told anew.
func TestNewsOverABadNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		b.speaker.news = newNewsbox()
		var registrations atomic.Int64
		b.speaker.registered = func() { registrations.Add(1) }
		b.run()
		c.disconnect(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"))
		b.speaker.news.add(closed("a", "1"))
		after(time.Hour)
		b.speaker.news.add(closed("b", "2"))
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
		c.change(func() { c.registered = false }) // a gateway that has forgotten the node
		after(10 * time.Second)
		if got := registrations.Load(); got != before+1 {
			t.Errorf("the loop heard of %d registrations, want one more than %d", got, before)
		}
	})
}

// A gateway of an older version does not take them, and all else goes on.
func TestAGatewayThatTakesNoNews(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		c.noNews = plimsoll.Errorf(plimsoll.CodeUnimplemented, "no such call")
		b.gateways["a"] = local{c}
		b.speaker.news = newNewsbox()
		b.run()
		b.speaker.news.add(closed("a", "1"))
		after(time.Hour)
		if c.registers != 1 {
			t.Errorf("%d registrations, want one", c.registers)
		}
		c.change(func() { c.noNews = nil })
		c.disconnect(nil) // the next one is newer
		after(time.Minute)
		if told, _ := c.told(); len(told) != 1 {
			t.Errorf("told %v", told)
		}
	})
}

// A coordinator that has no room for what is told, for however long, keeps the session with all the
// rest.
func TestNewsThatThereIsNoRoomFor(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		c.noNews = plimsoll.Errorf(plimsoll.CodeExhausted, "no room for another resource")
		b.gateways["a"] = local{c}
		b.speaker.news = newNewsbox()
		b.run()
		b.speaker.news.add(closed("a", "1"))
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
