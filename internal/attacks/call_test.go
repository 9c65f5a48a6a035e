package attacks

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// call is a request as an attacker writes it.
type call struct {
	address     string // of the gateway if empty
	method      string // POST if empty
	path        string
	contentType string // application/proto if empty
	encoding    string // of the body
	token       string
	headers     map[string]string
	body        io.Reader
}

// answer is the result of a call: a status, or the way in which the connection ended.
type answer struct {
	status int
	text   string
	err    error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %s", a.status, a.text[:min(len(a.text), 500)])
}

// callTimeout bounds one call.
const callTimeout = 30 * time.Second

var plain = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}

// do makes one call over HTTP/1.1.
func (f *fleet) do(t *testing.T, c call) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	req := f.request(ctx, t, c)
	res, err := plain.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = res.Body.Close() }() // the rest of the body is not needed
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return answer{status: res.StatusCode, text: string(text), err: err}
}

func (f *fleet) request(ctx context.Context, t *testing.T, c call) *http.Request {
	t.Helper()
	orElse := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	req, err := http.NewRequestWithContext(
		ctx, orElse(c.method, http.MethodPost), "http://"+orElse(c.address, f.gateway)+c.path, c.body,
	)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", orElse(c.contentType, "application/proto"))
	if c.encoding != "" {
		req.Header.Set("Content-Encoding", c.encoding)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, value := range c.headers {
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	return req
}

// refused wants a refusal, or the end of the connection.
func (a answer) refused(t *testing.T) {
	t.Helper()
	if a.err == nil && (a.status < 400 || a.status >= 500) {
		t.Errorf("the answer is %s; a refusal with a status from 400 to 499 is wanted", a)
	}
}

// atOnce calls do times times, with up to together calls at the same time.
func atOnce(times, together int, do func(n int)) {
	var all sync.WaitGroup
	room := make(chan struct{}, together)
	for n := range times {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			do(n)
		})
	}
	all.Wait()
}

// gzipped returns size bytes of a repeated pattern, after a prefix, as gzip.
func gzipped(t *testing.T, pattern []byte, times int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	block := bytes.Repeat(pattern, 4096)
	for done := 0; done < times; done += 4096 {
		if _, err := w.Write(block[:min(4096, times-done)*len(pattern)]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// emptyGroups is the body of a SubmitJobRequest with empty groups: two bytes on the wire for each.
func emptyGroups(n int) []byte {
	groups := bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), nil), n)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), groups)
}

// envelope puts a message into an envelope of a stream of Connect.
func envelope(flags byte, message []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))
	return append(head, message...)
}

// dial opens a connection to the gateway. The caller closes it.
func (f *fleet) dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil // the machine refuses more connections, which is a valid answer
	}
	return conn
}

// stream is a client of HTTP/2 without TLS, with one connection of its own.
func stream() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols, MaxConnsPerHost: 1}}
}
