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
	d := &entry{
		next: next, socket: socket, access: cfg.Access, caller: cfg.Caller,
		timeout: cfg.BodyTimeout, rate: int64(cfg.BodyRate),
	}
	if d.timeout == 0 {
		d.timeout = DefaultBodyTimeout
	}
	if d.rate == 0 {
		d.rate = DefaultBodyRate
	}
	return d
}

// ServeHTTP admits a request. It notes at the request's connection when the request has arrived and
// when it was answered.
func (d *entry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.calls.Add(1)
	defer d.calls.Add(-1)
	c := connOf(r.Context())
	if r.Body == nil || r.ContentLength == 0 { // in HTTP/2 a body without bytes is not http.NoBody
		if c != nil {
			c.arrived()
			defer c.answered()
		}
	} else {
		a := d.watch(w, r, c)
		r.Body = a
		defer a.close()
	}
	d.admit(w, r, c)
}

// watch makes the Arrival of a request's body.
func (d *entry) watch(w http.ResponseWriter, r *http.Request, c *conn) *Arrival {
	a := &Arrival{
		ReadCloser: r.Body, control: *http.NewResponseController(w), conn: c,
		timeout: d.timeout, rate: d.rate, length: r.ContentLength, began: time.Now(),
	}
	if r.ProtoMajor == 1 {
		a.header = w.Header()
		a.readUntil(a.began.Add(d.timeout))
	} else {
		a.timer = time.AfterFunc(d.timeout, a.expire)
	}
	return a
}

// admit passes on a request that the host policy and the access allow.
func (d *entry) admit(w http.ResponseWriter, r *http.Request, c *conn) {
	if d.hosts != nil && !d.hosts.admits(w, r) {
		return
	}
	caller := d.caller
	if d.access != nil {
		grant, ok := d.access.admits(w, r, d.socket)
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
	d.next.ServeHTTP(w, r)
}
