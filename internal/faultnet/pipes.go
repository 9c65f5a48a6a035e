package faultnet

import (
	"context"
	"net"
	"sync"
)

// Pipes is a listener in memory, for which testing/synctest needs no clock. Its connections hold
// nothing: a write waits until the other end reads. Any goroutine may use it.
type Pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipes makes a listener. So many connections may wait to be accepted; Dial and Give wait with
// the next one.
func NewPipes(backlog int) *Pipes {
	return &Pipes{conns: make(chan net.Conn, backlog), closed: make(chan struct{})}
}

// Dial opens a connection.
func (p *Pipes) Dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	if err := p.give(ctx, far); err != nil {
		return nil, err
	}
	return near, nil
}

// Give opens a connection of which the caller has the other end.
func (p *Pipes) Give(far net.Conn) error { return p.give(context.Background(), far) }

func (p *Pipes) give(ctx context.Context, far net.Conn) error {
	select {
	case p.conns <- far:
		return nil
	case <-p.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller's own
	}
}

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "pipes"} }
