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

// role is the present activity of a coordinator.
type role string

const (
	roleStarting role = "starting" // opens the store, becomes the leader and loads
	roleStandby  role = "standby"  // waits for the store, which another process has
	roleLeader   role = "leader"   // leads
	roleReader   role = "reader"   // answers only reads, because the disk is too full to write
	roleFailed   role = "failed"   // waits for the next term after a failure
)

var roles = []role{roleStarting, roleStandby, roleLeader, roleReader, roleFailed}

// status guards the condition of a coordinator, for /healthz, /metrics and gateways.
type status struct {
	mu struct {
		sync.Mutex
		condition
		queuesReplaced bool // the configured tree of queues was accepted or refused
	}
}

// condition is the role of a coordinator, with its reason and the history of its terms.
type condition struct {
	role        role
	reason      string    // why the coordinator does not lead; empty for a leader
	term        *term     // present term of a leader or reader; nil in other roles
	leader      string    // address of the process that leads, if a standby knows it
	epoch       uint64    // epoch of the last term
	terms       int       // number of terms that led, including the present one
	depositions int       // number of terms that ended, or did not begin, as another may lead
	failures    int       // number of terms that failed or could not begin
	lastFailure string    // error of the last failure
	lastFailed  time.Time // time of the last failure
}

func newStatus() *status {
	s := &status{}
	s.starting()
	return s
}

func (s *status) get() condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.condition
}

func (s *status) set(r role, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.role, s.mu.reason, s.mu.term, s.mu.leader = r, reason, nil, ""
}

func (s *status) starting() { s.set(roleStarting, "opens the store") }

func (s *status) joining() { s.set(roleStarting, "asks the store whether it may lead") }

func (s *status) loading() { s.set(roleStarting, "loads the active state") }

// deposed sets the role of a leader whose leadership has ended.
func (s *status) deposed() {
	s.set(roleStandby, "another process leads, or may lead; it asks the store again")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.depositions++
}

// steppedDown sets the role of a leader that was asked to step down.
func (s *status) steppedDown() { s.set(roleStandby, "has stepped down, and lets another process lead") }

// waits sets the role of a standby that waits for a leader, whose address may not be known. It
// reports whether that is news.
func (s *status) waits(leader string) bool {
	reason := "waits until the present leader ends"
	if leader != "" {
		reason = "waits until the leader at " + leader + " ends"
	}
	was := s.get()
	s.set(roleStandby, reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.leader = leader
	return was.role != roleStandby || was.reason != reason
}

// standby sets the role of a standby, and reports whether it is a new one.
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

// reading sets the role of a reader, with the cause.
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

// waiting returns the load of the present term's inbox.
func (s *status) waiting() inboxLoad {
	if t := s.get().term; t != nil {
		return t.inbox.waiting()
	}
	return inboxLoad{}
}

// replication returns the numbers of the replication to gateways; zeros without a term.
func (s *status) replication() replica.Stats {
	if t := s.get().term; t != nil {
		return t.source.Stats()
	}
	return replica.Stats{}
}

// refusal returns the error for a gateway that connects while this process does not lead.
func (s *status) refusal() error {
	now := s.get()
	return plimsoll.Errorf(
		plimsoll.CodeUnavailable, "this coordinator does not lead (%s: %s); try again", now.role, now.reason,
	)
}

// routes returns the handler of all paths of a coordinator. It is the same in all roles.
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
	const answerTimeout = 10 * time.Second // bounds the time of a slow reader of /metrics
	timed := func(h http.Handler) http.Handler {
		return transport.TimeAnswers(transport.AnswerConfig{Total: answerTimeout}, h)
	}
	mux.Handle("/metrics", timed(promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})))
	mux.Handle("/healthz", timed(http.HandlerFunc(c.health)))
	mux.Handle("/readyz", timed(http.HandlerFunc(c.ready)))
	mux.Handle(BackupPath, transport.TimeAnswers(transport.AnswerConfig{
		Stream: func(*http.Request) bool { return true },
	}, http.HandlerFunc(c.export)))
	return mux
}

// ready answers 200 if this process leads. It does not ask the store. A standby names the leader,
// as far as it knows, so that a gateway finds it.
func (c *Coordinator) ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if now := c.status.get(); now.role != roleLeader {
		if now.leader != "" {
			w.Header().Set(replica.HeaderLeader, now.leader)
		}
		http.Error(
			w, fmt.Sprintf("not ready: this coordinator does not lead (%s: %s)", now.role, now.reason),
			http.StatusServiceUnavailable,
		)
		return
	}
	_, _ = w.Write([]byte("ready\n")) // the caller went away; there is nobody to tell
}

// revision returns the revision of a leader's records, or of a standby's copy; 0: there is none.
func (c *Coordinator) revision() uint64 {
	if now := c.status.get(); now.term != nil {
		return now.term.source.Snapshot().Revision()
	}
	return c.copied.revision()
}

// healthReport is the body of /healthz.
type healthReport struct {
	Status      string     `json:"status"` // ok, standby, read-only or unavailable
	Role        role       `json:"role"`
	Reason      string     `json:"reason,omitempty"`   // empty if Status is ok
	Epoch       uint64     `json:"epoch"`              // epoch of the last term
	Revision    uint64     `json:"revision,omitempty"` // of a standby, that of its copy
	Instance    string     `json:"instance,omitempty"`
	Terms       int        `json:"terms"`       // number of terms in which this process led
	Depositions int        `json:"depositions"` // terms that ended, or did not begin, as another may lead
	Failures    int        `json:"failures"`
	LastFailure string     `json:"lastFailure,omitempty"`
	LastFailed  *time.Time `json:"lastFailed,omitempty"`
	Archive     string     `json:"archive,omitempty"` // why the archive takes no jobs
}

// health answers 200 if this process leads, is a standby, or answers reads on a full disk.
func (c *Coordinator) health(w http.ResponseWriter, r *http.Request) {
	now := c.status.get()
	report := healthReport{
		Status: "unavailable", Role: now.role, Reason: now.reason, Epoch: now.epoch, Terms: now.terms,
		Depositions: now.depositions, Failures: now.failures, LastFailure: now.lastFailure,
	}
	if now.failures > 0 {
		report.LastFailed = &now.lastFailed
	}
	code := http.StatusServiceUnavailable
	switch now.role {
	case roleStandby:
		report.Status, code = "standby", http.StatusOK
		report.Revision = c.copied.revision()
	case roleReader:
		latest := now.term.source.Snapshot()
		report.Status, code = "read-only", http.StatusOK
		report.Revision, report.Instance = latest.Revision(), latest.InstanceUUID()
	case roleLeader:
		latest := now.term.source.Snapshot()
		report.Revision, report.Instance = latest.Revision(), latest.InstanceUUID()
		report.Archive = latest.ArchiveTrouble()
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
