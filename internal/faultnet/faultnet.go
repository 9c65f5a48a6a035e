// Package faultnet carries connections between the parts of a test, and makes the faults of a
// network in them.
//
// Pipes is a listener in memory, and a bubble of testing/synctest can hold it. A Link stands
// between callers and one target. It accepts on a socket, or is dialled in memory:
//
//	link, err := faultnet.Listen(ctx, "unix:near.sock", "unix:far.sock")
//	...
//	defer link.Close()
//	link.Lose(faultnet.Up, true) // nothing reaches the target, and nobody is told
//	link.Heal()                  // new connections are whole
//
// The faults:
//   - cut: connections end at both sides (Cut), or each in the middle of an answer (CutAnswers);
//   - refused: new connections end at once, as if nobody listened (Refuse);
//   - one-way: bytes of one direction are lost, and its end too (Lose with Up or Down);
//   - half-open: both directions are lost, so neither side sees the other end (Lose with Both);
//   - delay: bytes arrive later, in their order (Delay).
//
// A connection that has lost bytes never carries bytes of that direction again: no network makes a
// gap in a stream. It stays until it is cut or its ends are closed.
//
// A Link owns two goroutines and 64 KiB for each connection; Close ends and awaits them. It does
// NOT reorder or change bytes. Its callers are tests.
package faultnet

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Direction is a set of directions of a connection.
type Direction uint32

// The directions.
const (
	Up   Direction = 1 << iota // from the caller to the target
	Down                       // from the target to the caller
	Both = Up | Down
)

// bufferBytes is the memory for each direction of a connection.
const bufferBytes = 32 << 10

// Dial opens a connection to the target of a link.
type Dial func(ctx context.Context) (net.Conn, error)

// Link carries connections to one target.
type Link struct {
	dial     Dial
	listener net.Listener // nil: the link is dialled in memory
	group    sync.WaitGroup
	dials    atomic.Int64
	cuts     atomic.Int64
	delay    atomic.Int64

	mu struct {
		sync.Mutex
		conns   map[*conn]struct{}
		loses   Direction // of new connections
		refuses bool
		answers func() int64 // bytes of answers after which a new connection is cut; nil: none is
		closed  bool
	}
}

// conn is a connection through a link.
type conn struct {
	ends    [2]net.Conn // towards the caller, towards the target
	loses   atomic.Uint32
	running atomic.Int32 // directions that are carried
	ended   chan struct{}
	once    sync.Once
}

// New returns a link whose callers use its method Dial.
func New(dial Dial) *Link {
	l := &Link{dial: dial}
	l.mu.conns = map[*conn]struct{}{}
	return l
}

// Listen returns a link that accepts at one address and carries to another. An address is host:port
// or unix:/path. Connections to the target are dialled with ctx.
func Listen(ctx context.Context, at, to string) (*Link, error) {
	network, address := split(at)
	listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := New(func(ctx context.Context) (net.Conn, error) {
		network, address := split(to)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	l.listener = listener
	l.group.Go(func() { l.accept(ctx) })
	return l, nil
}

func split(address string) (network, path string) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return "unix", path
	}
	return "tcp", address
}

func (l *Link) accept(ctx context.Context) {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return // the link was closed
		}
		l.group.Go(func() {
			if l.carry(ctx, near) != nil {
				reset(near)
			}
		})
	}
}

// reset closes a connection in a way that its caller takes for a refusal.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is closed below in any case
	}
	_ = c.Close() // there is nobody to tell
}

// Dial opens a connection through the link, in memory.
func (l *Link) Dial(ctx context.Context) (net.Conn, error) {
	near, inner := net.Pipe()
	if err := l.carry(ctx, inner); err != nil {
		_ = inner.Close() // a pipe's Close does not fail
		return nil, err
	}
	return near, nil
}

// carry connects a caller to the target, and begins to carry bytes.
func (l *Link) carry(ctx context.Context, near net.Conn) error {
	l.dials.Add(1)
	if l.refuses() {
		return syscall.ECONNREFUSED
	}
	far, err := l.dial(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed || l.mu.refuses {
		reset(far)
		return syscall.ECONNREFUSED
	}
	c := &conn{ends: [2]net.Conn{near, far}, ended: make(chan struct{})}
	c.loses.Store(uint32(l.mu.loses))
	c.running.Store(2)
	most := int64(-1)
	if l.mu.answers != nil {
		most = l.mu.answers()
	}
	l.mu.conns[c] = struct{}{}
	l.group.Go(func() { l.forward(c, Up, -1) })
	l.group.Go(func() { l.forward(c, Down, most) })
	return nil
}

func (l *Link) refuses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.refuses || l.mu.closed
}

// forward carries one direction of a connection, and after most bytes cuts it; below 0: never.
func (l *Link) forward(c *conn, direction Direction, most int64) {
	defer l.leave(c)
	from, to := c.ends[0], c.ends[1]
	if direction == Down {
		from, to = to, from
	}
	buffer := make([]byte, bufferBytes)
	for {
		n, err := from.Read(buffer)
		c.pause(time.Duration(l.delay.Load()))
		lost := Direction(c.loses.Load())&direction != 0
		if n > 0 && !lost {
			if most >= 0 {
				n = int(min(int64(n), most))
				most -= int64(n)
			}
			if _, failed := to.Write(buffer[:n]); failed != nil {
				c.close()
				return
			}
			if most == 0 {
				l.cuts.Add(1)
				c.close()
				return
			}
		}
		if err != nil {
			if !lost {
				c.close()
			}
			return
		}
	}
}

// leave forgets a connection when neither direction is carried any more.
func (l *Link) leave(c *conn) {
	if c.running.Add(-1) > 0 {
		return
	}
	c.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.conns, c)
}

// pause waits, or until the connection is cut.
func (c *conn) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
	}
}

func (c *conn) close() {
	c.once.Do(func() { close(c.ended) })
	for _, end := range c.ends {
		_ = end.Close() // it may have been closed
	}
}

// Cut ends the present connections.
func (l *Link) Cut() { l.cut(func(*conn) bool { return true }) }

// CutLost ends the connections that have lost bytes.
func (l *Link) CutLost() { l.cut(func(c *conn) bool { return c.loses.Load() != 0 }) }

func (l *Link) cut(chosen func(*conn) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.mu.conns {
		if chosen(c) {
			l.cuts.Add(1)
			c.close()
		}
	}
}

// CutAnswers cuts each new connection after so many bytes from the target; nil: none. bytes is
// called once for a connection, and never twice at the same time.
func (l *Link) CutAnswers(bytes func() int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.answers = bytes
}

// Lose loses what is sent in the given directions over the present connections; with newOnes also
// over those to come.
func (l *Link) Lose(directions Direction, newOnes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.loses = 0; newOnes {
		l.mu.loses = directions
	}
	for c := range l.mu.conns {
		c.loses.Or(uint32(directions))
	}
}

// Refuse ends new connections at once.
func (l *Link) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.refuses = true
}

// Delay delays the bytes of all connections; 0: no longer.
func (l *Link) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// Heal lets new connections through, whole and without delay. Connections that have lost bytes stay
// as they are.
func (l *Link) Heal() {
	l.delay.Store(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.refuses, l.mu.loses = false, 0
}

// Dials is the number of connections that were asked for.
func (l *Link) Dials() int { return int(l.dials.Load()) }

// Cuts is the number of connections that the link has cut.
func (l *Link) Cuts() int { return int(l.cuts.Load()) }

// Close ends all connections and waits for the link's goroutines.
func (l *Link) Close() {
	l.mu.Lock()
	l.mu.closed = true
	for c := range l.mu.conns {
		c.close()
	}
	l.mu.Unlock()
	if l.listener != nil {
		_ = l.listener.Close() // which ends accept
	}
	l.group.Wait()
}
