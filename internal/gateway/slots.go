package gateway

import (
	"container/list"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The bounds that plimsoll_gateway_refused_total names, beside those of transport.Connections.
const (
	boundRequests        = "requests"
	boundStreams         = "streams"
	boundAgentRequests   = "agent_requests"
	boundAgentStreams    = "agent_streams"
	boundLogs            = "logs"
	boundUserBytes       = "user_bytes"
	boundAgentBytes      = "agent_bytes"
	boundMessageBytes    = "message_bytes"
	boundMessageElements = "message_elements"
)

// ownBounds are all of them.
func ownBounds() []string {
	return []string{
		boundRequests, boundStreams, boundAgentRequests, boundAgentStreams, boundLogs,
		boundUserBytes, boundAgentBytes, boundMessageBytes, boundMessageElements,
	}
}

const (
	// blockedAnswer is how long an answer may wait for its caller until it can be given up for
	// another request.
	blockedAnswer = 5 * time.Second
	// blockedLook is how often answers that wait are looked for at most.
	blockedLook = 100 * time.Millisecond
)

// slots are the places of requests and streams. Users and agents each have their own, by the caller
// that transport.CallerOf tells and never by path: what users do takes nothing from agents.
type slots struct {
	requests, streams           *places
	agentRequests, agentStreams *places
	logs                        *places // streams of logs, within those above
}

func newSlots(cfg *Config) *slots {
	return &slots{
		requests:      newPlaces(cfg.MaxRequests, boundRequests, "requests"),
		streams:       newPlaces(cfg.MaxStreams, boundStreams, "watches and logs"),
		agentRequests: newPlaces(cfg.MaxAgentRequests, boundAgentRequests, "requests of agents"),
		agentStreams:  newPlaces(cfg.MaxAgentStreams, boundAgentStreams, "watches of agents"),
		logs:          newPlaces(cfg.MaxLogs, boundLogs, "logs"),
	}
}

// of returns the places for a request of a caller that lasts, or does not.
func (s *slots) of(caller transport.Caller, lasts bool) *places {
	agent := caller != transport.CallerUser
	switch {
	case agent && lasts:
		return s.agentStreams
	case agent:
		return s.agentRequests
	case lasts:
		return s.streams
	}
	return s.requests
}

// streams reports whether a request lasts as long as its caller wants.
func (g *Gateway) streams(r *http.Request) bool { return g.methods[r.URL.Path].streams }

// places bounds how many of something are under way. When all are taken, a request that comes takes
// the place of one that keeps its own waiting: the oldest whose body has not come, or one whose
// caller has not taken its answer for five seconds. If there is none it is refused.
type places struct {
	most  int
	bound string // for the metric
	name  string // for people

	mu struct {
		sync.Mutex
		arriving list.List // of *place, oldest first: their bodies have not come
		working  list.List // of *place
		looked   time.Time // when an answer that waits was looked for last
	}
}

// place is that of one request.
type place struct {
	of      *places
	arrival *transport.Arrival // nil: it came without a body
	answer  *transport.Answer  // nil: nothing is known of it
	list    *list.List         // nil: it was left, or taken away
	at      *list.Element
}

func newPlaces(most int, bound, name string) *places {
	return &places{most: most, bound: bound, name: name}
}

func (p *places) full() error {
	return plimsoll.Errorf(
		plimsoll.CodeExhausted, "this gateway has %d %s under way, as many as it may; try again later", p.most, p.name,
	)
}

// enter takes a place, which is given back with leave. cut reports whether another request lost its
// own for it.
func (p *places) enter(entered *place, arrival *transport.Arrival, answer *transport.Answer) (cut bool, err error) {
	*entered = place{of: p, arrival: arrival, answer: answer}
	leaving, err := p.put(entered)
	if err != nil {
		return false, err
	}
	if arrival != nil {
		arrival.OnWhole(entered.arrived)
	}
	if leaving == nil {
		return false, nil
	}
	if leaving.arrival != nil {
		leaving.arrival.Cut(plimsoll.Errorf(plimsoll.CodeExhausted,
			"this gateway has %d %s under way, and the body of this one was the longest on its way; try again later", p.most, p.name))
	}
	if leaving.answer != nil && leaving.answer.Blocked(time.Now()) > 0 {
		leaving.answer.Cut()
	}
	return true, nil
}

// put makes room for a place and puts it in. leaving is the one that lost its own for it, if any.
func (p *places) put(entered *place) (leaving *place, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.arriving.Len()+p.mu.working.Len() >= p.most {
		if leaving = p.dispensable(); leaving == nil {
			return nil, p.full()
		}
		leaving.move(nil)
	}
	if entered.arrival != nil {
		entered.move(&p.mu.arriving)
	} else {
		entered.move(&p.mu.working)
	}
	return leaving, nil
}

// dispensable returns the place that can best be given up; nil if there is none. The caller holds
// mu.
func (p *places) dispensable() *place {
	if oldest := p.mu.arriving.Front(); oldest != nil {
		return elementOf(oldest)
	}
	now := time.Now()
	if now.Sub(p.mu.looked) < blockedLook {
		return nil
	}
	p.mu.looked = now
	for e := p.mu.working.Front(); e != nil; e = e.Next() {
		if found := elementOf(e); found.answer != nil && found.answer.Blocked(now) >= blockedAnswer {
			return found
		}
	}
	return nil
}

func elementOf(e *list.Element) *place {
	p, _ := e.Value.(*place) // the lists of places hold nothing else
	return p
}

// move puts a place at the end of a list; nil: of none. The caller holds places.mu.
func (p *place) move(to *list.List) {
	if p.list != nil {
		p.list.Remove(p.at)
	}
	if p.list = to; to != nil {
		p.at = to.PushBack(p)
	}
}

// arrived notes that the request has come as a whole.
func (p *place) arrived() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.list != nil {
		p.move(&p.of.mu.working)
	}
}

// leave gives the place back, unless another has it.
func (p *place) leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.move(nil)
}

// ongoing is the state of one request at a gateway, allocated at once.
type ongoing struct {
	place  place
	charge charge
	intake intake
}

// take takes a place for a request.
func (g *Gateway) take(u *ongoing, w http.ResponseWriter, r *http.Request) error {
	caller := transport.CallerOf(r.Context())
	answer, _ := w.(*transport.Answer)
	room := g.slots.of(caller, g.streams(r))
	cut, err := room.enter(&u.place, transport.ArrivalOf(r), answer)
	if cut || err != nil {
		g.metrics.refused(room.bound)
	}
	return err
}

// bounded refuses an RPC for which there is no room, before its body is read, and gives each what
// it takes of a budget.
func (g *Gateway) bounded(next http.Handler) http.Handler {
	refuser := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := &ongoing{}
		if err := g.take(u, w, r); err != nil {
			w.Header().Set("Retry-After", retryAfter)
			refuse(refuser, w, r, wire.ConnectError(err))
			return
		}
		defer u.place.leave()
		r = g.charge(u, w, r)
		defer u.charge.end()
		if err := g.meter(u, r); err != nil {
			refuse(refuser, w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// retryAfter is how many seconds a caller is to wait for whom there was no room.
const retryAfter = "1"

// refuse answers an RPC with an error of connect before its handler has seen it.
func refuse(refuser *connect.ErrorWriter, w http.ResponseWriter, r *http.Request, err error) {
	if refuser.IsSupported(r) {
		_ = refuser.Write(w, r, err) // the caller went away; there is nobody to tell
		return
	}
	err = wire.FromConnectError(err)
	rest.WriteError(w, wire.HTTPStatus(plimsoll.CodeOf(err)), err.Error())
}

// boundedREST is bounded for plain HTTP, whose requests have no bodies.
func (g *Gateway) boundedREST(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := &ongoing{}
		if err := g.take(u, w, r); err != nil {
			w.Header().Set("Retry-After", retryAfter)
			rest.WriteError(w, wire.HTTPStatus(plimsoll.CodeExhausted), err.Error())
			return
		}
		defer u.place.leave()
		r = g.charge(u, w, r)
		defer u.charge.end()
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

// keptStream counts the connection of a stream as one that lasts, once its request has come.
type keptStream struct {
	connect.StreamingHandlerConn
	ctx  context.Context //nolint:containedctx // of the one call that it stands for
	done func()
	kept bool
}

// Receive implements connect.StreamingHandlerConn.
func (k *keptStream) Receive(m any) error {
	if err := k.StreamingHandlerConn.Receive(m); err != nil || k.kept {
		return err //nolint:wrapcheck // the handler knows connect's own errors
	}
	if err := checkRequest(k.Spec().Procedure, m); err != nil {
		return wire.ConnectError(err)
	}
	done, err := transport.KeepStream(k.ctx)
	if err != nil {
		return wire.ConnectError(err)
	}
	k.kept, k.done = true, done
	return nil
}
