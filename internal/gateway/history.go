package gateway

import (
	"net/http"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// errNoHistory refuses questions about the past at a gateway without a history.
var errNoHistory = plimsoll.Errorf(plimsoll.CodeUnimplemented,
	"this gateway has no history; ask a historian by its own address (--server), or start one with: plimsoll historian")

// historyCalls returns the handler of HistoryService.
func (g *Gateway) historyCalls() http.Handler {
	if g.cfg.History != nil {
		return g.cfg.History.Calls
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(g.refuser, w, r, wire.ConnectError(errNoHistory))
	})
}

// historyRoutes adds the paths that are read with GET.
func (g *Gateway) historyRoutes(mux *http.ServeMux) {
	if g.cfg.History == nil {
		mux.HandleFunc("/history/", func(w http.ResponseWriter, _ *http.Request) {
			g.refuseHTTP(w, wire.HTTPStatus(plimsoll.CodeUnimplemented), errNoHistory)
		})
		return
	}
	mux.Handle(g.cfg.History.Root, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := &ongoing{}
		if err := g.take(u, w, r); err != nil {
			w.Header().Set("Retry-After", retryAfter)
			g.refuseHTTP(w, wire.HTTPStatus(plimsoll.CodeExhausted), err)
			return
		}
		defer u.slot.leave()
		counted := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		g.cfg.History.Plain.ServeHTTP(counted, r)
		g.metrics.count(g.cfg.History.Root, strconv.Itoa(counted.status))
	}))
}
