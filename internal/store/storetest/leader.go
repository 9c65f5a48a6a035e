package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
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
	rival, epoch := openAndLead(t, h)
	if epoch <= old {
		t.Fatalf("the rival's epoch %d is not after %d", epoch, old)
	}
	refused(t, s, withEvents(batch(old, 2, put(wire.KindNode, "a", "2")), 0, 1), plimsoll.CodeStale)
	if err := s.Confirm(context.Background()); plimsoll.CodeOf(err) != plimsoll.CodeStale {
		t.Fatalf("confirm of the old leader: got %v, want code %v", err, plimsoll.CodeStale)
	}
	holds(t, rival, want)
	commit(t, rival, batch(epoch, 2, put(wire.KindNode, "a", "rival")))
	want.Records[0].Value, want.Revision, want.Time = "rival", 2, timeOf(2)
	holds(t, rival, want)
}
