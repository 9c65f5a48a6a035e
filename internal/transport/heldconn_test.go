package transport_test

import (
	"errors"
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
	network := newPipes() // quicker than sockets
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(network) }()
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
				if err := twice(network); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// twice makes two requests over one new connection.
func twice(to *pipes) error {
	client := transport.NewConnClient(to.dial(), "unix:/pipe")
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
