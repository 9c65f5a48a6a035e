package coordinator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// role is what a coordinator does at present.
type role string

const (
	roleStarting role = "starting" // opens the store, becomes the leader and loads
	roleStandby  role = "standby"  // waits for the store, which another process has
	roleLeader   role = "leader"
	roleReader   role = "reader" // answers reads, because the disk is too full to write
	roleFailed   role = "failed" // waits before it starts again, because the last term failed
)

var roles = []role{roleStarting, roleStandby, roleLeader, roleReader, roleFailed}

// status is what a coordinator does and what became of its terms, for /healthz, /metrics and
// gateways.
type status struct {
	mu struct {
		sync.Mutex
		standing
		queuesReplaced bool // the configured tree of queues was answered
	}
}

// standing is what status tells.
type standing struct {
	role        role
	reason      string // why it does not lead; empty for a leader
	term        *term  // nil unless it leads or reads
	epoch       uint64 // of the last term
	terms       int    // in which it led, the present one included
	failures    int
	lastFailure string
	lastFailed  time.Time
}

func newStatus() *status {
	s := &status{}
	s.ended()
	return s
}

func (s *status) get() standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.standing
}

func (s *status) set(r role, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.role, s.mu.reason, s.mu.term = r, reason, nil
}

func (s *status) ended() { s.set(roleStarting, "opens the store") }

func (s *status) loading() { s.set(roleStarting, "loads the active state") }

// standby reports whether that it is one is news.
func (s *status) standby(err error) bool {
	news := s.get().role != roleStandby
	s.set(roleStandby, fmt.Sprintf("waits for the store, which another process has: %v", err))
	return news
}

func (s *status) leading(t *term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.role, s.mu.reason, s.mu.term, s.mu.epoch = roleLeader, "", t, t.epoch
	s.mu.terms++
}

// reading says that a term only reads, and why.
func (s *status) reading(t *term, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.role, s.mu.reason, s.mu.term, s.mu.epoch = roleReader, fmt.Sprintf(
		"only reads, because nothing can be written: %v", cause,
	), t, t.epoch
}

func (s *status) failed(err error, pause time.Duration, now time.Time) {
	s.set(roleFailed, fmt.Sprintf("starts again %s after a failure: %v", pause.Round(time.Millisecond), err))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.failures++
	s.mu.lastFailure, s.mu.lastFailed = err.Error(), now
}

func (s *status) setQueuesReplaced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.queuesReplaced = true
}

func (s *status) queuesReplaced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.queuesReplaced
}

// waiting is what waits for a turn.
func (s *status) waiting() inboxLoad {
	if t := s.get().term; t != nil {
		return t.inbox.waiting()
	}
	return inboxLoad{}
}

// refusal is what a gateway is told that connects while nobody leads here.
func (s *status) refusal() error {
	now := s.get()
	return plimsoll.Errorf(
		plimsoll.CodeUnavailable, "this coordinator does not lead (%s: %s); try again", now.role, now.reason,
	)
}

// routes is the table of all that a coordinator serves, whether it leads or not.
func (c *Coordinator) routes() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		c.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	path, refuse := replica.NewRefusal(c.status.refusal)
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if t := c.status.get().term; t != nil {
			t.replication.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
	const answerTimeout = 10 * time.Second // also for somebody who holds one of the places of /metrics
	timed := func(h http.Handler) http.Handler {
		return transport.TimeAnswers(transport.AnswerConfig{Total: answerTimeout}, h)
	}
	mux.Handle("/metrics", timed(promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})))
	mux.Handle("/healthz", timed(http.HandlerFunc(c.health)))
	mux.Handle("/readyz", timed(http.HandlerFunc(c.ready)))
	return mux
}

// ready answers 200 if this process leads, and costs nothing.
func (c *Coordinator) ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if now := c.status.get(); now.role != roleLeader {
		http.Error(
			w, fmt.Sprintf("not ready: this coordinator does not lead (%s: %s)", now.role, now.reason),
			http.StatusServiceUnavailable,
		)
		return
	}
	_, _ = w.Write([]byte("ready\n")) // the caller went away; there is nobody to tell
}

// healthReport is what /healthz answers.
type healthReport struct {
	Status      string     `json:"status"` // ok, standby, read-only or unavailable
	Role        role       `json:"role"`
	Reason      string     `json:"reason,omitempty"` // of all but ok
	Epoch       uint64     `json:"epoch"`            // of the last term
	Revision    uint64     `json:"revision,omitempty"`
	Instance    string     `json:"instance,omitempty"`
	Terms       int        `json:"terms"` // in which this process led
	Failures    int        `json:"failures"`
	LastFailure string     `json:"lastFailure,omitempty"`
	LastFailed  *time.Time `json:"lastFailed,omitempty"`
}

// health answers 200 if this process leads, is ready to take over, or answers reads until there is
// space to write.
func (c *Coordinator) health(w http.ResponseWriter, r *http.Request) {
	now := c.status.get()
	report := healthReport{
		Status: "unavailable", Role: now.role, Reason: now.reason, Epoch: now.epoch, Terms: now.terms,
		Failures: now.failures, LastFailure: now.lastFailure,
	}
	if now.failures > 0 {
		report.LastFailed = &now.lastFailed
	}
	code := http.StatusServiceUnavailable
	switch now.role {
	case roleStandby:
		report.Status, code = "standby", http.StatusOK
	case roleReader:
		latest := now.term.source.Snapshot()
		report.Status, report.Revision, report.Instance, code = "read-only", latest.Revision(), latest.InstanceUUID(), http.StatusOK
	case roleLeader:
		latest := now.term.source.Snapshot()
		report.Revision, report.Instance = latest.Revision(), latest.InstanceUUID()
		if err := now.term.store.Confirm(r.Context()); err != nil {
			report.Reason = err.Error()
		} else {
			report.Status, code = "ok", http.StatusOK
		}
	}
	body, err := json.Marshal(report)
	if err != nil {
		panic(err) // a broken invariant: strings and numbers have a JSON form
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the caller went away; there is nobody to tell
}
