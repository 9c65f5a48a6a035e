package informer_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// witness is a handler that keeps a copy of its own, and holds each call against it.
type witness struct {
	t      *testing.T
	name   string
	pace   func() time.Duration
	resync bool

	mu     sync.Mutex
	rows   map[string]*row
	latest map[string]uint64 // the highest revision told of each name, also of those deleted
}

func newWitness(t *testing.T, name string, resync bool, pace func() time.Duration) *witness {
	return &witness{t: t, name: name, resync: resync, pace: pace, rows: map[string]*row{}, latest: map[string]uint64{}}
}

// told holds a call against the copy, and takes its time.
func (w *witness) told(change func() error) {
	w.mu.Lock()
	err := change()
	w.mu.Unlock()
	if err != nil {
		w.t.Errorf("%s: %v", w.name, err)
	}
	if d := w.pace(); d > 0 {
		<-time.After(d)
	}
}

// advance checks that the row is newer than all that was told of its name.
func (w *witness) advance(r *row) error {
	if r.revision <= w.latest[r.name] {
		return fmt.Errorf("told %s@%d after %d", r.name, r.revision, w.latest[r.name])
	}
	w.latest[r.name], w.rows[r.name] = r.revision, r
	return nil
}

func (w *witness) handler() informer.Handler[*row] {
	return informer.Handler[*row]{
		Add: func(r *row, _ bool) {
			w.told(func() error {
				if w.rows[r.name] != nil {
					return fmt.Errorf("told of the addition of %s twice", r.name)
				}
				return w.advance(r)
			})
		},
		Update: func(old, r *row) {
			w.told(func() error {
				switch was := w.rows[r.name]; {
				case was == nil:
					return fmt.Errorf("told of a change of %s, which was not there", r.name)
				case was.revision != old.revision:
					return fmt.Errorf("told of %s@%d as the former %d", r.name, old.revision, was.revision)
				case old.revision == r.revision && !w.resync:
					return fmt.Errorf("told of %s@%d, which has not changed", r.name, r.revision)
				case old.revision == r.revision:
					return nil
				}
				return w.advance(r)
			})
		},
		Delete: func(d informer.Deletion[*row]) {
			w.told(func() error {
				switch was := w.rows[d.Key]; {
				case was == nil:
					return fmt.Errorf("told of the deletion of %s, which was not there", d.Key)
				case d.Object == nil || d.Object.revision < was.revision:
					return fmt.Errorf("told of the deletion of %s in a former state", d.Key)
				}
				delete(w.rows, d.Key)
				return nil
			})
		},
	}
}

// starting adds Reset, which begins the copy anew.
func (w *witness) starting() informer.Handler[*row] {
	h := w.handler()
	h.Reset = func(now *informer.Snapshot[*row]) {
		w.told(func() error {
			rows := map[string]*row{}
			for name, r := range now.All() {
				if r.revision < w.latest[name] {
					return fmt.Errorf("reset with %s@%d after %d", name, r.revision, w.latest[name])
				}
				rows[name], w.latest[name] = r, r.revision
			}
			w.rows = rows
			return nil
		})
	}
	return h
}

// compare reports whether the copy is the source's state.
func (w *witness) compare(want map[string]*row) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !maps.EqualFunc(w.rows, want, sameRow) {
		return fmt.Errorf("%s ends with %d rows, the source with %d", w.name, len(w.rows), len(want))
	}
	return nil
}

// Every handler ends with the source's state, by all faults of the source. It is told each key's
// changes in their order, and none twice.
func TestEveryHandlerEndsWithTheStateOfTheSource(t *testing.T) {
	inRounds(t, testrun.Count(20, 80, 5000), endsWithTheState)
}

// inRounds runs a random test so many times, each in a bubble of its own.
func inRounds(t *testing.T, rounds int, test func(*testing.T, *rand.Rand)) {
	t.Helper()
	seed := testrun.Seed(t)
	for round := range rounds {
		testrun.Bubble(t, func(t *testing.T) { test(t, rand.New(rand.NewPCG(seed, uint64(round)))) })
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func endsWithTheState(t *testing.T, rng *rand.Rand) {
	l := newLedger("a", "b", "c")
	l.keep, l.parts = 1+rng.IntN(20), rng.IntN(3)
	var failing sync.Map // names that cannot be indexed for now
	s := newInforming(t, l, func(c *informer.Config[*row]) {
		c.MaxQueueBytes = 4 << 10 << rng.IntN(8)
		c.Events.Failed, c.Events.Faulted = nil, nil
		c.Indexes = []informer.Index[*row]{{Name: "owner", Values: func(r *row, to []string) ([]string, error) {
			if _, is := failing.Load(r.name); is {
				return nil, errors.New("not now")
			}
			return append(to, r.owner), nil
		}}}
	})
	var witnesses []*witness
	add := func() {
		pace := func() time.Duration { return 0 }
		if most := rng.IntN(300); most > 0 && rng.IntN(2) == 0 {
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			pace = func() time.Duration { return time.Duration(own.IntN(most)) * time.Millisecond }
		}
		o := informer.HandlerOptions{MaxBacklog: 1 + rng.IntN(8)}
		if rng.IntN(3) == 0 {
			o.Resync = time.Second + time.Duration(rng.IntN(5000))*time.Millisecond
		}
		w := newWitness(t, fmt.Sprintf("handler %d", len(witnesses)), o.Resync > 0, pace)
		h := w.handler()
		if rng.IntN(4) == 0 {
			h = w.starting()
		}
		if _, err := s.AddHandler(h, o); err != nil {
			t.Error(err)
		}
		witnesses = append(witnesses, w)
	}
	add()
	add()
	s.run(t)
	defer s.stop()
	for range 60 + rng.IntN(100) {
		randomStep(l, rng, &failing, add)
	}
	failing.Clear()
	l.set(func(l *ledger) { l.refuse, l.snapshots, l.cutsInList = nil, false, false })
	sleep(20 * time.Minute) // longer than every pause, resync and slow handler

	want, version := l.now()
	if got := s.Indexer().Snapshot(); got.Version() != version || got.Len() != len(want) {
		t.Errorf("the index has %d rows at %s, the source %d at %s", got.Len(), got.Version(), len(want), version)
	}
	for _, w := range witnesses {
		if err := w.compare(want); err != nil {
			t.Error(err)
		}
	}
}

// randomStep changes the ledger, breaks its streams, or lets time pass.
func randomStep(l *ledger, rng *rand.Rand, failing *sync.Map, addHandler func()) {
	name := func() string { return string(rune('a' + rng.IntN(12))) }
	switch n := rng.IntN(100); {
	case n < 40:
		l.put(name())
	case n < 55:
		if one := name(); l.has(one) {
			l.remove(one)
		}
	case n < 60:
		var step []string
		for i := range 1 + rng.IntN(10) {
			step = append(step, string(rune('a'+i)))
		}
		l.step(step...)
	case n < 65:
		l.bookmark()
	case n < 70:
		l.cut([]error{errLink, io.EOF, informer.ErrHistoryTooShort}[rng.IntN(3)])
	case n < 73:
		l.forget()
	case n < 75:
		l.elect()
		l.bookmark()
	case n < 78:
		l.set(func(l *ledger) { l.refuse = []error{errLink, informer.ErrHistoryTooShort}[rng.IntN(2)] })
	case n < 80:
		l.set(func(l *ledger) { l.snapshots = !l.snapshots })
	case n < 82:
		l.set(func(l *ledger) { l.cutsInList = true })
	case n < 84:
		addHandler()
	case n < 86:
		one := name()
		if _, is := failing.LoadOrStore(one, true); is {
			failing.Delete(one)
		}
	case n < 93:
		synctest.Wait()
	default:
		sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
	}
}
