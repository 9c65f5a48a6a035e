package informer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// A handler's place in the log holds every step behind it, also the resyncs of other handlers.
func TestTheResyncsOfOthersCountTowardsTheBoundOfABacklog(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("n%02d", i))
		}
		s := newInforming(t, newLedger(names...), nil).run(t)
		defer s.stop()
		var d diary
		s.handle(t, &d, informer.HandlerOptions{Resync: time.Minute})
		held, r, goOn := slow(t, s, informer.HandlerOptions{Name: "slow", MaxBacklogBytes: 10_000}, nil)
		s.ledger.put("n00")
		sleep(5 * time.Minute)
		one := r.Stats()
		if one.Behind || one.Pending != 1 || one.PendingBytes < 5*100*8 {
			t.Errorf("after five resyncs of the other handler: %+v", one)
		}
		sleep(45 * time.Minute)
		if got := r.Stats(); !got.Behind || got.PendingBytes > 10_000 {
			t.Errorf("after fifty resyncs of the other handler: %+v", got)
		}
		goOn()
		held.wants(t, "update n00@1->101")
		if got := r.Stats(); got.Behind || got.PendingBytes != 0 {
			t.Errorf("at the end: %+v", got)
		}
	})
}

// A change that changes nothing has bytes in its step, which only the calls of a resync need.
func TestAStepWithoutCallsForAHandlerLeavesItsBacklogAsItWas(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a", "b", "c")
		s := newInforming(t, l, func(c *informer.Config[*row]) {
			c.Same = func(a, b *row) bool {
				if b.revision == 4 {
					l.again("b")
					<-time.After(2 * time.Second) // the resync joins it meanwhile
				}
				return sameRow(a, b)
			}
		})
		var d, never diary
		s.handle(t, &d, informer.HandlerOptions{Resync: time.Minute})
		r := s.handle(t, &never, informer.HandlerOptions{})
		s.run(t)
		defer s.stop()
		never.wants(t, "initial a@1", "initial b@2", "initial c@3")
		sleep(59 * time.Second)
		l.put("a")
		sleep(10 * time.Second)
		never.wants(t, "update a@1->4")
		if got := r.Stats(); got.Pending != 0 || got.PendingBytes != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}
