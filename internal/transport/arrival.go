package transport

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The time in which the body of a request must come.
const (
	DefaultBodyTimeout = 10 * time.Second // for all that comes at the least rate
	DefaultBodyRate    = 64 << 10         // bytes a second for what comes after that time
)

// Arrival is the body of a request on its way. It has ServeConfig.BodyTimeout, and a second more
// for each ServeConfig.BodyRate bytes that have come: a large body may take its time, a trickle may
// not. Serve makes it the body of each request that has one.
type Arrival struct {
	io.ReadCloser
	control http.ResponseController
	conn    *conn       // may be nil
	header  http.Header // of the answer; nil in HTTP/2
	timer   *time.Timer // ends the reading in HTTP/2; nil in HTTP/1
	timeout time.Duration
	rate    int64
	length  int64 // that the request says; -1: it does not
	began   time.Time

	came  int64 // bytes
	steps int64 // seconds that were added

	mu struct {
		sync.Mutex
		whole   bool
		over    bool // the handler has returned: control must not be used any more
		cut     error
		onWhole func()
	}
}

// ArrivalOf returns the body of a request that Serve has taken, while it is on its way; nil: there
// is nothing to wait for.
func ArrivalOf(r *http.Request) *Arrival {
	a, _ := r.Body.(*Arrival)
	return a
}

// OnWhole has f called once when the whole body has come.
func (a *Arrival) OnWhole(f func()) { a.mu.onWhole = f } // before anybody reads

// Read implements io.Reader.
func (a *Arrival) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.came += int64(n)
	switch steps := a.came / a.rate; {
	case errors.Is(err, io.EOF), a.came == a.length && err == nil:
		a.Whole()
	case err != nil:
		err = a.explain(err)
	case steps > a.steps:
		a.steps = steps
		a.extend()
	}
	return n, err
}

// extend moves the deadline as far as the bytes that came allow.
func (a *Arrival) extend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.whole && !a.mu.over && a.mu.cut == nil {
		a.readUntil(a.began.Add(a.timeout + time.Duration(a.steps)*time.Second))
	}
}

// readUntil sets the time after which reading fails; zero: there is none. In HTTP/2 a deadline
// costs a message to the goroutine of the connection, so it is set by a timer, and only once it is
// over.
func (a *Arrival) readUntil(t time.Time) {
	switch {
	case a.timer == nil:
		_ = a.control.SetReadDeadline(t) // the only error is that the writer knows none: that of a test
	case t.IsZero():
		a.timer.Stop()
	default:
		a.timer.Reset(time.Until(t))
	}
}

// expire ends the reading in HTTP/2.
func (a *Arrival) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.whole && !a.mu.over {
		_ = a.control.SetReadDeadline(time.Unix(1, 0)) // as in readUntil
	}
}

// explain says why a body was not read to its end.
func (a *Arrival) explain(err error) error {
	a.mu.Lock()
	cut := a.mu.cut
	a.mu.Unlock()
	if a.header != nil {
		a.header.Set("Connection", "close") // what may still come of the body is no request
	}
	switch {
	case cut != nil:
		return told(cut)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return told(plimsoll.Errorf(plimsoll.CodeDeadline,
			"the body of the request did not come in time: it has %s, and a second more for each %d KiB", a.timeout, a.rate>>10))
	}
	return err
}

// told makes an error that an RPC's handler passes on as it is.
func told(err error) error { return wire.ConnectError(err) }

// Whole says that the request has come as a whole, or that it is a stream from the caller, which
// has no end to wait for.
func (a *Arrival) Whole() {
	a.mu.Lock()
	if a.mu.whole || a.mu.over || a.mu.cut != nil {
		a.mu.Unlock()
		return
	}
	a.mu.whole = true
	a.readUntil(time.Time{})
	f := a.mu.onWhole
	a.mu.Unlock()
	if a.conn != nil {
		a.conn.arrived()
	}
	if f != nil {
		f()
	}
}

// Cut makes the reader of a body that has not come as a whole return err.
func (a *Arrival) Cut(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.whole || a.mu.over || a.mu.cut != nil {
		return
	}
	a.mu.cut = err
	_ = a.control.SetReadDeadline(time.Unix(1, 0)) // as in readUntil
}

// close says that the handler has returned.
func (a *Arrival) close() {
	a.mu.Lock()
	a.mu.over = true
	whole := a.mu.whole
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	if whole && a.conn != nil {
		a.conn.answered()
	}
}
