package replica

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// newsBench is a relay on a stream whose parent reads nothing, and a stream from a relay below.
type newsBench struct {
	relay   *Relay
	handler *handler
	below   *stream
}

func newNewsBench(t *testing.T, maxGateways int) *newsBench {
	t.Helper()
	f, err := NewFollower(FollowerConfig{Gateway: "relay", Leader: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	relay, err := NewRelay(f, RelayConfig{MaxGateways: maxGateways})
	if err != nil {
		t.Fatal(err)
	}
	f.mu.pending.connect()
	relay.begin(NewTables().Snapshot(), false, nil, f.mu.pending.stream)
	b := &newsBench{relay: relay, handler: &handler{source: relay.source, exec: relay.exec}}
	b.below = b.open(t, "nested")
	return b
}

// open begins the stream of a gateway that follows the relay.
func (b *newsBench) open(t *testing.T, gateway string) *stream {
	t.Helper()
	st := &stream{gateway: gateway, wake: make(chan struct{}, 1), prove: make(chan struct{}, 1)}
	if err := b.relay.source.open(st, &pb.ReplicateHello{Gateway: gateway, Protocol: protocol}); err != nil {
		t.Fatal(err)
	}
	b.relay.source.connected(st, gateway, false)
	return st
}

// news passes the beginning or the end of a stream behind the nested relay.
func (b *newsBench) news(t *testing.T, gateway string, gone bool) {
	t.Helper()
	err := b.relay.source.downstream(b.below, &pb.ReplicateDownstream{Gateway: gateway, Gone: gone})
	if err != nil {
		t.Fatalf("%s (gone: %v) ended the relay's stream: %v", gateway, gone, err)
	}
}

// sent drains the messages to the parent, in words.
func (b *newsBench) sent() string {
	var words []string
	for {
		f := b.relay.follower
		f.mu.Lock()
		request := f.mu.pending.next()
		f.mu.Unlock()
		switch d := request.GetDownstream(); {
		case request == nil:
			return strings.Join(words, ", ")
		case d == nil:
			words = append(words, "command of "+request.GetCommand().GetGateway())
		case d.GetGone():
			words = append(words, "end of "+d.GetGateway())
		default:
			words = append(words, d.GetGateway())
		}
	}
}

// command sends a command from behind the nested relay, and returns the code of a refusal.
func (b *newsBench) command(t *testing.T, gateway string) plimsoll.Code {
	t.Helper()
	command := submit("a")
	command.Gateway = gateway
	b.below.session.replies = nil
	ctx := context.WithValue(t.Context(), aboveKey{}, b.below.above)
	if err := b.handler.command(ctx, b.below, command); err != nil {
		t.Fatalf("a command of %s ended the relay's stream: %v", gateway, err)
	}
	for _, placed := range b.below.session.replies {
		return plimsoll.CodeOf(wire.ErrorFromProto(placed.reply.GetError()))
	}
	return 0
}

// A peer that repeats the beginning and the end of a stream costs a bounded queue. Commands do not
// lose their room to it.
func TestNewsFromBelowIsBounded(t *testing.T) {
	const most = 8
	b := newNewsBench(t, most)
	for i := range 100 * most {
		id := fmt.Sprint("g", i)
		b.news(t, id, false)
		b.news(t, id, true)
	}
	queue := b.relay.follower.mu.pending.queue
	if len(queue) > 2*most || b.relay.follower.unannounced() > 2*most {
		t.Errorf("%d news wait for the parent, want at most %d", len(queue), 2*most)
	}
	b.relay.follower.mu.pending.maxCalls = 2
	if _, err := b.relay.follower.addCall(submit("a")); err != nil {
		t.Errorf("beside news: %v", err)
	}
	if b.sent(); b.relay.source.mu.behind != 0 || len(b.below.below) != 0 || b.below.behind != 0 {
		t.Errorf("all have gone; %d are behind, %v below", b.relay.source.mu.behind, b.below.below)
	}
	b.news(t, "later", false)
	if got := b.sent(); got != "later" {
		t.Errorf("once there is room %q is sent", got)
	}
}

// The streams of one id count as those of many do.
func TestStreamsOfOneGatewayBehindARelayAreBounded(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{MaxGateways: 5})
	st := &stream{gateway: "relay"}
	begin := &pb.ReplicateDownstream{Gateway: "g"}
	for range 5 {
		if err := leader.source.downstream(st, begin); err != nil {
			t.Fatal(err)
		}
	}
	if err := leader.source.downstream(st, begin); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("a sixth stream of one gateway: %v", err)
	}
}

// An id that no gateway can have is refused where it comes in, and is not repeated.
func TestIdsOfGatewaysAreValidated(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	for _, id := range []string{"", "a b", "-", strings.Repeat("x", 129), strings.Repeat("x", 10<<20)} {
		for name, err := range map[string]error{
			"downstream.gateway": leader.source.downstream(&stream{}, &pb.ReplicateDownstream{Gateway: id}),
			"hello.gateway":      leader.source.open(&stream{}, &pb.ReplicateHello{Gateway: id}),
		} {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), name) ||
				len(err.Error()) > 500 {
				t.Errorf("%s of %d bytes: %.500v", name, len(id), err)
			}
		}
	}
}

// One gateway too many behind a relay has its commands refused. It ends no stream, and is announced
// with its first command after another has left.
func TestOneGatewayTooManyBehindARelayIsRefusedAlone(t *testing.T) {
	b := newNewsBench(t, 4)
	direct := b.open(t, "direct")
	for _, id := range []string{"a", "b", "c"} {
		b.news(t, id, false)
	}
	if got := b.sent(); got != "nested, direct, a, b" {
		t.Errorf("the parent hears of %s", got)
	}
	if a, c := b.command(t, "a"), b.command(t, "c"); a != 0 || c != plimsoll.CodeExhausted {
		t.Errorf("the commands are answered with %v and %v", a, c)
	}
	extra := &stream{wake: make(chan struct{}, 1)}
	err := b.relay.source.open(extra, &pb.ReplicateHello{Gateway: "extra", Protocol: protocol})
	if plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("a fifth gateway that follows the relay itself: %v", err)
	}
	b.relay.source.disconnected(direct, "direct", nil)
	b.relay.source.remove(direct)
	if c := b.command(t, "c"); c != 0 {
		t.Errorf("with room for c its command is answered with %v", c)
	}
	b.news(t, "c", true)
	b.news(t, "b", true)
	if got := b.sent(); got != "command of a, end of direct, c, command of c, end of c, end of b" {
		t.Errorf("the parent hears of %s", got)
	}
}

// While a leader has no room for news it reports no stream, refuses new gateways, and keeps the
// streams that it has.
func TestALeaderWithoutRoomForNewsReportsNone(t *testing.T) {
	full := plimsoll.Errorf(plimsoll.CodeExhausted, "full")
	var room error
	var connected []string
	leader := startLeader(t, "unix", "", SourceConfig{
		Admit:  func() error { return room },
		Events: SourceEvents{Connected: func(gateway string, _ bool) { connected = append(connected, gateway) }},
	})
	st := &stream{gateway: "relay"}
	room = full
	if err := leader.source.downstream(st, &pb.ReplicateDownstream{Gateway: "a"}); err != nil {
		t.Errorf("the relay's stream ends: %v", err)
	}
	if err := leader.source.open(&stream{}, &pb.ReplicateHello{Gateway: "b"}); err == nil || len(connected) != 0 {
		t.Errorf("reported %v (%v)", connected, err)
	}
	room = nil
	if err := leader.source.introduce(st, "a"); err != nil || len(connected) != 1 {
		t.Errorf("with room, reported %v (%v)", connected, err)
	}
}
