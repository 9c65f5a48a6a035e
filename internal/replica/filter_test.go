package replica

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func (b *bench) filtered(t *testing.T, f *Filter, epoch, revision uint64) *session {
	t.Helper()
	s := &session{log: &b.log, transfers: b.newTransfers(), maxReplies: 3, recent: &b.recent}
	hello := &pb.ReplicateHello{Gateway: "g", Protocol: protocol, Epoch: epoch, Revision: revision, Filter: f.toProto()}
	if err := s.hello(hello, b.tables.Snapshot()); err != nil {
		t.Fatal(err)
	}
	return s
}

// A stream that asks for some kinds gets these alone, and an empty batch for all the others in
// front of an acknowledgement: so the copy is never behind what is acknowledged.
func TestStreamOfSomeKinds(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	b.publish(put("a", "1"), taskPut("t", "1", "n1"))
	s := b.filtered(t, &Filter{Kinds: []wire.Kind{wire.KindTask}}, 0, 0)
	wantSent(t, s, "welcome, part t, snapshot 11")
	b.publish(put("a", "2"))
	b.publish(put("a", "3"))
	wantSent(t, s, "")
	if err := s.sync(1); err != nil {
		t.Fatal(err)
	}
	wantSent(t, s, "batch 13, ack 1 at 13")
	b.publish(put("a", "4"))
	b.publish(put("a", "5"), taskPut("t", "2", "n2"))
	s.reply(&pb.Reply{Id: 7})
	wantSent(t, s, "batch 15, reply 7")
	wantSent(t, b.filtered(t, &Filter{Kinds: []wire.Kind{wire.KindTask}}, 1, 13), "resumed, batch 15")
}

// A stream of one node's tasks is told of a task that leaves the node as of one that is deleted.
func TestStreamOfOneNodesTasks(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	b.publish(taskPut("a", "1", "n1"), taskPut("b", "1", "n2"), taskPut("c", "1", "n1"), put("job", "1"))
	m := &mirror{}
	m.open("agent")
	s := b.filtered(t, &Filter{Kinds: []wire.Kind{wire.KindTask}, Node: "n1"}, 0, 0)
	catchUp := func(want string) {
		t.Helper()
		for {
			out, ok := s.next()
			if !ok {
				break
			}
			if message := onWire(t, out); message != nil {
				feed(t, m, message)
			}
		}
		if got := keysOf(m.latest, wire.KindTask, "", ""); got != want {
			t.Errorf("the copy holds %q, want %q", got, want)
		}
		if m.latest.Len(wire.KindJobStatus) != 0 {
			t.Error("the copy holds jobs")
		}
	}
	catchUp("a=1 c=1")
	b.publish(taskPut("a", "2", "n2"), taskPut("b", "2", "n1"), taskPut("d", "1", "n2"))
	catchUp("b=2 c=1")
	b.publish(remove(wire.KindTask, "c"), remove(wire.KindTask, "d"), taskPut("b", "3", ""))
	catchUp("")
}

// A copy of one node's tasks is not resumed: the leader does not know which tasks it holds.
func TestCopyOfOneNodesTasksIsNotResumed(t *testing.T) {
	b := newBench(1, 10, 1<<20)
	b.publish(taskPut("a", "1", "n1"))
	s := b.filtered(t, &Filter{Kinds: []wire.Kind{wire.KindTask}, Node: "n1"}, 1, 11)
	wantSent(t, s, "welcome, part a, snapshot 11")
}

func TestFiltersThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		filter *pb.ReplicateFilter
		want   string
	}{
		{"no kinds", &pb.ReplicateFilter{Node: "n1"}, "filter.kinds: is empty"},
		{"an unknown kind", &pb.ReplicateFilter{Kinds: []pb.Kind{99}}, "filter.kinds: 99 is no kind of record"},
		{
			"a node without tasks", &pb.ReplicateFilter{Kinds: []pb.Kind{pb.Kind_KIND_NODE}, Node: "n1"},
			"filter.node: is set without",
		},
	} {
		_, err := readFilter(test.filter)
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	config := FollowerConfig{Gateway: "g", Leader: "127.0.0.1:1", Filter: &Filter{Node: "n1"}}
	if _, err := NewFollower(config); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("a follower with a wrong filter: %v", err)
	}
}

// A relay with a filter serves what it can prove complete, and nothing else.
func TestFilteredRelayRefusesWhatItDoesNotHold(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	leader.publish(put("job", "1"), taskPut("t", "1", "n1"), taskPut("u", "1", "n2"))
	tasks := &Filter{Kinds: []wire.Kind{wire.KindTask}}
	relay := startRelay(t, "relay", "", leader.address, FollowerConfig{Filter: tasks})
	ctx := testContext(t)
	mustReady(ctx, t, relay.follower)
	node := &Filter{Kinds: []wire.Kind{wire.KindTask}, Node: "n2"}
	for _, test := range []struct {
		name   string
		filter *Filter
		want   string // tasks of the copy; empty: refused
	}{
		{"all", nil, ""},
		{"another kind too", &Filter{Kinds: []wire.Kind{wire.KindTask, wire.KindNode}}, ""},
		{"events", &Filter{Kinds: []wire.Kind{wire.KindTask}, Events: true}, ""},
		{"the same", tasks, "t=1 u=1"},
		{"less", node, "u=1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refusals := make(chan error, 100)
			f, stop := startFollower(t, FollowerConfig{
				Leader: relay.address, Filter: test.filter, MinBackoff: time.Second, Events: FollowerEvents{
					Disconnected: func(err error, _ time.Duration) { refusals <- err },
				},
			})
			defer stop()
			if test.want == "" {
				if err := await(ctx, t, refusals); plimsoll.CodeOf(err) != plimsoll.CodeConflict ||
					!strings.Contains(err.Error(), "this relay holds a part of the state only") {
					t.Errorf("the relay answered %v", err)
				}
				return
			}
			mustReady(ctx, t, f)
			if got := keysOf(mustBarrier(ctx, t, f), wire.KindTask, "", ""); got != test.want {
				t.Errorf("the copy holds %q, want %q", got, test.want)
			}
		})
	}
}
