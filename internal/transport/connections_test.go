package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// bounded serves over pipes with bounds on connections, in a bubble of its own.
type bounded struct {
	t       *testing.T
	agent   token.Token
	network *pipes
	refused chan string
	closed  chan struct{}
	errs    chan error // of handlers
}

func inBounds(
	t *testing.T, cfg transport.ConnectionsConfig, h func(*bounded, http.ResponseWriter, *http.Request),
	test func(b *bounded),
) {
	t.Helper()
	testrun.Bubble(t, func(t *testing.T) {
		b := &bounded{
			t: t, agent: token.New(token.Agent), network: newPipes(), refused: make(chan string, 100),
			closed: make(chan struct{}, 100), errs: make(chan error, 10),
		}
		cfg.Refused = func(bound string) { b.refused <- bound }
		cfg.Closed = func() { b.closed <- struct{}{} }
		serving := transport.ServeConfig{Connections: transport.NewConnections(
			cfg,
		), Access: transport.NewAccess(transport.AccessConfig{
			Grants: func() ([]transport.Grant, error) {
				return []transport.Grant{{Token: b.agent, Caller: transport.CallerAgent}}, nil
			},
			NoToken: true,
		})}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(b, w, r) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- transport.Serve(ctx, b.network, handler, serving) }()
		test(b)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// open opens a connection and sends something. Every answer is read.
func (b *bounded) open(text string) *reader {
	b.t.Helper()
	return b.from(nil, text)
}

// from is open from an address.
func (b *bounded) from(peer net.Addr, text string) *reader {
	b.t.Helper()
	near, far := net.Pipe()
	if peer != nil {
		far = &addressed{far, peer}
	}
	b.network.give(far)
	r := &reader{conn: near, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		data := make([]byte, 1024)
		for {
			n, err := near.Read(data)
			r.mu.Lock()
			r.mu.text.Write(data[:n])
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	r.send(text)
	b.t.Cleanup(func() { _ = near.Close() }) // it was not closed before, or it does no harm
	return r
}

type addressed struct {
	net.Conn
	peer net.Addr
}

func (a *addressed) RemoteAddr() net.Addr { return a.peer }

// reader is a connection whose answers are read.
type reader struct {
	conn  net.Conn
	ended chan struct{}
	mu    struct {
		sync.Mutex
		text strings.Builder
	}
}

func (r *reader) send(text string) {
	_, _ = io.WriteString(r.conn, text) // a connection that was closed is seen by alive
	synctest.Wait()
}

func (r *reader) alive() bool {
	synctest.Wait()
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

func (r *reader) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.text.String()
}

const (
	getRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	halfHeader = "GET / HTTP/1.1\r\nHost"
	halfBody   = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"
)

// lasting answers GET / at once, and everything else lasts until its caller goes.
func lasting(_ *bounded, _ http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		_, _ = io.ReadAll(r.Body) // it may well be cut off
	}
	if r.URL.Path != "/" {
		<-r.Context().Done()
	}
}

func TestAConnectionThatSentNoWholeRequestGivesWayToANewOne(t *testing.T) {
	for name, first := range map[string]string{"silence": "", "half a header": halfHeader, "half a body": halfBody} {
		t.Run(name, func(t *testing.T) {
			inBounds(t, transport.ConnectionsConfig{Users: 2}, lasting, func(b *bounded) {
				oldest, second := b.open(first), b.open(first)
				third := b.open(getRequest)
				if oldest.alive() || !second.alive() {
					t.Errorf("alive: the oldest %t, the second %t", oldest.alive(), second.alive())
				}
				if !strings.HasPrefix(third.said(), "HTTP/1.1 200") {
					t.Errorf("the new one was answered %q", third.said())
				}
				if len(b.closed) != 1 || len(b.refused) != 0 {
					t.Errorf("%d connections were closed, and %d refused", len(b.closed), len(b.refused))
				}
			})
		})
	}
}

// Connections that were answered once and fill the room must not keep new ones out: each new one
// would be closed for the next before its request has come.
func TestNewConnectionsGetTimeToAskBesideIdleOnes(t *testing.T) {
	inBounds(t, transport.ConnectionsConfig{Users: 4}, lasting, func(b *bounded) {
		idle := []*reader{b.open(getRequest), b.open(getRequest), b.open(getRequest), b.open(getRequest)}
		first, second := b.open(""), b.open("")
		if !first.alive() || !second.alive() || idle[0].alive() || idle[1].alive() {
			t.Errorf("alive: the new ones %t and %t, the idle ones %t and %t", first.alive(), second.alive(),
				idle[0].alive(), idle[1].alive())
		}
		if third := b.open(""); first.alive() || !second.alive() || !third.alive() || !idle[2].alive() {
			t.Error("of as many that are silent as are idle, the oldest that is silent is closed")
		}
	})
}

// Of as many idle ones as silent ones, the silent ones go first. One with a request under way
// stays.
func TestAnIdleConnectionGivesWayAndABusyOneDoesNot(t *testing.T) {
	inBounds(t, transport.ConnectionsConfig{Users: 3}, lasting, func(b *bounded) {
		busy, idle, silent := b.open("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n"), b.open(getRequest), b.open("")
		another := b.open("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n")
		if silent.alive() || !idle.alive() || !busy.alive() {
			t.Errorf("after the first: silent %t, idle %t, busy %t", silent.alive(), idle.alive(), busy.alive())
		}
		third := b.open("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n")
		if idle.alive() || !busy.alive() || !another.alive() || !third.alive() {
			t.Errorf(
				"after the second: idle %t, busy %t %t %t", idle.alive(), busy.alive(), another.alive(), third.alive(),
			)
		}
		refused := b.open("")
		if refused.alive() || !busy.alive() || !another.alive() || !third.alive() {
			t.Error("a connection was not refused while all others are busy")
		}
		if got := <-b.refused; got != transport.BoundConnections {
			t.Errorf("refused for %q", got)
		}
	})
}

// A connection whose answer is not taken is given up after five seconds, if there is no other.
func TestAConnectionThatTakesNoAnswerGivesWay(t *testing.T) {
	// it is cut off
	large := func(_ *bounded, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }
	inBounds(t, transport.ConnectionsConfig{Users: 1}, large, func(b *bounded) {
		near, far := net.Pipe()
		b.network.give(far)
		if _, err := io.WriteString(near, getRequest); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if b.open("").alive() {
			t.Error("a connection was accepted although the other takes its answer")
		}
		time.Sleep(5 * time.Second) // of the bubble
		if !b.open("").alive() {
			t.Error("a connection was refused although the other takes no answer")
		}
		_ = near.Close() // the other end did so already
	})
}

func TestOnePeerHasHalfOfTheConnections(t *testing.T) {
	inBounds(t, transport.ConnectionsConfig{Users: 4}, lasting, func(b *bounded) {
		watch := "GET /watch HTTP/1.1\r\nHost: x\r\n\r\n"
		greedy, other := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2)}
		first, second := b.from(greedy, watch), b.from(greedy, watch)
		if third := b.from(greedy, watch); third.alive() || !first.alive() || !second.alive() {
			t.Error("a peer got more than half of the connections")
		}
		if got := <-b.refused; got != transport.BoundPeerConnections {
			t.Errorf("refused for %q", got)
		}
		if !b.from(other, watch).alive() {
			t.Error("another peer got none")
		}
		if err := first.conn.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !b.from(greedy, watch).alive() {
			t.Error("a peer that closed one got no other")
		}
	})
}

// Agents on a listener that users share: who was served as an agent is counted apart from users,
// and stays whatever users do.
func TestUsersTakeNoConnectionOfAnAgent(t *testing.T) {
	inBounds(t, transport.ConnectionsConfig{Users: 2, Agents: 1}, lasting, func(b *bounded) {
		heartbeat := "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: " + b.agent.Header() + "\r\n\r\n"
		watch := "GET /watch HTTP/1.1\r\nHost: x\r\n\r\n"
		counted := b.open(heartbeat)
		over := b.open(heartbeat) // agents have one: it stays with the users, and is kept all the same
		b.open(watch)
		for range 10 {
			b.open("")
			b.open(halfBody)
		}
		for _, r := range []*reader{counted, over} {
			if !r.alive() {
				t.Fatal("the connection of an agent was closed for users")
			}
			r.send(heartbeat)
			if n := strings.Count(r.said(), "HTTP/1.1 200"); n != 2 {
				t.Errorf("%d heartbeats were answered, want 2", n)
			}
		}
	})
}

func TestStreamsLeaveAQuarterOfTheConnections(t *testing.T) {
	watch := func(b *bounded, _ http.ResponseWriter, r *http.Request) {
		done, err := transport.KeepStream(r.Context())
		if err != nil {
			b.errs <- err
			return
		}
		defer done()
		<-r.Context().Done()
	}
	inBounds(t, transport.ConnectionsConfig{Users: 4}, watch, func(b *bounded) {
		first := b.open(getRequest)
		b.open(getRequest)
		b.open(getRequest)
		b.open(getRequest)
		if err := <-b.errs; plimsoll.CodeOf(err) != plimsoll.CodeExhausted ||
			!strings.Contains(err.Error(), "3 connections") {
			t.Errorf("the fourth stream: %v", err)
		}
		if err := first.conn.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		b.open(getRequest)
		if len(b.errs) > 0 {
			t.Errorf("after the end of one: %v", <-b.errs)
		}
	})
}

// scarce is a listener of a process that is out of descriptors.
type scarce struct {
	*pipes
	failures int
}

func (s *scarce) Accept() (net.Conn, error) {
	if s.failures > 0 {
		s.failures--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return s.pipes.Accept()
}

func TestALackOfDescriptorsDoesNotEndAListener(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := &scarce{newPipes(), 10}
		var refused int
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		cfg := transport.ServeConfig{
			Connections: transport.NewConnections(transport.ConnectionsConfig{Refused: func(string) { refused++ }}),
		}
		began := time.Now()
		go func() { ended <- transport.Serve(ctx, l, http.HandlerFunc(answer), cfg) }()
		c := l.dial()
		if _, err := io.WriteString(c, getRequest); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Errorf("answer %q, %v", line, err)
		}
		if refused != 10 {
			t.Errorf("%d were counted, want 10", refused)
		}
		if took := time.Since(began); took < time.Second { // it waits between two attempts
			t.Errorf("ten failures took %s", took)
		}
		cancel()
		if err := errors.Join(<-ended, c.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestABodyHasTenSecondsAndALeastRate(t *testing.T) {
	const length = 4 << 20
	for name, test := range map[string]struct {
		every  time.Duration
		bytes  int
		passes bool
		within time.Duration
	}{
		"nothing":     {every: time.Hour, bytes: 1, within: 11 * time.Second},
		"a trickle":   {every: time.Second, bytes: 1000, within: 11 * time.Second},
		"a slow line": {every: time.Second, bytes: 80 << 10, passes: true, within: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(b *bounded, _ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				b.errs <- err
			}
			inBounds(t, transport.ConnectionsConfig{}, read, func(b *bounded) {
				began := time.Now()
				c := b.open(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length))
				ctx, cancel := context.WithCancel(b.t.Context())
				defer cancel()
				go func() {
					piece := strings.Repeat("x", test.bytes)
					for left := length; left > 0; left -= test.bytes {
						select {
						case <-ctx.Done():
							return
						case <-time.After(test.every):
						}
						if _, err := io.WriteString(c.conn, piece[:min(left, test.bytes)]); err != nil {
							return
						}
					}
				}()
				err := <-b.errs
				if took := time.Since(began); took > test.within {
					t.Errorf("it took %s", took)
				}
				if test.passes != (err == nil) || err != nil && !strings.Contains(err.Error(), "64 KiB") {
					t.Errorf("the handler saw %v", err)
				}
			})
		})
	}
}
