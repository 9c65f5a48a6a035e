package gateway

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/apidoc"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// nothingHere answers requests for which there is no handler. served says what there is.
func (g *Gateway) nothingHere(served string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		said := func(code plimsoll.Code) error {
			return plimsoll.Errorf(code, "there is nothing at %.80s; %s", r.URL.Path, served)
		}
		if strings.HasPrefix(r.Header.Get(headerKind), "application/grpc") { // its callers read no JSON
			refuse(g.refuser, w, r, wire.ConnectError(said(plimsoll.CodeUnimplemented)))
			return
		}
		g.refuseHTTP(w, http.StatusNotFound, said(plimsoll.CodeNotFound))
	}
}

// servedToUsers says what there is on Config.Listen.
func servedToUsers() string {
	services := apidoc.Services()
	for i, name := range services {
		services[i] = strings.TrimPrefix(name, "plimsoll.v1.")
	}
	return "there are /docs, /healthz, /readyz, /metrics, /history/v1, /ws/v1/events/batch, YuniKorn's other routes under /ws/v1 " +
		"and, under /plimsoll.v1., " +
		strings.Join(services, ", ")
}

// noCall returns the error for a path of a service that is not the one of a call.
func (g *Gateway) noCall(called string) error {
	service, name := path.Split(called)
	var names []string
	for known := range g.methods {
		if of, call := path.Split(known); of == service {
			names = append(names, call)
		}
	}
	slices.Sort(names)
	return plimsoll.Errorf(plimsoll.CodeUnimplemented, "%s has no call %.80q; %s",
		strings.Trim(service, "/"), name, plimsoll.Suggest(name, names))
}

// refuseHTTP answers with an error in Connect's JSON and with a status of HTTP.
func (g *Gateway) refuseHTTP(w http.ResponseWriter, status int, err error) {
	_ = g.refuser.Write( // the caller went away; there is nobody to tell
		&statusInstead{w, status}, &http.Request{}, wire.ConnectError(err))
}

// statusInstead sends its own status instead of the one that it is told.
type statusInstead struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusInstead) WriteHeader(int) { s.ResponseWriter.WriteHeader(s.status) }

// explained gives a body to the two refusals of connect that have none: a wrong method and a
// wrong content type.
type explained struct {
	http.ResponseWriter
	g *Gateway
	r *http.Request
}

// explain returns the writer for an RPC that connect serves.
func (u *ongoing) explain(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	u.explained = explained{w, u.charge.gateway, r}
	return &u.explained
}

// WriteHeader implements http.ResponseWriter.
func (e *explained) WriteHeader(status int) {
	switch status {
	case http.StatusMethodNotAllowed:
		e.g.refuseHTTP(e.ResponseWriter, status, plimsoll.Errorf(plimsoll.CodeInvalid,
			"a call takes POST, and %.20s came; send its fields as a JSON object, such as {}, with POST", e.r.Method))
	case http.StatusUnsupportedMediaType:
		e.g.refuseHTTP(e.ResponseWriter, status, plimsoll.Invalid("Content-Type",
			"is %.80q; %s", e.r.Header.Get(headerKind), kindWanted(e.g.streams(e.r))))
	default:
		e.ResponseWriter.WriteHeader(status)
	}
}

// kindWanted names the content type for callers who write JSON.
func kindWanted(streams bool) string {
	if streams {
		return "a call whose answer is a stream takes application/connect+json, " +
			"in which a byte 0 and the length in 4 bytes come before each message"
	}
	return "send application/json"
}

// Flush implements http.Flusher.
func (e *explained) Flush() { _ = http.NewResponseController(e.ResponseWriter).Flush() } // the next Write fails

// Unwrap returns the wrapped writer, for http.ResponseController.
func (e *explained) Unwrap() http.ResponseWriter { return e.ResponseWriter }
