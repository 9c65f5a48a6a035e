package informer_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// The queue leaves out keys in process, so a resync that falls due meanwhile finds nothing to show.
func TestAResyncThatFallsDueDuringAnotherIsNotLost(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
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
	testrun.Bubble(t, func(t *testing.T) {
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

// holding makes each comparison of two objects take three seconds while it is set. The batch that
// compares them is in process for so long.
func holding(on *atomic.Bool) func(*informer.Config[*row]) {
	return func(c *informer.Config[*row]) {
		c.Same = func(a, b *row) bool {
			if on.Load() {
				<-time.After(3 * time.Second)
			}
			return sameRow(a, b)
		}
	}
}

// A queue leaves keys in process out of a resync. Their batch began before the resync was due, so
// it tells the handler nothing of an object that it does not change.
func TestAResyncDuringABatchShowsTheObjectsOfTheBatchToo(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var on atomic.Bool
		s := newInforming(t, newLedger("a", "b", "c"), holding(&on)).run(t)
		defer s.stop()
		var d diary
		s.handle(t, &d, informer.HandlerOptions{Resync: time.Minute})
		d.wants(t, "initial a@1", "initial b@2", "initial c@3")
		sleep(59 * time.Second)
		on.Store(true)
		s.ledger.again("a") // in process when the resync falls due
		sleep(2 * time.Second)
		on.Store(false)
		sleep(2 * time.Second)
		d.wants(t, "sync a@1", "sync b@2", "sync c@3")
		sleep(30 * time.Second)
		d.wants(t)
	})
}

// A second handler falls due while the objects of another one's resync are in part in process.
func TestAResyncDuringABatchOfAnotherResyncShowsAllObjects(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var on atomic.Bool
		s := newInforming(t, newLedger("a", "b", "c"), holding(&on)).run(t)
		defer s.stop()
		var first, second diary
		s.handle(t, &first, informer.HandlerOptions{Resync: time.Minute})
		sleep(2 * time.Second)
		s.handle(t, &second, informer.HandlerOptions{Resync: time.Minute})
		sleep(57 * time.Second)
		on.Store(true)
		s.ledger.again("b") // from 59 s to 62 s; the two are due at 60 s and at 62 s
		sleep(time.Second)
		s.ledger.again("a") // in process from 62 s on, with the resync of the first
		sleep(20 * time.Second)
		on.Store(false)
		sleep(5 * time.Second)
		for _, d := range []*diary{&first, &second} {
			lines := d.take()
			slices.Sort(lines)
			want := "initial a@1 initial b@2 initial c@3 sync a@1 sync b@2 sync c@3"
			if got := strings.Join(lines, " "); got != want {
				t.Errorf("told %s", got)
			}
		}
	})
}

func TestAResyncThatFallsDueDuringAListShowsEachObjectOnce(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var on atomic.Bool
		s := newInforming(t, newLedger("a", "b"), holding(&on)).run(t)
		defer s.stop()
		var d, late diary
		s.handle(t, &d, informer.HandlerOptions{Resync: time.Minute})
		d.wants(t, "initial a@1", "initial b@2")
		sleep(56 * time.Second)
		s.handle(t, &late, informer.HandlerOptions{Resync: time.Minute})
		synctest.Wait()
		on.Store(true)
		s.ledger.forget() // a list: in process from about 57 s to 63 s
		s.ledger.cut(io.ErrUnexpectedEOF)
		sleep(5 * time.Second)
		on.Store(false)
		sleep(20 * time.Second)
		d.wants(t, "sync a@1", "sync b@2")
		late.wants(t, "initial a@1", "initial b@2")
	})
}

func TestAListThatJoinsAResyncShowsEachObjectOnce(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var on atomic.Bool
		s := newInforming(t, newLedger("a", "b"), holding(&on)).run(t)
		defer s.stop()
		var d diary
		s.handle(t, &d, informer.HandlerOptions{Resync: time.Minute})
		d.wants(t, "initial a@1", "initial b@2")
		sleep(58 * time.Second)
		on.Store(true)
		s.ledger.again("a") // in process when the resync falls due and the list comes
		sleep(time.Second)
		s.ledger.forget()
		s.ledger.cut(io.ErrUnexpectedEOF)
		sleep(2 * time.Second)
		on.Store(false)
		sleep(20 * time.Second)
		d.wants(t, "sync a@1", "sync b@2")
	})
}

// shown is one call of a handler for an object that was there.
type shown struct {
	name string
	at   time.Duration // since the handler was added
	same bool          // it was told as unchanged
}

// resynced is a handler that writes down when it was told of which object.
type resynced struct {
	period time.Duration
	began  time.Time
	mu     sync.Mutex
	calls  []shown
}

func (r *resynced) handler() informer.Handler[*row] {
	return informer.Handler[*row]{Update: func(old, now *row) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, shown{now.name, time.Since(r.began), old == now})
	}}
}

// check returns an error unless each whole period behind the first shows each object: as unchanged
// once, or by a newer change.
func (r *resynced) check(names []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := r.period; k+r.period <= time.Since(r.began); k += r.period {
		for _, name := range names {
			same, changes := 0, 0
			for _, c := range r.calls {
				switch {
				case c.name != name || c.at < k || c.at >= k+r.period:
				case c.same:
					same++
				default:
					changes++
				}
			}
			if same > 1 || same+changes == 0 {
				return fmt.Errorf(
					"the resync of %s at %s showed %s %d times, beside %d changes", r.period, k, name, same, changes,
				)
			}
		}
	}
	return nil
}

func TestEachResyncShowsEachObjectOnceWhateverInterruptsIt(t *testing.T) {
	inRounds(t, testrun.Count(30, 100, 5000), resyncsWhole)
}

func resyncsWhole(t *testing.T, rng *rand.Rand) {
	names := []string{"a", "b", "c", "d"}
	l := newLedger(names...)
	// While slow is set, a new handler would wait for a lock, which stops the clock of the bubble.
	var slow atomic.Bool
	own := rand.New(rand.NewPCG(rng.Uint64(), 0)) // of the informer's goroutine that applies batches
	s := newInforming(t, l, func(c *informer.Config[*row]) {
		c.Same = func(a, b *row) bool {
			if own.IntN(2) == 0 {
				slow.Store(true)
				<-time.After(time.Duration(own.IntN(2000)) * time.Millisecond)
				slow.Store(false)
			}
			return sameRow(a, b)
		}
	}).run(t)
	defer s.stop()
	sleep(10 * time.Second)
	var handlers []*resynced
	add := func() {
		if synctest.Wait(); slow.Load() {
			return
		}
		defer synctest.Wait()
		r := &resynced{period: time.Duration(40+rng.IntN(30)) * time.Second, began: time.Now()}
		if _, err := s.AddHandler(r.handler(), informer.HandlerOptions{Resync: r.period}); err != nil {
			t.Error(err)
		}
		handlers = append(handlers, r)
	}
	add()
	for range 100 {
		name := names[rng.IntN(len(names))]
		switch n := rng.IntN(20); {
		case n < 6:
			l.put(name)
		case n < 14:
			l.again(name)
		case n < 16:
			l.forget()
			l.cut(io.ErrUnexpectedEOF)
		case n < 17 && len(handlers) < 5:
			add()
		}
		sleep(time.Duration(rng.IntN(6000)) * time.Millisecond)
	}
	sleep(time.Minute)
	for _, r := range handlers {
		if err := r.check(names); err != nil {
			t.Error(err)
		}
	}
}
