package rest

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// validatePath is where a queue file is checked.
const validatePath = root + "validate-conf"

const (
	// fileTime bounds the time in which a queue file must come. The longest has 4 MiB.
	fileTime = 20 * time.Second
	// fileBytes is how often the bytes of a queue file are charged: for the file, and for the tree
	// that is made of it.
	fileBytes = 16
)

// verdict says whether a queue file could be applied.
type verdict struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"` // empty if it could
}

// validate says whether a queue file could be applied. As in YuniKorn only the file counts, not the
// queues that there are, and the verdict is an answer with the status 200.
func (h *Handler) validate(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		WriteError(w, http.StatusMethodNotAllowed,
			"the method "+plimsoll.Shorten(r.Method)+" is not possible here; use POST, with a queue file as the body")
		return
	}
	state, err := h.source.Events(r.Context(), plimsoll.Consistency{Level: plimsoll.FreshnessEventual})
	if err != nil { // it bounds the bytes of all requests
		h.refuse(w, err)
		return
	}
	file, err := readFile(w, r, &state)
	if err != nil {
		h.refuse(w, err)
		return
	}
	answer := verdict{Allowed: true}
	if _, err := config.ParseQueues("config", file); err != nil {
		answer = verdict{Reason: err.Error()}
	}
	body, err := encode(answer)
	if err != nil {
		h.refuse(w, err)
		return
	}
	h.write(w, r, append(body, '\n'))
}

// readFile reads a queue file from the body of a request, and charges the request with it.
func readFile(w http.ResponseWriter, r *http.Request, state *State) ([]byte, error) {
	size := r.ContentLength
	if size < 0 || size > config.MaxFileBytes {
		size = config.MaxFileBytes
	}
	if err := state.hold(fileBytes * int(size)); err != nil {
		return nil, err
	}
	err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(fileTime))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, plimsoll.Errorf(plimsoll.CodeInternal, "bound the time of a request's body: %v", err)
	}
	file, err := io.ReadAll(http.MaxBytesReader(w, r.Body, config.MaxFileBytes))
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return nil, plimsoll.Invalid("body", "is longer than %d bytes; make the queue file shorter", tooLong.Limit)
	}
	if err != nil {
		return nil, plimsoll.Invalid("body", "cannot be read: %v; send the queue file again", err)
	}
	return file, nil
}
