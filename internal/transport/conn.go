package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// ConnClient is an HTTP/2 client of one connection. It never makes another one, so a fact about the
// peer of the connection holds for every request.
type ConnClient struct {
	HTTP *http.Client
	URL  string // base URL of requests
	conn *heldConn
}

// heldConn is a connection that notes whether it was closed, and whether bytes have come.
type heldConn struct {
	net.Conn
	taken  atomic.Bool   // the transport has the connection
	closed atomic.Bool   // closed, or a request was refused because it takes no more
	done   chan struct{} // closed when the connection is
	once   sync.Once     // of done
	heard  atomic.Bool   // bytes have come since the last call of Heard
}

// Read implements net.Conn.
func (c *heldConn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err //nolint:wrapcheck // callers compare io.EOF and time-outs
}

// Close implements net.Conn.
func (c *heldConn) Close() error {
	c.closed.Store(true)
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// poolGrace bounds the wait for the transport to put a connection into its pool.
const poolGrace = 250 * time.Millisecond

// again answers a transport that asks for a second connection. It does so when the first has ended
// or takes no more requests. It does so too for a request that comes before the first connection is
// in the pool: another goroutine puts it there, and the request is given it then. So that is waited
// for.
func (c *heldConn) again(ctx context.Context) {
	timer := time.NewTimer(poolGrace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// NewConnClient returns a client of a connection to an address. The client owns the connection.
func NewConnClient(c net.Conn, address string) *ConnClient {
	return newConnClient(c, address, pings{after: pingAfter, timeout: pingTimeout})
}

// pings are the settings of HTTP/2's pings, which keep a connection from falling silent.
type pings struct {
	after   time.Duration // silence before a ping
	timeout time.Duration // wait for the answer, after which the connection ends
}

func newConnClient(c net.Conn, address string, p pings) *ConnClient {
	held := &heldConn{Conn: c, done: make(chan struct{})}
	ended := plimsoll.Errorf(plimsoll.CodeUnavailable, "the connection to %s has ended", address)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		Protocols:       protocols,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: p.after, PingTimeout: p.timeout},
		IdleConnTimeout: idleTimeout,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if held.taken.Swap(true) {
				held.again(ctx)
				return nil, ended
			}
			return held, nil
		},
	}
	url := "http://plimsoll"
	if network, rest, err := Split(address); err == nil {
		url = urlOf(network, rest)
	}
	failed := func(err error) {
		if errors.Is(err, ended) {
			held.closed.Store(true)
		}
	}
	return &ConnClient{HTTP: &http.Client{Transport: refusals{t, failed}}, URL: url, conn: held}
}

// Heard reports whether any byte has come over the connection since the last call.
func (c *ConnClient) Heard() bool { return c.conn.heard.Swap(false) }

// Cut ends the connection at once, with all requests under way.
func (c *ConnClient) Cut() {
	_ = c.conn.Close() // the connection is given up
	c.HTTP.CloseIdleConnections()
}

// Alive reports whether the connection still counts as open.
func (c *ConnClient) Alive() bool { return !c.conn.closed.Load() }

// Close ends the connection once no request is under way.
func (c *ConnClient) Close() {
	if !c.conn.taken.Load() {
		_ = c.conn.Close() // the connection is unused
	}
	c.HTTP.CloseIdleConnections()
}
