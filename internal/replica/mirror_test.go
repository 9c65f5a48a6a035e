package replica

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func welcomeMsg(epoch uint64, instance string, resumed bool) *pb.ReplicateResponse {
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Welcome{Welcome: &pb.ReplicateWelcome{
		Epoch: epoch, LeaderUuid: instance, Resumed: resumed,
	}}}
}

func endMsg(revision uint64) *pb.ReplicateResponse {
	return &pb.ReplicateResponse{
		Kind: &pb.ReplicateResponse_SnapshotEnd{SnapshotEnd: &pb.ReplicateSnapshotEnd{Revision: revision}},
	}
}

func partMsg(kind pb.Kind, key string) *pb.ReplicateResponse {
	part := &pb.ReplicateSnapshot{Records: []*pb.Mutation{{Kind: kind, Key: key, Value: []byte("v")}}}
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Snapshot{Snapshot: part}}
}

func batchMsg(epoch, revision uint64, mutations ...wire.Mutation) *pb.ReplicateResponse {
	data := wire.AppendBatch(nil, &wire.Batch{Epoch: epoch, Revision: revision, Mutations: mutations})
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Batch{Batch: data}}
}

func ackMsg(id, epoch, revision uint64) *pb.ReplicateResponse {
	return &pb.ReplicateResponse{
		Kind: &pb.ReplicateResponse_SyncAck{SyncAck: &pb.ReplicateSyncAck{Id: id, Epoch: epoch, Revision: revision}},
	}
}

func replyMsg(id uint64) *pb.ReplicateResponse {
	return &pb.ReplicateResponse{Kind: &pb.ReplicateResponse_Reply{Reply: &pb.Reply{Id: id}}}
}

// liveMirror holds revision 10 of epoch 2.
func liveMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{}
	m.open("g")
	feed(t, m, welcomeMsg(2, "i2", false), partMsg(pb.Kind_KIND_JOB_STATUS, "a"), endMsg(10))
	return m
}

func feed(t *testing.T, m *mirror, messages ...*pb.ReplicateResponse) (last effect) {
	t.Helper()
	for _, message := range messages {
		var err error
		if last, err = m.step(message); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// gateways.md 3.2 O6: a snapshot shows only when it is whole, and one that is cut off leaves the
// copy as it was.
func TestSnapshotShowsWhenItIsWhole(t *testing.T) {
	m := liveMirror(t)
	m.open("g")
	e := feed(t, m, welcomeMsg(3, "i3", false), partMsg(pb.Kind_KIND_JOB_STATUS, "b"))
	if e.snapshot != nil || keysOf(m.latest, wire.KindJobStatus, "", "") != "a=v" {
		t.Error("a part of a snapshot shows")
	}
	if hello := m.open("g").GetHello(); hello.Epoch != 2 || hello.Revision != 10 {
		t.Errorf("after a broken snapshot the gateway claims to hold %v", hello)
	}
	e = feed(t, m, welcomeMsg(3, "i3", false), partMsg(pb.Kind_KIND_JOB_STATUS, "c"), endMsg(12))
	if !e.live || e.snapshot != m.latest || keysOf(m.latest, wire.KindJobStatus, "", "") != "c=v" {
		t.Errorf("the new snapshot holds %q", keysOf(m.latest, wire.KindJobStatus, "", ""))
	}
	if s := m.latest; s.Epoch() != 3 || s.Revision() != 12 || s.InstanceUUID() != "i3" {
		t.Errorf("the snapshot is of epoch %d, revision %d, instance %s", s.Epoch(), s.Revision(), s.InstanceUUID())
	}
}

func TestBatchesAndResume(t *testing.T) {
	m := liveMirror(t)
	e := feed(t, m, batchMsg(2, 12, put("b", "1"), remove(wire.KindJobStatus, "a"), taskPut("t", "1", "n1")))
	if got := keysOf(e.snapshot, wire.KindJobStatus, "", ""); got != "b=1" || len(e.changes) != 2 {
		t.Errorf("after the batch the copy holds %q, and %v changed: two jobs", got, e.changes)
	}
	if e.history.Epoch() != 2 || e.history.Revision() != 12 || e.history.Len(wire.KindJobStatus) != 2 {
		t.Errorf("the history is at %d.%d with %d changes of jobs", e.history.Epoch(), e.history.Revision(),
			e.history.Len(wire.KindJobStatus))
	}
	for kind, want := range map[wire.Kind]int{wire.KindJobStatus: 2, wire.KindTask: 1} {
		made, _ := e.history.From(kind, e.history.First(kind))
		if len(made) != want || made[0].Revision != 12 {
			t.Errorf("the batch has made %d changes of kind %d, want %d", len(made), kind, want)
		}
	}
	if e := feed(t, m, ackMsg(4, 2, 12)); e.ack != 4 {
		t.Error("the acknowledgement is lost")
	}
	if hello := m.open("g").GetHello(); hello.Epoch != 2 || hello.Revision != 12 {
		t.Errorf("the gateway claims to hold %v", hello)
	}
	if e := feed(t, m, welcomeMsg(2, "i2", true)); !e.live || !e.connected || e.snapshot != nil {
		t.Error("a copy that is resumed is live at once")
	}
	if e := feed(t, m, batchMsg(2, 13, put("c", "1"))); keysOf(e.snapshot, wire.KindJobStatus, "", "") != "b=1 c=1" {
		t.Error("the resumed copy is not the one from before")
	}
}

// gateways.md 3.2 O8: the epoch never falls, nor the revision within an epoch. The rest are
// messages that no leader sends: they end the stream and leave the copy as it was.
func TestMessagesThatAreRefused(t *testing.T) {
	type messages = []*pb.ReplicateResponse
	for _, test := range []struct {
		name string
		open bool // on a new stream
		msgs messages
		want plimsoll.Code
	}{
		{"an older epoch", true, messages{welcomeMsg(1, "i1", false)}, plimsoll.CodeStale},
		{"another leader of the same epoch", true, messages{welcomeMsg(2, "other", false)}, plimsoll.CodeStale},
		{
			"an older snapshot of the same epoch", true,
			messages{welcomeMsg(2, "i2", false), endMsg(9)},
			plimsoll.CodeStale,
		},
		{"a resumed copy of another epoch", true, messages{welcomeMsg(3, "i3", true)}, plimsoll.CodeCorrupt},
		{"the same batch again", false, messages{batchMsg(2, 10)}, plimsoll.CodeStale},
		{"an older batch", false, messages{batchMsg(2, 9)}, plimsoll.CodeStale},
		{"a batch of an older epoch", false, messages{batchMsg(1, 11)}, plimsoll.CodeStale},
		{"a batch of a newer epoch", false, messages{batchMsg(3, 11)}, plimsoll.CodeStale},
		{"an acknowledgement ahead of its batches", false, messages{ackMsg(1, 2, 11)}, plimsoll.CodeCorrupt},
		{"an acknowledgement of another epoch", false, messages{ackMsg(1, 3, 10)}, plimsoll.CodeCorrupt},
		{"a batch before the welcome", true, messages{batchMsg(2, 11)}, plimsoll.CodeCorrupt},
		{
			"a batch within the snapshot", true,
			messages{welcomeMsg(3, "i3", false), batchMsg(3, 11)},
			plimsoll.CodeCorrupt,
		},
		{"a reply within the snapshot", true, messages{welcomeMsg(3, "i3", false), replyMsg(1)}, plimsoll.CodeCorrupt},
		{"a second welcome", false, messages{welcomeMsg(2, "i2", true)}, plimsoll.CodeCorrupt},
		{"a part after the snapshot", false, messages{partMsg(pb.Kind_KIND_TASK, "t")}, plimsoll.CodeCorrupt},
		{"a second end", false, messages{endMsg(11)}, plimsoll.CodeCorrupt},
		{"a record of no kind", true, messages{welcomeMsg(3, "i3", false), partMsg(0, "x")}, plimsoll.CodeCorrupt},
		{
			"a record of an unknown kind", true,
			messages{welcomeMsg(3, "i3", false), partMsg(99, "x")},
			plimsoll.CodeCorrupt,
		},
		{
			"a mutation of an unknown kind", false,
			messages{batchMsg(2, 11, wire.Mutation{Kind: 99, Key: "x"})},
			plimsoll.CodeCorrupt,
		},
		{
			"junk for a batch", false,
			messages{{Kind: &pb.ReplicateResponse_Batch{Batch: []byte("junk")}}},
			plimsoll.CodeCorrupt,
		},
		{"nothing", false, messages{{}}, plimsoll.CodeCorrupt},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := liveMirror(t)
			before := fingerprint(m.latest)
			if test.open {
				m.open("g")
			}
			last := len(test.msgs) - 1
			feed(t, m, test.msgs[:last]...)
			if _, err := m.step(test.msgs[last]); plimsoll.CodeOf(err) != test.want {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if after := fingerprint(m.latest); after != before || fingerprint(m.tables.Snapshot()) != before {
				t.Errorf("the copy changed from %s to %s", before, after)
			}
		})
	}
}

// gateways.md 3.2 O3: the snapshot is published, then watchers are told, then those who wait are
// released.
func TestFollowerPublishesBeforeItReleases(t *testing.T) {
	f := newFollower(FollowerConfig{Gateway: "g"}, nil)
	f.mirror.open("g")
	give := func(message *pb.ReplicateResponse) {
		t.Helper()
		e, err := f.mirror.step(message)
		if err != nil {
			t.Fatal(err)
		}
		f.publish(&e)
	}
	give(welcomeMsg(1, "i", false))
	round, err := f.join()
	if err != nil {
		t.Fatal(err)
	}
	id := f.nextRequest().GetSync().GetId()
	call, err := f.addCall(submit("a"))
	if err != nil {
		t.Fatal(err)
	}
	give(endMsg(5))
	changed, cancel := f.Watch(wire.KindJobStatus, "a")
	defer cancel()
	give(batchMsg(1, 6, put("a", "1")))
	if f.Latest().Revision() != 6 || len(changed) != 1 {
		t.Error("the batch is not published, or its watcher not told")
	}
	if released(round) {
		t.Fatal("released before the acknowledgement")
	}
	give(ackMsg(id, 1, 6))
	if !released(round) || round.snapshot != f.Latest() {
		t.Error("the reader did not get what is published")
	}
	give(replyMsg(call.id))
	<-call.done
	if f.Latest().Revision() != 6 {
		t.Error("the reply came before its batch was published")
	}
}

// With the snapshot of the next leader a copy is the same, with every index, as that of a gateway
// which had none. A snapshot that is cut off in between leaves the copy as it was.
func TestASnapshotMakesACopyWhatItMakesANewOne(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		now := randomRecords(t, "now")
		was, next := NewTables(), NewTables()
		apply(was, 1, append(randomRecords(t, "was"), now[:len(now)/2]...)...)
		apply(next, 2, now...)
		stream := func(epoch uint64, of *Tables) (messages []*pb.ReplicateResponse) {
			messages = append(messages, welcomeMsg(epoch, fmt.Sprint("i", epoch), false))
			r := newSnapshotReader(of.Snapshot(), nil)
			for part := r.next(); part != nil; part = r.next() {
				for _, record := range part.Records { // each in a part of its own
					one := &pb.ReplicateSnapshot{Records: []*pb.Mutation{record}}
					kind := &pb.ReplicateResponse_Snapshot{Snapshot: one}
					messages = append(messages, &pb.ReplicateResponse{Kind: kind})
				}
			}
			return append(messages, endMsg(epoch))
		}
		receive := func(m *mirror, messages []*pb.ReplicateResponse) {
			m.open("g")
			for _, message := range messages {
				if _, err := m.step(proto.CloneOf(message)); err != nil {
					t.Fatal(err)
				}
			}
		}
		m, anew := &mirror{}, &mirror{}
		receive(m, stream(1, was))
		before, kept := fingerprint(m.latest), m.latest
		second := stream(2, next)
		receive(m, second[:rapid.IntRange(1, len(second)-1).Draw(t, "cut")])
		if got := fingerprint(m.tables.Snapshot()); got != before {
			t.Errorf("after a part of a snapshot:\n%s\nbefore:\n%s", got, before)
		}
		receive(m, second)
		receive(anew, second)
		if got, want := fingerprint(m.latest), fingerprint(anew.latest); got != want {
			t.Errorf("with a copy:\n%s\nwithout:\n%s", got, want)
		}
		if after := fingerprint(kept); after != before {
			t.Errorf("the earlier snapshot was\n%s\nand is\n%s", before, after)
		}
	})
}
