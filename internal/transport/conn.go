package transport

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// ConnClient is an HTTP/2 client of one connection. It never makes another one, so a fact about
// its peer holds for every request.
type ConnClient struct {
	HTTP *http.Client
	URL  string // base of what is asked for
	conn *closing
}

// closing is a connection that knows whether it was closed.
type closing struct {
	net.Conn
	taken  atomic.Bool // given to the transport
	closed atomic.Bool // or no longer good for a request
	heard  atomic.Bool // something came since Heard was asked
}

// Read implements net.Conn.
func (c *closing) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err //nolint:wrapcheck // io.EOF and time-outs are compared
}

// Close implements net.Conn.
func (c *closing) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// NewConnClient returns a client of a connection to an address, which it owns from now on.
func NewConnClient(c net.Conn, address string) *ConnClient {
	return newConnClient(c, address, pings{after: pingAfter, timeout: pingTimeout})
}

// pings are those of HTTP/2, which keep a connection from falling silent.
type pings struct {
	after   time.Duration // of silence
	timeout time.Duration // of the answer, which ends the connection
}

func newConnClient(c net.Conn, address string, p pings) *ConnClient {
	held := &closing{Conn: c}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		Protocols:       protocols,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: p.after, PingTimeout: p.timeout},
		IdleConnTimeout: idleTimeout,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			if held.taken.Swap(true) {
				held.closed.Store(true) // or another would not be asked for
				return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "the connection to %s has ended", address)
			}
			return held, nil
		},
	}
	url := "http://plimsoll"
	if network, rest, err := Split(address); err == nil {
		url = urlOf(network, rest)
	}
	return &ConnClient{HTTP: &http.Client{Transport: refusals{t}}, URL: url, conn: held}
}

// Heard reports whether anything has come over the connection since it was asked last.
func (c *ConnClient) Heard() bool { return c.conn.heard.Swap(false) }

// Cut ends the connection at once, with all that is under way on it.
func (c *ConnClient) Cut() {
	_ = c.conn.Close() // nothing more is expected of it
	c.HTTP.CloseIdleConnections()
}

// Alive reports whether the connection is not known to have ended.
func (c *ConnClient) Alive() bool { return !c.conn.closed.Load() }

// Close ends the connection when nothing is under way on it any more.
func (c *ConnClient) Close() {
	if !c.conn.taken.Load() {
		_ = c.conn.Close() // nothing was said on it
	}
	c.HTTP.CloseIdleConnections()
}
