package evaluator

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

// The defaults of Config.
const (
	DefaultListen  = "127.0.0.1:9083"
	DefaultRefresh = 10 * time.Second
)

// Config sets up an evaluator. A zero value means the default.
type Config struct {
	Servers string // file or URL with the servers; required
	// Instances is the file or URL with the instances of one server, with {server} for its id.
	// Empty means that they are in Servers.
	Instances string
	Defaults  []byte // defaults of Triton's designation; see Parse

	Now     func() time.Time // required
	Refresh time.Duration    // largest age of content read from a URL; default DefaultRefresh
	Loads   remote.Options   // bounds of loading instances
	Calls   int              // calls processed at a time; default four, or two for each processor

	Listen string            // address; default DefaultListen
	Hosts  []string          // hosts by which callers may call it; see transport.ServeConfig
	Access *transport.Access // of a TCP listener
	Events Events
}

// Events are functions that are called when something happens. Each may be nil.
type Events struct {
	Serving func(address string, servers int)
	Fault   func(err error) // of a call; its caller learns only that there was a fault
}

// Validate reports the first field that cannot be used.
func (c *Config) Validate() error {
	if err := transport.ValidateHosts("host", c.Hosts); err != nil {
		return err
	}
	switch {
	case c.Servers == "":
		return plimsoll.Invalid("servers", "is missing; name a file or URL with the servers of this part")
	case c.Now == nil:
		return plimsoll.Invalid("now", "is not set; give time.Now")
	case c.Refresh < 0:
		return plimsoll.Invalid("refresh", "is negative; give a time such as 10s")
	case c.Calls < 0:
		return plimsoll.Invalid("calls", "is negative; give how many calls are worked on at a time")
	}
	return checkTemplate(c.Instances)
}

// Evaluator serves a part of a fleet.
type Evaluator struct {
	cfg     Config
	source  *source
	pool    *remote.Pool
	metrics *metrics
	handler http.Handler
}

// New returns an evaluator that has read nothing yet.
func New(cfg Config) (*Evaluator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Refresh == 0 {
		cfg.Refresh = DefaultRefresh
	}
	if cfg.Calls == 0 {
		cfg.Calls = max(4, 2*runtime.GOMAXPROCS(0))
	}
	if cfg.Listen == "" {
		cfg.Listen = DefaultListen
	}
	pool, err := remote.NewPool(cfg.Loads)
	if err != nil {
		return nil, err
	}
	e := &Evaluator{cfg: cfg, pool: pool, source: newSource(&cfg)}
	local, err := remote.NewLocal(remote.Config{
		Source: e.source.local(), Pool: pool, Profile: e.source.stages, Servers: e.source.servers,
	})
	if err != nil {
		return nil, err
	}
	e.metrics = newMetrics(e.source)
	e.handler = e.routes(local)
	return e, nil
}

// waitForLoads bounds how long loads may continue when the evaluator ends.
const waitForLoads = 5 * time.Second

// Run reads the servers, and serves until ctx ends.
func (e *Evaluator) Run(ctx context.Context) error {
	listener, err := transport.Listen(e.cfg.Listen)
	if err != nil {
		return err
	}
	return e.Serve(ctx, listener)
}

// Serve is Run on a listener, which it closes.
func (e *Evaluator) Serve(ctx context.Context, listener net.Listener) error {
	defer e.source.client.CloseIdleConnections()
	p, err := e.source.now(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	err = transport.Serve(ctx, listener, e.handler, transport.ServeConfig{
		Hosts: append([]string{e.cfg.Listen}, e.cfg.Hosts...), Access: e.cfg.Access,
		Connections: transport.FewConnections(e.metrics.refuse),
		Started: func() {
			if e.cfg.Events.Serving != nil {
				e.cfg.Events.Serving(listener.Addr().String(), len(p.Servers))
			}
		},
	})
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitForLoads)
	defer cancel()
	return errors.Join(err, e.pool.Wait(wait))
}

const answerTimeout = 10 * time.Second // of requests that are no calls

// routes serves calls, with a bound on those processed at a time, and the endpoints for
// monitoring.
func (e *Evaluator) routes(local *remote.Local) http.Handler {
	path, calls := remote.NewHandler(e.metrics.counted(local), remote.Serving{Failed: e.cfg.Events.Fault})
	mux := http.NewServeMux()
	mux.Handle(path, transport.TimeAnswers(transport.AnswerConfig{
		Total: remote.DefaultDeadline + answerTimeout,
		Stream: func(r *http.Request) bool {
			return r.URL.Path == plimsollv1connect.PlacementServiceListServersProcedure
		},
	}, e.bounded(calls)))
	timed := func(h http.Handler) http.Handler {
		return transport.TimeAnswers(transport.AnswerConfig{Total: answerTimeout}, h)
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte("ok\n")) // the caller is gone, so the error has no reader
	})
	mux.Handle("/healthz", timed(ok))
	mux.Handle("/readyz", timed(ok)) // it is served only after the servers were read
	mux.Handle("/metrics", timed(promhttp.HandlerFor(e.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})))
	return mux
}

// bounded refuses further calls, before their body is read, while the bound on calls is reached.
// Each call may take as much memory as a decoded batch.
func (e *Evaluator) bounded(calls http.Handler) http.Handler {
	slots := make(chan struct{}, e.cfg.Calls)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			calls.ServeHTTP(w, r)
		default:
			e.metrics.refuse("calls")
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(busy)) // the caller is gone, so the error has no reader
		}
	})
}

// busy is the answer when the bound on calls is reached, in the form of Connect.
const busy = `{"code":"resource_exhausted","message":"this evaluator has as many calls as it may; try again"}` + "\n"
