package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// withHome gives the test a home directory, where tokens are entered.
func withHome(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("SUDO_UID", "")
}

// grants are those of a gateway: agents have the paths below /agent/, users the others.
func grants(user, agent token.Token) func() ([]transport.Grant, error) {
	ofAgents := func(path string) bool { return strings.HasPrefix(path, "/agent/") }
	return func() ([]transport.Grant, error) {
		return []transport.Grant{
			{Token: user, Caller: transport.CallerUser, Paths: func(path string) bool { return !ofAgents(path) }},
			{Token: agent, Caller: transport.CallerAgent, Paths: ofAgents},
		}, nil
	}
}

// serveWith serves a handler that answers with its caller, until the test ends. It returns when
// callers are answered.
func serveWith(t *testing.T, l net.Listener, cfg transport.ServeConfig) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, started := make(chan error, 1), make(chan struct{})
	cfg.Started = func() { close(started) }
	go func() {
		ended <- transport.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "caller %d", transport.CallerOf(r.Context())) // the test sees if it does not come
		}), cfg)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-started
}

func TestServeWantsTheTokenOfTheCaller(t *testing.T) {
	withHome(t)
	user, agent, other := token.New(token.User), token.New(token.Agent), token.New(token.User)
	l := listen(t, "127.0.0.1:0")
	serveWith(
		t, l, transport.ServeConfig{Access: transport.NewAccess(transport.AccessConfig{
			Grants: grants(user, agent), Pages: "/docs/",
		})},
	)
	for _, test := range []struct {
		line, authorization string
		status              int
		says                string
	}{
		{"GET /x", user.Header(), 200, "caller 0"},
		{"GET /x", "bearer  " + strings.TrimPrefix(user.Header(), "Bearer "), 200, "caller 0"},
		{"GET /agent/x", agent.Header(), 200, "caller 1"},
		{"GET /agent/x", user.Header(), 403, "the caller showed a user token, which does not allow this call; it takes an agent token: give it by --agent-token-file"},
		{"GET /x", agent.Header(), 403, "the caller showed an agent token, which does not allow this call; it takes a user token: give it by --token-file"},
		{"GET /x", "", 401, "this server wants a user token; give it by --token-file, PLIMSOLL_TOKEN_FILE or PLIMSOLL_TOKEN, or send the header Authorization: Bearer TOKEN"},
		{"GET /agent/x", "", 401, "wants an agent token; give it by --agent-token-file or PLIMSOLL_AGENT_TOKEN_FILE"},
		{"GET /x", other.Header(), 401, "that of another server, or of this one before"},
		{"GET /agent/x", other.Header(), 401, "and a user token of another server came"},
		{"GET /x", "Bearer x", 401, "and something else came"},
		{"GET /x", "Bearer ", 401, "not of the form Bearer TOKEN"},
		{"GET /x", "Basic dXNlcjpwYXNz", 401, "not of the form Bearer TOKEN"},
		{"GET /x", strings.TrimPrefix(user.Header(), "Bearer "), 401, "not of the form Bearer TOKEN"},
		{"GET /x", user.Header() + "\r\nAuthorization: " + user.Header(), 401, "not of the form Bearer TOKEN"},
		{"OPTIONS *", "", 401, "wants a user token"},
		{"CONNECT /", "", 401, "wants a user token"},
		{"POST /no/such/path", "", 401, "wants a user token"},
		{"GET //agent/x", agent.Header(), 403, "takes a user token"},
		{"GET /healthz", "", 200, ""},
		{"GET /metrics", "", 200, ""},
		{"GET /readyz", "", 200, ""},
		{"GET /readyz", other.Header(), 200, ""},
		{"GET /readyz", agent.Header(), 200, ""},
		{"POST /metrics", "", 401, ""},
		{"GET /metrics/", "", 401, ""},
		{"GET /metrics/../x", "", 401, ""},
		{"GET /", "", 200, ""},
		{"GET /docs", "", 200, ""},
		{"GET /docs/types.html", "", 200, ""},
		{"GET /docs/../x", "", 401, ""},
		{"GET /docsx", "", 401, ""},
		{"POST /docs/", "", 401, ""},
		{"GET /ws/v1/x", "", 401, ""},
	} {
		request := test.line + " HTTP/1.1\r\nHost: " + l.Addr().String() + "\r\n"
		if test.authorization != "" {
			request += "Authorization: " + test.authorization + "\r\n"
		}
		status, body := exchange(t, l, request+"\r\n")
		if status != test.status || !strings.Contains(body, test.says) {
			t.Errorf(
				"%s, %.20s: %d %s, want %d %s", test.line, test.authorization, status, body, test.status, test.says,
			)
		}
		if sent := strings.TrimPrefix(test.authorization, "Bearer "); len(sent) > 10 && strings.Contains(body, sent) {
			t.Errorf("%s: %s repeats what was sent", test.line, body)
		}
	}
}

// Every protocol of RPC gets the same error, which names the kind of token that came and the way to
// fix it.
func TestClientsSayWhichTokenIsMissing(t *testing.T) {
	withHome(t)
	user, agent := token.New(token.User), token.New(token.Agent)
	l := listen(t, "127.0.0.1:0")
	serveWith(
		t, l, transport.ServeConfig{Access: transport.NewAccess(transport.AccessConfig{
			Grants: grants(user, agent), Pages: "/docs/",
		})},
	)
	for _, make := range []makeClient{transport.Client, transport.CallClient} {
		for name, test := range map[string]struct {
			source *token.Source
			code   plimsoll.Code
			says   string
		}{
			"none": {nil, plimsoll.CodeUnauthenticated, "wants a user token"},
			"another's": {
				token.Fixed(token.New(token.User), "the token in my pocket"), plimsoll.CodeUnauthenticated,
				"this caller sent the token in my pocket",
			},
			"an agent's": {token.Fixed(agent, ""), plimsoll.CodeDenied, "it takes a user token"},
			"no file": {
				token.Finder{Kind: token.User, File: "/no/file"}.For(""), plimsoll.CodeUnauthenticated,
				"there is no file /no/file",
			},
			"its own":   {token.Fixed(user, ""), plimsoll.CodeInternal, ""},
			"the found": {token.Finder{Kind: token.User}.For(l.Addr().String()), plimsoll.CodeInternal, ""},
		} {
			client, url, err := make(l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			transport.SendToken(client, test.source)
			_, err = call(client, url, "hello")
			if test.says == "" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if test.says != "" && (plimsoll.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%s: %v, want %s", name, err, test.says)
			}
			client.CloseIdleConnections()
		}
	}
}

func TestOpenPathIsReadWithoutAToken(t *testing.T) {
	withHome(t)
	l := listen(t, "127.0.0.1:0")
	serveWith(t, l, transport.ServeConfig{Access: transport.NewAccess(transport.AccessConfig{
		Grants: grants(token.New(token.User), token.New(token.Agent)), Open: []string{"/ws/v1/", "/debug/one"},
	})})
	for line, want := range map[string]int{
		"GET /ws/v1/events/batch": 200, "GET /ws/v1/events/batch?start=1": 200, "GET /ws/v1/": 200,
		"GET /debug/one": 200, "GET /debug/one/x": 401, "GET /debug/one?x=1": 200, "POST /debug/one": 401,
		"GET /debug/": 401, "GET /debug/oneself": 401, "GET /ws/v1/../../debug/two": 401,
		"POST /ws/v1/events/batch": 401, "PUT /ws/v1/x": 401,
		"DELETE /ws/v1/x": 401, "GET /ws/v1": 401, "GET /ws/v10/x": 401, "GET /ws/v1/../v2/x": 401,
		"GET /ws/v1/%2e%2e/x": 401, "GET /ws/v1//x": 401, "GET /x": 401,
	} {
		if status, body := exchange(t, l, line+" HTTP/1.1\r\nHost: "+l.Addr().String()+"\r\n\r\n"); status != want {
			t.Errorf("%s: %d %s, want %d", line, status, body, want)
		}
	}
}

// Without required tokens everybody is answered, and a token still identifies its caller.
func TestNoTokenAnswersEverybody(t *testing.T) {
	withHome(t)
	user, agent := token.New(token.User), token.New(token.Agent)
	for _, address := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		l := listen(t, address)
		cfg := transport.AccessConfig{Grants: grants(user, agent), NoToken: !strings.HasPrefix(address, "unix:")}
		serveWith(t, l, transport.ServeConfig{Access: transport.NewAccess(cfg), Caller: transport.CallerGateway})
		for authorization, want := range map[string]string{
			"": "caller 2", "Bearer x": "caller 2", token.New(token.User).Header(): "caller 2",
			user.Header(): "caller 0", agent.Header(): "caller 1",
		} {
			status, body := exchange(
				t, l, "GET /any HTTP/1.1\r\nHost: "+l.Addr().String()+"\r\nAuthorization: "+authorization+"\r\n\r\n",
			)
			if strings.HasPrefix(address, "unix:") {
				status, body = exchange(
					t, l, "GET /any HTTP/1.1\r\nHost: x\r\nAuthorization: "+authorization+"\r\n\r\n",
				)
			}
			if status != 200 || body != want {
				t.Errorf("%s %.20s: %d %s, want %s", address, authorization, status, body, want)
			}
		}
	}
}

// A form of the token for one server is taken there, beside the token itself.
func TestTokenForAServerIsTakenThere(t *testing.T) {
	withHome(t)
	shared := token.New(token.Log)
	access := transport.NewAccess(transport.AccessConfig{Grants: func() ([]transport.Grant, error) {
		return []transport.Grant{{Token: shared, Caller: transport.CallerGateway}}, nil
	}})
	l := listen(t, "127.0.0.1:0")
	serveWith(t, l, transport.ServeConfig{Access: access.For("10.0.0.1:9082")})
	for sent, want := range map[string]int{
		shared.Header(): 200, shared.For("10.0.0.1:9082").Header(): 200, shared.For("10.0.0.2:9082").Header(): 401,
		"": 401,
	} {
		if status, body := exchange(
			t, l, "GET /x HTTP/1.1\r\nHost: "+l.Addr().String()+"\r\nAuthorization: "+sent+"\r\n\r\n",
		); status != want {
			t.Errorf("%d %s, want %d", status, body, want)
		}
	}
}

// A gateway has a listener for users and one for agents, which begin at the same time.
func TestListenersShareAnAccess(t *testing.T) {
	withHome(t)
	user, agent := token.New(token.User), token.New(token.Agent)
	var reads atomic.Int32
	access := transport.NewAccess(transport.AccessConfig{Grants: func() ([]transport.Grant, error) {
		reads.Add(1)
		return grants(user, agent)()
	}})
	listeners := []net.Listener{listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")}
	var all sync.WaitGroup
	for _, l := range listeners {
		all.Go(func() { serveWith(t, l, transport.ServeConfig{Access: access}) })
	}
	all.Wait()
	for _, l := range listeners {
		for sent, want := range map[string]int{user.Header(): 200, agent.Header(): 403, "": 401} {
			if status, body := exchange(
				t, l, "GET /x HTTP/1.1\r\nHost: "+l.Addr().String()+"\r\nAuthorization: "+sent+"\r\n\r\n",
			); status != want {
				t.Errorf("%d %s, want %d", status, body, want)
			}
		}
	}
	if n := reads.Load(); n != 1 {
		t.Errorf("the tokens were read %d times", n)
	}
}

func TestListenerOfTCPIsNotServedWithoutAnAccess(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	if err := transport.Serve(
		t.Context(), l, http.NotFoundHandler(), transport.ServeConfig{},
	); err == nil || !strings.Contains(err.Error(), "needs an Access") {
		t.Errorf("Serve: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
	l = listen(t, "127.0.0.1:0")
	failed := errors.New("no disk")
	cfg := transport.AccessConfig{Grants: func() ([]transport.Grant, error) { return nil, failed }}
	if err := transport.Serve(
		t.Context(), l, http.NotFoundHandler(), transport.ServeConfig{Access: transport.NewAccess(cfg)},
	); !errors.Is(err, failed) {
		t.Errorf("Serve: %v", err)
	}
}

// A request without a token is answered before its body comes. A body that does not come costs no
// more than a header that does not.
func TestBodyOfACallerWithoutATokenIsNotAwaited(t *testing.T) {
	withHome(t)
	testrun.Bubble(t, func(t *testing.T) {
		l := tcpPipes{newPipes()}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- transport.Serve(ctx, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("the handler is called")
			}), transport.ServeConfig{Access: transport.NewAccess(transport.AccessConfig{
				Grants: grants(token.New(token.User), token.New(token.Agent)),
			})})
		}()
		c := l.dial()
		began := time.Now()
		if _, err := io.WriteString(
			c, "POST / HTTP/1.1\r\nHost: 127.0.0.1:9080\r\nContent-Length: 100\r\n\r\n",
		); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 13)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 401 " || time.Since(began) > 0 {
			t.Errorf("answer %q after %s, %v", answer, time.Since(began), err)
		}
		_, _ = io.ReadAll(c) // until the server hangs up
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the connection was kept for %s", took)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The name localhost is more than one address. The token goes to the address that entered it, and
// not to a listener on another.
func TestTokenGoesToTheAddressThatEnteredIt(t *testing.T) {
	withHome(t)
	user := token.New(token.User)
	l := listen(t, "127.0.0.1:0")
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	serveWith(
		t, l,
		transport.ServeConfig{
			Access: transport.NewAccess(transport.AccessConfig{Grants: grants(user, token.New(token.Agent))}),
		},
	)
	for _, make := range []makeClient{transport.Client, transport.CallClient} {
		client, url, err := make("localhost:" + port)
		if err != nil {
			t.Fatal(err)
		}
		transport.DialTo(client, "127.0.0.1:1") // as if somebody else answered for localhost
		transport.SendToken(client, token.Finder{Kind: token.User}.For("localhost:"+port))
		if got, err := call(client, url, "hello"); err != nil || got != "caller 0" {
			t.Errorf("%s, %v", got, err)
		}
		client.CloseIdleConnections()
	}
}

// serveEcho serves a handler that answers with the body of the request, for callers with the token.
// It returns when the token is entered.
func serveEcho(t *testing.T, l net.Listener, user token.Token) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, started := make(chan error, 1), make(chan struct{})
	cfg := transport.ServeConfig{
		Access:  transport.NewAccess(transport.AccessConfig{Grants: grants(user, token.New(token.Agent))}),
		Started: func() { close(started) },
	}
	go func() {
		ended <- transport.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "got %s %v", body, err) // the test sees if it does not come
		}), cfg)
	}()
	<-started
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A server that was started again has entered its token anew, and perhaps another one. Its callers
// are answered at their first call.
func TestTokenIsLookedUpAgainWhenItsServerWasStartedAgain(t *testing.T) {
	withHome(t)
	user := token.New(token.User)
	l := listen(t, "127.0.0.1:0")
	at := l.Addr().String()
	client, url, err := transport.CallClient(at)
	if err != nil {
		t.Fatal(err)
	}
	transport.SendToken(client, token.Finder{Kind: token.User}.For(at))
	for i, next := range []token.Token{user, token.New(token.User), user} {
		if i > 0 {
			l = listen(t, at)
		}
		stop := serveEcho(t, l, next)
		if got, err := call(client, url, "hello"); err != nil || got != "got hello <nil>" {
			t.Errorf("start %d: %s, %v", i, got, err)
		}
		client.CloseIdleConnections()
		stop()
	}
}

// heldListener has accepted a connection before it is served.
type heldListener struct {
	net.Listener
	held chan net.Conn
}

func (l *heldListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.held:
		return c, nil
	default:
		return l.Listener.Accept()
	}
}

// A server accepts connections a moment before it enters its token. A caller of that moment has
// found none, and is answered all the same.
func TestCallerThatIsEarlierThanTheTokenIsAnswered(t *testing.T) {
	withHome(t)
	l := &heldListener{listen(t, "127.0.0.1:0"), make(chan net.Conn, 1)}
	client, url, err := transport.CallClient(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	transport.SendToken(client, token.Finder{Kind: token.User}.For(l.Addr().String()))
	answered := make(chan error, 1)
	go func() {
		got, err := call(client, url, "hello")
		if err == nil && got != "got hello <nil>" {
			err = errors.New(got)
		}
		answered <- err
	}()
	c, err := l.Listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.held <- c
	defer serveEcho(t, l, token.New(token.User))()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
