package transport

import (
	"net/http"
	"sync/atomic"
	"time"
)

// entry is the handler in front of a listener's own. It enforces everything that Serve promises of
// a request. One handler does it all, because each further one would cost every request a part of
// its stack.
type entry struct {
	next    http.Handler
	socket  bool        // the listener is a unix socket
	hosts   *hostPolicy // nil: every host name is accepted
	access  *Access     // nil: every caller is admitted
	caller  Caller      // role of callers without a token
	timeout time.Duration
	rate    int64
	calls   atomic.Int64 // requests under way
}

func newEntry(cfg ServeConfig, socket bool, next http.Handler) *entry {
	e := &entry{
		next: next, socket: socket, access: cfg.Access, caller: cfg.Caller,
		timeout: cfg.BodyTimeout, rate: int64(cfg.BodyRate),
	}
	if e.timeout == 0 {
		e.timeout = DefaultBodyTimeout
	}
	if e.rate == 0 {
		e.rate = DefaultBodyRate
	}
	return e
}

// ServeHTTP admits a request. It notes at the request's connection when the request has arrived and
// when it was answered.
func (e *entry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.calls.Add(1)
	defer e.calls.Add(-1)
	c := connOf(r.Context())
	if r.Body == nil || r.ContentLength == 0 { // in HTTP/2 a body without bytes is not http.NoBody
		if c != nil {
			c.arrived()
			defer c.answered()
		}
	} else {
		a := e.watch(w, r, c)
		r.Body = a
		defer a.close()
	}
	e.admit(w, r, c)
}

// watch makes the Arrival of a request's body.
func (e *entry) watch(w http.ResponseWriter, r *http.Request, c *conn) *Arrival {
	a := &Arrival{
		ReadCloser: r.Body, control: *http.NewResponseController(w), conn: c,
		timeout: e.timeout, rate: e.rate, length: r.ContentLength, began: time.Now(),
	}
	if r.ProtoMajor == 1 {
		a.header = w.Header()
		a.readUntil(a.began.Add(e.timeout))
	} else {
		a.timer = time.AfterFunc(e.timeout, a.expire)
	}
	return a
}

// admit passes on a request that the host policy and the access allow.
func (e *entry) admit(w http.ResponseWriter, r *http.Request, c *conn) {
	if e.hosts != nil && !e.hosts.admits(w, r) {
		return
	}
	caller := e.caller
	if e.access != nil {
		grant, ok := e.access.admits(w, r, e.socket)
		if !ok {
			return
		}
		if grant != nil {
			caller = grant.Caller
		}
	}
	if caller != CallerUser { // CallerUser is the default of CallerOf
		r = r.WithContext(WithCaller(r.Context(), caller))
		if c != nil {
			c.trust()
		}
	}
	e.next.ServeHTTP(w, r)
}
