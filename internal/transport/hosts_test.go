package transport_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// exchange sends a request as it stands and returns the status and the body of the answer.
func exchange(t *testing.T, l net.Listener, request string) (status int, body string) {
	t.Helper()
	c, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // the test has seen what it wants
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// No listener of TCP is served without the check, whatever its caller forgot.
func TestServeRefusesForeignPages(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	defer mustStop(t, serve(t, l, answer))
	at := l.Addr().String()
	for _, test := range []struct {
		request string
		status  int
	}{
		{"GET / HTTP/1.1\r\nHost: " + at + "\r\n\r\n", 200},
		{"GET / HTTP/1.0\r\nHost: " + at + "\r\n\r\n", 200},
		{"GET / HTTP/1.0\r\n\r\n", 403},
		{"GET / HTTP/1.1\r\nHost: \r\n\r\n", 403},
		{"POST /x HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}", 403},
		{"GET http://evil.example/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n", 403},
		{"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
		{"OPTIONS / HTTP/1.1\r\nHost: " + at + "\r\nOrigin: http://evil.example\r\n\r\n", 403},
		{"GET / HTTP/1.1\r\nHost: " + at + "\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403},
	} {
		if status, body := exchange(t, l, test.request); status != test.status {
			t.Errorf("%q: %d %s, want %d", test.request, status, body, test.status)
		}
	}
}

func TestServeDoesNotCheckSockets(t *testing.T) {
	l := listen(t, "unix:"+filepath.Join(t.TempDir(), "s"))
	defer mustStop(t, serve(t, l, answer))
	if status, body := exchange(t, l, "GET / HTTP/1.1\r\nHost: any.example\r\n\r\n"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

func TestClientsReachTheirListenerByItsNames(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	defer mustStop(t, serve(t, l, answer))
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"", "localhost", machine} {
		for proto, make := range map[string]makeClient{"HTTP/2.0": transport.Client, "HTTP/1.1": transport.CallClient} {
			client, url, err := make(host + ":" + port)
			if err != nil {
				t.Fatal(err)
			}
			transport.DialTo(client, l.Addr().String())
			if got, err := call(client, url, "hello"); err != nil || !strings.HasPrefix(got, proto) {
				t.Errorf("%s by %q: %q, %v", proto, host, got, err)
			}
			client.CloseIdleConnections()
		}
	}
}

// A refused request whose body does not come costs no more than one whose header does not.
func TestRefusedBodyIsNotAwaitedForEver(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		l := tcpPipes{newPipes()}
		stop := serve(t, l, answer)
		c := l.dial()
		began := time.Now()
		if _, err := io.WriteString(
			c, "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n",
		); err != nil {
			t.Fatal(err)
		}
		if data, _ := io.ReadAll(c); !strings.HasPrefix(string(data), "HTTP/1.1 403 ") { // until the server hangs up
			t.Errorf("answer %q", data)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("the connection was kept for %s", took)
		}
		mustStop(t, stop)
	})
}

// tcpPipes are pipes that pass for TCP.
type tcpPipes struct{ *pipes }

func (tcpPipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9080} }

// A client is told which host was refused and how to allow it, and gets through once it is.
func TestClientSaysWhichHostIsMissing(t *testing.T) {
	for _, make := range []makeClient{transport.Client, transport.CallClient} {
		for _, allowed := range []bool{false, true} {
			l := listen(t, "127.0.0.1:0")
			ctx, cancel := context.WithCancel(context.Background())
			ended := startServe(ctx, l, allowed)
			client, url, err := make("gw.example.org:9080")
			if err != nil {
				t.Fatal(err)
			}
			transport.DialTo(client, l.Addr().String())
			_, err = call(client, url, "hello")
			if allowed && err != nil {
				t.Errorf("allowed: %v", err)
			}
			if !allowed && (plimsoll.CodeOf(err) != plimsoll.CodeDenied || !strings.Contains(
				err.Error(), "--host gw.example.org",
			)) {
				t.Errorf("not allowed: %v", err)
			}
			client.CloseIdleConnections()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
}

func startServe(ctx context.Context, l net.Listener, allowed bool) <-chan error {
	var hosts []string
	if allowed {
		hosts = []string{"gw.example.org"}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- transport.Serve(
			ctx, l, http.HandlerFunc(answer), transport.ServeConfig{Hosts: hosts, Access: transport.AnyCaller()},
		)
	}()
	return ended
}

// The host that was accepted last is remembered, and nothing else of its request.
func TestAnAcceptedHostOpensNothingToOtherRequests(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	defer mustStop(t, serve(t, l, answer))
	at := l.Addr().String()
	for range 3 {
		for _, test := range []struct {
			request string
			status  int
		}{
			{"GET / HTTP/1.1\r\nHost: " + at + "\r\n\r\n", 200},
			{"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
			{"GET / HTTP/1.1\r\nHost: " + at + "\r\nOrigin: http://evil.example\r\n\r\n", 403},
			{"GET / HTTP/1.1\r\nHost: " + at + "\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403},
			{"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 200},
		} {
			if status, body := exchange(t, l, test.request); status != test.status {
				t.Errorf("%q: %d %s", test.request, status, body)
			}
		}
	}
}
