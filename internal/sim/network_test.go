package sim

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
)

// network carries connections between processes, with a link for each two of them.
type network struct {
	mu struct {
		sync.Mutex
		listeners map[string]*listener // by address
		links     map[[2]string]*faultnet.Link
		conns     map[string]map[*heldConn]struct{} // by the name of the process
	}
}

// listener is an address at which a process listens.
type listener struct {
	*faultnet.Pipes
	of  *process
	net *network
}

func newNetwork() *network {
	n := &network{}
	n.mu.listeners, n.mu.links = map[string]*listener{}, map[[2]string]*faultnet.Link{}
	n.mu.conns = map[string]map[*heldConn]struct{}{}
	return n
}

// listen makes the listener of a process. One that was there before has been closed.
func (n *network) listen(p *process, address string) *listener {
	l := &listener{faultnet.NewPipes(100), p, n}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.listeners[address] = l
	return l
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Pipes.Accept()
	if err != nil {
		return nil, err
	}
	return l.net.hold(l.of, c), nil
}

// dialer returns a function that connects from a process to an address.
func (n *network) dialer(p *process) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if err := p.runs(ctx); err != nil {
			return nil, refused(err)
		}
		c, err := n.link(p.name, address).Dial(ctx)
		if err != nil {
			return nil, refused(err)
		}
		return n.hold(p, c), nil
	}
}

func refused(err error) error { return &net.OpError{Op: "dial", Net: "unix", Err: err} }

// link returns the link from a process to an address.
func (n *network) link(from, address string) *faultnet.Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := [2]string{from, address}
	if n.mu.links[key] == nil {
		n.mu.links[key] = faultnet.New(func(ctx context.Context) (net.Conn, error) {
			n.mu.Lock()
			l := n.mu.listeners[address]
			n.mu.Unlock()
			if l == nil {
				return nil, syscall.ECONNREFUSED
			}
			c, err := l.Dial(ctx)
			if err != nil {
				return nil, syscall.ECONNREFUSED
			}
			return c, nil
		})
	}
	return n.mu.links[key]
}

// linksTo returns the links to an address from processes other than the one at it.
func (n *network) linksTo(address string) (links []*faultnet.Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, l := range n.mu.links {
		if key[1] == address {
			links = append(links, l)
		}
	}
	return links
}

// heal lets all links through again, and cuts the connections that have lost bytes.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.mu.links {
		l.Heal()
		l.CutLost()
	}
}

// abandon cuts all connections of a process, and closes its listeners.
func (n *network) abandon(p *process) {
	n.mu.Lock()
	conns := n.mu.conns[p.name]
	delete(n.mu.conns, p.name)
	for address, l := range n.mu.listeners {
		if l.of == p {
			_ = l.Close() // a listener in memory
			delete(n.mu.listeners, address)
		}
	}
	n.mu.Unlock()
	for c := range conns {
		if c.of == p {
			_ = c.Conn.Close() // the process is gone
		}
	}
}

func (n *network) close() {
	n.mu.Lock()
	links := n.mu.links
	n.mu.Unlock()
	for _, l := range links {
		l.Close()
	}
}

// heldConn is an end of a connection that carries nothing while its process is stopped. A write
// never blocks, as into the buffer of a socket: who waits for a lock behind a blocked write would
// keep the clock of the bubble from going on.
type heldConn struct {
	net.Conn
	of  *process
	net *network
	ctx context.Context //nolint:containedctx // ends when the process has closed the connection
	end context.CancelFunc

	mu struct {
		sync.Mutex
		written []byte        // not sent yet
		wake    chan struct{} // capacity 1
		failed  bool
		closed  bool
	}
}

func (n *network) hold(p *process, c net.Conn) net.Conn {
	h := &heldConn{Conn: c, of: p, net: n}
	h.ctx, h.end = context.WithCancel(context.Background())
	h.mu.wake = make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.conns[p.name] == nil {
		n.mu.conns[p.name] = map[*heldConn]struct{}{}
	}
	n.mu.conns[p.name][h] = struct{}{}
	go h.send()
	return h
}

// send sends what is written, until the connection is closed. The other end learns of the close
// behind all that was written, and when the process is not stopped.
func (c *heldConn) send() {
	defer func() {
		_ = c.Conn.Close() // a pipe's Close does not fail
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		delete(c.net.mu.conns[c.of.name], c)
	}()
	for {
		data, closed := c.take()
		if len(data) == 0 && closed {
			_ = c.of.runs(context.Background()) // or it is dead, and the end is the same
			return
		}
		if len(data) == 0 {
			<-c.mu.wake
			continue
		}
		err := c.of.runs(context.Background())
		if err == nil {
			_, err = c.Conn.Write(data)
		}
		if err != nil {
			c.change(func() { c.mu.failed, c.mu.closed = true, true })
			return
		}
	}
}

func (c *heldConn) take() (data []byte, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, c.mu.written = c.mu.written, nil
	return data, c.mu.closed
}

func (c *heldConn) change(f func()) {
	c.mu.Lock()
	f()
	c.mu.Unlock()
	select {
	case c.mu.wake <- struct{}{}:
	default:
	}
}

// Read implements net.Conn.
func (c *heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if held := c.of.runs(c.ctx); held != nil {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (c *heldConn) Write(b []byte) (n int, err error) {
	c.change(func() {
		if c.mu.failed || c.mu.closed {
			err = net.ErrClosed
			return
		}
		n, c.mu.written = len(b), append(c.mu.written, b...)
	})
	return n, err
}

// Close implements net.Conn.
func (c *heldConn) Close() error {
	c.end()
	_ = c.SetReadDeadline(time.Now()) // who reads now is told
	c.change(func() { c.mu.closed = true })
	return nil
}

// SetDeadline implements net.Conn. Writes need none.
func (c *heldConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *heldConn) SetWriteDeadline(time.Time) error { return nil }
