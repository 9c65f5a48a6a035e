package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func reportHistorian(name, instance string, next uint64) *pb.Command {
	return &pb.Command{Kind: &pb.Command_ReportHistorian{
		ReportHistorian: &pb.ReportHistorianRequest{Name: name, InstanceUuid: instance, Next: next},
	}}
}

// sameEvents compares the events of the leader with those of gateways.
func sameEvents(t *testing.T, l *leader, gateways ...*replica.Follower) (low uint64, all []string) {
	t.Helper()
	low, all = events(t, l.Latest())
	for i, f := range gateways {
		s, err := f.Barrier(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if from, got := events(t, s); from != low || !slices.Equal(got, all) {
			t.Errorf("gateway %d has %d events from %d on, the leader %d from %d on", i, len(got), from, len(all), low)
		}
	}
	return low, all
}

// A registered historian that is away finds every event, although the ring has wrapped many times:
// at the leader, at gateways that follow and at fresh ones, and at the next leader. When it has
// come further, or is removed, they go.
func TestEventsAreHeldBackForAHistorian(t *testing.T) {
	fs := vfs.NewMem()
	now := int64(time.Hour)
	cfg := Config{Now: func() int64 { now += int64(3 * time.Second); return now }}
	l := lead(t, cfg, openStore(t, fs, store.Limits{}))
	l.must(setEvents("ringBufferCapacity", "5"))
	instance, from := l.Latest().InstanceUUID(), l.Latest().Events().Next()
	l.must(reportHistorian("h", instance, from))
	ctx, cancel := context.WithCancel(t.Context())
	following := l.follow(ctx, "following")
	for i := range 40 {
		l.must(submit(job(fmt.Sprintf("a%d", i), 1)))
	}
	low, all := sameEvents(t, l, following, l.follow(ctx, "fresh"))
	if low > from || len(all) < 200 {
		t.Errorf("%d events are shown from %d on; the historian lacks those from %d on", len(all), low, from)
	}
	cancel()
	l.stop()

	l = lead(t, cfg, openStore(t, fs, store.Limits{}))
	defer l.stop()
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	following = l.follow(ctx, "following")
	if again, got := sameEvents(t, l, following); again > from || len(got) < len(all) {
		t.Errorf("the next leader shows %d events from %d on", len(got), again)
	}
	if got := l.Latest().InstanceUUID(); got != instance {
		t.Errorf("the next leader counts for %s, the former one for %s", got, instance)
	}
	next := l.Latest().Events().Next()
	l.must(reportHistorian("h", instance, next-20))
	if low, _ := sameEvents(t, l, following, l.follow(ctx, "fresh2")); low > next-20 || low < next-30 {
		t.Errorf("the events begin at %d; the historian lacks those from %d on", low, next-20)
	}
	l.must(&pb.Command{Kind: &pb.Command_RemoveHistorian{RemoveHistorian: &pb.RemoveHistorianRequest{Name: "h"}}})
	if low, _ := sameEvents(t, l, following); low != next-5 {
		t.Errorf("the events begin at %d without a historian, want %d", low, next-5)
	}
	if n := l.term.metrics.events.unread.Load(); n != 0 {
		t.Errorf("%d events are counted as unread", n)
	}
}

// Nobody can say that a historian has events that do not exist, or that it lacks more than it said
// before. The events that were held back for it are held back still.
func TestFalsePositionsOfHistoriansAreRefused(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(submit(job("a", 1)))
	instance, next := l.Latest().InstanceUUID(), l.Latest().Events().Next()
	l.must(reportHistorian("h", instance, next))
	for want, cmd := range map[string]*pb.Command{
		fmt.Sprintf("next: is %d, and the next event is %d", next+1, next): reportHistorian("h", instance, next+1),
		fmt.Sprintf("next: is %d, and the next event is %d", next+9, next): reportHistorian("new", instance, next+9),
		fmt.Sprintf("has the events before %d", next):                      reportHistorian("h", instance, next-1),
		"lacks those from 0 on":        reportHistorian("h", "another", next),
		"lacks those from 0 on: start": reportHistorian("h", "", 0),
	} {
		_, err := l.Do(t.Context(), cmd)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", cmd, err, want)
		}
	}
	data, has := l.Latest().Get(wire.KindHistorian, "h")
	if h, err := wire.DecodeHistorian(data); !has || err != nil || h.InstanceUUID != instance || h.Next != next {
		t.Errorf("the historian is %+v, %v, %v", h, has, err)
	}
}

// Beyond the bound in bytes the oldest events go although the historian lacks them, and the leader
// counts each of them. The others are within the bound.
func TestEventsBeyondTheHeldBytesGoAndAreCounted(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(setEvents("ringBufferCapacity", "5"))
	l.must(setEvents("ringBufferHeldBytes", "1Mi"))
	from := l.Latest().Events().Next()
	l.must(reportHistorian("h", l.Latest().InstanceUUID(), from))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	following := l.follow(ctx, "following")
	low := from
	for i := 0; low == from || i < testrun.Count(10, 15, 40); i++ {
		spec := job(fmt.Sprintf("a%d", i), 1000)
		for len(spec.ID) < 120 { // so that an event takes some bytes
			spec.ID += fmt.Sprintf("-%x", i*7919)
		}
		l.must(submit(spec))
		l.must(kill(spec.ID))
		if i > 2000 {
			t.Fatal("the events do not reach the bound")
		}
		low, _, _ = l.Latest().Events().Range()
		low = max(low, from)
	}
	low, all := sameEvents(t, l, following)
	bytes := 0
	for c := range l.Latest().Events().Chunks() {
		bytes += len(c.Data)
	}
	if bytes > 1<<20 || bytes < 1<<19 {
		t.Errorf("%d events are held in %d bytes", len(all), bytes)
	}
	l.settle()
	if n := l.term.metrics.events.unread.Load(); n != low-from || n == 0 {
		t.Errorf("%d events are counted as unread; those from %d to %d are", n, from, low)
	}
	if stored := l.term.events.total.bytes; stored > 1<<20+1<<19 {
		t.Errorf("the store keeps %d bytes of events", stored)
	}
}

// A historian that is at another InstanceUUID lacks all events of this one.
func TestAHistorianOfAnotherInstanceHoldsAllBack(t *testing.T) {
	l := lead(t, Config{}, openStore(t, vfs.NewMem(), store.Limits{}))
	defer l.stop()
	l.must(setEvents("ringBufferCapacity", "5"))
	l.must(reportHistorian("h", "another", 1<<40))
	low, _, _ := l.Latest().Events().Range()
	for i := range 5 {
		l.must(submit(job(fmt.Sprintf("a%d", i), 1)))
	}
	if now, _, _ := l.Latest().Events().Range(); now != low {
		t.Errorf("the events begin at %d, and began at %d", now, low)
	}
}

// The store keeps what the ring holds back, to a quarter more than the held bytes.
func TestEventLogKeepsWhatIsHeldBack(t *testing.T) {
	chunk := packedAt(0, 10)
	size := int64(len(chunk.Data))
	for _, test := range []struct {
		lacked uint64
		held   int64
		left   uint64 // of 100 runs of 10
	}{
		{ring.NoHold, 1000 * size, 20},
		{0, 0, 20},
		{995, 1000 * size, 20},
		{0, 1000 * size, 1000},
		{505, 1000 * size, 500},
		{500, 1000 * size, 500},
		{0, 40 * size, 490},
		{900, 40 * size, 100},
	} {
		var l eventLog
		for i := range uint64(100) {
			chunk.FirstID = i * 10
			l.add(i, chunk)
			settings := plimsoll.EventSettings{RingBufferCapacity: 20, RingBufferHeldBytes: test.held}
			l.trim(&settings, test.lacked, 0)
		}
		most := test.left + test.left/4 + 10
		if l.total.count < test.left-test.left/5 || l.total.count > most {
			t.Errorf("%+v: %d events are kept", test, l.total.count)
		}
	}
}
