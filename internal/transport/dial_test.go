package transport_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// losing loses what is written from some time on.
type losing struct {
	net.Conn
	lost atomic.Bool
}

func (c *losing) Write(p []byte) (int, error) {
	if c.lost.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// newOnce returns a listener that accepts one connection, and no more until it is closed.
func newOnce(c net.Conn) net.Listener {
	l := &pipes{faultnet.NewPipes(1)}
	l.give(c)
	return l
}

// after waits, in a bubble.
func after(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// A peer that answers is heard at least once in a second and a half although nobody asks it
// anything. One that is out of reach is not heard, and the connection can be ended at once.
func TestAPeerThatAnswersIsHeard(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		near, far := net.Pipe()
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Protocols: protocols, Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = server.Serve(newOnce(far)) // until it is closed
		}()
		wire := &losing{Conn: near}
		client := transport.NewWatchedClient(wire, "unix:/once")
		response, err := client.HTTP.Get(client.URL)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
		client.Heard()
		for i := range 40 {
			after(1500 * time.Millisecond)
			if !client.Heard() {
				t.Fatalf("a peer that answers was not heard in interval %d", i)
			}
		}
		wire.lost.Store(true)
		after(1500 * time.Millisecond)
		client.Heard() // it may have been, in the beginning
		after(1500 * time.Millisecond)
		if client.Heard() || !client.Alive() {
			t.Error("a peer that hears nothing is heard, or its connection has ended")
		}
		client.Cut()
		if client.Alive() {
			t.Error("a connection that was cut is alive")
		}
		if err := errors.Join(far.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

func TestDialSendsTheTokenThatWasFound(t *testing.T) {
	withHome(t)
	user := token.New(token.User)
	l := listen(t, "127.0.0.1:0")
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	access := transport.NewAccess(transport.AccessConfig{Grants: grants(user, token.New(token.Agent))})
	serveWith(t, l, transport.ServeConfig{Access: access})
	client, err := transport.Dial(t.Context(), "localhost:"+port, token.Finder{Kind: token.User}.For("localhost:"+port))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Cut()
	if got, err := call(client.HTTP, client.URL, "hello"); err != nil || got != "caller 0" {
		t.Errorf("%s, %v", got, err)
	}
}

// That nobody listens can be told from other errors, and a dial ends with its context.
func TestDialSaysThatNobodyListens(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := transport.Dial(t.Context(), address, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("TCP: %v", err)
	}
	if _, err := transport.Dial(t.Context(), "unix:"+t.TempDir()+"/nobody.sock", nil); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a socket: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := transport.Dial(ended, address, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}
