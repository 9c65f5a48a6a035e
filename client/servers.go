package client

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// servers are the addresses in Config.Server.
func (c Config) servers() []string {
	if c.Server == "" {
		return []string{DefaultServer}
	}
	all := strings.Split(c.Server, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// dialServers makes the http.Client of all calls, and their base URL.
func (c Config) dialServers() (*http.Client, string, error) {
	t := &inTurn{}
	for _, address := range c.servers() {
		httpClient, base, err := transport.CallClientOver(address, c.Dial)
		if err != nil {
			return nil, "", err
		}
		source, err := c.tokens(address)
		if err != nil {
			return nil, "", err
		}
		transport.SendToken(httpClient, source)
		at, err := url.Parse(base)
		if err != nil {
			return nil, "", plimsoll.Invalid("server", "%q is not an address: %v", address, err)
		}
		t.servers = append(t.servers, server{address, at, httpClient})
	}
	first := &t.servers[0]
	if len(t.servers) == 1 {
		return first.http, first.base.String(), nil
	}
	return &http.Client{Transport: t}, first.base.String(), nil
}

// server is one of several that are called in turn.
type server struct {
	address string
	base    *url.URL
	http    *http.Client
}

// inTurn is a transport that sends a request to the server that answered last, at first to the
// first in the list. If no connection to that server can be made, the next one is called at once:
// nothing was sent, so the request had no effect. After any other failure, and after an answer of
// 503, the next request goes to the next server. The callers decide whether the same request is
// sent again.
type inTurn struct {
	servers []server
	current atomic.Int64 // Invariant: an index of servers
}

// RoundTrip implements http.RoundTripper.
func (t *inTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	first := int(t.current.Load())
	body := &heldBody{ReadCloser: r.Body}
	defer body.settle()
	var missed []error
	for i := range t.servers {
		at := (first + i) % len(t.servers)
		response, err := t.servers[at].send(r, body)
		if err == nil {
			t.answered(at, response.StatusCode)
			return response, nil
		}
		if !unreached(err) || body.wasRead() || r.Context().Err() != nil {
			t.answered(at, http.StatusServiceUnavailable)
			return nil, err
		}
		missed = append(missed, fmt.Errorf("%s: %w", t.servers[at].address, err))
	}
	return nil, allMissed(missed)
}

// answered notes which server the next request goes to.
func (t *inTurn) answered(at, status int) {
	if status == http.StatusServiceUnavailable {
		at = (at + 1) % len(t.servers)
	}
	t.current.Store(int64(at))
}

// CloseIdleConnections is called by http.Client.
func (t *inTurn) CloseIdleConnections() {
	for i := range t.servers {
		t.servers[i].http.CloseIdleConnections()
	}
}

// send sends a request to the server.
func (s *server) send(r *http.Request, body *heldBody) (*http.Response, error) {
	to, at := r.Clone(r.Context()), *r.URL
	at.Scheme, at.Host = s.base.Scheme, s.base.Host
	to.URL, to.Host = &at, s.base.Host
	if r.Body != nil {
		to.Body = body
	}
	return s.http.Transport.RoundTrip(to) //nolint:wrapcheck // http.Client adds the call to it
}

// unreached reports whether nothing of a request was sent: no connection was made, or the process
// at the address is not the one that has entered the token.
func unreached(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || plimsoll.CodeOf(err) == plimsoll.CodeUnavailable
}

// allMissed returns the error for a call that reached none of its servers. It wraps the error of
// each.
func allMissed(missed []error) error {
	text, wrapped := strings.Repeat("%w; ", len(missed)), make([]any, len(missed))
	for i, err := range missed {
		wrapped[i] = err
	}
	return fmt.Errorf(strings.TrimSuffix(text, "; "), wrapped...)
}

// heldBody is the body of a request that may go to another server as long as nothing was read of
// it. A transport that fails closes the body; heldBody keeps it open until settle is called.
type heldBody struct {
	io.ReadCloser
	mu struct {
		sync.Mutex
		read    bool // Invariant: once true, the body goes to no other server
		closed  bool // a transport has closed the body
		settled bool // Invariant: once true, Close closes the underlying body
	}
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.mu.read = true
	b.mu.Unlock()
	return b.ReadCloser.Read(p) //nolint:wrapcheck // it stands for the body
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.closed = true
	if !b.mu.settled && !b.mu.read {
		return nil
	}
	return b.ReadCloser.Close() //nolint:wrapcheck // it stands for the body
}

func (b *heldBody) wasRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.read
}

// settle is called when the request goes to no other server any more.
func (b *heldBody) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.settled = true
	if b.mu.closed && b.ReadCloser != nil {
		_ = b.ReadCloser.Close() // nothing is to be done about it, and a body may be closed twice
	}
}
