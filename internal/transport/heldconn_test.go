package transport_test

import (
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// The second request comes as soon as the first is answered, while another goroutine still puts the
// connection into the transport's pool. It used to fail once in some hundred connections.
func TestARequestRightBehindTheFirstUsesTheConnection(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // more threads than processors: each may be stopped anywhere
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Protocols: protocols, ReadHeaderTimeout: time.Minute,
	}
	pipes := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(pipes) }()
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 150 {
				if err := twice(pipes); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// pipeListener accepts connections within the process, which are quicker than sockets.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error   { close(p.closed); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// twice makes two requests over one new connection.
func twice(to *pipeListener) error {
	near, far := net.Pipe()
	to.conns <- far
	client := transport.NewConnClient(near, "unix:/pipe")
	defer client.Cut()
	for range 2 {
		response, err := client.HTTP.Get(client.URL + "/")
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
	}
	return nil
}
