package replica

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// testRelay is a relay behind a real server.
type testRelay struct {
	follower *Follower
	relay    *Relay
	address  string
	stop     func()
}

// startRelay runs a relay of a leader, or of another relay, until the test ends or stop is called.
func startRelay(t testing.TB, id, address, parent string, config FollowerConfig) *testRelay {
	t.Helper()
	config.Gateway, config.Leader = id, parent
	config.MinBackoff, config.MaxBackoff = time.Millisecond, 20*time.Millisecond
	f, err := NewFollower(config)
	if err != nil {
		t.Fatal(err)
	}
	relay, err := NewRelay(f, RelayConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if address == "" {
		address = "unix:" + filepath.Join(t.TempDir(), "relay.sock")
	}
	listener, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(relay.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		err := transport.Serve(ctx, listener, mux, transport.ServeConfig{Access: transport.AnyCaller()})
		if err != nil {
			t.Error(err)
		}
	})
	group.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r := &testRelay{follower: f, relay: relay, address: address}
	if network, _, _ := transport.Split(address); network == "tcp" {
		r.address = listener.Addr().String()
	}
	r.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

// A gateway behind two relays reads what was acknowledged to anybody, and its writes are at once in
// its own copy.
func TestGatewayBehindRelaysReadsAndWrites(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{Confirm: func(context.Context) error { return nil }})
	first := startRelay(t, "first", "", leader.address, FollowerConfig{})
	second := startRelay(t, "second", "", first.address, FollowerConfig{})
	f, _ := startFollower(t, FollowerConfig{Leader: second.address, Gateway: "below"})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	for i := range 100 {
		leader.publish(put("a", fmt.Sprint(i)))
		if got, _ := mustBarrier(ctx, t, f).Get(wire.KindJobStatus, "a"); string(got) != fmt.Sprint(i) {
			t.Fatalf("after write %d a gateway behind relays reads %s", i, got)
		}
	}
	reply, err := f.Do(ctx, submit("mine"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Latest().Revision() < reply.GetRevision() {
		t.Error("the reply came in front of its batch")
	}
	if by, _ := f.Latest().Get(wire.KindJobStatus, "mine"); string(by) != "below" {
		t.Errorf("the leader took a command of gateway below for one of %q", by)
	}
	if a, b := fingerprint(mustBarrier(ctx, t, f)), fingerprint(leader.source.Snapshot()); a != b {
		t.Errorf("the copy is\n%s\nand the leader has\n%s", a, b)
	}
}

// The leader hears when a stream begins or ends at a relay, because nodes belong to gateways.
func TestLeaderHearsOfTheGatewaysBehindARelay(t *testing.T) {
	connected, disconnected := make(chan string, 20), make(chan string, 20)
	leader := startLeader(t, "unix", "", SourceConfig{Events: SourceEvents{
		Connected:    func(gateway string, _ bool) { connected <- gateway },
		Disconnected: func(gateway string, _ error) { disconnected <- gateway },
	}})
	first := startRelay(t, "first", "", leader.address, FollowerConfig{})
	second := startRelay(t, "second", "", first.address, FollowerConfig{})
	ctx := testContext(t)
	f, stop := startFollower(t, FollowerConfig{Leader: second.address, Gateway: "below"})
	mustReady(ctx, t, f)
	for _, want := range []string{"first", "second", "below"} {
		if got := await(ctx, t, connected); got != want {
			t.Fatalf("the leader heard of %s, want %s", got, want)
		}
	}
	stop()
	if got := await(ctx, t, disconnected); got != "below" {
		t.Fatalf("%s ended, want below", got)
	}
	f, _ = startFollower(t, FollowerConfig{Leader: second.address, Gateway: "again"})
	mustReady(ctx, t, f)
	if got := await(ctx, t, connected); got != "again" {
		t.Fatalf("the leader heard of %s", got)
	}
	first.stop() // all behind it are gone too
	ended := map[string]bool{}
	for range 3 {
		ended[await(ctx, t, disconnected)] = true
	}
	if !ended["first"] || !ended["second"] || !ended["again"] {
		t.Errorf("with its relay ended only %v", ended)
	}
}

// A relay that is killed, and a leader that is replaced, cost the gateways behind them a
// connection, and no read is stale.
func TestRelayAndLeaderAreReplaced(t *testing.T) {
	leader := startLeader(t, "tcp", "", SourceConfig{})
	leader.publish(put("a", "1"))
	relay := startRelay(t, "relay", "127.0.0.1:0", leader.address, FollowerConfig{})
	f, _ := startFollower(t, FollowerConfig{Leader: relay.address, Gateway: "below"})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	relay.stop()
	leader.publish(put("a", "2"))
	relay = startRelay(t, "relay", relay.address, leader.address, FollowerConfig{})
	if got := readAgain(ctx, t, f, "a"); got != "2" {
		t.Errorf("behind the new relay a is %s", got)
	}
	address, revision := leader.address, leader.source.Snapshot().Revision()
	leader.stop()
	leader = startLeader(t, "tcp", address, SourceConfig{Epoch: 2})
	leader.revision = revision
	leader.publish(put("a", "3"))
	if got := readAgain(ctx, t, f, "a"); got != "3" {
		t.Errorf("behind the new leader a is %s", got)
	}
	if s := f.Latest(); s.Epoch() != 2 || s.InstanceUUID() != "instance-2" {
		t.Errorf("the copy is of epoch %d of %s", s.Epoch(), s.InstanceUUID())
	}
	if relay.follower.Latest().Epoch() != 2 {
		t.Error("the relay is of another epoch")
	}
}

// A relay whose own stream breaks and is resumed passes later commands from below on.
func TestRelayGoesOnAfterItsStreamBroke(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	relay := startRelay(t, "relay", "", leader.address, FollowerConfig{})
	lives := make(chan bool, 20)
	f, _ := startFollower(t, FollowerConfig{Leader: relay.address, Gateway: "below", Events: FollowerEvents{
		Live: func(_, _ uint64, resumed bool) { lives <- resumed },
	}})
	ctx := testContext(t)
	await(ctx, t, lives)
	for i := range 5 {
		endStreams(leader.source)
		if resumed := await(ctx, t, lives); !resumed {
			t.Error("the copy below was sent anew")
		}
		if _, err := f.Do(ctx, submit(fmt.Sprint("job", i))); err != nil {
			t.Fatal(err)
		}
		if by, _ := mustBarrier(ctx, t, f).Get(wire.KindJobStatus, fmt.Sprint("job", i)); string(by) != "below" {
			t.Errorf("the command came from %q", by)
		}
	}
}

// readAgain reads until a barrier succeeds.
func readAgain(ctx context.Context, t *testing.T, f *Follower, key string) string {
	t.Helper()
	for {
		mustReady(ctx, t, f)
		if s, err := f.Barrier(ctx); err == nil {
			value, _ := s.Get(wire.KindJobStatus, key)
			return string(value)
		}
	}
}

// Without its own leader a relay serves nobody: barriers behind it fail at once, and a command that
// was sent has an unknown outcome.
func TestRelayWithoutALeaderEndsTheStreamsBehindIt(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{})
	got := make(chan string, 1)
	leader.exec = func(_ context.Context, gateway string, _ *pb.Command, _ func(*pb.Reply)) { got <- gateway }
	relay := startRelay(t, "relay", "", leader.address, FollowerConfig{})
	refusals := make(chan error, 1000)
	f, _ := startFollower(t, FollowerConfig{Leader: relay.address, Gateway: "below", Events: FollowerEvents{
		Disconnected: func(err error, _ time.Duration) {
			select {
			case refusals <- err:
			default: // the test has read enough
			}
		},
	}})
	ctx := testContext(t)
	mustReady(ctx, t, f)
	done := make(chan error, 1)
	go func() {
		_, err := f.Do(ctx, submit("a"))
		done <- err
	}()
	if from := await(ctx, t, got); from != "below" {
		t.Errorf("the command came from %s", from)
	}
	leader.stop()
	if err := await(ctx, t, done); plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown {
		t.Errorf("the command ended with %v", err)
	}
	for err := range refusals {
		if strings.Contains(err.Error(), "follows relay, which has no leader now") {
			break
		}
	}
	if _, err := f.Barrier(ctx); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a barrier without a leader ended with %v", err)
	}
}

// Relays that follow one another are found and told, however many they are.
func TestCircleOfRelaysIsFound(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := t.TempDir()
			address := func(i int) string { return "unix:" + filepath.Join(dir, fmt.Sprint("relay", i%n)) }
			found := make(chan error, 1)
			events := FollowerEvents{Disconnected: func(err error, _ time.Duration) {
				if plimsoll.CodeOf(err) == plimsoll.CodeConflict {
					select {
					case found <- err:
					default: // the test has one
					}
				}
			}}
			for i := range n {
				startRelay(t, fmt.Sprint("r", i), address(i), address(i+1), FollowerConfig{Events: events})
			}
			err := await(testContext(t), t, found)
			for i := range n {
				if !strings.Contains(err.Error(), fmt.Sprint("r", i)) {
					t.Errorf("the circle is told as %v", err)
				}
			}
		})
	}
}

func TestPathOfRelays(t *testing.T) {
	for _, test := range []struct {
		path    []string
		gateway string
		want    string // in the error; empty: none
	}{
		{nil, "g", ""},
		{[]string{"a", "b"}, "g", ""},
		{[]string{"a", "b", "c"}, "b", "(b, followed by c, followed by b)"},
		{[]string{"a"}, "a", "an id of its own"},
		{[]string{"a", "b", "c", "d"}, "g", ""},
		{[]string{"a", "b", "c", "d", "e"}, "g", "5 relays (a, b, c, d, e) stand between"},
	} {
		err := checkPath(test.path, test.gateway)
		found := err != nil && test.want != "" && strings.Contains(err.Error(), test.want)
		if test.want == "" && err != nil || test.want != "" && !found {
			t.Errorf("%s behind %v: %v", test.gateway, test.path, err)
		}
	}
}

// A stream's news and commands that come after the relay's own stream has ended stay behind: on the
// next one the leader does not know them.
func TestNewsOfAnOlderStreamIsNotPassedOn(t *testing.T) {
	p := &pending{maxCalls: 10, maxBytes: 1000}
	p.connect()
	old := p.stream
	p.announce(old, &pb.ReplicateDownstream{Gateway: "g"})
	p.disconnect()
	p.announce(old, &pb.ReplicateDownstream{Gateway: "g", Gone: true})
	p.connect()
	p.announce(old, &pb.ReplicateDownstream{Gateway: "g", Gone: true})
	if err := p.pass(old, "g", submit("a"), nil); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("a command of an older stream: %v", err)
	}
	if request := p.next(); request != nil || p.news != 0 {
		t.Errorf("sent %v, and %d news wait", request, p.news)
	}
	p.announce(p.stream, &pb.ReplicateDownstream{Gateway: "g"})
	if err := p.pass(p.stream, "g", submit("a"), nil); err != nil {
		t.Fatal(err)
	}
	if request := p.next(); request.GetDownstream().GetGateway() != "g" {
		t.Errorf("the command came in front of the news: %v", request)
	}
	if request := p.next(); request.GetCommand().GetGateway() != "g" || p.news != 0 {
		t.Errorf("sent %v, and %d news wait", request, p.news)
	}
}

// Commands of a gateway that was not announced, and news that do not fit, end the stream.
func TestNewsThatAreRefused(t *testing.T) {
	leader := startLeader(t, "unix", "", SourceConfig{MaxGateways: 1})
	st := &stream{gateway: "relay"}
	h := &handler{source: leader.source, exec: leader.execute}
	command := submit("a")
	command.Gateway = "stranger"
	for _, test := range []struct {
		name string
		do   func() error
		want plimsoll.Code
	}{
		{"a command of a stranger", func() error { return h.command(t.Context(), st, command) }, plimsoll.CodeInvalid},
		{"the end of a stranger", func() error {
			return h.source.downstream(st, &pb.ReplicateDownstream{Gateway: "stranger", Gone: true})
		}, plimsoll.CodeInvalid},
		{"a gateway without a name", func() error {
			return h.source.downstream(st, &pb.ReplicateDownstream{})
		}, plimsoll.CodeInvalid},
		{"the first gateway", func() error {
			return h.source.downstream(st, &pb.ReplicateDownstream{Gateway: "a"})
		}, 0},
		{"a gateway too many", func() error {
			return h.source.downstream(st, &pb.ReplicateDownstream{Gateway: "b"})
		}, plimsoll.CodeExhausted},
	} {
		err := test.do()
		if test.want == 0 && err != nil || test.want != 0 && plimsoll.CodeOf(err) != test.want {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// The syncs of all streams below and the relay's own readers share one sync of the relay. One that
// comes while it is in flight waits for the next (O4). Nobody is answered without the leader (O5).
func TestSyncsFromBelowShareOneOfTheRelay(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		proofs, goOn := make(chan struct{}, 100), make(chan struct{})
		b := makeBubble(t, SourceConfig{Confirm: func(ctx context.Context) error {
			proofs <- struct{}{} // one for each sync that the leader gets
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return ctx.Err()
		}})
		relay, err := NewRelay(b.follower, RelayConfig{})
		if err != nil {
			t.Fatal(err)
		}
		network, mux := newFakeNetwork(t), http.NewServeMux()
		mux.Handle(relay.Handler())
		network.serve(t, mux)
		b.run()
		followers := make([]*Follower, 4)
		for i := range followers {
			config := FollowerConfig{Gateway: fmt.Sprint("below-", i), Leader: "unix:/fake"}
			followers[i] = newFollower(config, network.dial)
			runFollower(t, followers[i])
			mustReady(t.Context(), t, followers[i])
		}
		var answered atomic.Int32
		read := func(f *Follower) {
			want := b.leader.source.Snapshot().Revision()
			go func() {
				if s, err := f.Barrier(t.Context()); err != nil {
					t.Error(err)
				} else if s.Revision() < want {
					t.Errorf("a read shows revision %d, want %d", s.Revision(), want)
				}
				answered.Add(1)
			}()
		}
		wants := func(when string, syncs int, answers int32) {
			t.Helper()
			synctest.Wait()
			if len(proofs) != syncs || answered.Load() != answers {
				t.Fatalf("%s the leader has got %d syncs, want %d, and %d reads were answered, want %d",
					when, len(proofs), syncs, answered.Load(), answers)
			}
		}
		read(followers[0])
		wants("with one read", 1, 0)
		b.publish()
		for _, f := range append(followers[1:], b.follower) {
			read(f)
		}
		wants("with four more", 1, 0)
		goOn <- struct{}{}
		wants("after the first proof", 2, 1)
		goOn <- struct{}{}
		wants("after the second", 2, 5)
	})
}
