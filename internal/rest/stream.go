package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	// pieceBytes bounds one write of a stream. A longer line is a write of its own.
	pieceBytes = 64 << 10

	// pause is the least time between two writes of a stream that has caught up. Events that come
	// meanwhile share the next write.
	pause = 20 * time.Millisecond

	// A reader must take a write within patience and a second for each leastRate bytes.
	patience  = 3 * time.Second
	leastRate = 32 << 10
)

// stream answers a request for the stream: a line about the ids, events of before if they are
// wanted, and then each event that comes, a line each. A cursor into the ring is all that it keeps
// between two writes (event design, "Stream new events directly from ring buffer").
//
// It ends when its reader goes or does not take a write in time. It also ends when the events that
// follow are no longer kept, or when ids begin anew: a line in the shape of an error then says so.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	q, err := parseStreamQuery(r.URL.RawQuery)
	if err != nil {
		h.refuse(w, err)
		return
	}
	if q.document {
		h.document(w, r, q)
		return
	}
	leave, err := h.cfg.EnterStream(r)
	if err != nil {
		h.refuse(w, err)
		return
	}
	defer leave()
	changed, latest, cancel := h.source.Follow(r.Context())
	defer cancel()
	state, err := h.source.Events(r.Context(), q.consistency)
	if err != nil {
		h.refuse(w, err)
		return
	}
	s := &stream{h: h, latest: latest, control: http.NewResponseController(w), instance: state.InstanceUUID}
	if s.next, s.missed, err = q.begin(&state); err != nil {
		h.refuse(w, err)
		return
	}
	coding := acceptedCoding(r.Header.Get("Accept-Encoding"))
	if s.out, err = h.packer.piecesTo(w, coding); err != nil {
		h.refuse(w, err)
		return
	}
	setVersion(w.Header(), &state)
	w.Header().Set("Content-Type", "application/x-ndjson; charset=UTF-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept-Encoding")
	if coding != "" {
		w.Header().Set("Content-Encoding", coding)
	}
	if r.Method == http.MethodHead {
		return
	}
	s.end(r.Context(), s.run(r.Context(), &state, changed))
}

// stream is the sent state of one stream.
type stream struct {
	h        *Handler
	latest   func() State
	out      io.Writer
	control  *http.ResponseController
	instance string // the InstanceUUID that next is of
	next     uint64 // id of the next event to send
	missed   uint64 // events between the wanted start and the first one that is kept
}

// The reasons for which a stream ends before its reader goes.
var (
	errBehind = errors.New("the next events are no longer kept")
	errAnew   = errors.New("the ids begin anew")
)

// run sends the first line, the events that there are, and then each one that comes.
func (s *stream) run(ctx context.Context, state *State, changed <-chan struct{}) error {
	head := append([]byte(`{"InstanceUUID":`), appendString(nil, s.instance)...)
	head = strconv.AppendUint(append(head, `,"Epoch":`...), state.Version.Epoch, 10)
	head = strconv.AppendUint(append(head, `,"FirstID":`...), s.next, 10)
	if s.missed > 0 {
		head = strconv.AppendUint(append(head, `,"Missed":`...), s.missed, 10)
	}
	if err := s.write(append(head, "}\n"...)); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := s.sendBehind(ctx, state); err != nil {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		*state = s.latest()
	}
}

// sendBehind sends the events up to the end of the ring. It looks at the ring anew for each block,
// so that a slow reader keeps nothing of it from being dropped.
func (s *stream) sendBehind(ctx context.Context, state *State) error {
	for {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the reader has gone
		}
		if state.InstanceUUID != s.instance {
			return errAnew
		}
		if s.next < lowest(state) {
			return errBehind
		}
		if s.next >= state.Next() {
			return s.flush()
		}
		lines, err := s.h.rendered.lines(state, s.next, blockEvents)
		if err != nil {
			return plimsoll.Errorf(plimsoll.CodeCorrupt, "read the events from %d on: %v", s.next, err)
		}
		if err := s.send(ctx, state, &lines); err != nil {
			return err
		}
		*state = s.latest()
	}
}

// lowest returns the id of the oldest event, or of the next one if there is none.
func lowest(state *State) uint64 {
	if low, _, some := state.Range(); some {
		return low
	}
	return state.Next()
}

// send writes lines in pieces.
func (s *stream) send(ctx context.Context, state *State, lines *span) error {
	held := len(lines.text)
	if err := state.hold(held); err != nil {
		return err
	}
	defer state.release(held)
	for rest := *lines; len(rest.ends) > 0 && ctx.Err() == nil; rest = rest.tail(s.next) {
		piece := rest.head(pieceBytes)
		if err := s.write(piece.text); err != nil {
			return err
		}
		if s.next = piece.next(); s.next == lines.next() {
			break
		}
	}
	return nil
}

// write writes a piece. Its reader has a bounded time to take it.
func (s *stream) write(piece []byte) error {
	s.deadline(len(piece))
	if _, err := s.out.Write(piece); err != nil {
		return err //nolint:wrapcheck // end looks at it
	}
	return nil
}

func (s *stream) flush() error {
	s.deadline(0)
	return s.control.Flush() //nolint:wrapcheck // end looks at it
}

// deadline sets the time in which bytes must be taken. A writer without deadlines is that of a
// test.
func (s *stream) deadline(bytes int) {
	_ = s.control.SetWriteDeadline(time.Now().Add(patience + time.Duration(bytes)*time.Second/leastRate))
}

// end says why a stream ends, if its reader can still be told.
func (s *stream) end(ctx context.Context, err error) {
	state := s.latest()
	low := lowest(&state)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.h.cfg.StreamCut(CutSlow) // it leaves no room for a line
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errBehind):
		s.h.cfg.StreamCut(CutBehind)
		s.last(http.StatusGone, "the events from "+strconv.FormatUint(s.next, 10)+" to "+strconv.FormatUint(low-1, 10)+
			" are no longer kept, and this stream has not sent them; go on with start="+strconv.FormatUint(low, 10))
	case errors.Is(err, errAnew):
		s.last(http.StatusGone, "the ids of events begin anew, under another InstanceUUID; begin again without start")
	case plimsoll.CodeOf(err) == plimsoll.CodeExhausted:
		s.h.cfg.StreamCut(CutNoRoom)
		s.last(http.StatusTooManyRequests, err.Error()+"; go on with start="+strconv.FormatUint(s.next, 10))
	case plimsoll.CodeOf(err) == plimsoll.CodeCorrupt:
		s.h.cfg.Fault(err)
		s.last(http.StatusInternalServerError, "the answer could not be made; the gateway's log says why")
	}
}

// last writes an error as the last line.
func (s *stream) last(status int, message string) {
	if s.write(errorBody(status, message)) == nil {
		_ = s.flush() // the reader is gone
	}
}

// document answers with events in the form of the design's example: an array with its own names. It
// has an end.
func (h *Handler) document(w http.ResponseWriter, r *http.Request, q streamQuery) {
	state, err := h.source.Events(r.Context(), q.consistency)
	if err != nil {
		h.refuse(w, err)
		return
	}
	most, err := state.responseSize()
	if err != nil {
		h.refuse(w, err)
		return
	}
	q.count = min(q.count, most)
	start, _, err := q.begin(&state)
	if err != nil {
		h.refuse(w, err)
		return
	}
	body, err := designForm(&state, start, q.count)
	if err != nil {
		h.refuse(w, err)
		return
	}
	setVersion(w.Header(), &state)
	h.write(w, r, body)
}

// designForm returns at most count events as the event design shows them ("Streaming").
func designForm(state *State, start, count uint64) ([]byte, error) {
	type record struct {
		Type         plimsoll.EventType    `json:"type"`
		ChangeType   plimsoll.ChangeType   `json:"changeType"`
		ChangeDetail plimsoll.ChangeDetail `json:"changeDetail"`
		Timestamp    int64                 `json:"timestamp"`
		ObjectID     string                `json:"objectID"`
		ReferenceID  string                `json:"referenceID,omitempty"`
		Resource     plimsoll.Resources    `json:"resource,omitempty"`
		Message      string                `json:"message,omitempty"`
	}
	records := []record{}
	var full error
	err := state.Batch(start, count, func(_ uint64, ev *plimsoll.Event) bool {
		if full = state.hold(4 * (len(ev.Object) + len(ev.Reference) + len(ev.Message) + 128)); full != nil {
			return false
		}
		records = append(records, record{
			ev.Type, ev.Change, ev.Detail, ev.Time, ev.Object, ev.Reference, ev.Resources, ev.Message,
		})
		return true
	})
	if full != nil {
		return nil, full
	}
	if err != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "read the events from %d on: %v", start, err)
	}
	body, err := json.Marshal(records)
	if err != nil {
		return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "write the events from %d on: %v", start, err)
	}
	return append(body, '\n'), nil
}
