package replica

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// fakeNetwork carries connections to one address in memory, so that a bubble of testing/synctest
// has them, and loses them without a word.
type fakeNetwork struct {
	accepted chan net.Conn
	closed   chan struct{}

	mu struct {
		sync.Mutex
		ends    []*fakeConn // of all connections
		dials   int
		refuses bool // nobody listens
		loses   bool // new connections are lost too
	}
}

func newFakeNetwork(t *testing.T) *fakeNetwork {
	n := &fakeNetwork{accepted: make(chan net.Conn, 100), closed: make(chan struct{})}
	t.Cleanup(n.cut)
	return n
}

// fakeConn is one end of a connection.
type fakeConn struct {
	net.Conn
	loses  *atomic.Bool // what is written at this end
	lost   *atomic.Bool // what the other end writes, and that it has closed
	closed chan struct{}
	once   sync.Once
}

func (c *fakeConn) Write(p []byte) (int, error) {
	if c.loses.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *fakeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lost.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *fakeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (n *fakeNetwork) dial(context.Context) (*transport.ConnClient, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.dials++
	if n.mu.refuses {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	up, down := &atomic.Bool{}, &atomic.Bool{}
	up.Store(n.mu.loses)
	down.Store(n.mu.loses)
	client := &fakeConn{Conn: near, loses: up, lost: down, closed: make(chan struct{})}
	server := &fakeConn{Conn: far, loses: down, lost: up, closed: make(chan struct{})}
	n.mu.ends = append(n.mu.ends, client, server)
	n.accepted <- server
	return transport.NewWatchedClient(client, "unix:/fake"), nil
}

// lose loses all that is sent from now on over the connections that there are; also over new ones
// if those are lost too.
func (n *fakeNetwork) lose(newOnes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.loses = newOnes
	for _, c := range n.mu.ends {
		c.loses.Store(true)
	}
}

// loseUp loses what the clients send on the connections that there are.
func (n *fakeNetwork) loseUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := 0; i < len(n.mu.ends); i += 2 {
		n.mu.ends[i].loses.Store(true)
	}
}

// heal lets new connections through.
func (n *fakeNetwork) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.loses, n.mu.refuses = false, false
}

// refuse refuses new connections.
func (n *fakeNetwork) refuse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.refuses = true
}

// cut closes all connections.
func (n *fakeNetwork) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.mu.ends {
		_ = c.Close() // one that has been closed
	}
}

func (n *fakeNetwork) dials() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.dials
}

// Accept, Close and Addr implement net.Listener.
func (n *fakeNetwork) Accept() (net.Conn, error) {
	select {
	case c := <-n.accepted:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *fakeNetwork) Close() error {
	close(n.closed)
	return nil
}

func (n *fakeNetwork) Addr() net.Addr { return &net.UnixAddr{Name: "/fake", Net: "unix"} }

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
	config.Epoch, config.InstanceUUID = 1, "instance-1"
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
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(b.network) // until it is closed
	}()
	t.Cleanup(func() {
		source.Close(nil)
		_ = server.Close() // the listener was not closed before
		b.network.cut()
		<-ended
	})
	b.follower = newFollower(FollowerConfig{
		Gateway: "g", Leader: "unix:/fake", Events: FollowerEvents{
			Live:         func(uint64, uint64, bool) { b.lives <- time.Now() },
			Disconnected: func(err error, _ time.Duration) { b.breaks <- err },
		},
	}, b.network.dial)
	return b
}

// run runs the follower until the test ends.
func (b *bubble) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.follower.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
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
