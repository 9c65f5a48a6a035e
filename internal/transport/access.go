package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/token"
)

// Grant is what those who have a token may do.
type Grant struct {
	Token  token.Token
	Caller Caller                 // what CallerOf returns of them
	Paths  func(path string) bool // that they may call; nil: all
}

// AccessConfig says who may call a listener of TCP.
type AccessConfig struct {
	// Grants makes or reads the tokens. The first Serve with it calls it, when nothing else can
	// keep the listener from being served; nil: there are no tokens.
	Grants func() ([]Grant, error)
	// NoToken answers also those who send no token, or a wrong one, whatever they call. Who sends a
	// token of a Grant still is the Caller of that.
	NoToken bool
	// Open is a path such as /ws/v1/ below which GET needs no token; empty: there is none.
	Open string
	// Trouble tells that callers on this machine cannot find the tokens by themselves; nil: nobody
	// is told.
	Trouble func(err error)
}

// Access decides by the token of a request whether a listener answers it. Requests for /healthz,
// /readyz and /metrics need none if they come from this machine and through no proxy.
type Access struct {
	cfg     AccessConfig
	server  string // whose form of the tokens is taken too; empty: none
	refused atomic.Uint64

	once     sync.Once
	prepared error // of readGrants, as grants and also are: all are set before there are requests
	grants   []Grant
	also     []Grant // the same with the tokens' forms for the server
}

// NewAccess returns the access that a listener gives.
func NewAccess(cfg AccessConfig) *Access { return &Access{cfg: cfg} }

// AnyCaller answers everybody who reaches a listener, without a token.
func AnyCaller() *Access { return NewAccess(AccessConfig{NoToken: true}) }

// For returns an Access that also takes the tokens in the form that is for this server alone.
func (a *Access) For(server string) *Access {
	if a == nil {
		return nil
	}
	with := NewAccess(a.cfg)
	with.server = server
	return with
}

// prepare makes or reads the tokens, once for all listeners with this access.
func (a *Access) prepare() error {
	a.once.Do(func() { a.prepared = a.readGrants() })
	return a.prepared
}

func (a *Access) readGrants() (err error) {
	if a.cfg.Grants == nil {
		return nil
	}
	if a.grants, err = a.cfg.Grants(); err != nil || a.server == "" {
		return err
	}
	a.also = slices.Clone(a.grants)
	for i := range a.also {
		a.also[i].Token = a.also[i].Token.For(a.server)
	}
	return nil
}

// Refused is how many requests were answered with 401 or 403 for want of a token that allows them.
func (a *Access) Refused() uint64 { return a.refused.Load() }

// NoToken reports whether everybody is answered.
func (a *Access) NoToken() bool { return a.cfg.NoToken }

// Open is the path below which GET needs no token; empty if there is none.
func (a *Access) Open() string { return a.cfg.Open }

// enter lets callers on this machine find the tokens, until withdraw is called.
func (a *Access) enter(listener net.Addr) (withdraw func()) {
	tokens := make([]token.Token, len(a.grants))
	for i := range a.grants {
		tokens[i] = a.grants[i].Token
	}
	withdraw, err := token.Enter(listener, tokens)
	if err != nil && a.cfg.Trouble != nil {
		a.cfg.Trouble(err)
	}
	return withdraw
}

// admits refuses a request whose token does not allow it; otherwise it returns what the token is
// for, nil if there is none. On a unix socket, which only its user reaches, a token says only who
// calls.
func (a *Access) admits(w http.ResponseWriter, r *http.Request, socket bool) (*Grant, bool) {
	sent, bearer := bearerOf(r)
	grant := a.granted(sent)
	allowed := grant != nil && (grant.Paths == nil || grant.Paths(r.URL.Path))
	if allowed || socket || a.cfg.NoToken || a.needsNone(r) {
		return grant, true
	}
	a.refused.Add(1)
	if grant != nil {
		refuseAs(w, r, http.StatusForbidden, a.forbidden(grant, r.URL.Path))
		return nil, false
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	refuseAs(w, r, http.StatusUnauthorized, a.unauthenticated(r, sent, bearer))
	return nil, false
}

// bearerOf returns the token that a request carries, and whether it carries one at all.
func bearerOf(r *http.Request) (sent string, ok bool) {
	values := r.Header["Authorization"]
	const scheme = "bearer "
	if len(values) != 1 || len(values[0]) <= len(scheme) || !strings.EqualFold(values[0][:len(scheme)], scheme) {
		return "", false
	}
	return strings.Trim(values[0][len(scheme):], " "), true
}

// granted returns what a token is for; nil: nothing. All are compared, whichever is found.
func (a *Access) granted(sent string) (found *Grant) {
	if sent == "" {
		return nil
	}
	for _, grants := range [][]Grant{a.grants, a.also} {
		for i := range grants {
			if grants[i].Token.Matches(sent) {
				found = &grants[i]
			}
		}
	}
	return found
}

// needsNone reports whether a request is answered without a token.
func (a *Access) needsNone(r *http.Request) bool {
	switch p := r.URL.Path; {
	case p == "/healthz", p == "/readyz", p == "/metrics":
		return (r.Method == http.MethodGet || r.Method == http.MethodHead) && fromHere(r)
	case a.cfg.Open == "" || r.Method != http.MethodGet:
		return false
	default: // a path with dots may end elsewhere
		return strings.HasPrefix(p, a.cfg.Open) && path.Clean(p) == strings.TrimSuffix(p, "/")
	}
}

// proxyHeaders are what proxies add to a request; its connection then tells nothing of who made it.
var proxyHeaders = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}

// fromHere reports whether a process of this machine made the request.
func fromHere(r *http.Request) bool {
	for _, name := range proxyHeaders {
		if _, ok := r.Header[name]; ok {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// wanted is the grant that a path asks for.
func (a *Access) wanted(path string) *Grant {
	for i := range a.grants {
		if g := &a.grants[i]; g.Paths == nil || g.Paths(path) {
			return g
		}
	}
	return nil
}

func (a *Access) forbidden(has *Grant, path string) string {
	reason := fmt.Sprintf("the caller showed %v, which does not allow this call", has.Token)
	if g := a.wanted(path); g != nil {
		reason += fmt.Sprintf("; it takes %v: give it by %s", g.Token, g.Token.Kind().GivenBy())
	}
	return reason
}

// unauthenticated says what is wrong and what to do about it, and never what was sent.
func (a *Access) unauthenticated(r *http.Request, sent string, bearer bool) string {
	g := a.wanted(r.URL.Path)
	if g == nil {
		return "this server takes no token for this path"
	}
	kind := g.Token.Kind()
	reason := fmt.Sprintf("this server wants %v", g.Token)
	switch guess := token.Guess(sent); {
	case bearer && guess == fmt.Sprint(g.Token):
		reason += ", and the one that came is that of another server, or of this one before it was started with another file"
	case bearer && guess != "":
		reason += fmt.Sprintf(", and %s of another server came", guess)
	case bearer:
		reason += ", and something else came"
	case len(r.Header["Authorization"]) > 0:
		reason += ", and an Authorization header came that is not of the form Bearer TOKEN"
	}
	file := g.Token.File()
	if !fromHere(r) {
		file = filepath.Base(file) // others need not know where it is
	}
	if g.Token.File() != "" {
		reason += "; it is in its file " + file
	}
	return reason + "; give it by " + kind.GivenBy() + ", or send the header Authorization: Bearer TOKEN"
}

// refusedBodyTimeout is how long the body of a refused request may still come.
const refusedBodyTimeout = time.Second

var refusalCodes = map[int]string{http.StatusForbidden: "permission_denied", http.StatusUnauthorized: "unauthenticated"}

// refuseAs answers in JSON with the fields of an error of Connect and of one of the REST interface.
func refuseAs(w http.ResponseWriter, r *http.Request, status int, reason string) {
	body, err := json.Marshal(struct {
		Code        string `json:"code"`
		StatusCode  int    `json:"status_code"`
		Message     string `json:"message"`
		Description string `json:"description"`
	}{refusalCodes[status], status, reason, reason})
	if err != nil {
		panic(err) // a broken invariant: numbers and strings have a JSON form
	}
	// In HTTP/1 the answer would go out when the rest of the body has come, were the connection to
	// be used again. So it is not, and what still comes is read away only for a moment, which
	// spares the caller a reset.
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	// a writer of a test knows none
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBodyTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(refusedHeader, reason)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller went away; there is nobody to tell
}

// SendToken makes a client of Client or CallClient send a token with each request; without a source
// it does nothing. It must be called before the client is used.
func SendToken(client *http.Client, source *token.Source) {
	refusing, ok := client.Transport.(refusals)
	if source == nil || !ok {
		return
	}
	dial := refusing.DialContext
	sendToken(client, refusing, source, func(ctx context.Context, network, to string) (net.Conn, error) {
		if _, at, _ := source.Get(); at != "" && to == at {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, at)
		}
		return dial(ctx, network, to)
	})
}

// SendToken makes the client send a token with each request; without a source it does nothing. It
// must be called before the client is used.
func (c *ConnClient) SendToken(source *token.Source) {
	refusing, ok := c.HTTP.Transport.(refusals)
	if source == nil || !ok {
		return
	}
	sendToken(c.HTTP, refusing, source, refusing.DialContext)
}

func sendToken(client *http.Client, refusing refusals, source *token.Source, dial dialer) {
	refusing.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		c, err := dial(ctx, network, to)
		if err != nil {
			return nil, err
		}
		if err := source.Check(); err != nil {
			_ = c.Close() // nothing was sent on it
			return nil, err
		}
		return c, nil
	}
	client.Transport = bearer{refusing, source}
}

type dialer = func(ctx context.Context, network, to string) (net.Conn, error)

// bearer sends a token.
type bearer struct {
	refusals
	source *token.Source
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	t, at, err := b.source.Get()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // nothing was read of it
		}
		return nil, err
	}
	if t.Is() {
		with := *r
		with.Header = r.Header.Clone()
		with.Header.Set("Authorization", t.Header())
		if at != "" && at != r.URL.Host { // localhost is several addresses, and the token is for one of them
			if with.Host == "" {
				with.Host = r.URL.Host
			}
			u := *r.URL
			u.Host, with.URL = at, &u
		}
		r = &with
	}
	response, err := b.refusals.RoundTrip(r)
	if plimsoll.CodeOf(err) == plimsoll.CodeUnauthenticated {
		b.source.Refused()
		return nil, plimsoll.Errorf(plimsoll.CodeUnauthenticated, "%v; this caller sent %v", err, b.source)
	}
	return response, err
}
