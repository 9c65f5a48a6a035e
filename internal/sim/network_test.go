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

// heldConn is an end of a connection that carries nothing while its process is stopped.
type heldConn struct {
	net.Conn
	of   *process
	net  *network
	ctx  context.Context // ends when the process has closed the connection
	end  context.CancelFunc
	once sync.Once
}

func (n *network) hold(p *process, c net.Conn) net.Conn {
	h := &heldConn{Conn: c, of: p, net: n}
	h.ctx, h.end = context.WithCancel(context.Background())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.conns[p.name] == nil {
		n.mu.conns[p.name] = map[*heldConn]struct{}{}
	}
	n.mu.conns[p.name][h] = struct{}{}
	return h
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
func (c *heldConn) Write(b []byte) (int, error) {
	if held := c.of.runs(c.ctx); held != nil {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn. The other end learns of it when the process goes on.
func (c *heldConn) Close() error {
	c.once.Do(func() {
		c.end()
		_ = c.Conn.SetDeadline(time.Now()) // who reads or writes now is told
		go func() {
			_ = c.of.runs(context.Background()) // or it is dead, and the end is the same
			_ = c.Conn.Close()                  // a pipe's Close does not fail
			c.net.mu.Lock()
			defer c.net.mu.Unlock()
			delete(c.net.mu.conns[c.of.name], c)
		}()
	})
	return nil
}
