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
	boundRequests      = "requests"
	boundStreams       = "streams"
	boundAgentRequests = "agent_requests"
	boundAgentStreams  = "agent_streams"
	boundLogs          = "logs"

	boundEventStreams     = "event_streams"
	boundPeerEventStreams = "peer_event_streams"
	boundAnswerBytes      = "answer_bytes"
	boundUserBytes        = "user_bytes"
	boundAgentBytes       = "agent_bytes"
	boundMessageBytes     = "message_bytes"
	boundMessageElements  = "message_elements"
)

// ownBounds are all of them.
func ownBounds() []string {
	return []string{
		boundRequests, boundStreams, boundAgentRequests, boundAgentStreams, boundLogs,
		boundEventStreams, boundPeerEventStreams, boundAnswerBytes,
		boundUserBytes, boundAgentBytes, boundMessageBytes, boundMessageElements,
	}
}

const (
	// blockedAnswer is the age at which an answer that its caller does not read may lose its slot
	// to another request.
	blockedAnswer = 5 * time.Second
	// blockedLook is the shortest time between two searches for such answers.
	blockedLook = 100 * time.Millisecond
)

// slots are the bounds on requests and streams under way. Users and agents have slots of their own,
// told apart by transport.CallerOf and never by path: users take nothing from agents.
type slots struct {
	requests, streams           *slotPool
	agentRequests, agentStreams *slotPool
	logs                        *slotPool // streams of logs, which also count as users' streams
}

func newSlots(cfg *Config) *slots {
	return &slots{
		requests:      newSlotPool(cfg.MaxRequests, boundRequests, "requests"),
		streams:       newSlotPool(cfg.MaxStreams, boundStreams, "watches and logs"),
		agentRequests: newSlotPool(cfg.MaxAgentRequests, boundAgentRequests, "requests of agents"),
		agentStreams:  newSlotPool(cfg.MaxAgentStreams, boundAgentStreams, "watches of agents"),
		logs:          newSlotPool(cfg.MaxLogs, boundLogs, "logs"),
	}
}

// of returns the pool for a caller's request, or for its stream if lasts is set.
func (s *slots) of(caller transport.Caller, lasts bool) *slotPool {
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
func (g *Gateway) streams(r *http.Request) bool {
	return g.methods[r.URL.Path].streams || r.URL.Path == rest.StreamPath
}

// slotPool bounds the requests of one sort that are under way. When all slots are taken, a new
// request displaces one that only waits for its caller. That is the oldest whose body has not come,
// or one whose caller has not read its answer for five seconds. If there is none the new request is
// refused.
type slotPool struct {
	most  int
	bound string // label of the bound in the metric of refusals
	name  string // for error texts

	mu struct {
		sync.Mutex
		arriving list.List // of *slot, oldest first: their bodies have not come
		working  list.List // of *slot
		looked   time.Time // instant of the last search for an unread answer
	}
}

// slot is the slot of one request.
type slot struct {
	of      *slotPool
	arrival *transport.Arrival // nil: the request has no body
	answer  *transport.Answer  // nil: the answer is not timed
	list    *list.List         // the list that holds the slot; nil: it was given back or displaced
	at      *list.Element
}

func newSlotPool(most int, bound, name string) *slotPool {
	return &slotPool{most: most, bound: bound, name: name}
}

func (p *slotPool) full() error {
	return plimsoll.Errorf(
		plimsoll.CodeExhausted, "this gateway has %d %s under way, as many as it may; try again later", p.most, p.name,
	)
}

// enter takes a slot, which is given back with leave. cut reports whether another request was
// displaced.
func (p *slotPool) enter(entered *slot, arrival *transport.Arrival, answer *transport.Answer) (cut bool, err error) {
	*entered = slot{of: p, arrival: arrival, answer: answer}
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

// put enters a slot, displacing another if the pool is full. leaving is the displaced one, if any.
func (p *slotPool) put(entered *slot) (leaving *slot, err error) {
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

// dispensable returns the slot to displace; nil if there is none. The caller holds mu.
func (p *slotPool) dispensable() *slot {
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

func elementOf(e *list.Element) *slot {
	p, _ := e.Value.(*slot) // the lists of a pool hold nothing else
	return p
}

// move moves a slot to the end of a list; nil takes it out. The caller holds slotPool.mu.
func (p *slot) move(to *list.List) {
	if p.list != nil {
		p.list.Remove(p.at)
	}
	if p.list = to; to != nil {
		p.at = to.PushBack(p)
	}
}

// arrived notes that the request has come as a whole.
func (p *slot) arrived() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.list != nil {
		p.move(&p.of.mu.working)
	}
}

// leave gives the slot back, unless it was displaced.
func (p *slot) leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.move(nil)
}

// ongoing is the state of one request at a gateway, allocated at once.
type ongoing struct {
	slot      slot
	charge    charge
	intake    intake
	context   chargedContext
	explained explained
}

// take takes a slot for a request.
func (g *Gateway) take(u *ongoing, w http.ResponseWriter, r *http.Request) error {
	caller := transport.CallerOf(r.Context())
	answer, _ := w.(*transport.Answer)
	room := g.slots.of(caller, g.streams(r))
	cut, err := room.enter(&u.slot, transport.ArrivalOf(r), answer)
	if cut || err != nil {
		g.metrics.refused(room.bound)
	}
	return err
}

// admittedHandler serves a request that has its slot and its charge.
type admittedHandler interface {
	serve(u *ongoing, w http.ResponseWriter, r *http.Request)
}

// service is an http.Handler that is served as an admittedHandler.
type service struct{ http.Handler }

// serve implements admittedHandler.
func (s service) serve(u *ongoing, w http.ResponseWriter, r *http.Request) {
	s.ServeHTTP(u.explain(w, r), r.WithContext(&u.context))
}

// bounded is admitted for a plain http.Handler.
func (g *Gateway) bounded(next http.Handler) http.Handler { return g.admitted(service{next}) }

// admitted refuses a call that does not exist, and an RPC for which there is no slot, before its
// body is read. It opens the charge of every other on its budget.
func (g *Gateway) admitted(next admittedHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, known := g.methods[r.URL.Path]; !known {
			refuse(g.refuser, w, r, wire.ConnectError(g.noCall(r.URL.Path)))
			return
		}
		u := &ongoing{}
		if err := g.take(u, w, r); err != nil {
			w.Header().Set("Retry-After", retryAfter)
			refuse(g.refuser, w, r, wire.ConnectError(err))
			return
		}
		defer u.slot.leave()
		g.charge(u, w, r)
		defer u.charge.end()
		if err := g.meter(u, r); err != nil {
			refuse(g.refuser, w, r, err)
			return
		}
		next.serve(u, w, r)
	})
}

// retryAfter is the number of seconds after which a refused caller may try again.
const retryAfter = "1"

// refuse answers an RPC with an error in the form of its protocol, before its handler has seen it.
func refuse(refuser *connect.ErrorWriter, w http.ResponseWriter, r *http.Request, err error) {
	_ = refuser.Write(w, r, err) // the caller went away; there is nobody to tell
}

// boundedREST is bounded for plain HTTP, whose requests have no bodies, but for a queue file that
// is to be checked: package rest bounds that.
func (g *Gateway) boundedREST(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := &ongoing{}
		if err := g.take(u, w, r); err != nil {
			w.Header().Set("Retry-After", retryAfter)
			rest.WriteError(w, wire.HTTPStatus(plimsoll.CodeExhausted), err.Error())
			return
		}
		defer u.slot.leave()
		g.charge(u, w, r)
		r = r.WithContext(&u.context)
		defer u.charge.end()
		counted := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(counted, r)
		g.metrics.count("/ws/v1", strconv.Itoa(counted.status))
	})
}

// statusWriter remembers the status that was sent.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// keptStream counts the connection of a stream as one that lasts, once its request has come.
type keptStream struct {
	connect.StreamingHandlerConn
	ctx  context.Context //nolint:containedctx // the context of the stream's one call
	done func()
	kept bool
}

// Receive implements connect.StreamingHandlerConn.
func (k *keptStream) Receive(m any) error {
	if err := k.StreamingHandlerConn.Receive(m); err != nil || k.kept {
		return err //nolint:wrapcheck // the handler expects connect's own errors
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
