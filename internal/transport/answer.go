package transport

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// The bounds on the time in which a caller must read its answer.
const (
	DefaultAnswerTimeout = 3 * time.Minute
	DefaultUnreadTimeout = time.Minute
)

// answerPiece is the size of one write of a stream, in bytes. A caller that reads so many within
// AnswerConfig.Unread keeps its stream.
const answerPiece = 32 << 10

// AnswerConfig holds the settings of TimeAnswers.
type AnswerConfig struct {
	// Stream reports whether the answer to a request is a stream, which may last as long as its
	// caller reads it.
	Stream func(r *http.Request) bool
	// Total bounds a request that is no stream, from its beginning to its answer's last byte; zero:
	// the listener's ServeConfig.AnswerTimeout.
	Total  time.Duration
	Unread time.Duration // in which the caller of a stream must read what is sent; default DefaultUnreadTimeout
	// Cut is called when a stream was cut because its caller did not read it. It must not block.
	Cut func(r *http.Request)
}

// Answer is the http.ResponseWriter of a request under TimeAnswers.
type Answer struct {
	http.ResponseWriter
	control http.ResponseController
	unread  time.Duration
	conn    *conn         // takes bodies in buffers; nil: it does not
	gathers io.ReaderFrom // the way there

	mu struct {
		sync.Mutex
		over  bool      // the handler has returned, after which control must not be used
		since time.Time // beginning of the write under way; zero: none
		timer *time.Timer
	}
}

// TimeAnswers cuts off a caller that does not read its answer, which frees its slot and connection.
// A stream is cut when its caller has read none of it for AnswerConfig.Unread while a write waits.
// Over HTTP/2 the caller sees a stream that the server has reset, over HTTP/1.1 a closed
// connection. No error can be sent: the caller leaves no room for it.
func TimeAnswers(cfg AnswerConfig, next http.Handler) http.Handler {
	if cfg.Unread == 0 {
		cfg.Unread = DefaultUnreadTimeout
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &Answer{ResponseWriter: w, control: *http.NewResponseController(w)}
		if from, ok := w.(io.ReaderFrom); ok && r.ProtoMajor == 1 {
			a.conn, a.gathers = connOf(r.Context()), from
		}
		// Deadlines outlive a request on its connection, so each request sets its own. The only
		// error is that the writer of a test has no deadlines.
		if cfg.Stream != nil && cfg.Stream(r) {
			_ = a.control.SetWriteDeadline(time.Time{})
			a.unread = cfg.Unread
			a.mu.timer = time.AfterFunc(cfg.Unread, func() {
				if a.expire() && cfg.Cut != nil {
					cfg.Cut(r)
				}
			})
			a.mu.timer.Stop()
		} else if cfg.Total > 0 {
			_ = a.control.SetWriteDeadline(time.Now().Add(cfg.Total))
		}
		defer a.end()
		next.ServeHTTP(a, r)
	})
}

// Write implements http.ResponseWriter.
func (a *Answer) Write(p []byte) (int, error) {
	defer a.wrote()
	written := 0
	for {
		a.writes()
		piece := p[written:]
		if a.unread > 0 {
			piece = piece[:min(len(piece), answerPiece)]
		}
		n, err := a.ResponseWriter.Write(piece)
		if written += n; err != nil || written >= len(p) {
			return written, err
		}
	}
}

// Flush implements http.Flusher.
func (a *Answer) Flush() {
	defer a.wrote()
	a.writes()
	_ = a.control.Flush() // the next Write returns the error
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// writes notes that a write begins.
func (a *Answer) writes() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.since = time.Now()
	if a.mu.timer != nil {
		a.mu.timer.Reset(a.unread)
	}
}

// wrote notes that a write has ended.
func (a *Answer) wrote() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.since = time.Time{}
	if a.mu.timer != nil {
		a.mu.timer.Stop()
	}
}

// expire cuts the answer off if a write has been under way for AnswerConfig.Unread, and reports
// whether it did.
func (a *Answer) expire() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.over || a.mu.since.IsZero() || time.Since(a.mu.since) < a.unread {
		return false
	}
	_ = a.control.SetWriteDeadline(time.Unix(1, 0)) // as in TimeAnswers
	return true
}

// Blocked returns the age of the write under way; 0 without one.
func (a *Answer) Blocked(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.since.IsZero() {
		return 0
	}
	return now.Sub(a.mu.since)
}

// Cut makes a write that is under way fail.
func (a *Answer) Cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.over {
		_ = a.control.SetWriteDeadline(time.Unix(1, 0)) // as in TimeAnswers
	}
}

func (a *Answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.over = true
	if a.mu.timer != nil {
		a.mu.timer.Stop()
	}
}
