package transport

import (
	"context"
	"net"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/token"
)

// watchedPings keep bytes coming on a connection whose owner asks Heard: at least every second
// while the peer answers. The owner ends a silent connection sooner than the pings do.
var watchedPings = pings{after: time.Second, timeout: 10 * time.Second}

// Dial connects to an address and returns a client of that connection alone. A peer that answers is
// heard at least once in a second and a round trip, so an owner of the connection can tell early
// that it was lost:
//
//	c, err := transport.Dial(ctx, "10.0.0.1:9081", source)
//	...
//	defer c.Cut()
//	for range time.Tick(time.Second) { lost = !c.Heard() && !c.Heard() }
//
// The client sends the token of a source, nil for none. The connection is made to the address for
// which the token was found.
func Dial(ctx context.Context, address string, source *token.Source) (*ConnClient, error) {
	network, rest, err := Split(address)
	if err != nil {
		return nil, err
	}
	if source != nil {
		_, at, err := source.Get()
		if err != nil {
			return nil, err
		}
		if at != "" && network == "tcp" {
			rest = at
		}
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, network, rest)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the operation and the address
	}
	client := NewWatchedClient(conn, address)
	client.SendToken(source)
	return client, nil
}

// NewWatchedClient is NewConnClient for an owner that asks Heard, as Dial describes it.
func NewWatchedClient(c net.Conn, address string) *ConnClient {
	return newConnClient(c, address, watchedPings)
}
