package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// guard stands around every RPC: it catches panics, gives errors their code, tells of faults and counts.
type guard struct{ g *Gateway }

// WrapUnary implements connect.Interceptor.
func (gd guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		defer func() {
			if err = gd.outcome(ctx, req.Spec().Procedure, recover(), err); err != nil {
				resp = nil
			}
		}()
		return next(ctx, req)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (gd guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		defer func() { err = gd.outcome(ctx, conn.Spec().Procedure, recover(), err) }()
		return next(ctx, conn)
	}
}

// WrapStreamingClient implements connect.Interceptor; a gateway's handlers are no clients.
func (gd guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// outcome is what a caller is told of an RPC that returned err or panicked.
func (gd guard) outcome(ctx context.Context, procedure string, panicked any, err error) error {
	if e, ok := panicked.(error); ok && errors.Is(e, http.ErrAbortHandler) {
		panic(panicked) // it is for net/http
	}
	if panicked != nil {
		err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	if err == nil {
		gd.g.metrics.count(procedure, "ok")
		return nil
	}
	if _, spoken := err.(*connect.Error); spoken { //nolint:errorlint // only what connect itself returns: it could not read, or not send
		code := plimsoll.CodeOf(wire.FromConnectError(err))
		if ctx.Err() != nil {
			code = plimsoll.CodeCanceled
		}
		gd.g.metrics.count(procedure, code.String())
		return err
	}
	told := wire.ConnectError(err)
	code := plimsoll.CodeOf(wire.FromConnectError(told))
	if code == plimsoll.CodeInternal || code == plimsoll.CodeCorrupt {
		gd.g.cfg.Events.Fault(procedure, err)
	}
	gd.g.metrics.count(procedure, code.String())
	return told
}

// limit bounds how many of something are under way.
type limit struct {
	most int64
	what string
	now  atomic.Int64
}

func newLimit(most int, what string) *limit { return &limit{most: int64(most), what: what} }

// enter takes a place; the caller gives it back with leave.
func (l *limit) enter() error {
	if l.now.Add(1) > l.most {
		l.leave()
		return plimsoll.Errorf(plimsoll.CodeExhausted, "this gateway has %d %s under way, as many as it may; try again later", l.most, l.what)
	}
	return nil
}

func (l *limit) leave() { l.now.Add(-1) }

// streams reports whether a procedure lasts as long as its caller wants.
func streams(procedure string) bool {
	switch procedure {
	case plimsollv1connect.JobServiceWatchJobProcedure, plimsollv1connect.JobServiceReadLogsProcedure,
		plimsollv1connect.AgentServiceWatchAssignmentsProcedure, plimsollv1connect.NodeServiceWatchNodeQOSProcedure:
		return true
	}
	return false
}

// timed bounds the time in which a request must have come, and, unless it is a stream, that in which its answer must have been
// taken: a caller that sends or reads nothing gives its place back. Deadlines outlive a request on its connection, so each sets its
// own.
func (g *Gateway) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, now := http.NewResponseController(w), time.Now()
		taken := now.Add(g.cfg.AnswerTimeout)
		if streams(r.URL.Path) {
			taken = time.Time{}
		}
		// The only error is that the writer knows no deadlines; that is one of a test, without a network.
		_ = errors.Join(control.SetReadDeadline(now.Add(g.cfg.BodyTimeout)), control.SetWriteDeadline(taken))
		r.Body = timedBody{r.Body, control}
		next.ServeHTTP(w, r)
	})
}

// timedBody lifts the deadline for reading when the whole body has come: what the connection says afterwards is only that the
// caller went away, and a stream waits for that as long as it lasts.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read implements io.Reader.
func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { // a reader returns just this
		_ = b.control.SetReadDeadline(time.Time{}) // as in timed
	}
	return n, err
}

// bounded refuses an RPC for which there is no room, before its body is read.
func (g *Gateway) bounded(requests, lasting *limit, next http.Handler) http.Handler {
	refuser := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		room := requests
		if streams(r.URL.Path) {
			room = lasting
		}
		if err := room.enter(); err != nil {
			g.metrics.refused()
			if refuser.IsSupported(r) {
				_ = refuser.Write(w, r, wire.ConnectError(err)) // the caller went away; there is nobody to tell
			} else {
				rest.WriteError(w, wire.HTTPStatus(plimsoll.CodeExhausted), err.Error())
			}
			return
		}
		defer room.leave()
		next.ServeHTTP(w, r)
	})
}

// boundedREST is bounded for plain HTTP.
func (g *Gateway) boundedREST(requests *limit, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := requests.enter(); err != nil {
			g.metrics.refused()
			w.Header().Set("Retry-After", "1")
			rest.WriteError(w, wire.HTTPStatus(plimsoll.CodeExhausted), err.Error())
			return
		}
		defer requests.leave()
		counted := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(counted, r)
		g.metrics.count("/ws/v1", strconv.Itoa(counted.status))
	})
}

// statusWriter notes the status that was sent.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
