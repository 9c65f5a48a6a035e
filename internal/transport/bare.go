package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// ServeBare answers every request with the same bytes, by net/http alone, until ctx ends. It is a
// measure for the cost of Serve and of a handler. It refuses nobody, so the bytes must tell
// nothing. It always closes l.
func ServeBare(ctx context.Context, l net.Listener, body []byte) error {
	length := strconv.Itoa(len(body))
	server := &http.Server{
		ReadHeaderTimeout: readHeaderTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			w.Header().Set("Content-Length", length)
			_, _ = w.Write(body) // the caller went away; there is nobody to tell
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
		err := server.Close()
		if closed := <-ended; !errors.Is(closed, http.ErrServerClosed) {
			err = errors.Join(err, closed)
		}
		return err
	}
}
