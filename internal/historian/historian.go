package historian

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// The defaults of Config.
const (
	DefaultListen    = "127.0.0.1:9086"
	DefaultQuestions = 16
)

// Config sets up a historian. A zero value means the default.
type Config struct {
	Source Source // the gateway that is followed; required
	// Open opens the history for writing. It is called again after a failure. Required.
	Open   func(ctx context.Context) (history.Writer, error)
	Reader history.Reader    // of the same history; required
	Keep   history.Retention // what is kept
	Now    func() time.Time  // required

	// Name is the name under which the historian registers, always the same for one history, and
	// of no other. Default: that of the history itself.
	Name string

	Questions int // answered at a time; default DefaultQuestions

	// Listen is the address to serve; empty: none, and the caller serves Handlers.
	Listen string
	Hosts  []string              // hosts by which callers may call it; see transport.ServeConfig
	Access *transport.Access     // of a TCP listener
	Metric prometheus.Registerer // gets the metrics; nil: a registry that /metrics shows
	Events Events
}

// Events are functions that are called when something happens. Each may be nil. None may block.
type Events struct {
	Serving func(address string)
	// Following is called when events arrive again: the id of the first.
	Following func(instance string, next uint64)
	// Waiting is called once when the gateway cannot be followed, and for each other reason.
	Waiting func(err error)
	// Trouble is called when the history cannot be written, once for each reason; nil: it can be
	// written again.
	Trouble func(err error)
	// Registered is called when the historian could not be registered, once for each reason; nil:
	// it is.
	Registered func(err error)
	// Gap is called for events that the history does not get.
	Gap func(gap history.Gap)
	// Fault is called for an error of a question. Its caller learns only that there was a fault.
	Fault func(call string, err error)
}

// Validate reports the first field that cannot be used.
func (c *Config) Validate() error {
	if err := transport.ValidateHosts("host", c.Hosts); err != nil {
		return err
	}
	switch {
	case c.Source == nil || c.Open == nil || c.Reader == nil || c.Now == nil:
		return plimsoll.Invalid("source", "and open, reader and now are required")
	case c.Name != "" && plimsoll.ValidateID("name", c.Name) != nil:
		return plimsoll.ValidateID("name", c.Name)
	case c.Questions < 0:
		return plimsoll.Invalid("questions", "is negative; give how many are answered at a time")
	}
	return ValidateRetention(c.Keep)
}

// minBytes is the least bound on a history in bytes.
const minBytes = 16 << 20

// ValidateRetention reports the first bound that cannot be used, by the name of its flag.
func ValidateRetention(keep history.Retention) error {
	switch {
	case keep.Age < 0:
		return plimsoll.Invalid("--history-age", "is %v; give a duration such as 8760h", keep.Age)
	case keep.Usage < 0, keep.Usage != 0 && keep.Usage < keep.Age:
		return plimsoll.Invalid("--history-usage-age", "is %v; give at least %v, for which events are kept",
			keep.Usage, keep.Age)
	case keep.Bytes != 0 && keep.Bytes < minBytes:
		return plimsoll.Invalid("--history-bytes", "is too little; give at least %s",
			plimsoll.FormatQuantity(plimsoll.Disk, minBytes))
	}
	return nil
}

// Historian follows events and answers questions.
type Historian struct {
	cfg     Config
	metrics *metrics
	calls   http.Handler // HistoryService
	plain   http.Handler // below /history/v1/
	past    past

	mu struct {
		sync.Mutex
		trouble error // that keeps events from being written; nil: none
		waiting error // that keeps events from being read; nil: none
		next    history.Position

		name         string    // under which the historian registers; empty: the history was not opened yet
		unregistered error     // why the historian is not registered; nil: it is
		heard        time.Time // when the leader last answered a report
	}
}

// New returns a historian that has opened nothing yet.
func New(cfg Config) (*Historian, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Questions == 0 {
		cfg.Questions = DefaultQuestions
	}
	h := &Historian{cfg: cfg, metrics: newMetrics(cfg.Metric)}
	h.mu.unregistered = errNotYet
	h.past.reader, h.past.making = cfg.Reader, make(chan struct{}, 1)
	s := &service{h: h, slots: make(chan struct{}, cfg.Questions)}
	h.calls, h.plain = s.handler(), s.plain()
	return h, nil
}

// Run follows events, and serves if Config.Listen is set, until ctx ends.
func (h *Historian) Run(ctx context.Context) error {
	if h.cfg.Listen == "" {
		return h.follow(ctx)
	}
	listener, err := transport.Listen(h.cfg.Listen)
	if err != nil {
		return err
	}
	return h.Serve(ctx, listener)
}

// Serve is Run on a listener, which it closes.
func (h *Historian) Serve(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return transport.Serve(ctx, listener, h.routes(), transport.ServeConfig{
			Hosts: append([]string{h.cfg.Listen}, h.cfg.Hosts...), Access: h.cfg.Access,
			Connections: transport.FewConnections(h.metrics.refuse),
			Started: func() {
				if h.cfg.Events.Serving != nil {
					h.cfg.Events.Serving(listener.Addr().String())
				}
			},
		})
	})
	group.Go(func() error { return h.follow(ctx) })
	return group.Wait()
}

// Trouble returns why the history cannot be written at present; nil: it can.
func (h *Historian) Trouble() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.trouble
}

// setTrouble notes a reason, and tells it if it is another one.
func (h *Historian) setTrouble(err error) {
	h.mu.Lock()
	changed := textOf(h.mu.trouble) != textOf(err)
	h.mu.trouble = err
	h.mu.Unlock()
	h.metrics.setUp(err == nil)
	if changed && h.cfg.Events.Trouble != nil {
		h.cfg.Events.Trouble(err)
	}
}

// setWaiting is setTrouble for the gateway.
func (h *Historian) setWaiting(err error) {
	h.mu.Lock()
	changed := err != nil && textOf(h.mu.waiting) != textOf(err)
	h.mu.waiting = err
	h.mu.Unlock()
	if changed && h.cfg.Events.Waiting != nil {
		h.cfg.Events.Waiting(err)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
