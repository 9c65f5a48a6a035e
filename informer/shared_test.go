package informer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// diary is a handler that writes its calls down.
type diary struct {
	mu    sync.Mutex
	lines []string
	also  func(line string) // called for each line, without the lock
}

func (d *diary) write(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	d.mu.Lock()
	d.lines = append(d.lines, line)
	also := d.also
	d.mu.Unlock()
	if also != nil {
		also(line)
	}
}

// take returns the lines since the last call, once all goroutines of the bubble are idle.
func (d *diary) take() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) wants(t *testing.T, want ...string) {
	t.Helper()
	if got := d.take(); !slices.Equal(got, want) {
		t.Errorf("told\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (d *diary) handler() informer.Handler[*row] {
	return informer.Handler[*row]{
		Add: func(r *row, initial bool) {
			d.write("%s %s@%d", map[bool]string{true: "initial", false: "add"}[initial], r.name, r.revision)
		},
		Update: func(old, r *row) {
			if old == r {
				d.write("sync %s@%d", r.name, r.revision)
				return
			}
			d.write("update %s@%d->%d", r.name, old.revision, r.revision)
		},
		Delete: func(gone informer.Deletion[*row]) {
			word := map[bool]string{true: "lost", false: "delete"}[gone.Tombstone]
			d.write("%s %s@%d", word, gone.Key, gone.Object.revision)
		},
	}
}

// informing is an informer under test, in a bubble of synctest.
type informing struct {
	*informer.SharedInformer[*row]
	ledger *ledger
	mu     sync.Mutex
	events []string
	stop   func()
}

func (s *informing) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf(format, args...))
}

// told returns the events, once all goroutines are idle.
func (s *informing) told() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.events, "; ")
}

func newInforming(t *testing.T, l *ledger, change func(*informer.Config[*row])) *informing {
	t.Helper()
	s := &informing{ledger: l}
	cfg := informer.Config[*row]{
		Source: l, Key: rowKey, Same: sameRow,
		Backoff: plimsoll.Backoff{First: time.Second, Longest: 30 * time.Second},
		Events: informer.Events{
			ReflectorEvents: informer.ReflectorEvents{
				Failed: func(err error, _ time.Duration) { s.note("failed: %v", err) },
			},
			Faulted:           func(err error) { s.note("faulted: %v", err) },
			HandlerFailed:     func(h string, err error) { s.note("%s failed: %v", h, err) },
			HandlerFellBehind: func(h string) { s.note("%s fell behind", h) },
			HandlerCaughtUp:   func(h string, missed uint64) { s.note("%s caught up with %d", h, missed) },
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.SharedInformer, err = informer.NewSharedInformer(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *informing) run(t *testing.T) *informing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	synctest.Wait()
	return s
}

func (s *informing) handle(t *testing.T, d *diary, o informer.HandlerOptions) *informer.Registration[*row] {
	t.Helper()
	r, err := s.AddHandler(d.handler(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// simulate runs a test with an informer of a ledger with the rows a and b, and a handler of it.
func simulate(t *testing.T, o informer.HandlerOptions, test func(t *testing.T, s *informing, d *diary)) {
	t.Helper()
	testrun.Bubble(t, func(t *testing.T) {
		s := newInforming(t, newLedger("a", "b"), nil)
		var d diary
		s.handle(t, &d, o)
		s.run(t)
		defer s.stop()
		d.wants(t, "initial a@1", "initial b@2")
		test(t, s, &d)
	})
}

func TestHandlersAreToldAdditionsChangesAndDeletions(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, d *diary) {
		s.ledger.put("c")
		d.wants(t, "add c@3")
		s.ledger.put("a")
		d.wants(t, "update a@1->4")
		s.ledger.remove("b")
		d.wants(t, "delete b@2")
	})
}

// The steps of a message are applied together, and all of them before the first call.
func TestTheIndexHasAChangeBeforeAHandlerIsTold(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, d *diary) {
		d.also = func(string) {
			now := s.Indexer().Snapshot()
			if _, is := now.Get("a"); is || now.Len() != 2 || now.Version().String() != "1.3" {
				t.Errorf("a handler found %d rows at %s", now.Len(), now.Version())
			}
		}
		s.ledger.step("b", "c", "-a")
		d.wants(t, "update b@2->3", "add c@3", "delete a@1")
	})
}

func TestABookmarkMovesTheVersionOfTheIndex(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, d *diary) {
		s.ledger.bookmark()
		d.wants(t)
		if got := s.Indexer().Version().String(); got != "1.3" {
			t.Errorf("the index is at %s", got)
		}
	})
}

// A relist tells its changes to all handlers; unchanged objects to those whose resync is due, which
// is nobody here. client-go shows all of them even to handlers without resyncs, before the first
// period has passed.
func TestARelistTellsOnlyWhatHasChanged(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, d *diary) {
		resyncs := diary{}
		s.handle(t, &resyncs, informer.HandlerOptions{Resync: time.Hour})
		resyncs.wants(t, "initial a@1", "initial b@2")
		s.ledger.cut(errLink)
		s.ledger.step("a", "c")
		s.ledger.step("-b", "d")
		s.ledger.put("b")
		s.ledger.remove("d")
		s.ledger.forget()
		sleep(10 * time.Second)
		want := []string{"update a@1->3", "add c@3", "update b@2->5"}
		for _, d := range []*diary{d, &resyncs} {
			got := d.take()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
	})
}

func TestARelistTellsWhatIsGoneWithItsLastKnownState(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, d *diary) {
		s.ledger.cut(errLink)
		s.ledger.put("b")
		s.ledger.remove("b")
		s.ledger.forget()
		sleep(10 * time.Second)
		d.wants(t, "lost b@2")
	})
}

// The ledger of an unchanged relist is the same, so a resync that is due takes part in it.
func TestARelistIsAResyncForHandlersThatAreDue(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		s := newInforming(t, newLedger("a"), nil).run(t)
		defer s.stop()
		var d, never diary
		s.handle(t, &d, informer.HandlerOptions{Resync: time.Minute})
		s.handle(t, &never, informer.HandlerOptions{})
		sleep(time.Minute)
		d.wants(t, "initial a@1", "sync a@1")
		s.ledger.cut(informer.ErrHistoryTooShort)
		sleep(10 * time.Second)
		d.wants(t)
		never.wants(t, "initial a@1")
	})
}

func TestEachHandlerResyncsAtItsOwnPeriod(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		s := newInforming(t, newLedger("a"), nil).run(t)
		defer s.stop()
		began := time.Now()
		var mu sync.Mutex
		var at [2][]time.Duration
		note := func(i int) func(string) {
			return func(string) {
				mu.Lock()
				defer mu.Unlock()
				at[i] = append(at[i], time.Since(began))
			}
		}
		ten, seven, never := diary{also: note(0)}, diary{also: note(1)}, diary{}
		s.handle(t, &ten, informer.HandlerOptions{Resync: 10 * time.Second})
		s.handle(t, &seven, informer.HandlerOptions{Resync: 7 * time.Second})
		s.handle(t, &never, informer.HandlerOptions{})
		sleep(30 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(at); got != "[[0s 10s 20s 30s] [0s 7s 14s 21s 28s]]" {
			t.Errorf("called at %s", got)
		}
		never.wants(t, "initial a@1")
	})
}

// A change that is queued or in process when the resync begins is told in place of the unchanged
// object.
func TestAResyncShowsOnlyUnchangedObjects(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a", "b", "c")
		s := newInforming(t, l, func(c *informer.Config[*row]) {
			c.Same = func(a, b *row) bool {
				if b.revision == 4 {
					l.put("b")
					<-time.After(2 * time.Second) // the resync begins meanwhile
				}
				return sameRow(a, b)
			}
		})
		var d diary
		s.handle(t, &d, informer.HandlerOptions{Resync: time.Minute})
		s.run(t)
		defer s.stop()
		d.wants(t, "initial a@1", "initial b@2", "initial c@3")
		sleep(59 * time.Second)
		l.put("a")
		sleep(10 * time.Second)
		d.wants(t, "update a@1->4", "update b@2->5", "sync c@3")
	})
}

// A deletion and a list with the same object that wait together leave the object in the index.
func TestAnObjectThatAListBringsBackUnchangedStays(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		a := &row{name: "a", revision: 1}
		at := func(revision uint64) informer.Version { return informer.Version{Revision: revision} }
		source := &script{messages: []informer.Message[*row]{
			{Kind: informer.SnapshotEnd, Version: at(1), Objects: []*row{a}},
			{Kind: informer.Changed, Version: at(2), Deleted: []informer.Deletion[*row]{{Key: "a", Object: a}}},
			{Kind: informer.SnapshotEnd, Version: at(3), Objects: []*row{a}},
		}}
		s := newInforming(t, newLedger(), func(c *informer.Config[*row]) {
			c.Source = source
			c.Indexes = []informer.Index[*row]{{Name: "x", Values: func(r *row, to []string) ([]string, error) {
				<-time.After(time.Millisecond) // until the rest is queued
				return append(to, r.owner), nil
			}}}
		})
		s.run(t)
		defer s.stop()
		sleep(100 * time.Millisecond)
		if got := s.Indexer().Snapshot(); got.Len() != 1 || got.Version() != at(3) {
			t.Errorf("the index has %d rows at %s", got.Len(), got.Version())
		}
	})
}

// Delete and create within one break are one change, as the source's revisions show it.
func TestADeletionAndRecreationDuringABreakAreOneUpdate(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, d *diary) {
		s.ledger.cut(errLink)
		s.ledger.remove("a")
		s.ledger.put("a")
		s.ledger.forget()
		sleep(10 * time.Second)
		d.wants(t, "update a@1->4")
	})
}

// client-go calls OnAdd twice for a key that a list has twice.
func TestAKeyTwiceInASnapshotIsOneAddition(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		r := &row{name: "a", revision: 1}
		source := &script{messages: []informer.Message[*row]{
			{Kind: informer.SnapshotEnd, Version: informer.Version{Revision: 1}, Objects: []*row{r, r}},
		}}
		s := newInforming(t, newLedger(), func(c *informer.Config[*row]) { c.Source = source })
		var d diary
		s.handle(t, &d, informer.HandlerOptions{})
		s.run(t)
		defer s.stop()
		d.wants(t, "initial a@1")
	})
}

// client-go loses the event of a watch over which a function fails, and panics over an index
// function.
func TestAChangeThatCannotBeAppliedIsToldAndComesBackWithARelist(t *testing.T) {
	for name, fail := range map[string]func(){
		"error": nil,
		"panic": func() { panic("no owner") },
	} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				var bad atomic.Bool
				bad.Store(true)
				s := newInforming(t, newLedger("a"), func(c *informer.Config[*row]) {
					c.Indexes = []informer.Index[*row]{{Name: "x", Values: func(r *row, to []string) ([]string, error) {
						if r.name == "b" && bad.Load() {
							if fail != nil {
								fail()
							}
							return nil, errors.New("no owner")
						}
						return append(to, r.owner), nil
					}}}
				})
				var d diary
				s.handle(t, &d, informer.HandlerOptions{})
				s.run(t)
				defer s.stop()
				d.wants(t, "initial a@1")
				s.ledger.put("b")
				s.ledger.put("c")
				d.wants(t)
				if got := s.told(); !strings.Contains(got, "faulted: ") || !strings.Contains(got, "no owner") {
					t.Errorf("told %q", got)
				}
				if got := s.Indexer().Version().String(); got != "1.1" {
					t.Errorf("the index is at %s without b", got)
				}
				bad.Store(false)
				sleep(time.Minute)
				d.wants(t, "add b@2", "add c@3")
				if got := s.Stats(); got.Shown.String() != "1.3" || got.Faults == 0 || got.Objects != 3 {
					t.Errorf("stats %+v", got)
				}
			})
		})
	}
}

// A batch that was queued behind the one that failed is left out: the index never shows a state
// that the source did not have.
func TestNothingIsAppliedBehindALostBatchBeforeTheRelist(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		s := newInforming(t, l, func(c *informer.Config[*row]) {
			failed := false
			c.Indexes = []informer.Index[*row]{{Name: "owner", Values: func(r *row, to []string) ([]string, error) {
				if r.name != "b" || failed {
					return append(to, r.owner), nil
				}
				failed = true
				l.put("c")
				<-time.After(time.Millisecond) // until it is queued
				return nil, errors.New("not now")
			}}}
		})
		var d diary
		s.handle(t, &d, informer.HandlerOptions{})
		s.run(t)
		defer s.stop()
		l.put("b")
		sleep(10 * time.Millisecond)
		d.wants(t, "initial a@1")
		if got := s.Indexer().Version().String(); got != "1.1" {
			t.Errorf("the index is at %s without b", got)
		}
		sleep(time.Second)
		d.wants(t, "add b@2", "add c@3")
	})
}

func TestAFullQueueIsToldAndAnsweredByARelist(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var full int
		s := newInforming(t, newLedger("a"), func(c *informer.Config[*row]) {
			c.MaxQueueBytes = 16 << 10
			c.Events.Overflow = func(informer.Overflow) { full++ }
		})
		var d diary
		held := make(chan struct{})
		d.also = func(string) { <-held }
		s.handle(t, &d, informer.HandlerOptions{})
		s.run(t)
		defer s.stop()
		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprintf("n%02d", i))
		}
		s.ledger.step(many...)
		sleep(time.Minute)
		close(held)
		if got := len(d.take()); full == 0 || got != 101 {
			t.Errorf("the queue was full %d times, and %d calls were made", full, got)
		}
	})
}

// Transform comes before everything else, and once for each object.
func TestTransformIsAppliedOnceBeforeAnythingSeesTheObject(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		var calls []string
		s := newInforming(t, newLedger("a"), func(c *informer.Config[*row]) {
			c.Transform = func(r *row) (*row, error) {
				calls = append(calls, r.name)
				out := *r
				out.owner = "me"
				return &out, nil
			}
			c.Indexes = []informer.Index[*row]{{Name: "owner", Values: func(r *row, to []string) ([]string, error) {
				return append(to, r.owner), nil
			}}}
		})
		var d diary
		s.handle(t, &d, informer.HandlerOptions{})
		s.run(t)
		defer s.stop()
		s.ledger.put("b")
		d.wants(t, "initial a@1", "add b@2")
		n, err := s.Indexer().Snapshot().CountByIndex("owner", "me")
		if n != 2 || err != nil || !slices.Equal(calls, []string{"a", "b"}) {
			t.Errorf("%d of me, %v; transformed %v", n, err, calls)
		}
	})
}

// The channel and the flag of an informer without objects too.
func TestHasSyncedFollowsTheFirstSnapshot(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger()
		l.bookmark()
		l.refuse = errLink
		s := newInforming(t, l, nil)
		var d diary
		r := s.handle(t, &d, informer.HandlerOptions{})
		s.run(t)
		defer s.stop()
		if s.HasSynced() || r.HasSynced() {
			t.Error("synced without a snapshot")
		}
		<-s.Synced()
		<-r.Synced()
		if !s.HasSynced() || !r.HasSynced() {
			t.Error("not synced after it")
		}
		l.cut(errLink)
		l.forget()
		synctest.Wait()
		if !s.HasSynced() || !r.HasSynced() {
			t.Error("it does not stay so")
		}
	})
}

func TestWaitForShowsAReaderItsOwnWrite(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		s.ledger.put("c")
		_, version := s.ledger.now()
		if err := s.Indexer().WaitFor(t.Context(), version); err != nil {
			t.Fatal(err)
		}
		if _, is := s.Indexer().Snapshot().Get("c"); !is {
			t.Error("c is not there")
		}
	})
}

func TestAnInformerRunsOnceAndKeepsItsContent(t *testing.T) {
	simulate(t, informer.HandlerOptions{}, func(t *testing.T, s *informing, _ *diary) {
		s.stop()
		if err := s.Run(t.Context()); err == nil {
			t.Error("it ran twice")
		}
		if n := s.Indexer().Len(); n != 2 || !s.HasSynced() {
			t.Errorf("%d rows are left", n)
		}
		_, err := s.AddHandler(informer.Handler[*row]{}, informer.HandlerOptions{})
		if !errors.Is(err, informer.ErrStopped) {
			t.Errorf("a handler was added with %v", err)
		}
	})
}

func TestInformerNamesWhatIsWrongWithItsConfiguration(t *testing.T) {
	good := informer.Config[*row]{Source: newLedger(), Key: rowKey, Same: sameRow}
	for field, change := range map[string]func(*informer.Config[*row]){
		"Source":  func(c *informer.Config[*row]) { c.Source = nil },
		"Key":     func(c *informer.Config[*row]) { c.Key = nil },
		"Same":    func(c *informer.Config[*row]) { c.Same = nil },
		"Values":  func(c *informer.Config[*row]) { c.Indexes = []informer.Index[*row]{{Name: "x"}} },
		"Backoff": func(c *informer.Config[*row]) { c.Backoff.Longest = -1 },
	} {
		cfg := good
		change(&cfg)
		_, err := informer.NewSharedInformer(cfg)
		var e *plimsoll.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	s, err := informer.NewSharedInformer(good)
	if err != nil {
		t.Fatal(err)
	}
	for field, o := range map[string]informer.HandlerOptions{
		"Resync": {Resync: time.Millisecond}, "MaxBacklog": {MaxBacklog: -1}, "MaxBacklogBytes": {MaxBacklogBytes: -1},
	} {
		_, err := s.AddHandler(informer.Handler[*row]{}, o)
		var e *plimsoll.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
