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

// The bounds on the time in which the body of a request must arrive.
const (
	DefaultBodyTimeout = 10 * time.Second // grace of every body
	DefaultBodyRate    = 64 << 10         // bytes that add a second to the grace
)

// Arrival is the body of a request under way. It must arrive within ServeConfig.BodyTimeout, and a
// second more for each ServeConfig.BodyRate bytes that have come. So a large body may take long,
// and a trickle is cut off. Serve makes an Arrival the body of each request that has one.
type Arrival struct {
	io.ReadCloser
	control http.ResponseController
	conn    *conn       // may be nil
	header  http.Header // header of the answer; nil in HTTP/2
	timer   *time.Timer // ends the reading in HTTP/2; nil in HTTP/1
	timeout time.Duration
	rate    int64
	length  int64 // declared length; -1: unknown
	began   time.Time

	came  int64 // bytes that have arrived
	steps int64 // seconds that were added to the deadline

	mu struct {
		sync.Mutex
		whole   bool
		over    bool // the handler has returned: control must not be used any more
		cut     error
		onWhole func()
	}
}

// ArrivalOf returns the body of a request that Serve has accepted; nil: there is no body to wait
// for.
func ArrivalOf(r *http.Request) *Arrival {
	a, _ := r.Body.(*Arrival)
	return a
}

// OnWhole registers f, which is called once when the whole body has arrived.
func (a *Arrival) OnWhole(f func()) { a.mu.onWhole = f } // set before the first Read

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

// extend moves the deadline according to the bytes that have arrived.
func (a *Arrival) extend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.whole && !a.mu.over && a.mu.cut == nil {
		a.readUntil(a.began.Add(a.timeout + time.Duration(a.steps)*time.Second))
	}
}

// readUntil sets the time after which reading fails; zero: never. In HTTP/2 a deadline costs a
// message to the goroutine of the connection. So there a timer sets it, and only once the time is
// over.
func (a *Arrival) readUntil(t time.Time) {
	switch {
	case a.timer == nil:
		_ = a.control.SetReadDeadline(t) // the only error is that the writer of a test has no deadlines
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

// explain turns an error of reading into the reason why the body did not arrive.
func (a *Arrival) explain(err error) error {
	a.mu.Lock()
	cut := a.mu.cut
	a.mu.Unlock()
	if a.header != nil {
		a.header.Set("Connection", "close") // the rest of the body is no request
	}
	switch {
	case cut != nil:
		return rpcError(cut)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return rpcError(plimsoll.Errorf(plimsoll.CodeDeadline,
			"the body of the request did not come in time: it has %s, and a second more for each %d KiB", a.timeout, a.rate>>10))
	}
	return err
}

// rpcError makes an error that an RPC's handler passes on unchanged.
func rpcError(err error) error { return wire.ConnectError(err) }

// Whole notes that the request has arrived as a whole. The handler of a stream from the caller
// calls it too, because such a body has no end.
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

// Cut makes the reader of a body that is still arriving return err.
func (a *Arrival) Cut(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.whole || a.mu.over || a.mu.cut != nil {
		return
	}
	a.mu.cut = err
	_ = a.control.SetReadDeadline(time.Unix(1, 0)) // as in readUntil
}

// close notes that the handler has returned.
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
