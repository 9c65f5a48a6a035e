package informer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll/informer"
)

// The queue leaves out keys in process, so a resync that falls due meanwhile finds nothing to show.
func TestAResyncThatFallsDueDuringAnotherIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newInforming(t, newLedger("a", "b"), func(c *informer.Config[*row]) {
			c.Events.HandlerFellBehind = func(string) { <-time.After(5 * time.Second) }
		}).run(t)
		defer s.stop()
		var first, second diary
		s.handle(t, &first, informer.HandlerOptions{MaxBacklog: 1, Resync: time.Minute})
		sleep(3 * time.Second)
		s.handle(t, &second, informer.HandlerOptions{Resync: time.Minute})
		second.wants(t, "initial a@1", "initial b@2")
		sleep(63 * time.Second)
		first.wants(t, "initial a@1", "initial b@2", "sync a@1", "sync b@2")
		second.wants(t, "sync a@1", "sync b@2")
		sleep(54 * time.Second)
		second.wants(t)
	})
}

// A resync of an empty index shows nothing, and does not wait for the first object.
func TestAResyncOfAnEmptyIndexShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newInforming(t, newLedger(), nil).run(t)
		defer s.stop()
		var d diary
		s.handle(t, &d, informer.HandlerOptions{Resync: time.Minute})
		sleep(90 * time.Second)
		s.ledger.put("a")
		s.ledger.bookmark()
		d.wants(t, "add a@1")
		sleep(30 * time.Second)
		d.wants(t, "sync a@1")
	})
}
