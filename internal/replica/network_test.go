package replica

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// fakeNetwork carries connections to one address in memory, so that a bubble of testing/synctest
// has them.
type fakeNetwork struct {
	*faultnet.Link
	target *faultnet.Pipes
}

func newFakeNetwork(t *testing.T) *fakeNetwork {
	n := &fakeNetwork{target: faultnet.NewPipes(100)}
	n.Link = faultnet.New(n.target.Dial)
	t.Cleanup(n.Close)
	return n
}

func (n *fakeNetwork) dial(ctx context.Context, _ string) (*transport.ConnClient, error) {
	c, err := n.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return transport.NewWatchedClient(c, "unix:/fake"), nil
}

// serve answers the connections with a handler until the test ends.
func (n *fakeNetwork) serve(t *testing.T, handler http.Handler) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(n.target) // until it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close() // the listener was not closed before
		n.Cut()
		<-ended
	})
}

// lose loses all that is sent from now on over the connections that there are; also over new ones
// if those are lost too.
func (n *fakeNetwork) lose(newOnes bool) { n.Lose(faultnet.Both, newOnes) }

// loseUp loses what the clients send on the connections that there are.
func (n *fakeNetwork) loseUp() { n.Lose(faultnet.Up, false) }

// bubble is a leader and a follower on a fake network.
type bubble struct {
	t        *testing.T
	network  *fakeNetwork
	leader   *testLeader
	follower *Follower
	hellos   atomic.Int32 // streams that the leader has taken
	lives    chan time.Time
	breaks   chan error
	answer   atomic.Int64 // how long the leader takes for an answer that is no stream
}

// startBubble starts both and waits until the copy is live. It is called in a bubble.
func startBubble(t *testing.T, config SourceConfig) *bubble {
	t.Helper()
	b := makeBubble(t, config)
	b.run()
	<-b.lives
	return b
}

func makeBubble(t *testing.T, config SourceConfig) *bubble {
	t.Helper()
	b := &bubble{t: t, network: newFakeNetwork(t), lives: make(chan time.Time, 100), breaks: make(chan error, 1000)}
	config.Epoch, config.Leader = 1, "instance-1"
	config.Events.Connected = func(string, bool) { b.hellos.Add(1) }
	source, err := NewSource(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.leader = &testLeader{t: t, source: source, lost: make(chan string, 100)}
	b.leader.publish(put("a", "1"))
	mux := http.NewServeMux()
	mux.Handle(NewHandler(source, b.leader.execute))
	mux.HandleFunc("/readyz", func(_ http.ResponseWriter, r *http.Request) {
		wait(r.Context(), time.Duration(b.answer.Load()))
	})
	b.network.serve(t, mux)
	t.Cleanup(func() { source.Close(nil) })
	b.follower = newFollower(FollowerConfig{
		Gateway: "g", Leader: "unix:/fake", Events: FollowerEvents{
			Live:         func(uint64, uint64, bool) { b.lives <- time.Now() },
			Disconnected: func(err error, _ time.Duration) { b.breaks <- err },
		},
	}, b.network.dial)
	return b
}

// run runs the follower until the test ends.
func (b *bubble) run() { runFollower(b.t, b.follower) }

// runFollower runs a follower until the test ends.
func runFollower(t *testing.T, f *Follower) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// read is a strict read with a deadline. Its snapshot must hold everything that was published.
func (b *bubble) read(within time.Duration) error {
	b.t.Helper()
	want := b.leader.source.Snapshot().Revision()
	ctx, cancel := context.WithTimeout(b.t.Context(), within)
	defer cancel()
	s, err := b.follower.Barrier(ctx)
	if err == nil && s.Revision() < want {
		b.t.Errorf("a read returned revision %d after %d was committed", s.Revision(), want)
	}
	return err
}

// publish publishes one more job.
func (b *bubble) publish() {
	b.leader.publish(wire.Mutation{Kind: wire.KindJobStatus, Key: "b", Value: []byte("1")})
}
