package transport

import (
	"io"
	"net"
	"sync"
)

const (
	// headRoom bounds the bytes that a connection holds back in front of a body in buffers. They
	// are the header, and the first bytes of the body, which net/http writes with it.
	headRoom = 4 << 10
	// keptBuffers bounds the list of a body that is used again, in buffers: 192 KiB.
	keptBuffers = 8 << 10
)

// TakesBuffers reports whether WriteBuffers can be called. It can over HTTP/1, on a connection of
// Serve.
func (a *Answer) TakesBuffers() bool { return a.conn != nil }

// WriteBuffers writes a body whose length is in the header Content-Length. add appends its buffers
// to a list, and they must not change until WriteBuffers returns. The header and all buffers are
// given to the kernel in as few calls as possible, and no buffer is copied in this process.
func (a *Answer) WriteBuffers(add func(net.Buffers) net.Buffers) error {
	defer a.wrote()
	a.writes()
	body, _ := spareBodies.Get().(*gathered) // the pool holds nothing else
	if body.buffers == nil {
		body.buffers = make(net.Buffers, 1, 256)
	}
	body.buffers, body.next = add(body.buffers[:1]), 1
	a.conn.body = body
	_, err := a.gathers.ReadFrom(body)
	a.conn.body = nil
	if err == nil && len(body.head) > 0 { // net/http wrote nothing behind the header
		_, err = a.conn.Write(body.head)
	}
	body.spare()
	return err //nolint:wrapcheck // as Write, whose errors are the connection's
}

// gathered is a body in buffers on its way through net/http to its connection. net/http reads the
// first bytes of it, writes them with the header, and hands over the rest as a whole.
type gathered struct {
	head    []byte      // bytes that net/http has written: at most headRoom
	buffers net.Buffers // Invariant: those before next are read, at least one of them
	next    int
}

//nolint:gochecknoglobals // memory that is used again
var spareBodies = sync.Pool{New: func() any { return &gathered{} }}

// spare keeps the memory of a body that was written for another one.
func (g *gathered) spare() {
	if cap(g.buffers) > keptBuffers {
		return
	}
	clear(g.buffers[:cap(g.buffers)]) // the records may be dropped
	g.head = g.head[:0]
	spareBodies.Put(g)
}

// Read implements io.Reader.
func (g *gathered) Read(p []byte) (n int, err error) {
	for n < len(p) && g.next < len(g.buffers) {
		copied := copy(p[n:], g.buffers[g.next])
		n += copied
		if g.buffers[g.next] = g.buffers[g.next][copied:]; len(g.buffers[g.next]) == 0 {
			g.next++
		}
	}
	if n == 0 && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// hold takes bytes that the rest of the body follows, and reports whether it did.
func (g *gathered) hold(p []byte) bool {
	if len(g.head)+len(p) > headRoom {
		return false
	}
	g.head = append(g.head, p...)
	return true
}

// rest returns the held bytes and the rest of the body.
func (g *gathered) rest() (net.Buffers, int) {
	held := len(g.head)
	g.buffers[g.next-1] = g.head
	return g.buffers[g.next-1:], held
}

// ReadFrom implements io.ReaderFrom. net/http calls it with the rest of a body once it has written
// the header.
func (c *conn) ReadFrom(src io.Reader) (int64, error) {
	body, ok := src.(*gathered)
	if !ok || body != c.body {
		return io.Copy(struct{ io.Writer }{c}, src) //nolint:wrapcheck // as Write
	}
	c.body = nil
	rest, held := body.rest()
	c.writing.Store(c.owner.age())
	n, err := rest.WriteTo(c.Conn)
	c.writing.Store(0)
	body.head = body.head[:0]
	return max(n-int64(held), 0), err //nolint:wrapcheck // as Write
}
