package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// bench is a leader without a shell: what Source keeps, and sessions that are stepped by hand.
type bench struct {
	tables *Tables
	log    batchLog
	proof  bool

	transfers *transfers
	recent    decoded
}

func newBench(epoch, revision uint64, limit int) *bench {
	b := &bench{tables: NewTables(), log: batchLog{limit: limit, base: revision}}
	b.tables.epoch, b.tables.revision, b.tables.instance = epoch, revision, fmt.Sprint("instance-", epoch)
	return b
}

func (b *bench) publish(mutations ...wire.Mutation) {
	batch := wire.Batch{Epoch: b.tables.epoch, Revision: b.tables.revision + 1, Time: 7, Mutations: mutations}
	b.log.add(batch.Revision, wire.AppendBatch(nil, &batch))
	mustApply(b.tables, &batch)
}

func (b *bench) session(t *testing.T, epoch, revision uint64) *session {
	t.Helper()
	s := &session{log: &b.log, transfers: b.newTransfers(), maxReplies: 3, proof: b.proof}
	if err := s.hello(
		&pb.ReplicateHello{Gateway: "g", Protocol: protocol, Epoch: epoch, Revision: revision}, b.tables.Snapshot(),
	); err != nil {
		t.Fatal(err)
	}
	return s
}

// newTransfers returns the snapshots of a source that admits two streams at a time.
func (b *bench) newTransfers() *transfers {
	if b.transfers == nil {
		b.transfers = &transfers{log: &b.log, latest: b.tables.Snapshot, most: 2, mostWaiting: 2, limit: 1 << 20}
	}
	return b.transfers
}

// received returns a message as the gateway decodes it; nil if there is none.
func received(out outgoing) (*pb.ReplicateResponse, error) {
	message, err := out.response()
	if message == nil || err != nil {
		return nil, err
	}
	data, err := proto.Marshal(message)
	if err != nil {
		return nil, err
	}
	m := &pb.ReplicateResponse{}
	return m, proto.Unmarshal(data, m)
}

// onWire is received for a test that cannot go on without the message.
func onWire(t testing.TB, out outgoing) *pb.ReplicateResponse {
	t.Helper()
	message, err := received(out)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// sent returns the messages that a session sends now, in words.
func sent(t *testing.T, s *session) string {
	t.Helper()
	var words []string
	for {
		out, ok := s.next()
		if !ok {
			break
		}
		if message := onWire(t, out); message != nil {
			words = append(words, inWords(t, message))
		}
	}
	if s.err != nil {
		words = append(words, "end "+plimsoll.CodeOf(s.err).String())
	}
	return strings.Join(words, ", ")
}

func inWords(t *testing.T, response *pb.ReplicateResponse) string {
	t.Helper()
	switch kind := response.GetKind().(type) {
	case *pb.ReplicateResponse_Welcome:
		return map[bool]string{true: "resumed", false: "welcome"}[kind.Welcome.Resumed]
	case *pb.ReplicateResponse_Snapshot:
		keys := []string{}
		for _, r := range kind.Snapshot.Records {
			keys = append(keys, r.Key)
		}
		return "part " + strings.Join(keys, "+")
	case *pb.ReplicateResponse_SnapshotEnd:
		return fmt.Sprint("snapshot ", kind.SnapshotEnd.Revision)
	case *pb.ReplicateResponse_Batch:
		b, err := wire.DecodeBatch(kind.Batch)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint("batch ", b.Revision)
	case *pb.ReplicateResponse_SyncAck:
		return fmt.Sprint("ack ", kind.SyncAck.Id, " at ", kind.SyncAck.Revision)
	case *pb.ReplicateResponse_Reply:
		return fmt.Sprint("reply ", kind.Reply.Id)
	}
	t.Fatalf("unknown message %v", response)
	return ""
}

func wantSent(t *testing.T, s *session, want string) {
	t.Helper()
	if got := sent(t, s); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// gateways.md 3.2 O1: a mutation is in every stream before the reply to it.
func TestReplyFollowsItsBatch(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	caller, other := b.session(t, 0, 0), b.session(t, 0, 0)
	wantSent(t, caller, "welcome, snapshot 10")
	b.publish(put("a", "1"))
	caller.reply(&pb.Reply{Id: 5})
	b.publish(put("b", "1"))
	caller.reply(&pb.Reply{Id: 6})
	caller.reply(&pb.Reply{Id: 7})
	b.publish(put("c", "1"))
	wantSent(t, caller, "batch 11, reply 5, batch 12, reply 6, reply 7, batch 13")
	wantSent(t, other, "welcome, snapshot 10, batch 11, batch 12, batch 13")
}

// A reply to a command that was sent while the snapshot was on its way waits for it.
func TestReplyWaitsForTheSnapshot(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	b.publish(put("a", "1"))
	s := b.session(t, 0, 0)
	s.reply(&pb.Reply{Id: 1})
	b.publish(put("b", "1"))
	s.reply(&pb.Reply{Id: 2})
	wantSent(t, s, "welcome, part a, snapshot 11, reply 1, batch 12, reply 2")
}

// gateways.md 3.2 O2: the acknowledgement stands behind every batch that was published when the
// sync came. A stream that is never idle does not hold it up (1.2, 3.3.14).
func TestAckFollowsWhatWasPublished(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	s := b.session(t, 0, 0)
	wantSent(t, s, "welcome, snapshot 10")
	b.publish(put("a", "1"))
	b.publish(put("b", "1"))
	if err := s.sync(1); err != nil {
		t.Fatal(err)
	}
	b.publish(put("c", "1"))
	wantSent(t, s, "batch 11, batch 12, ack 1 at 12, batch 13")
}

func TestAckWaitsForTheSnapshot(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	s := b.session(t, 0, 0)
	if err := s.sync(1); err != nil {
		t.Fatal(err)
	}
	wantSent(t, s, "welcome, snapshot 10, ack 1 at 10")
}

// Syncs that a gateway sends without waiting are collapsed: memory is bounded, and none is put off
// for ever by newer ones.
func TestSyncsAreCollapsed(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	s := b.session(t, 1, 10)
	wantSent(t, s, "resumed")
	for id := uint64(1); id <= 4; id++ {
		b.publish(put("a", "1"))
		if err := s.sync(id); err != nil {
			t.Fatal(err)
		}
	}
	wantSent(t, s, "batch 11, ack 1 at 11, batch 12, batch 13, batch 14, ack 4 at 14")
}

// gateways.md 3.2 O5: the acknowledgement needs a proof of leadership that began after the sync
// came.
func TestAckNeedsAProofThatBeganAfterTheSync(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	b.proof = true
	s := b.session(t, 1, 10)
	wantSent(t, s, "resumed")
	if s.takeProof() {
		t.Fatal("a proof without a sync")
	}
	syncs := func(ids ...uint64) {
		for _, id := range ids {
			if err := s.sync(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	syncs(1)
	if !s.takeProof() || s.takeProof() {
		t.Fatal("want one proof at a time")
	}
	syncs(2, 3) // while the proof for 1 runs: it cannot stand for them
	wantSent(t, s, "")
	s.proofDone(nil)
	wantSent(t, s, "ack 1 at 10")
	if !s.takeProof() {
		t.Fatal("the syncs that came during the proof need one of their own")
	}
	wantSent(t, s, "")
	s.proofDone(nil)
	wantSent(t, s, "ack 3 at 10")

	syncs(4)
	s.takeProof()
	s.proofDone(errors.New("deposed"))
	wantSent(t, s, "end stale")
}

// gateways.md 3.2 O6: the snapshot is at revision R and the batches after it are those above R.
func TestSnapshotAndBatchesMeet(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	b.publish(put("a", "1"))
	s := b.session(t, 0, 0)
	b.publish(put("b", "1"), remove(wire.KindJobStatus, "a")) // after the cut, before the snapshot is sent
	out, _ := s.next()
	if got := inWords(t, onWire(t, out)); got != "welcome" {
		t.Fatal(got)
	}
	out, _ = s.next()
	part := onWire(t, out)
	b.publish(put("c", "1")) // in the middle of it
	b.publish(put("a", "2")) // with the name of one that was deleted since the cut
	if got := inWords(t, part); got != "part a" {
		t.Fatal(got)
	}
	wantSent(t, s, "snapshot 11, batch 12, batch 13, batch 14")
}

func TestSnapshotPartsAreBounded(t *testing.T) {
	b := newBench(1, 0, 1<<20)
	big := strings.Repeat("x", 100<<10)
	b.publish(
		put("a", big), put("b", big), put("c", big), put("d", strings.Repeat("x", 300<<10)), taskPut("e", big, "n"),
		put("f", ""),
	)
	b.tables.events.Append(0, 1, make([]byte, 200<<10))
	b.tables.events.Append(1, 1, make([]byte, 100<<10))
	s := b.session(t, 0, 0)
	wantSent(t, s, "welcome, part a+b, part c, part d, part f+e, part , part , snapshot 1")
}

func TestResume(t *testing.T) {
	for _, test := range []struct {
		name            string
		epoch, revision uint64
		want            string
	}{
		{"up to date", 2, 14, "resumed"},
		{"a little behind", 2, 13, "resumed, batch 14"},
		{"at the end of what is kept", 2, 12, "resumed, batch 13, batch 14"},
		{"further behind", 2, 11, "welcome, part a, snapshot 14"},
		{"of the leader before", 1, 13, "welcome, part a, snapshot 14"},
		{"empty", 0, 0, "welcome, part a, snapshot 14"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(2, 10, 200)
			for range 4 {
				b.publish(put("a", strings.Repeat("1", 20)))
			}
			wantSent(t, b.session(t, test.epoch, test.revision), test.want)
		})
	}
}

// gateways.md 3.2 O8 and 3.3.7: a leader that is older than what a gateway has seen refuses it.
func TestHelloOfANewerEpochIsRefused(t *testing.T) {
	b := newBench(3, 10, 1<<20)
	for _, test := range []struct {
		hello *pb.ReplicateHello
		want  plimsoll.Code
	}{
		{&pb.ReplicateHello{Gateway: "g", Epoch: 4, Revision: 1}, plimsoll.CodeStale},
		{&pb.ReplicateHello{Gateway: "g", Epoch: 3, Revision: 11}, plimsoll.CodeStale},
		{&pb.ReplicateHello{Epoch: 3}, plimsoll.CodeInvalid},
		{nil, plimsoll.CodeInvalid},
	} {
		s := &session{log: &b.log, transfers: b.newTransfers()}
		if err := s.hello(test.hello, b.tables.Snapshot()); plimsoll.CodeOf(err) != test.want {
			t.Errorf("hello %v: %v, want %v", test.hello, err, test.want)
		}
	}
}

// Publish does not wait for a slow gateway, and its memory is bounded: who falls out of the log is
// sent away for a snapshot.
func TestSlowSessionEndsWhenItFallsOutOfTheLog(t *testing.T) {
	b := newBench(1, 10, 200)
	s := b.session(t, 1, 10)
	wantSent(t, s, "resumed")
	for range 5 {
		b.publish(put("a", strings.Repeat("1", 20)))
	}
	s.reply(&pb.Reply{Id: 1})
	wantSent(t, s, "end exhausted")
	if b.log.bytes > 200 {
		t.Errorf("the log keeps %d bytes", b.log.bytes)
	}
}

func TestTooManyRepliesEndTheSession(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	s := b.session(t, 1, 10)
	for id := range uint64(4) {
		s.reply(&pb.Reply{Id: id})
	}
	s.reply(&pb.Reply{Id: 9})
	wantSent(t, s, "end exhausted")
	if s.replies != nil {
		t.Error("a session that ended keeps replies")
	}
}

func TestLogKeepsTheNewestWithinItsLimit(t *testing.T) {
	l := batchLog{limit: 10 * (100 + entryOverhead), base: 5}
	for revision := uint64(6); revision < 1000; revision++ {
		l.add(revision, make([]byte, 100))
		if n := len(l.entries) - l.head; n > 10 || l.bytes > l.limit {
			t.Fatalf("the log keeps %d batches in %d bytes", n, l.bytes)
		}
		if position, ok := l.after(revision); !ok || position != l.end() || l.revision() != revision {
			t.Fatalf("after(%d) = %d, %v; end %d", revision, position, ok, l.end())
		}
	}
	if cap(l.entries) > 200 {
		t.Errorf("the log's directory has grown to %d", cap(l.entries))
	}
	if _, ok := l.after(980); ok {
		t.Error("the log pretends to know what it dropped")
	}
	l.add(1000, make([]byte, 1<<20))
	if _, ok := l.at(l.end() - 1); !ok || l.end()-l.first != 1 {
		t.Error("a batch above the limit must stay as long as it is the newest")
	}
}

// A relay's parent acknowledges what it has sent before. So a relay's acknowledgement goes down
// behind all that the relay holds when the parent's has come (O2).
func TestRelayAcknowledgesBehindWhatItsParentSentBefore(t *testing.T) {
	for _, test := range []struct {
		relayed bool
		want    string
	}{
		{true, "batch 11, ack 1 at 11, batch 12"},
		{false, "ack 1 at 10, batch 11, batch 12"},
	} {
		b := newBench(1, 10, 1<<20)
		b.proof = true
		s := b.session(t, 1, 10)
		s.relayed = test.relayed
		wantSent(t, s, "resumed")
		if err := s.sync(1); err != nil {
			t.Fatal(err)
		}
		s.takeProof()
		b.publish(put("a", "1"))
		s.proofDone(nil)
		b.publish(put("a", "2"))
		wantSent(t, s, test.want)
	}
}
