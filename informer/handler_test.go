package informer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// A handler that comes late is told the content, and initial is true for that content alone.
func TestALateHandlerBeginsWithTheContentOfTheIndex(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		s.ledger.put("c")
		synctest.Wait()
		var late diary
		r := s.handle(t, &late, informer.HandlerOptions{})
		<-r.Synced()
		s.ledger.put("d")
		late.wants(t, "initial a@1", "initial b@2", "initial c@3", "add d@4")
	})
}

// client-go never counts the handler as synced after a panic, or ends the process.
func TestAHandlerThatPanicsIsToldAndGoesOn(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		s := newInforming(t, newLedger("a", "b"), nil)
		var bad, good diary
		bad.also = func(line string) {
			if strings.Contains(line, "a@") {
				panic("a is too much")
			}
		}
		r := s.handle(t, &bad, informer.HandlerOptions{Name: "bad"})
		s.handle(t, &good, informer.HandlerOptions{})
		s.run(t)
		defer s.stop()
		s.ledger.put("a")
		s.ledger.put("b")
		bad.wants(t, "initial a@1", "initial b@2", "update a@1->3", "update b@2->4")
		good.wants(t, "initial a@1", "initial b@2", "update a@1->3", "update b@2->4")
		if got := r.Stats(); got.Panics != 2 || got.Delivered != 4 || !r.HasSynced() {
			t.Errorf("stats %+v, synced %t", got, r.HasSynced())
		}
		if got := strings.Count(s.told(), "bad failed: informer: panic: a is too much"); got != 2 {
			t.Errorf("told %q", s.told())
		}
	})
}

func TestAHandlerThatEndsItsGoroutineIsRemoved(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, d *diary) {
		h := informer.Handler[*row]{Add: func(*row, bool) { runtime.Goexit() }}
		r, err := s.AddHandler(h, informer.HandlerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-r.Done()
		s.ledger.put("c")
		d.wants(t, "add c@3")
	})
}

// A nil function skips its changes.
func TestAHandlerMayLeaveFunctionsOut(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, d *diary) {
		r, err := s.AddHandler(informer.Handler[*row]{}, informer.HandlerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.ledger.step("a", "c", "-b")
		synctest.Wait()
		if got := r.Stats(); got.Panics != 0 || !r.HasSynced() {
			t.Errorf("stats %+v", got)
		}
	})
}

// slow adds a handler that stays in its first call after its initial content until the test lets it
// go on.
func slow(t *testing.T, s *informing, o informer.HandlerOptions, reset func(*informer.Snapshot[*row])) (
	d *diary, r *informer.Registration[*row], goOn func(),
) {
	t.Helper()
	d = &diary{}
	h := d.handler()
	h.Reset = reset
	r, err := s.AddHandler(h, o)
	if err != nil {
		t.Fatal(err)
	}
	<-r.Synced()
	d.take()
	held := make(chan struct{})
	d.mu.Lock()
	d.also = func(string) { <-held }
	d.mu.Unlock()
	return d, r, func() { close(held) }
}

func TestASlowHandlerGetsEachChangeOfItsBacklog(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, fast *diary) {
		d, r, goOn := slow(t, s, informer.HandlerOptions{MaxBacklog: 3}, nil)
		for range 3 {
			s.ledger.put("a")
			synctest.Wait()
		}
		fast.wants(t, "update a@1->3", "update a@3->4", "update a@4->5")
		if got := r.Stats(); got.Pending != 3 || got.Behind {
			t.Errorf("stats %+v", got)
		}
		goOn()
		d.wants(t, "update a@1->3", "update a@3->4", "update a@4->5")
		if got := r.Stats(); got.Pending != 0 || got.PendingBytes != 0 || got.Behind {
			t.Errorf("stats %+v", got)
		}
	})
}

// Beyond its bound a handler gets its backlog, and then one difference for each key that changed.
func TestAHandlerThatFellBehindIsToldTheDifference(t *testing.T) {
	for name, o := range map[string]informer.HandlerOptions{
		"entries": {Name: "slow", MaxBacklog: 2},
		"bytes":   {Name: "slow", MaxBacklogBytes: 2500},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, fast *diary) {
				d, r, goOn := slow(t, s, o, nil)
				for _, change := range []string{"a", "a", "a", "c", "a", "-b", "c", "d", "-d"} {
					s.ledger.step(change)
					synctest.Wait()
				}
				if got := len(fast.take()); got != 9 {
					t.Errorf("the other handler was told %d changes of 9", got)
				}
				if got := r.Stats(); got.Pending != 2 || !got.Behind || got.Missed != 7 {
					t.Errorf("stats %+v", got)
				}
				goOn()
				d.wants(t, "update a@1->3", "update a@3->4", "lost b@2", "update a@4->7", "add c@9")
				s.ledger.put("a")
				d.wants(t, "update a@7->12")
				got := r.Stats()
				if got.Pending != 0 || got.Behind || got.Missed != 0 || got.CaughtUp != 1 || got.Delivered != 8 {
					t.Errorf("stats %+v", got)
				}
				if got := s.told(); got != "slow fell behind; slow caught up with 7" {
					t.Errorf("told %q", got)
				}
			})
		})
	}
}

func TestAHandlerWithResetIsGivenTheIndexInstead(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		var d *diary
		d, r, goOn := slow(t, s, informer.HandlerOptions{MaxBacklog: 1}, func(now *informer.Snapshot[*row]) {
			d.write("reset with %d rows at %s", now.Len(), now.Version())
		})
		for _, change := range []string{"a", "a", "-b"} {
			s.ledger.step(change)
			synctest.Wait()
		}
		goOn()
		d.wants(t, "update a@1->3", "reset with 1 rows at 1.5")
		s.ledger.put("c")
		d.wants(t, "add c@6")
		if got := r.Stats(); got.CaughtUp != 1 || got.Behind {
			t.Errorf("stats %+v", got)
		}
	})
}

// A step above the bound, as the content of a first snapshot, takes no room in the log.
func TestAStepAboveTheBoundIsToldAsADifference(t *testing.T) {
	simulate(t, informer.HandlerOptions{MaxBacklog: 2}, func(t *testing.T, s *informing, d *diary) {
		s.ledger.step("a", "c", "-b")
		d.wants(t, "lost b@2", "update a@1->3", "add c@3")
	})
}

// A resync that comes while a handler is behind is not lost.
func TestAHandlerThatIsBehindIsStillResynced(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		d, _, goOn := slow(t, s, informer.HandlerOptions{MaxBacklog: 1, Resync: time.Minute}, nil)
		s.ledger.put("a")
		synctest.Wait()
		s.ledger.put("a")
		sleep(time.Minute)
		goOn()
		d.wants(t, "update a@1->3", "update a@3->4", "sync b@2")
		s.ledger.step("a", "c") // behind again, and no resync is due
		d.wants(t, "update a@4->5", "add c@5")
	})
}

func TestAResyncAboveTheBoundIsDelivered(t *testing.T) {
	o := informer.HandlerOptions{MaxBacklog: 1, Resync: time.Minute}
	simulate(t, o, func(t *testing.T, s *informing, d *diary) {
		sleep(time.Minute)
		d.wants(t, "sync a@1", "sync b@2")
	})
}

// client-go drops what is pending without a count, and does not wait for the call under way.
func TestRemovalCanWaitAndCountsWhatItDrops(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		d, r, goOn := slow(t, s, informer.HandlerOptions{}, nil)
		for range 5 {
			s.ledger.put("a")
			synctest.Wait()
		}
		r.Remove()
		r.Remove()
		select {
		case <-r.Done():
			t.Error("done during a call")
		default:
		}
		goOn()
		<-r.Done()
		s.ledger.put("a")
		d.wants(t, "update a@1->3")
		if got := r.Stats(); got.Dropped != 4 || s.Stats().Dropped != 4 || len(s.Stats().Handlers) != 1 {
			t.Errorf("stats %+v of %+v", got, s.Stats())
		}
	})
}

func TestAHandlerMayRemoveItselfAndAddOthers(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		var d, next diary
		r := s.handle(t, &d, informer.HandlerOptions{})
		<-r.Synced()
		d.mu.Lock()
		d.also = func(line string) {
			if line == "add c@3" {
				r.Remove()
				s.handle(t, &next, informer.HandlerOptions{})
			}
		}
		d.mu.Unlock()
		s.ledger.put("c")
		<-r.Done()
		synctest.Wait()
		s.ledger.put("d")
		d.wants(t, "initial a@1", "initial b@2", "add c@3")
		next.wants(t, "initial a@1", "initial b@2", "initial c@3", "add d@4")
	})
}

func TestAHandlerRemovedBeforeRunIsDone(t *testing.T) {
	s, err := informer.NewSharedInformer(informer.Config[*row]{Source: newLedger(), Key: rowKey, Same: sameRow})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.AddHandler(informer.Handler[*row]{}, informer.HandlerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Remove()
	<-r.Done()
	if n := len(s.Stats().Handlers); n != 0 {
		t.Errorf("%d handlers are left", n)
	}
}

// client-go holds a lock while it waits for the calls under way, so that these calls deadlock it.
func TestStopEndsWhileHandlersCallTheInformer(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		d, r, goOn := slow(t, s, informer.HandlerOptions{}, nil)
		d.mu.Lock()
		wait := d.also
		d.also = func(line string) {
			wait(line)
			r.Remove()
			_, err := s.AddHandler(informer.Handler[*row]{}, informer.HandlerOptions{})
			if !errors.Is(err, informer.ErrStopped) {
				t.Errorf("a handler was added with %v", err)
			}
			s.Stats()
			s.Indexer().Snapshot()
		}
		d.mu.Unlock()
		for range 3 {
			s.ledger.put("a")
			synctest.Wait()
		}
		time.AfterFunc(time.Second, goOn)
		s.stop()
		d.wants(t, "update a@1->3")
		if got := r.Stats(); got.Dropped != 2 || s.Stats().Dropped != 2 {
			t.Errorf("stats %+v", got)
		}
		select {
		case <-r.Done():
		default:
			t.Error("the handler is not done")
		}
	})
}

// lingering is a source whose streams take ten seconds to close.
type lingering struct{ *ledger }

type lingeringStream struct{ informer.Stream[*row] }

func (l lingering) Open(ctx context.Context, from informer.Version) (informer.Stream[*row], error) {
	s, err := l.ledger.Open(context.WithoutCancel(ctx), from)
	return lingeringStream{s}, err
}

func (s lingeringStream) Close() error {
	<-time.After(10 * time.Second)
	return s.Stream.Close()
}

func TestNoCallBeginsSoonAfterTheContextEnded(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		s := newInforming(t, l, func(c *informer.Config[*row]) { c.Source = lingering{l} })
		d := diary{also: func(string) { <-time.After(time.Millisecond) }}
		r := s.handle(t, &d, informer.HandlerOptions{})
		s.run(t)
		sleep(time.Second)
		d.wants(t, "initial a@1")
		l.step("b", "c", "d", "e")
		d.wants(t, "add b@2")
		s.stop()
		d.wants(t)
		if got := r.Stats(); got.Delivered != 2 || got.Dropped != 3 {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestStopDuringADifferenceCountsTheRest(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		s := newInforming(t, newLedger("a", "b", "c"), nil)
		var d diary
		d.also = func(string) { go s.stop(); synctest.Wait() }
		r := s.handle(t, &d, informer.HandlerOptions{})
		ready := make(chan struct{})
		d.also = func(string) { <-ready }
		s.run(t)
		r.Remove()
		close(ready)
		<-r.Done()
		if got := r.Stats(); got.Delivered != 1 || got.Dropped != 2 || r.HasSynced() {
			t.Errorf("stats %+v", got)
		}
		s.stop()
	})
}

// The log is shared: memory for ten handlers is that of the one which is furthest behind.
func TestHandlersShareTheLog(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		var all []*informer.Registration[*row]
		var goOn []func()
		for i := range 10 {
			_, r, f := slow(t, s, informer.HandlerOptions{Name: fmt.Sprint(i)}, nil)
			all, goOn = append(all, r), append(goOn, f)
		}
		for range 20 {
			s.ledger.put("a")
			synctest.Wait()
		}
		for _, r := range all {
			if got := r.Stats(); got.Pending != 20 {
				t.Errorf("stats %+v", got)
			}
		}
		for _, f := range goOn {
			f()
		}
		synctest.Wait()
		for _, h := range s.Stats().Handlers {
			if h.Pending > 0 {
				t.Errorf("pending: %+v", h)
			}
		}
	})
}
