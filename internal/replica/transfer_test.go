package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// large fills a bench with a snapshot of four parts.
func large(b *bench) {
	big := strings.Repeat("x", 200<<10)
	b.publish(put("a", big), put("b", big), put("c", big), put("d", big))
}

const largeParts = "welcome, part a, part b, part c, part d, snapshot 1"

// Streams that need a snapshot at the same time, or while one is on its way, are sent the same
// encoded parts; who needs one later gets a new one.
func TestSnapshotIsEncodedOnceForAllWhoNeedIt(t *testing.T) {
	b := newBench(1, 0, 1<<20)
	large(b)
	one, other := b.session(t, 0, 0), b.session(t, 0, 0)
	wantSent(t, one, largeParts)
	b.publish(put("e", "1"))
	wantSent(t, other, largeParts+", batch 2")
	tr := b.transfers
	parts := fmt.Sprint(tr.fresh.Load(), " encoded, ", tr.reused.Load(), " sent again")
	if parts != "4 encoded, 4 sent again" || tr.begun != 2 || tr.joined != 1 {
		t.Errorf("of the parts %s, for %d streams of which %d joined", parts, tr.begun, tr.joined)
	}
	if tr.shared != nil || tr.sending != 0 {
		t.Error("the parts are kept although no stream needs them")
	}
	wantSent(t, b.session(t, 0, 0), "welcome, part a, part b, part c, part d+e, snapshot 2")
}

// Beyond the bound the oldest parts go, and a stream that comes later encodes them for itself.
func TestPartsThatAreKeptAreBounded(t *testing.T) {
	b := newBench(1, 0, 1<<20)
	large(b)
	b.tables.events.Append(0, 1, make([]byte, 200<<10))
	b.tables.events.Append(1, 1, make([]byte, 200<<10))
	b.newTransfers().limit = 450 << 10
	one, other := b.session(t, 0, 0), b.session(t, 0, 0)
	const parts = "welcome, part a, part b, part c, part d, part , part , snapshot 1"
	wantSent(t, one, parts)
	if kept := b.transfers.shared.bytes(); kept > 450<<10 || kept < 300<<10 {
		t.Errorf("%d bytes are kept", kept)
	}
	wantSent(t, other, parts)
	if fresh, reused := b.transfers.fresh.Load(), b.transfers.reused.Load(); fresh != 10 || reused != 2 {
		t.Errorf("%d parts were encoded and %d sent again", fresh, reused)
	}
}

// A snapshot is not shared once so much has come after it that a stream would fall out of the log.
func TestOldSnapshotIsNotShared(t *testing.T) {
	b := newBench(1, 0, 500)
	b.publish(put("a", "1"))
	b.session(t, 0, 0)
	for i := range 5 {
		b.publish(put("a", fmt.Sprint(i)))
	}
	wantSent(t, b.session(t, 0, 0), "welcome, part a, snapshot 6")
	if b.transfers.joined != 0 {
		t.Error("it was shared")
	}
}

// Snapshots are sent to a few gateways at a time. The others are welcomed and wait in their order;
// beyond a bound they are refused. A gateway that goes, or that reads too slowly, gives its turn to
// the next.
func TestSnapshotsAreAdmittedAFewAtATime(t *testing.T) {
	b := newBench(1, 0, 1<<20)
	b.publish(put("a", "1"))
	var sessions []*session
	var admitted []int
	for i := range 4 { // two are sent, two wait
		s := b.session(t, 0, 0)
		s.onAdmit = func() { admitted = append(admitted, i) }
		sessions = append(sessions, s)
	}
	refused := &session{log: &b.log, transfers: b.transfers}
	err := refused.hello(&pb.ReplicateHello{Gateway: "g"}, b.tables.Snapshot())
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("a fifth stream: %v", err)
	}
	if tr := b.transfers; tr.sending != 2 || len(tr.waiting) != 2 || tr.refused != 1 {
		t.Errorf("%d are sent, %d wait, %d were refused", tr.sending, len(tr.waiting), tr.refused)
	}
	wantSent(t, sessions[2], "welcome")
	b.publish(put("b", "1"))
	sessions[2].reply(&pb.Reply{Id: 1})
	wantSent(t, sessions[0], "welcome, part a, snapshot 1, batch 2")
	if fmt.Sprint(admitted) != "[2]" {
		t.Errorf("admitted %v", admitted)
	}
	wantSent(t, sessions[2], "part a, snapshot 1, batch 2, reply 1")
	if fmt.Sprint(admitted) != "[2 3]" {
		t.Errorf("admitted %v", admitted)
	}
	last := b.session(t, 0, 0)
	b.transfers.yield(sessions[1]) // its gateway does not read
	if b.transfers.sending != 2 || len(b.transfers.waiting) != 0 {
		t.Errorf("%d are sent and %d wait", b.transfers.sending, len(b.transfers.waiting))
	}
	sessions[3].end(errStreamEnded)
	wantSent(t, last, "welcome, part a, snapshot 1, batch 2")
	wantSent(t, sessions[1], "welcome, part a, snapshot 1, batch 2")
	if b.transfers.sending != 0 || b.transfers.shared != nil {
		t.Errorf("%d are sent in the end", b.transfers.sending)
	}
}

// A session that ends while it waits gives up its place.
func TestWaitingStreamThatEndsIsNotAdmitted(t *testing.T) {
	b := newBench(1, 0, 1<<20)
	b.publish(put("a", "1"))
	one, _, waits := b.session(t, 0, 0), b.session(t, 0, 0), b.session(t, 0, 0)
	waits.end(errStreamEnded)
	wantSent(t, one, "welcome, part a, snapshot 1")
	if b.transfers.sending != 1 || len(b.transfers.waiting) != 0 || waits.progress != nil {
		t.Errorf("%d are sent and %d wait", b.transfers.sending, len(b.transfers.waiting))
	}
}

// Many gateways that connect at once to a real source get the same copy, most of it encoded once.
func TestManyGatewaysShareSnapshots(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{MaxSnapshots: 2})
	for i := range 20 {
		leader.publish(put(fmt.Sprint("k", i), strings.Repeat("x", 100<<10)))
	}
	ctx := testContext(t)
	const gateways = 12
	followers := make([]*Follower, 0, gateways)
	for i := range gateways {
		f, _ := startFollower(t, FollowerConfig{Leader: leader.address, Gateway: fmt.Sprint("g", i)})
		followers = append(followers, f)
	}
	for _, f := range followers {
		mustReady(ctx, t, f)
		if got := mustBarrier(ctx, t, f); fingerprint(got) != fingerprint(leader.source.Snapshot()) {
			t.Error("a copy differs from the leader's")
		}
	}
	stats := leader.source.Stats()
	pending := stats.SnapshotsSending + stats.SnapshotsWaiting
	if stats.Snapshots != gateways || pending != 0 || stats.Gateways != gateways {
		t.Errorf("%+v", stats)
	}
	if stats.PartsEncoded+stats.PartsReused < gateways*10 {
		t.Errorf("too few parts were sent: %+v", stats)
	}
	if stats.PartsReused == 0 {
		t.Errorf("no part was sent to two gateways: %+v", stats)
	}
}

// A part is the same whether it was kept or encoded again from its mark.
func TestPartsFromMarksAreTheSame(t *testing.T) {
	b := newBench(1, 0, 1<<20)
	large(b)
	b.publish(taskPut("t", strings.Repeat("y", 100<<10), "n1"), taskPut("u", strings.Repeat("y", 200<<10), "n2"))
	b.tables.events.Append(0, 1, make([]byte, 200<<10))
	b.tables.events.Append(1, 1, make([]byte, 100<<10))
	for _, f := range []*filter{nil, {kinds: [wire.NumKinds]bool{wire.KindTask: true}, node: "n2", events: true}} {
		kept, dropped := newTransfer(b.tables.Snapshot(), f, 1<<30), newTransfer(b.tables.Snapshot(), f, 0)
		for range 2 {
			for i := 0; ; i++ {
				want, _, err := kept.part(i)
				got, _, err2 := dropped.part(i)
				if err != nil || err2 != nil || string(got) != string(want) {
					t.Fatalf("part %d differs: %v %v", i, err, err2)
				}
				if want == nil {
					break
				}
			}
		}
	}
}
