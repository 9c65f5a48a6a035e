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

// Grant holds the rights of the callers with one token.
type Grant struct {
	Token  token.Token
	Caller Caller                 // the result of CallerOf for their requests
	Paths  func(path string) bool // reports whether they may call a path; nil: all paths
}

// AccessConfig holds the settings of an Access: who may call a TCP listener.
type AccessConfig struct {
	// Grants makes or reads the tokens. The first Serve with the Access calls it, just before the
	// listener is served; nil: there are no tokens.
	Grants func() ([]Grant, error)
	// NoToken admits every call, without a token or with a wrong one. The token of a Grant still
	// sets the Caller of a request.
	NoToken bool
	// Open are paths for which GET needs no token. One that ends with a slash, such as /ws/v1/,
	// stands for those below it.
	Open []string
	// Pages is the path of the pages that describe the calls, such as /docs/; empty: there are
	// none. They need no token if the request comes from this machine and not through a proxy. Nor
	// does /, which leads there.
	Pages string
	// Trouble is called when callers on this machine cannot find the tokens by themselves. It may
	// be nil.
	Trouble func(err error)
}

// Access decides by the token of a request whether a listener answers it. Requests for /healthz,
// /readyz and /metrics need no token if they come from this machine and not through a proxy.
type Access struct {
	cfg     AccessConfig
	server  string // name of the server whose own form of the tokens is accepted too; empty: none
	refused atomic.Uint64

	once         sync.Once
	prepared     error // error of readGrants, which sets the grants too. Invariant: set before the first request
	grants       []Grant
	serverGrants []Grant // grants with the tokens in the form for server
}

// NewAccess returns an Access with the given settings.
func NewAccess(cfg AccessConfig) *Access { return &Access{cfg: cfg} }

// AnyCaller returns an Access that admits every caller, without a token.
func AnyCaller() *Access { return NewAccess(AccessConfig{NoToken: true}) }

// For returns an Access that also accepts the tokens in the form for one server alone.
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
	a.serverGrants = slices.Clone(a.grants)
	for i := range a.serverGrants {
		a.serverGrants[i].Token = a.serverGrants[i].Token.For(a.server)
	}
	return nil
}

// Refused returns the number of requests that were answered with 401 or 403 for lack of a
// sufficient token.
func (a *Access) Refused() uint64 { return a.refused.Load() }

// NoToken reports whether every caller is admitted.
func (a *Access) NoToken() bool { return a.cfg.NoToken }

// Open returns the paths for which GET needs no token.
func (a *Access) Open() []string { return a.cfg.Open }

// enter publishes the tokens to callers on this machine, until withdraw is called.
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

// admits refuses a request whose token does not allow it. Otherwise it returns the grant of the
// token, nil without one. On a unix socket, which only its user reaches, a token only sets the
// Caller.
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

// bearerOf returns the token of a request, and reports whether it has one.
func bearerOf(r *http.Request) (sent string, ok bool) {
	values := r.Header["Authorization"]
	const scheme = "bearer "
	if len(values) != 1 || len(values[0]) <= len(scheme) || !strings.EqualFold(values[0][:len(scheme)], scheme) {
		return "", false
	}
	return strings.Trim(values[0][len(scheme):], " "), true
}

// granted returns the grant of a token; nil: none. It compares every token, whichever matches.
func (a *Access) granted(sent string) (found *Grant) {
	if sent == "" {
		return nil
	}
	for _, grants := range [][]Grant{a.grants, a.serverGrants} {
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
	get, head := r.Method == http.MethodGet, r.Method == http.MethodHead
	switch p := r.URL.Path; {
	case p == "/healthz", p == "/readyz", p == "/metrics", a.cfg.Pages != "" && (p == "/" || within(p, a.cfg.Pages)):
		return (get || head) && fromHere(r)
	default:
		return get && slices.ContainsFunc(a.cfg.Open, func(open string) bool {
			return p == open || strings.HasSuffix(open, "/") && strings.HasPrefix(p, open) && within(p, open)
		})
	}
}

// within reports whether a path is root, which ends with a slash and may be written without it, or
// below it. A path with dots may lead elsewhere.
func within(p, root string) bool {
	return strings.HasPrefix(p+"/", root) && path.Clean(p) == strings.TrimSuffix(p, "/")
}

// proxyHeaders are headers that proxies add to a request. The connection of such a request does not
// show its caller.
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

// wanted returns the first grant that allows a path.
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

// unauthenticated returns the reason of a 401 and the way to fix it. It never quotes the token that
// was sent.
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
		file = filepath.Base(file) // callers elsewhere do not learn its directory
	}
	if g.Token.File() != "" {
		reason += "; it is in its file " + file
	}
	reason += "; give it by " + kind.GivenBy() + ", or send the header Authorization: Bearer TOKEN"
	if r.URL.Path == "/" && a.cfg.Pages != "" {
		reason += "; a browser on the server's machine reads the reference at " + a.cfg.Pages + " without a token"
	}
	return reason
}

// refusedBodyTimeout bounds the time in which the body of a refused request is read and dropped.
const refusedBodyTimeout = time.Second

var refusalCodes = map[int]string{http.StatusForbidden: "permission_denied", http.StatusUnauthorized: "unauthenticated"}

// refuseAs answers in JSON with the fields of a Connect error and of a REST error.
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
	// In HTTP/1 a connection that is reused sends the answer only after the rest of the body has
	// arrived. So this one is closed. The rest of the body is dropped for a moment, which spares
	// the caller a reset.
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	// The only error is that the writer of a test has no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBodyTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(refusedHeader, reason)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller went away; there is nobody to tell
}

// SendToken makes a client of Client or CallClient send a token with each request. A nil source has
// no effect. It must be called before the client is used.
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

// SendToken makes the client send a token with each request. A nil source has no effect. It must be
// called before the client is used.
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
			_ = c.Close() // the connection is unused
			return nil, err
		}
		return c, nil
	}
	client.Transport = bearer{refusing, source}
}

type dialer = func(ctx context.Context, network, to string) (net.Conn, error)

// bearer is a round tripper that adds a token.
type bearer struct {
	refusals
	source *token.Source
}

// RoundTrip implements http.RoundTripper. If the server was started again since its token was
// looked up, a second request goes out with the token of now. The first one was not sent, or was
// refused for its token.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, response, err := b.send(r)
	if err != nil && b.renewed(sent, err) {
		if again := repeated(r); again != nil {
			_, response, err = b.send(again)
		}
	}
	return response, err
}

// renewed reports whether a request that failed is worth sending again with another token.
func (b bearer) renewed(sent token.Token, err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnauthenticated:
		return b.source.Refused(sent)
	case plimsoll.CodeUnavailable: // of Source.Check
		now, _, failed := b.source.Get()
		return failed == nil && now.Is()
	}
	return false
}

// repeated returns a request with its body from the beginning; nil if the body cannot be read
// again.
func repeated(r *http.Request) *http.Request {
	again := *r
	if r.Body == nil || r.Body == http.NoBody {
		return &again
	}
	if r.GetBody == nil {
		return nil
	}
	var err error
	if again.Body, err = r.GetBody(); err != nil {
		return nil
	}
	return &again
}

// send sends a request with the token, and returns that too.
func (b bearer) send(r *http.Request) (token.Token, *http.Response, error) {
	t, at, err := b.source.Get()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the body is unread
		}
		return t, nil, err
	}
	if t.Is() {
		with := *r
		with.Header = r.Header.Clone()
		with.Header.Set("Authorization", t.Header())
		if at != "" && at != r.URL.Host { // localhost has several addresses, and the token is for one of them
			if with.Host == "" {
				with.Host = r.URL.Host
			}
			u := *r.URL
			u.Host, with.URL = at, &u
		}
		r = &with
	}
	about := b.source.String()
	response, err := b.refusals.RoundTrip(r)
	if plimsoll.CodeOf(err) == plimsoll.CodeUnauthenticated {
		err = plimsoll.Errorf(plimsoll.CodeUnauthenticated, "%v; this caller sent %s", err, about)
	}
	return t, response, err
}
