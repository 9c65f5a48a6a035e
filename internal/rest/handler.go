package rest

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Events is an immutable view of the recent events. ring.View is one.
type Events interface {
	// Range returns the lowest and highest id; ok is false if there is no event.
	Range() (low, high uint64, ok bool)
	// Batch calls yield for at most count events from start on, until yield returns false.
	Batch(start, count uint64, yield func(id uint64, ev *plimsoll.Event) bool) error
}

// Source returns the events for a read with a consistency, or an error. With a strict one they are
// all that were committed when the call began.
type Source interface {
	Events(ctx context.Context, c plimsoll.Consistency) (State, error)
}

// State holds the events of one state of a cluster.
type State struct {
	Events
	InstanceUUID string
	Version      plimsoll.Version
	Age          time.Duration // since which the state is known to be complete; 0 in a strict read
}

// Config bounds the handler. The zero value is the default.
type Config struct {
	// ResponseSize is the largest number of events in one answer, and the number without a count
	// parameter (the design's RESTResponseSize). 0 means 10,000.
	ResponseSize uint64
	// Fault is called with internal errors, which the caller of a request does not see. It may be
	// nil.
	Fault func(err error)
}

const (
	defaultResponseSize = 10_000
	compressFrom        = 1400 // size in bytes from which an answer is compressed, as in YuniKorn
	batchPath           = "/ws/v1/events/batch"
)

// Handler answers everything under /ws/v1/.
type Handler struct {
	cfg      Config
	source   Source
	deflater *wire.Deflater
}

// New makes a Handler that reads from source.
func New(cfg Config, source Source) *Handler {
	if cfg.ResponseSize == 0 {
		cfg.ResponseSize = defaultResponseSize
	}
	if cfg.Fault == nil {
		cfg.Fault = func(error) {}
	}
	return &Handler{cfg: cfg, source: source, deflater: wire.NewDeflater(gzip.BestSpeed)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != batchPath {
		WriteError(w, http.StatusNotFound, "there is nothing at "+shorten(r.URL.Path)+"; there is "+batchPath)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		WriteError(w, http.StatusMethodNotAllowed, "the method "+shorten(r.Method)+" is not possible here; use GET")
		return
	}
	body, state, err := h.batch(r.Context(), r.URL.RawQuery)
	if err != nil {
		h.refuse(w, err)
		return
	}
	w.Header().Set("Plimsoll-Epoch", strconv.FormatUint(state.Version.Epoch, 10))
	w.Header().Set("Plimsoll-Revision", strconv.FormatUint(state.Version.Revision, 10))
	w.Header().Set("Plimsoll-Age", strconv.FormatFloat(state.Age.Seconds(), 'f', -1, 64))
	h.write(w, r, body)
}

// batch returns the answer to a query, and the state from which it was made.
func (h *Handler) batch(ctx context.Context, rawQuery string) ([]byte, *State, error) {
	q, err := parseQuery(rawQuery, h.cfg.ResponseSize)
	if err != nil {
		return nil, nil, err
	}
	state, err := h.source.Events(ctx, q.consistency)
	if err != nil {
		return nil, nil, err
	}
	body, err := q.answer(ctx, &state)
	return body, &state, err
}

// answer returns the answer to a query from a state.
func (q query) answer(ctx context.Context, state *State) ([]byte, error) {
	low, high, some := state.Range()
	if !q.hasStart {
		q.start = low
	}
	body := appendHead(nil, state.InstanceUUID, low, high)
	if !some || q.start < low || q.start > high {
		return appendTail(body, 0), nil
	}
	records := 0
	err := state.Batch(q.start, q.count, func(_ uint64, ev *plimsoll.Event) bool {
		separator := byte(',')
		if records == 0 {
			separator = '['
		}
		body = appendRecord(append(body, separator), ev)
		records++
		return ctx.Err() == nil
	})
	if plimsoll.CodeOf(err) == plimsoll.CodeExhausted {
		return nil, err
	}
	if err != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "read the events from %d on: %v", q.start, err)
	}
	if ctx.Err() != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeCanceled, "the request was given up while its answer was made")
	}
	return appendTail(body, records), nil
}

// write sends an answer, compressed if the caller accepts that and the answer is large enough.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Vary", "Accept-Encoding")
	if len(body) < compressFrom || !acceptsGzip(r.Header.Get("Accept-Encoding")) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // the caller is gone, so the error has no reader
		return
	}
	// The body is compressed as a whole, so that a slow reader does not occupy a compressor.
	packed, err := h.deflater.Deflate(body)
	if err != nil {
		h.refuse(w, err)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
	_, _ = w.Write(packed) // the caller is gone, so the error has no reader
}

// acceptsGzip reads an Accept-Encoding header: gzip is accepted if it is named with a weight above
// zero.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, parameter, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		weight, has := strings.CutPrefix(strings.ReplaceAll(parameter, " ", ""), "q=")
		return !has || strings.Trim(weight, "0.") != ""
	}
	return false
}

// refuse sends an error, with the status of its code. An internal error goes to Config.Fault, not
// to the caller.
func (h *Handler) refuse(w http.ResponseWriter, err error) {
	status := wire.HTTPStatus(plimsoll.CodeOf(err))
	if status == http.StatusInternalServerError {
		h.cfg.Fault(err)
		WriteError(w, status, "the events could not be read; the gateway's log says why")
		return
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	WriteError(w, status, err.Error())
}

// WriteError sends an error in YuniKorn's shape.
func WriteError(w http.ResponseWriter, status int, message string) {
	body, err := json.Marshal(struct {
		StatusCode  int    `json:"status_code"`
		Message     string `json:"message"`
		Description string `json:"description"`
	}{status, message, message})
	if err != nil {
		panic(err) // a broken invariant: numbers and strings have a JSON form
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller is gone, so the error has no reader
}
