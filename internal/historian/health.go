package historian

import (
	"encoding/json"
	"net/http"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// healthReport is the body of an answer of /healthz.
type healthReport struct {
	Status   string `json:"status"` // ok or unavailable
	Reason   string `json:"reason,omitempty"`
	Waiting  string `json:"waiting,omitempty"` // why the gateway cannot be followed
	Instance string `json:"instance,omitempty"`
	Next     uint64 `json:"next,omitempty"`
}

// health answers 200 while events can be written. An absence of the gateway is only told: the next
// one has the events.
func (h *Historian) health(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	report := healthReport{
		Status: "ok", Reason: textOf(h.mu.trouble), Waiting: textOf(h.mu.waiting),
		Instance: h.mu.next.Instance, Next: h.mu.next.Next,
	}
	h.mu.Unlock()
	status := http.StatusOK
	if report.Reason != "" {
		report.Status, status = "unavailable", http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, status, report)
}

// ready answers 200 while questions can be answered.
func (h *Historian) ready(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if _, err := h.cfg.Reader.Status(r.Context()); err != nil {
		http.Error(w, "not ready: "+wire.ErrorToProto(err).GetMessage(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n")) // the caller went away; there is nobody to tell
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // a broken invariant: strings and numbers have a JSON form
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller went away; there is nobody to tell
}

// plainError is the body of a refusal outside of Connect.
type plainError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// writeError refuses a request outside of Connect.
func writeError(w http.ResponseWriter, err error) {
	code, public := plimsoll.CodeOf(err), wire.ErrorFromProto(wire.ErrorToProto(err))
	if code == plimsoll.CodeExhausted || code == plimsoll.CodeUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, wire.HTTPStatus(code), plainError{code.String(), public.Error()})
}
