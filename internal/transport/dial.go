package transport

import (
	"context"
	"net"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/token"
)

// watchedPings make a live peer send at least every second, for an owner that calls Heard. The
// owner ends a silent connection sooner than the pings do.
var watchedPings = pings{after: time.Second, timeout: 10 * time.Second}

// Dial connects to an address and returns a client of that connection alone. A live peer is heard
// at least once in a second and a round trip. So the owner of the connection can notice its loss
// early:
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
		return nil, err //nolint:wrapcheck // the error names the operation and the address
	}
	client := NewWatchedClient(conn, address)
	client.SendToken(source)
	return client, nil
}

// NewWatchedClient is NewConnClient for an owner that calls Heard, as Dial describes.
func NewWatchedClient(c net.Conn, address string) *ConnClient {
	return newConnClient(c, address, watchedPings)
}
