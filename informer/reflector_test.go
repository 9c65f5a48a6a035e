package informer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

var errLink = errors.New("the link broke")

// receiver writes down what a reflector gives it.
type receiver struct {
	mu     sync.Mutex
	took   []string
	refuse error // the next call returns it
}

func (r *receiver) Replace(rows []*row, at informer.Version) error {
	return r.take(fmt.Sprintf("replace %s at %s", names(rows), at))
}

func (r *receiver) Change(rows []*row, deleted []informer.Deletion[*row], at informer.Version) error {
	text := "change " + names(rows)
	for _, d := range deleted {
		text += "-" + d.Key
	}
	return r.take(text + " at " + at.String())
}

func (r *receiver) take(text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refuse; err != nil {
		r.refuse = nil
		return err
	}
	r.took = append(r.took, text)
	return nil
}

func names(rows []*row) string {
	var out []string
	for _, r := range rows {
		out = append(out, r.name)
	}
	return strings.Join(out, ",")
}

// reflection is a reflector under test, in a bubble of synctest.
type reflection struct {
	*informer.Reflector[*row]
	receiver receiver
	mu       sync.Mutex
	errs     []error
	waits    []time.Duration
	stop     func()
}

// failed returns the errors that were told, and pauses what followed each.
func (r *reflection) failed() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

func (r *reflection) pauses() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.waits)
}

func reflect(t *testing.T, source informer.Source[*row], change func(*informer.ReflectorConfig[*row])) *reflection {
	t.Helper()
	r := &reflection{}
	cfg := informer.ReflectorConfig[*row]{
		Source: source, Receiver: &r.receiver,
		Backoff: plimsoll.Backoff{First: time.Second, Longest: 30 * time.Second},
		Events: informer.ReflectorEvents{Failed: func(err error, pause time.Duration) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errs, r.waits = append(r.errs, err), append(r.waits, pause)
		}},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.Reflector, err = informer.NewReflector(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	}
	synctest.Wait()
	return r
}

func (r *reflection) wants(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.receiver.mu.Lock()
	defer r.receiver.mu.Unlock()
	if !slices.Equal(r.receiver.took, want) {
		t.Errorf("took\n%s\nwant\n%s", strings.Join(r.receiver.took, "\n"), strings.Join(want, "\n"))
	}
}

// sleep passes time in the bubble.
func sleep(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestReflectorTakesASnapshotAndThenFollows(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a", "b", "c")
		l.parts = 2
		r := reflect(t, l, nil)
		defer r.stop()
		r.wants(t, "replace a,b,c at 1.3")
		l.step("d", "-a")
		l.bookmark()
		r.wants(t, "replace a,b,c at 1.3", "change d-a at 1.4", "change  at 1.5")
		if got := r.Version().String(); got != "1.5" {
			t.Errorf("it has reached %s", got)
		}
	})
}

func TestReflectorResumesWhereItWas(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		defer r.stop()
		l.cut(errLink)
		l.put("b")
		sleep(time.Second)
		l.put("c")
		r.wants(t, "replace a at 1.1", "change b at 1.2", "change c at 1.3")
		if got := fmt.Sprint(l.opens()); got != "[0.0 1.1]" {
			t.Errorf("opened from %s", got)
		}
	})
}

// After an orderly end there is neither a list nor a pause, unless the stream was brief.
func TestReflectorOpensTheNextStreamAtOnceAfterAnOrderlyEnd(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		defer r.stop()
		sleep(5 * time.Minute)
		l.cut(io.EOF)
		synctest.Wait()
		if got := fmt.Sprint(l.opens()); got != "[0.0 1.1]" || len(r.failed()) > 0 {
			t.Errorf("opened from %s, with errors %v", got, r.failed())
		}
		l.cut(io.EOF) // the second has lived for no time
		synctest.Wait()
		if len(l.opens()) != 2 || len(r.failed()) != 1 {
			t.Errorf("opened %d times after a brief stream, with errors %v", len(l.opens()), r.failed())
		}
		sleep(time.Second)
		if len(l.opens()) != 3 {
			t.Errorf("opened %d times after the pause", len(l.opens()))
		}
	})
}

func TestReflectorListsAgainWhenTheHistoryIsTooShort(t *testing.T) {
	for _, inStream := range []bool{false, true} {
		t.Run(fmt.Sprintf("inStream=%t", inStream), func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				l := newLedger("a", "b")
				r := reflect(t, l, nil)
				defer r.stop()
				sleep(time.Minute)
				if inStream {
					l.cut(fmt.Errorf("wrapped: %w", informer.ErrHistoryTooShort))
				} else {
					l.cut(io.EOF)
					l.remove("a")
					l.forget()
				}
				synctest.Wait()
				want := map[bool]string{false: "replace b at 1.3", true: "replace a,b at 1.2"}[inStream]
				r.wants(t, "replace a,b at 1.2", want)
				errs := r.failed()
				if len(errs) != 1 || !errors.Is(errs[0], informer.ErrHistoryTooShort) || r.pauses()[0] != 0 {
					t.Errorf("told %v with pauses %v", r.failed(), r.pauses())
				}
				l.cut(informer.ErrHistoryTooShort) // again without a quiet time
				synctest.Wait()
				if len(r.pauses()) != 2 || r.pauses()[1] == 0 {
					t.Errorf("the second relist in a row had pauses %v", r.pauses())
				}
			})
		})
	}
}

// The pause doubles, half of it is random, and a stream that has lasted long begins anew.
func TestReflectorWaitsLongerAfterEachFailure(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		defer r.stop()
		for i, longest := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			longest *= time.Second
			l.cut(errLink)
			synctest.Wait()
			if got := r.pauses()[i]; got < longest/2 || got > longest {
				t.Errorf("failure %d: a pause of %s, want half to all of %s", i+1, got, longest)
			}
			sleep(longest)
		}
		sleep(time.Minute)
		l.cut(errLink)
		synctest.Wait()
		if got := r.pauses()[7]; got > time.Second {
			t.Errorf("after a quiet time: a pause of %s", got)
		}
	})
}

// client-go tells its handler of errors only when a list or a watch begins.
func TestReflectorTellsEveryError(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		l.refuse = errLink
		r := reflect(t, l, nil)
		defer r.stop()
		sleep(time.Minute)
		l.cut(errLink)
		sleep(time.Minute)
		l.cut(io.ErrUnexpectedEOF)
		synctest.Wait()
		if len(r.failed()) != 3 || !errors.Is(r.failed()[0], errLink) || !errors.Is(r.failed()[1], errLink) ||
			!errors.Is(r.failed()[2], io.ErrUnexpectedEOF) {
			t.Errorf("told %v", r.failed())
		}
	})
}

// client-go logs the store's error, advances, and the event is lost until a relist.
func TestReflectorListsAgainWhenItsReceiverRefusesAChange(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		defer r.stop()
		r.receiver.mu.Lock()
		r.receiver.refuse = errors.New("a bad key")
		r.receiver.mu.Unlock()
		l.put("b")
		synctest.Wait()
		if got := r.Version().String(); got != "1.1" {
			t.Errorf("it has reached %s without the change", got)
		}
		sleep(time.Second)
		r.wants(t, "replace a at 1.1", "replace a,b at 1.2")
		if len(r.failed()) != 1 || !strings.Contains(r.failed()[0].Error(), "a bad key") {
			t.Errorf("told %v", r.failed())
		}
	})
}

func TestReflectorTriesARefusedSnapshotAgain(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, func(c *informer.ReflectorConfig[*row]) {
			c.Receiver.(*receiver).refuse = errors.New("a bad key")
		})
		defer r.stop()
		sleep(time.Second)
		r.wants(t, "replace a at 1.1")
	})
}

func TestReflectorListsAgainWhenItsOwnerAsks(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		defer r.stop()
		reason := errors.New("the batch is lost")
		r.Relist(reason)
		sleep(time.Second)
		r.wants(t, "replace a at 1.1", "replace a at 1.1")
		if len(r.failed()) != 1 || !errors.Is(r.failed()[0], reason) {
			t.Errorf("told %v", r.failed())
		}
	})
}

// relisting is a receiver that asks for a list while it takes a change.
type relisting struct {
	*receiver
	relist func()
}

func (r *relisting) Change(rows []*row, gone []informer.Deletion[*row], at informer.Version) error {
	r.relist()
	return r.receiver.Change(rows, gone, at)
}

func TestReflectorListsAgainWhenAskedDuringAChange(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		re := &relisting{}
		r := reflect(t, l, func(c *informer.ReflectorConfig[*row]) {
			re.receiver = c.Receiver.(*receiver)
			c.Receiver = re
		})
		defer r.stop()
		re.relist = sync.OnceFunc(func() { r.Relist(errors.New("the batch is lost")) })
		l.put("b")
		sleep(time.Second)
		r.wants(t, "replace a at 1.1", "change b at 1.2", "replace a,b at 1.2")
	})
}

// The pause after the break is under way when the owner asks.
func TestReflectorTellsAndWaitsWhenAskedBetweenTwoStreams(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		defer r.stop()
		l.cut(errLink)
		synctest.Wait()
		reason := errors.New("the batch is lost")
		r.Relist(reason)
		sleep(time.Second)
		r.wants(t, "replace a at 1.1")
		if errs := r.failed(); len(errs) != 2 || !errors.Is(errs[1], reason) || r.pauses()[1] == 0 {
			t.Errorf("told %v with the pauses %v", errs, r.pauses())
		}
		sleep(2 * time.Second)
		r.wants(t, "replace a at 1.1", "replace a at 1.1")
		if n := len(r.failed()); n != 2 {
			t.Errorf("told %d times", n)
		}
	})
}

// bursting is a receiver that panics over one change.
type bursting struct {
	*receiver
	burst func()
}

func (b *bursting) Change(rows []*row, gone []informer.Deletion[*row], at informer.Version) error {
	b.burst()
	return b.receiver.Change(rows, gone, at)
}

func TestReflectorListsAgainWhenItsReceiverPanics(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		burst := true
		bad := &bursting{burst: func() {
			if burst {
				burst = false
				panic("no key")
			}
		}}
		r := reflect(t, l, func(c *informer.ReflectorConfig[*row]) {
			bad.receiver = c.Receiver.(*receiver)
			c.Receiver = bad
		})
		defer r.stop()
		l.put("b")
		sleep(time.Second)
		r.wants(t, "replace a at 1.1", "replace a,b at 1.2")
		var p *informer.PanicError
		if len(r.failed()) != 1 || !errors.As(r.failed()[0], &p) || p.Value != "no key" {
			t.Errorf("told %v", r.failed())
		}
	})
}

func TestReflectorTakesASnapshotInPlaceOfAResume(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		defer r.stop()
		l.set(func(l *ledger) { l.snapshots = true })
		l.cut(errLink)
		l.put("b")
		sleep(time.Second)
		r.wants(t, "replace a at 1.1", "replace a,b at 1.2")
	})
}

// A snapshot that breaks off is forgotten whole.
func TestReflectorForgetsASnapshotWithoutItsEnd(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a", "b")
		l.parts, l.cutsInList = 1, true
		r := reflect(t, l, nil)
		defer r.stop()
		r.wants(t)
		sleep(time.Second)
		r.wants(t, "replace a,b at 1.2")
	})
}

func TestReflectorFollowsANewEpoch(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		defer r.stop()
		sleep(time.Minute)
		l.elect()
		l.put("b")
		l.cut(errLink)
		sleep(time.Second)
		r.wants(t, "replace a at 1.1", "replace a,b at 2.1")
	})
}

// script is a Source whose every stream has the same messages and then breaks.
type script struct {
	messages []informer.Message[*row]
	froms    []informer.Version
	at       int
}

func (s *script) Open(_ context.Context, from informer.Version) (informer.Stream[*row], error) {
	s.froms, s.at = append(s.froms, from), 0
	return s, nil
}

func (s *script) Next() (m informer.Message[*row], err error) {
	if s.at == len(s.messages) {
		return m, io.ErrUnexpectedEOF
	}
	s.at++
	return s.messages[s.at-1], nil
}

func (s *script) Close() error { return nil }

func TestReflectorRefusesMessagesOutOfOrder(t *testing.T) {
	at := func(kind informer.MessageKind, revision uint64, names ...string) informer.Message[*row] {
		m := informer.Message[*row]{Kind: kind, Version: informer.Version{Revision: revision}}
		for _, name := range names {
			m.Objects = append(m.Objects, &row{name: name})
		}
		return m
	}
	part, end, changed, bookmark := informer.SnapshotPart, informer.SnapshotEnd, informer.Changed, informer.Bookmark
	for _, test := range []struct {
		name     string
		messages []informer.Message[*row]
		err      string
	}{
		{"a change before a snapshot", []informer.Message[*row]{at(changed, 1)}, "Changed at 0.1 before the end"},
		{"a bookmark before a snapshot", []informer.Message[*row]{at(bookmark, 1)}, "Bookmark at 0.1 before the end"},
		{"a change within a snapshot", []informer.Message[*row]{at(part, 0), at(changed, 1)}, "the end of a snapshot"},
		{"a change twice", []informer.Message[*row]{at(end, 3), at(changed, 4), at(changed, 4)}, "0.4 has been seen"},
		{"a change that was", []informer.Message[*row]{at(end, 3), at(changed, 2)}, "0.3 has been seen"},
		{"a bookmark that was", []informer.Message[*row]{at(end, 3), at(bookmark, 2)}, "0.3 has been seen"},
		{"a snapshot that was", []informer.Message[*row]{at(end, 3), at(end, 2)}, "shows 0.2, and 0.3 has been seen"},
		{"a snapshot without a version", []informer.Message[*row]{at(end, 0)}, "has no version"},
		{"an unknown kind", []informer.Message[*row]{at(end, 3), at(99, 4)}, "unknown kind 99"},
		{"a snapshot without end", []informer.Message[*row]{at(part, 0, "a", "b"), at(part, 0, "c")}, "MaxSnapshot"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				s := &script{messages: test.messages}
				r := reflect(t, s, func(c *informer.ReflectorConfig[*row]) { c.MaxSnapshotBytes = 2 << 10 })
				if len(r.failed()) != 1 || !strings.Contains(r.failed()[0].Error(), test.err) {
					t.Errorf("told %v, want %q", r.failed(), test.err)
				}
				sleep(time.Second)
				r.stop()
				if len(s.froms) < 2 || !s.froms[1].IsZero() {
					t.Errorf("opened from %v, want a new snapshot", s.froms)
				}
			})
		})
	}
}

func TestReflectorTakesABookmarkTwice(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		v := informer.Version{Revision: 7}
		s := &script{messages: []informer.Message[*row]{
			{Kind: informer.SnapshotEnd, Version: v},
			{Kind: informer.Bookmark, Version: v},
			{Kind: informer.Bookmark, Version: v},
		}}
		r := reflect(t, s, nil)
		defer r.stop()
		if len(r.failed()) != 1 || !errors.Is(r.failed()[0], io.ErrUnexpectedEOF) {
			t.Errorf("told %v", r.failed())
		}
	})
}

type panicking struct{}

func (panicking) Open(context.Context, informer.Version) (informer.Stream[*row], error) {
	panic("no socket")
}

func TestReflectorTurnsAPanicOfItsSourceIntoAnError(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		r := reflect(t, panicking{}, nil)
		defer r.stop()
		var p *informer.PanicError
		if len(r.failed()) != 1 || !errors.As(r.failed()[0], &p) || p.Value != "no socket" || len(p.Stack) == 0 {
			t.Errorf("told %v", r.failed())
		}
	})
}

// deaf is a stream that heeds Close alone.
type deaf struct{ *ledgerStream }

func (d deaf) Next() (m informer.Message[*row], err error) {
	<-d.ended
	return m, io.ErrClosedPipe
}

type deafSource struct{ *ledger }

func (s deafSource) Open(ctx context.Context, from informer.Version) (informer.Stream[*row], error) {
	inner, err := s.ledger.Open(ctx, from)
	return deaf{inner.(*ledgerStream)}, err
}

func TestReflectorClosesEveryStreamAndEndsWhileOneBlocks(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newLedger("a")
		r := reflect(t, l, nil)
		for range 3 {
			l.cut(errLink)
			sleep(time.Minute)
		}
		r.stop()
		if len(l.opens()) != 4 || l.closed != 4 {
			t.Errorf("%d streams were opened, %d closed", len(l.opens()), l.closed)
		}
		reflect(t, deafSource{l}, nil).stop()
	})
}

func TestReflectorNamesWhatIsWrongWithItsConfiguration(t *testing.T) {
	good := informer.ReflectorConfig[*row]{Source: newLedger(), Receiver: &receiver{}}
	for field, change := range map[string]func(*informer.ReflectorConfig[*row]){
		"Source":           func(c *informer.ReflectorConfig[*row]) { c.Source = nil },
		"Receiver":         func(c *informer.ReflectorConfig[*row]) { c.Receiver = nil },
		"Backoff":          func(c *informer.ReflectorConfig[*row]) { c.Backoff.First = -1 },
		"MaxSnapshotBytes": func(c *informer.ReflectorConfig[*row]) { c.MaxSnapshotBytes = -1 },
	} {
		cfg := good
		change(&cfg)
		_, err := informer.NewReflector(cfg)
		var e *plimsoll.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
