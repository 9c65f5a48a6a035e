package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// healthTimeout bounds the time that /healthz waits for the leader.
const healthTimeout = time.Second

// healthReport is the body of an answer of /healthz.
type healthReport struct {
	Status   string `json:"status"` // ok or unavailable
	Gateway  string `json:"gateway"`
	Reason   string `json:"reason,omitempty"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	Instance string `json:"instance,omitempty"`
	Archive  string `json:"archive,omitempty"` // why the leader's archive takes no jobs
}

// ready answers 200 if a leader is followed. It makes no round trip.
func (g *Gateway) ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !g.replica.Connected() {
		http.Error(w, "not ready: this gateway follows no leader", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n")) // the caller went away; there is nobody to tell
}

// health answers 200 if a strict read is answered now. It makes one, at the cost of a round trip
// that it shares with all other reads.
func (g *Gateway) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	report, status := healthReport{Status: "ok", Gateway: g.cfg.ID}, http.StatusOK
	snapshot, err := g.read(ctx)
	switch {
	case err == nil:
		report.Epoch, report.Revision, report.Instance = snapshot.Epoch(), snapshot.Revision(), snapshot.InstanceUUID()
		report.Archive = snapshot.ArchiveTrouble()
	case plimsoll.CodeOf(err) == plimsoll.CodeDeadline:
		report.Status, status = "unavailable", http.StatusServiceUnavailable
		report.Reason = "the leader did not confirm within " + healthTimeout.String() +
			" that this gateway's copy is fresh"
	default:
		report.Status, report.Reason, status = "unavailable", err.Error(), http.StatusServiceUnavailable
	}
	body, err := json.Marshal(report)
	if err != nil {
		panic(err) // a broken invariant: strings and numbers have a JSON form
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller went away; there is nobody to tell
}
