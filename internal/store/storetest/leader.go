package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// leaderCases test epochs and fencing.
var leaderCases = []testCase{
	{"each epoch is higher than all before, also after a reopening", func(t *testing.T, h Harness) {
		s := open(t, h)
		var last uint64
		for range 3 {
			for range 3 {
				epoch := lead(t, s)
				if epoch <= last {
					t.Fatalf("epoch %d came after %d", epoch, last)
				}
				last = epoch
			}
			s = reopen(t, h, s)
		}
	}},
	{"an epoch changes nothing else", func(t *testing.T, h Harness) {
		s, epoch := openAndLead(t, h)
		b := withEvents(batch(epoch, 4, put(wire.KindNode, "a", "1")), 0, 1)
		commit(t, s, b)
		lead(t, s)
		holds(
			t, s,
			Content{
				Records: []Record{{wire.KindNode, "a", "1"}}, Chunks: []Chunk{chunkOf(b)}, Revision: 4, Time: timeOf(4),
			},
		)
	}},
	{"only the leader is confirmed", func(t *testing.T, h Harness) {
		s := open(t, h)
		if err := s.Confirm(context.Background()); plimsoll.CodeOf(err) != plimsoll.CodeStale {
			t.Errorf("before lead: got %v, want code %v", err, plimsoll.CodeStale)
		}
		lead(t, s)
		if err := s.Confirm(context.Background()); err != nil {
			t.Errorf("after lead: %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Confirm(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that ended: got %v, want %v", err, context.Canceled)
		}
		if _, err := s.Lead(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("lead with a context that ended: got %v, want %v", err, context.Canceled)
		}
	}},
	{"who does not lead can commit nothing", func(t *testing.T, h Harness) {
		s := open(t, h)
		refused(t, s, batch(0, 1, put(wire.KindNode, "a", "1")), plimsoll.CodeStale)
		refused(t, s, batch(1, 1, put(wire.KindNode, "a", "1")), plimsoll.CodeStale)
		holds(t, s, Content{})
	}},
	{"a batch of an older or a future epoch is refused and leaves nothing", func(t *testing.T, h Harness) {
		s, old := openAndLead(t, h)
		commit(t, s, batch(old, 1, put(wire.KindNode, "a", "1")))
		epoch := lead(t, s)
		refused(t, s, withEvents(batch(old, 2, put(wire.KindNode, "a", "2")), 0, 1), plimsoll.CodeStale)
		refused(t, s, withEvents(batch(epoch+1, 2, put(wire.KindNode, "a", "2")), 0, 1), plimsoll.CodeStale)
		holds(t, s, Content{Records: []Record{{wire.KindNode, "a", "1"}}, Revision: 1, Time: timeOf(1)})
		commit(t, s, batch(epoch, 2, put(wire.KindNode, "a", "3")))
	}},
	{"two who open the store cannot both write", rivals},
	{"the next in the line leads when a leader closes or is deposed", succession},
	{"who waits to lead can give up", impatience},
}

func rivals(t *testing.T, h Harness) {
	s, old := openAndLead(t, h)
	commit(t, s, batch(old, 1, put(wire.KindNode, "a", "1")))
	want := Content{Records: []Record{{wire.KindNode, "a", "1"}}, Revision: 1, Time: timeOf(1)}
	if h.Openers == OneOpener {
		second, err := h.Open()
		if err == nil {
			t.Fatalf("a second open succeeded; its close: %v", second.Close())
		}
		if plimsoll.CodeOf(err) != plimsoll.CodeAlreadyRunning {
			t.Fatalf("a second open: got %v, want code %v", err, plimsoll.CodeAlreadyRunning)
		}
		if err := s.Confirm(context.Background()); err != nil {
			t.Fatalf("confirm after a second open was refused: %v", err)
		}
		commit(t, s, batch(old, 2))
		want.Revision, want.Time = 2, timeOf(2)
		holds(t, reopen(t, h, s), want)
		return
	}
	rival := open(t, h)
	leads := leadWhile(t, rival)
	commit(t, s, batch(old, 2))
	depose(t, h, s)
	refused(t, s, withEvents(batch(old, 3, put(wire.KindNode, "a", "2")), 0, 1), plimsoll.CodeStale)
	epoch := leads()
	if epoch <= old {
		t.Fatalf("the rival's epoch %d is not after %d", epoch, old)
	}
	refused(t, s, withEvents(batch(old, 3, put(wire.KindNode, "a", "2")), 0, 1), plimsoll.CodeStale)
	if err := s.Confirm(context.Background()); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Fatalf("confirm of the old leader: got %v, want code %v", err, plimsoll.CodeStale)
	}
	want.Revision, want.Time = 2, timeOf(2)
	holds(t, rival, want)
	commit(t, rival, batch(epoch, 3, put(wire.KindNode, "a", "rival")))
	want.Records[0].Value, want.Revision, want.Time = "rival", 3, timeOf(3)
	holds(t, rival, want)
	holds(t, s, want)
}

// depose ends the leadership of a store, and waits until the store tells so.
func depose(t *testing.T, h Harness, s store.Store) {
	t.Helper()
	if err := h.Depose(s); err != nil {
		t.Fatalf("depose: %v", err)
	}
	select {
	case <-s.Deposed():
	case <-t.Context().Done():
		t.Fatal("the deposed leader is not told so")
	}
	if err := s.Confirm(context.Background()); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Fatalf("confirm after Deposed was closed: got %v, want code %v", err, plimsoll.CodeStale)
	}
}

// leadWhile lets a store wait to lead while another one leads. It returns when the store waits,
// with a function that returns the epoch.
func leadWhile(t *testing.T, s store.Store) func() uint64 {
	t.Helper()
	waits := make(chan struct{})
	var once sync.Once
	epoch, failed := make(chan uint64, 1), make(chan error, 1)
	go func() {
		e, err := s.Lead(t.Context(), func(string) { once.Do(func() { close(waits) }) })
		failed <- err
		epoch <- e
	}()
	select {
	case <-waits:
	case err := <-failed:
		t.Fatalf("a second process led beside the first, or failed: %v", err)
	}
	return func() uint64 {
		if err := <-failed; err != nil {
			t.Fatalf("lead after the other was deposed: %v", err)
		}
		return <-epoch
	}
}

// succession tests that the next in the line leads after each end of a leadership.
func succession(t *testing.T, h Harness) {
	if h.Openers == OneOpener {
		s, _ := openAndLead(t, h)
		select {
		case <-s.Deposed():
			t.Fatal("a store that one process can have open closes Deposed")
		default:
		}
		return
	}
	first, last := openAndLead(t, h)
	for round := range 3 {
		next := open(t, h)
		leads := leadWhile(t, next)
		gone := first.Deposed()
		if round%2 == 0 {
			if err := first.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			select {
			case <-gone:
				t.Fatal("Close closes Deposed")
			default:
			}
		} else {
			depose(t, h, first)
		}
		epoch := leads()
		if epoch <= last {
			t.Fatalf("epoch %d came after %d", epoch, last)
		}
		commit(t, next, batch(epoch, uint64(round)+1, put(wire.KindNode, "leader", fmt.Sprint(round))))
		first, last = next, epoch
	}
	holds(t, first, Content{Records: []Record{{wire.KindNode, "leader", "2"}}, Revision: 3, Time: timeOf(3)})
}

// impatience tests that a process that waits to lead can give up, and leaves no trace.
func impatience(t *testing.T, h Harness) {
	s, epoch := openAndLead(t, h)
	if h.Openers == OneOpener {
		return // nobody waits
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := open(t, h).Lead(ctx, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	commit(t, s, batch(epoch, 1))
	third := open(t, h)
	leads := leadWhile(t, third)
	depose(t, h, s)
	commit(t, third, batch(leads(), 2))
}
