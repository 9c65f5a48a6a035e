package transport

import (
	"net/http"
	"sync/atomic"
	"time"
)

// door is the handler before the one of a listener. It does all that Serve promises of a request in
// one place, because each handler around another costs every request a part of its stack.
type door struct {
	next    http.Handler
	socket  bool        // the listener is a unix socket
	hosts   *hostPolicy // nil: callers may use every name
	access  *Access     // nil: everybody is answered
	caller  Caller      // of those whom no token tells
	timeout time.Duration
	rate    int64
	calls   atomic.Int64 // requests under way
}

func newDoor(cfg ServeConfig, socket bool, next http.Handler) *door {
	d := &door{
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

// ServeHTTP tells the connection of a request when it has come, and when it has been answered.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// watch makes the Arrival of a request.
func (d *door) watch(w http.ResponseWriter, r *http.Request, c *conn) *Arrival {
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

// admit hands a request on if it may be answered.
func (d *door) admit(w http.ResponseWriter, r *http.Request, c *conn) {
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
	if caller != CallerUser { // what CallerOf returns anyway
		r = r.WithContext(WithCaller(r.Context(), caller))
		if c != nil {
			c.trust()
		}
	}
	d.next.ServeHTTP(w, r)
}
