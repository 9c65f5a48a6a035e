package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// serve serves until the returned function is called, which reports what Serve returned.
func serve(t *testing.T, l net.Listener, h http.HandlerFunc) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- transport.Serve(ctx, l, h, transport.ServeConfig{Access: transport.AnyCaller()}) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func mustStop(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// answer tells the protocol and sends what was sent back.
func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%s %s ", r.Proto, r.Host) // the caller sees what is missing
	_, _ = io.Copy(w, r.Body)
}

func call(client *http.Client, url, body string) (string, error) {
	response, err := client.Post(url, "text/plain", bytes.NewBufferString(body))
	if err != nil {
		return "", fmt.Errorf("call: %w", err)
	}
	data, err := io.ReadAll(response.Body)
	return string(data), errors.Join(err, response.Body.Close())
}

type makeClient = func(string) (*http.Client, string, error)

func TestClientsSpeakTheirProtocol(t *testing.T) {
	for network, address := range map[string]string{
		"tcp": "127.0.0.1:0", "unix": "unix:" + filepath.Join(t.TempDir(), "s"),
	} {
		for proto, make := range map[string]makeClient{"HTTP/2.0": transport.Client, "HTTP/1.1": transport.CallClient} {
			t.Run(network+" "+proto, func(t *testing.T) {
				l := listen(t, address)
				at := address
				if network == "tcp" {
					at = l.Addr().String()
				}
				defer mustStop(t, serve(t, l, answer))
				client, url, err := make(at)
				if err != nil {
					t.Fatal(err)
				}
				defer client.CloseIdleConnections()
				host := map[string]string{"tcp": at, "unix": "plimsoll"}[network]
				if got, err := call(client, url, "hello"); err != nil || got != proto+" "+host+" hello" {
					t.Errorf("answer %q, %v", got, err)
				}
			})
		}
	}
}

func TestClientRefusesABadAddress(t *testing.T) {
	for _, make := range []makeClient{transport.Client, transport.CallClient} {
		if _, _, err := make("nowhere"); err == nil {
			t.Error("no error")
		}
	}
}

// HTTP/2 streams go both ways at once.
func TestStreamGoesBothWays(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	defer mustStop(t, serve(t, l, func(w http.ResponseWriter, r *http.Request) {
		line := make([]byte, 4)
		for {
			if _, err := io.ReadFull(r.Body, line); err != nil {
				return
			}
			_, _ = w.Write(line) // the caller sees what is missing
			_ = http.NewResponseController(w).Flush()
		}
	}))
	client, url, err := transport.Client(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	body, send := io.Pipe()
	go func() { _, _ = send.Write([]byte("ping")) }() // before there is an answer
	response, err := client.Post(url, "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	for _, word := range []string{"ping", "pong", "done"} {
		if word != "ping" {
			if _, err := send.Write([]byte(word)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != word {
			t.Fatalf("got %q, %v; want %q", got, err, word)
		}
	}
	if err := errors.Join(send.Close(), response.Body.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestJunkDoesNoHarm(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 1))
	junk := make([]byte, 1<<20)
	for i := range junk {
		junk[i] = byte(rng.Uint32())
	}
	l := listen(t, "127.0.0.1:0")
	defer mustStop(t, serve(t, l, answer))
	for name, head := range map[string]string{
		"random":      "",
		"http/1":      "GET / HTTP/1.1\r\nHost: x\r\n",
		"endless":     "GET / HTTP/1.1\r\nX: " + string(bytes.Repeat([]byte{'x'}, 1<<20)),
		"preface":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"wrong frame": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(append([]byte(head), junk...)) // it may well be cut off before the end
		_, _ = io.Copy(io.Discard, c)                 // ends when the server hangs up
		_ = c.Close()                                 // the server did already
		for _, make := range []makeClient{transport.Client, transport.CallClient} {
			client, url, err := make(l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := call(client, url, "hello"); err != nil {
				t.Errorf("after %s: %v", name, err)
			}
			client.CloseIdleConnections()
		}
	}
}

// pipes is a listener without a network, for tests in virtual time.
type pipes struct{ *faultnet.Pipes }

func newPipes() *pipes { return &pipes{faultnet.NewPipes(0)} }

// give opens a connection of which the caller has the other end.
func (p *pipes) give(far net.Conn) {
	if err := p.Give(far); err != nil {
		panic(err) // the test has closed the listener
	}
}

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.give(far)
	return near
}

func TestHalfARequestIsCutOff(t *testing.T) {
	for name, sent := range map[string]string{
		"silence": "", "half a header": "GET / HTTP/1.1\r\nHost: x\r\nX-", "half a preface": "PRI * HT",
	} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				l := newPipes()
				stop := serve(t, l, answer)
				c := l.dial()
				began := time.Now()
				if _, err := io.WriteString(c, sent); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.ErrClosedPipe) {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("the connection was kept for %s", took)
				}
				mustStop(t, stop)
			})
		})
	}
}

// Over HTTP/2 the head of a request has no bound of ten seconds. A connection that does not answer
// a ping is cut off after thirty.
func TestHalfAHeadOfHTTP2IsCutOff(t *testing.T) {
	const (
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		half     = "\x00\x00\x64\x01\x00\x00\x00\x00\x01abc"  // 3 bytes of 100
		open     = "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82" // a whole frame of headers that go on
	)
	for name, sent := range map[string]string{"half a frame": half, "headers without an end": open} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				l := newPipes()
				stop := serve(t, l, answer)
				c := l.dial()
				began := time.Now()
				// it may be cut off
				go func() { _, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+sent) }()
				if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.ErrClosedPipe) {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 31*time.Second {
					t.Errorf("the connection was kept for %s", took)
				}
				mustStop(t, stop)
			})
		})
	}
}

// The time that Serve takes to end, by the requests under way when its context ends.
func TestServeEnds(t *testing.T) {
	const (
		get  = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
		post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
	)
	never := make(chan struct{})
	for _, test := range []struct {
		name    string
		request string
		handler http.HandlerFunc
		within  time.Duration
		err     error // that the caller sees
	}{
		{name: "nothing", within: 50 * time.Millisecond, err: io.EOF},
		{name: "half a header", request: "GET / HTTP/1.1\r\n", within: 50 * time.Millisecond, err: io.EOF},
		{name: "a request", request: get, within: 200 * time.Millisecond, handler: func(
			w http.ResponseWriter, r *http.Request,
		) {
			select {
			case <-time.After(100 * time.Millisecond):
				_, _ = io.WriteString(w, "done") // the test sees if it does not come
			case <-r.Context().Done():
			}
		}},
		{name: "a stream", request: get, within: 350 * time.Millisecond, handler: func(
			_ http.ResponseWriter, r *http.Request,
		) {
			<-r.Context().Done()
		}},
		{name: "a body without end", request: post, within: 1400 * time.Millisecond, err: io.EOF, handler: func(
			_ http.ResponseWriter, r *http.Request,
		) {
			_, _ = io.ReadAll(r.Body) // ends when it is cut off
		}},
		{name: "an ignored context", request: get, within: 2400 * time.Millisecond, err: io.EOF, handler: func(
			http.ResponseWriter, *http.Request,
		) {
			<-never
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				never = make(chan struct{})
				defer close(never)
				l := newPipes()
				stop := serve(t, l, test.handler)
				c := l.dial()
				answered := make(chan error, 1)
				go func() {
					_, _ = io.WriteString(c, test.request) // what is missing the server does not answer
					_, err := c.Read(make([]byte, 1000))
					answered <- err
					_, _ = io.Copy(io.Discard, c) // until the server hangs up
				}()
				synctest.Wait()
				began := time.Now()
				mustStop(t, stop)
				if took := time.Since(began); took > test.within {
					t.Errorf("it took %s; at most %s are right", took, test.within)
				}
				if err := <-answered; !errors.Is(err, test.err) {
					t.Errorf("the caller saw %v, want %v", err, test.err)
				}
			})
		})
	}
}

// A listener that fails ends Serve with an error, and everything under way.
func TestServeReportsABrokenListener(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := newPipes()
		stop := serve(t, l, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c := l.dial()
		go func() {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // it is not answered
			_, _ = io.Copy(io.Discard, c)
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := stop(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// HTTP/2 too: an idle connection does not hold Serve up, and a stream ends by its context.
func TestServeEndsStreamsOfHTTP2(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	streaming, ended := make(chan struct{}), make(chan struct{})
	stop := serve(t, l, func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		close(streaming)
		<-r.Context().Done()
		_, _ = io.WriteString(w, "the end") // the test sees if it does not come
		close(ended)
	})
	client, url, err := transport.Client(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	<-streaming
	mustStop(t, stop)
	<-ended
	if data, err := io.ReadAll(response.Body); err != nil || string(data) != "the end" {
		t.Errorf("the stream ended with %q, %v", data, err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
}
