package transport_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// inPieces cuts data into buffers of growing size, empty ones among them.
func inPieces(data []byte) (pieces net.Buffers) {
	for n := 0; len(data) > 0; n = (n*3 + 1) % 9000 {
		n = min(n, len(data))
		pieces = append(pieces, data[:n])
		data = data[n:]
	}
	return pieces
}

// serveHere serves on an address until the test ends, and returns its URL and a client.
func serveHere(t *testing.T, address string, handler http.Handler) (*http.Client, string) {
	t.Helper()
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	if network, _, _ := transport.Split(address); network == "tcp" {
		address = l.Addr().String()
	}
	client, url, err := transport.Client(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- transport.Serve(ctx, l, transport.TimeAnswers(transport.AnswerConfig{}, handler),
			transport.ServeConfig{Access: transport.AnyCaller()})
	}()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return client, url
}

// overHTTP1 makes a client of HTTP/1.1 of one of Client, which speaks HTTP/2.
func overHTTP1(t *testing.T, address string) *http.Client {
	t.Helper()
	network, at, err := transport.Split(address)
	if err != nil {
		t.Fatal(err)
	}
	carrier := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at)
	}}
	t.Cleanup(carrier.CloseIdleConnections)
	return &http.Client{Transport: carrier}
}

func TestABodyInBuffersArrivesWholeAndInOrder(t *testing.T) {
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n")) // the test sends a number
		a, ok := w.(*transport.Answer)
		if !ok || !a.TakesBuffers() {
			http.Error(w, "it takes no buffers", http.StatusTeapot)
			return
		}
		if r.URL.Path != "/chunked" { // without its length the body is sent in chunks
			w.Header().Set("Content-Length", strconv.Itoa(n))
		}
		if err := a.WriteBuffers(func(list net.Buffers) net.Buffers {
			return append(list, inPieces(data[:n])...)
		}); err != nil {
			t.Error(err)
		}
	})
	for _, address := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "socket")} {
		_, url := serveHere(t, address, handler)
		if address == "127.0.0.1:0" {
			address = url[len("http://"):]
		}
		client := overHTTP1(t, address)
		for _, path := range []string{"/", "/chunked"} {
			for _, n := range []int{0, 1, 511, 512, 513, 4095, 4096, 10_000, 256 << 10, len(data)} {
				resp, err := client.Get(fmt.Sprintf("%s%s?n=%d", url, path, n))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close() // it was read
				if err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(got, data[:n]) {
					t.Errorf("%s%s: %d of %d bytes, %s, %v", address, path, len(got), n, resp.Status, err)
				}
			}
		}
	}
}

func TestOverHTTP2NoBuffersAreTaken(t *testing.T) {
	client, url := serveHere(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a, ok := w.(*transport.Answer)
		_, _ = fmt.Fprint(w, ok, a.TakesBuffers()) // the caller reads it
	}))
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); err != nil || resp.ProtoMajor != 2 || string(got) != "true false" {
		t.Errorf("over HTTP/%d it says %q, %v", resp.ProtoMajor, got, err)
	}
}

func TestABodyInBuffersThatNobodyReadsIsCutOff(t *testing.T) {
	failed := make(chan error, 1)
	var once sync.Once
	handler := transport.TimeAnswers(transport.AnswerConfig{Total: time.Minute}, http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			a, _ := w.(*transport.Answer) // TimeAnswers makes it one
			w.Header().Set("Content-Length", strconv.Itoa(64<<20))
			err := a.WriteBuffers(func(list net.Buffers) net.Buffers { return append(list, make([]byte, 64<<20)) })
			once.Do(func() { failed <- err })
		}))
	_, url := serveHere(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer, _ := w.(*transport.Answer) // serveHere makes it one
		time.AfterFunc(100*time.Millisecond, outer.Cut)
		handler.ServeHTTP(outer.ResponseWriter, r)
	}))
	c, err := net.Dial("tcp", url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("64 MiB were written to a caller that reads nothing")
	}
}
