package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Events is an immutable view of the recent events. ring.View is one.
type Events interface {
	// Range returns the lowest and highest id; ok is false if there is no event.
	Range() (low, high uint64, ok bool)
	// Next returns the id of the next event to come.
	Next() uint64
	// Batch calls yield for at most count events from start on, until yield returns false.
	Batch(start, count uint64, yield func(id uint64, ev *plimsoll.Event) bool) error
}

// Source returns the events for a read with a consistency, or an error. With a strict one they are
// all that were committed when the call began.
type Source interface {
	Events(ctx context.Context, c plimsoll.Consistency) (State, error)
	// Follow returns a channel that is sent to behind each change of the events, and a function
	// that returns the present ones. The caller calls cancel at the end.
	Follow(ctx context.Context) (changed <-chan struct{}, latest func() State, cancel func())
}

// State holds the events of one state of a cluster, and its records.
type State struct {
	Events
	Records      *replica.Snapshot // of the same revision as the events
	InstanceUUID string
	Version      plimsoll.Version
	Age          time.Duration // since which the state is known to be complete; 0 in a strict read
	// Hold charges the request with bytes, and Release gives them back. An error of CodeExhausted
	// says that there is no room. Nil ones are not called.
	Hold    func(bytes int) error
	Release func(bytes int)
}

func (s *State) space() idSpace { return idSpace{s.InstanceUUID, s.Version.Epoch} }

// responseSize returns the largest number of events in one answer, which is also the number without
// a count parameter (the design's RESTResponseSize). It is one of the settings in Records.
func (s *State) responseSize() (uint64, error) {
	settings := plimsoll.DefaultEventSettings()
	if s.Records == nil {
		return uint64(settings.RESTResponseSize), nil
	}
	settings, err := s.Records.EventSettings()
	return uint64(settings.RESTResponseSize), err //nolint:wrapcheck // it says what it was doing
}

func (s *State) hold(bytes int) error {
	if s.Hold == nil {
		return nil
	}
	return s.Hold(bytes)
}

func (s *State) release(bytes int) {
	if s.Release != nil {
		s.Release(bytes)
	}
}

// Config bounds the handler. The zero value is the default.
type Config struct {
	// RenderedBytes bounds the events that are kept as JSON for all readers; default 32 MiB.
	RenderedBytes int
	// ObjectStates gives each event the state of its object, which costs much: see objectStates.
	ObjectStates bool
	// EnterStream takes a place for a stream, which leave gives back; nil: there is always one.
	EnterStream func(r *http.Request) (leave func(), err error)
	// StreamCut is called when a stream was ended because of its reader. It may be nil.
	StreamCut func(why Cut)
	// AnswerBytes bounds one answer about the state, before it is compressed; default 32 MiB. A
	// larger one is refused with 413 and the name of a route that answers less.
	AnswerBytes int
	// TooLarge is called when an answer was refused by AnswerBytes. It may be nil.
	TooLarge func()
	// Version is the version of the program; empty: it is not said.
	Version string
	// Now is the clock by which the counts of past minutes go on to the present one; default
	// time.Now.
	Now func() time.Time
	// Fault is called with internal errors, which the caller of a request does not see. It may be
	// nil.
	Fault func(err error)
}

// Cut is why a stream was ended because of its reader.
type Cut uint8

// The reasons.
const (
	CutSlow   Cut = iota // it did not take a write in time
	CutBehind            // the events that it wanted next are no longer kept
	CutNoRoom            // the requests under way hold as many bytes as they may
)

const (
	defaultRenderedBytes = 32 << 20
	defaultAnswerBytes   = 32 << 20
	compressFrom         = 1400 // size in bytes from which an answer is compressed, as in YuniKorn
	batchPath            = root + "events/batch"
)

// root is the path below which everything is.
const root = "/ws/v1/"

// Paths returns the paths that a Handler serves. One that ends with a slash stands for those below
// it.
func Paths() []string { return []string{root, DumpPath} }

// StreamPath is the path of the stream, whose answer lasts as long as its reader wants.
const StreamPath = root + "events/stream"

// Handler answers everything under /ws/v1/.
type Handler struct {
	cfg      Config
	source   Source
	mux      *http.ServeMux
	packer   packer
	rendered rendered
}

// New makes a Handler that reads from source.
func New(cfg Config, source Source) *Handler {
	if cfg.RenderedBytes == 0 {
		cfg.RenderedBytes = defaultRenderedBytes
	}
	if cfg.AnswerBytes == 0 {
		cfg.AnswerBytes = defaultAnswerBytes
	}
	if cfg.TooLarge == nil {
		cfg.TooLarge = func() {}
	}
	if cfg.EnterStream == nil {
		cfg.EnterStream = func(*http.Request) (func(), error) { return func() {}, nil }
	}
	if cfg.StreamCut == nil {
		cfg.StreamCut = func(Cut) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Fault == nil {
		cfg.Fault = func(error) {}
	}
	h := &Handler{cfg: cfg, source: source, packer: newPacker()}
	h.rendered.most = cfg.RenderedBytes
	h.rendered.mu.states.wanted, h.rendered.mu.states.fault = cfg.ObjectStates, cfg.Fault
	h.mux = h.newMux()
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.URL.Path != validatePath {
		w.Header().Set("Allow", "GET, HEAD")
		WriteError(w, http.StatusMethodNotAllowed,
			"the method "+plimsoll.Shorten(r.Method)+" is not possible here; use GET")
		return
	}
	h.mux.ServeHTTP(w, r)
}

// serveBatch answers with a number of recent events.
func (h *Handler) serveBatch(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		h.refuse(w, err)
		return
	}
	state, err := h.source.Events(r.Context(), q.consistency)
	if err != nil {
		h.refuse(w, err)
		return
	}
	a, err := h.batch(r.Context(), q, &state)
	if err != nil {
		h.refuse(w, err)
		return
	}
	setVersion(w.Header(), &state)
	if codingOf(r, a.size()) != "" {
		h.write(w, r, a.whole())
		return
	}
	describe(w.Header(), a.size())
	_ = a.writeTo(w) // the caller is gone, so the error has no reader
}

// setVersion sets the headers that say of which state an answer is.
func setVersion(header http.Header, state *State) {
	header.Set("Plimsoll-Epoch", strconv.FormatUint(state.Version.Epoch, 10))
	header.Set("Plimsoll-Revision", strconv.FormatUint(state.Version.Revision, 10))
	header.Set("Plimsoll-Age", strconv.FormatFloat(state.Age.Seconds(), 'f', -1, 64))
}

// batch returns the answer to a query from a state.
func (h *Handler) batch(ctx context.Context, q query, state *State) (*answer, error) {
	low, high, some := state.Range()
	if !q.hasStart {
		q.start = low
	}
	head := appendHead(nil, state.InstanceUUID, low, high)
	if !some || q.start < low || q.start > high {
		return &answer{head: head, tail: []byte("null}\n")}, nil // an empty list, as YuniKorn writes it
	}
	most, err := state.responseSize()
	if err != nil {
		return nil, err
	}
	spans, err := h.collect(ctx, state, q.start, min(q.count, most, high-q.start+1))
	if err != nil {
		return nil, err
	}
	return &answer{head: append(head, '['), spans: spans, tail: []byte("}\n")}, nil
}

// collect returns the lines of events that a state holds. It charges the request with them.
func (h *Handler) collect(ctx context.Context, state *State, start, count uint64) (spans []span, err error) {
	for end := start + count; start < end; {
		if ctx.Err() != nil {
			return nil, plimsoll.Errorf(plimsoll.CodeCanceled, "the request was given up while its answer was made")
		}
		s, err := h.rendered.lines(state, start, end-start)
		if err != nil {
			return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "read the events from %d on: %v", start, err)
		}
		if err := state.hold(2 * len(s.text)); err != nil { // the lines and the answer
			return nil, err
		}
		spans, start = append(spans, s), s.next()
	}
	return spans, nil
}

// write sends an answer, compressed if the caller accepts that and the answer is large enough.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, body []byte) {
	if coding := codingOf(r, len(body)); coding != "" {
		// The body is compressed as a whole, so that a slow reader does not occupy a compressor.
		packed, err := h.packer.pack(coding, body)
		if err != nil {
			h.refuse(w, err)
			return
		}
		w.Header().Set("Content-Encoding", coding)
		body = packed
	}
	describe(w.Header(), len(body))
	_, _ = w.Write(body) // the caller is gone, so the error has no reader
}

// codingOf returns the content coding of an answer of a size. It is empty for one that is small.
func codingOf(r *http.Request, size int) string {
	if size < compressFrom {
		return ""
	}
	return acceptedCoding(r.Header.Get("Accept-Encoding"))
}

// describe sets the headers of an answer that has a number of bytes as it is sent.
func describe(header http.Header, size int) {
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json; charset=UTF-8")
	}
	header.Add("Vary", "Accept-Encoding")
	header.Set("Content-Length", strconv.Itoa(size))
}

// refuse sends an error, with the status of its code. An internal error goes to Config.Fault, not
// to the caller.
func (h *Handler) refuse(w http.ResponseWriter, err error) {
	status := wire.HTTPStatus(plimsoll.CodeOf(err))
	if status == http.StatusInternalServerError {
		h.cfg.Fault(err)
		WriteError(w, status, "the answer could not be made; the gateway's log says why")
		return
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	WriteError(w, status, err.Error())
}

// WriteError sends an error in YuniKorn's shape.
func WriteError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(errorBody(status, message)) // the caller is gone, so the error has no reader
}

// errorBody returns an error in YuniKorn's shape, as a line.
func errorBody(status int, message string) []byte {
	body, err := json.Marshal(struct {
		StatusCode  int    `json:"status_code"`
		Message     string `json:"message"`
		Description string `json:"description"`
	}{status, message, message})
	if err != nil {
		panic(err) // a broken invariant: numbers and strings have a JSON form
	}
	return append(body, '\n')
}
