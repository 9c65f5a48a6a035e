package gateway

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// plainRead is the handler of one read. It serves the plain requests of Connect's unary protocol by
// itself: in application/proto or application/json, with an answer that is not compressed. The
// answer goes to the connection as the records are kept, in one write and without a copy. All other
// requests go to connect's handler, among them each one that connect would refuse before the read
// begins. So there is one text for each of these errors.
type plainRead struct {
	g         *Gateway
	procedure string
	byConnect http.Handler
	request   func() proto.Message // an empty request
	read      func(context.Context, proto.Message, *answer) error
	known     knownRequests
}

// The headers of Connect's unary protocol that plainRead looks at, in their canonical form.
const (
	headerKind        = "Content-Type"
	headerLength      = "Content-Length"
	headerPacked      = "Content-Encoding"
	headerTakesPacked = "Accept-Encoding"
	headerTimeout     = "Connect-Timeout-Ms"
	headerProtocol    = "Connect-Protocol-Version"
)

// The content types of plain requests, and the values of headers of their answers.
var ( //nolint:gochecknoglobals // constants
	kindProto = []string{"application/proto"}
	kindJSON  = []string{"application/json"}
	gzipOnly  = []string{"gzip"}
)

// plain reports whether a request is served without connect, and the encoding of its answer.
func plain(r *http.Request) (kind []string, json, ok bool) {
	switch sent := r.Header[headerKind]; {
	case r.Method != http.MethodPost || len(sent) != 1:
		return nil, false, false
	case sent[0] == kindProto[0]:
		kind = kindProto
	case sent[0] == kindJSON[0]:
		kind, json = kindJSON, true
	default:
		return nil, false, false
	}
	version := r.Header[headerProtocol]
	takes := r.Header[headerTakesPacked]
	return kind, json, len(r.Header[headerPacked]) == 0 &&
		(len(takes) == 0 || len(takes) == 1 && takes[0] == "identity") &&
		(len(version) == 0 || version[0] == "1")
}

// timeoutOf returns the time that the caller of a plain request allows; 0: it does not say.
func timeoutOf(r *http.Request) (time.Duration, bool) {
	sent := r.Header[headerTimeout]
	if len(sent) == 0 || sent[0] == "" {
		return 0, true
	}
	if len(sent[0]) > 10 { // as connect has it
		return 0, false
	}
	ms, err := strconv.ParseUint(sent[0], 10, 64)
	return time.Duration(ms) * time.Millisecond, err == nil && ms > 0
}

// serve implements admittedHandler.
func (p *plainRead) serve(u *ongoing, w http.ResponseWriter, r *http.Request) {
	kind, json, ok := plain(r)
	timeout, understood := timeoutOf(r)
	if !ok || !understood || r.Body != &u.intake {
		p.byConnect.ServeHTTP(u.explain(w, r), r.WithContext(&u.context))
		return
	}
	ctx := context.Context(&u.context)
	if timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = bounded
	}
	req, body, failed := p.decode(&u.intake, json)
	if req == nil {
		p.byConnect.ServeHTTP(u.explain(w, r), r.WithContext(&u.context)) // it says what is wrong
		return
	}
	a := &answer{Answer: wire.NewAnswer(json), g: p.g, request: ctx, charge: &u.charge}
	defer a.Release()
	err := guard{p.g}.call(ctx, p.procedure, func() error {
		if failed != nil {
			return failed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return p.fillShared(ctx, a, req, body)
	})
	w.Header()[headerTakesPacked] = gzipOnly
	if err != nil {
		_ = p.g.refuser.Write(w, r, err) // the caller went away; there is nobody to tell
		return
	}
	w.Header()[headerKind] = kind
	w.Header()[headerLength] = []string{strconv.Itoa(a.Size())}
	_ = a.writeTo(w) // as above
}

// decode reads and decodes a request, and checks it. body has its bytes. It returns nil for a
// request that connect has to refuse.
func (p *plainRead) decode(in *intake, json bool) (req proto.Message, body []byte, failed error) {
	data, footprint, err := in.whole(func(body []byte) bool {
		req = p.known.find(body, json)
		return req != nil
	})
	if req != nil || err != nil {
		return req, data, nil
	}
	req = p.request()
	if wire.DecodeChecked(data, json, req) != nil {
		return nil, data, nil
	}
	if failed = checkRequest(p.procedure, req); failed == nil {
		p.known.keep(data, json, req, footprint)
	}
	return req, data, failed
}

// keptCopies bounds the buffer of an answer that was copied and that is used again.
const keptCopies = 256 << 10

//nolint:gochecknoglobals // memory that is used again
var copies = sync.Pool{New: func() any { return new([]byte) }}

// writeTo writes the answer, whose header is set.
func (a *answer) writeTo(w http.ResponseWriter) error {
	if out, ok := w.(*transport.Answer); ok && out.TakesBuffers() && a.Gathered() {
		return out.WriteBuffers(a.AppendBuffers)
	}
	if body, end, whole := a.Whole(); whole {
		if _, err := w.Write(body); err != nil || len(end) == 0 {
			return err //nolint:wrapcheck // there is nobody to tell
		}
		_, err := w.Write(end)
		return err //nolint:wrapcheck // as above
	}
	data, _ := copies.Get().(*[]byte) // the pool holds nothing else
	*data = a.Append((*data)[:0])
	_, err := w.Write(*data)
	if cap(*data) <= keptCopies {
		copies.Put(data)
	}
	return err //nolint:wrapcheck // there is nobody to tell
}
