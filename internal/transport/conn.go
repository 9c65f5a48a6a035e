package transport

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

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
}

// Close implements net.Conn.
func (c *closing) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// NewConnClient returns a client of a connection to an address, which it owns from now on.
func NewConnClient(c net.Conn, address string) *ConnClient {
	held := &closing{Conn: c}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		Protocols:       protocols,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
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
	if network, rest, err := Split(address); err == nil && network == "tcp" {
		url = "http://" + strings.TrimPrefix(rest, "http://")
	}
	return &ConnClient{HTTP: &http.Client{Transport: refusals{t}}, URL: url, conn: held}
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
