// Package coordinator is the writer loop around the engine: it leads, loads the active state, takes commands from gateways, makes
// turns, commits each batch to the store, and only then publishes it to the gateways and sends the replies.
//
// It owns three goroutines in a row, joined by a pipeline of at most four turns: one makes turns, one encodes and begins the
// commit, one waits for the disk, publishes and replies. So turn N+1 is computed while N is written. It also owns the address
// that gateways connect to, and closes the store when it ends.
//
// Guarantees: a batch is durable before anything of it is visible; every reply, refusals and empty turns included, waits for its
// own turn and all before it; a commit that fails ends the process's leadership, and Run returns the error. The inbox is bounded:
// when it is full, a command is refused with CodeExhausted, at once, as is one that cannot be read.
//
// It does not serve users: gateways do; beside them only /healthz and /metrics are answered. Costs: see package engine for a turn;
// encoding is linear in what a turn changed. An idle coordinator makes no turns.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// Config sets up a coordinator. Zero values are defaults.
type Config struct {
	Listen        string               // address for gateways; host:port or unix:/path; required
	Queues        plimsoll.QueueConfig // tree of queues of a store that has none; root.default and root.batch
	ReplaceQueues bool                 // make Queues the tree even if the store has one
	State         state.Config
	EventCapacity int          // recent events that are kept; 100,000
	MaxInbox      int          // commands that may wait for a turn; 65,536
	Seed          uint64       // of the order in which nodes are drawn; 0: random
	Now           func() int64 // Unix nanoseconds; the wall clock
	Logger        *slog.Logger // nothing is logged without one
	// Metrics gets the coordinator's metrics too. They are always served on Listen, at /metrics.
	Metrics prometheus.Registerer
}

const (
	defaultInbox = 65_536
	pipeline     = 4 // turns between the engine and the disk (architecture, "The way of the data", step 2)
	maxTurn      = 4096
)

func (c Config) withDefaults() Config {
	if c.Queues.Name == "" {
		c.Queues = plimsoll.DefaultQueues()
	}
	if c.EventCapacity == 0 {
		c.EventCapacity = ring.DefaultCapacity
	}
	if c.MaxInbox == 0 {
		c.MaxInbox = defaultInbox
	}
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixNano() }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Seed == 0 {
		id := uuid.New()
		for _, b := range id[:8] {
			c.Seed = c.Seed<<8 | uint64(b)
		}
	}
	return c
}

// Validate reports the first field that is wrong.
func (c *Config) Validate() error {
	if _, _, err := transport.Split(c.Listen); err != nil {
		return err
	}
	if c.EventCapacity < 0 {
		return plimsoll.Invalid("eventCapacity", "is negative; give 0 for the default, or more")
	}
	if c.MaxInbox < 0 {
		return plimsoll.Invalid("maxInbox", "is negative; give 0 for the default, or more")
	}
	queues := c.withDefaults().Queues
	return queues.Validate()
}

// Coordinator is the writer.
type Coordinator struct {
	cfg     Config
	store   store.Store
	metrics *metrics
	wake    chan struct{} // capacity 1: something is in the inbox

	mu struct {
		sync.Mutex
		inbox   []request
		streams map[string]int // by gateway: those that are open
	}
}

// New returns a coordinator over a store. It closes the store when Run ends.
func New(cfg Config, st store.Store) (*Coordinator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.State.Limits = state.Limits(st.Limits())
	c := &Coordinator{cfg: cfg, store: st, wake: make(chan struct{}, 1)}
	c.mu.streams = map[string]int{}
	c.metrics = newMetrics(c)
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(c.metrics); err != nil {
			return nil, fmt.Errorf("register the coordinator's metrics: %w", err)
		}
	}
	return c, nil
}

// Run leads until ctx ends or the leadership is lost. It returns nil if ctx ended.
func (c *Coordinator) Run(ctx context.Context) error {
	err := c.lead(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // it was told to stop before it led
	}
	if closeErr := c.store.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closeErr))
	}
	return err
}

func (c *Coordinator) lead(ctx context.Context) error {
	t, err := c.begin(ctx)
	if err != nil {
		return err
	}
	listener, err := transport.Listen(c.cfg.Listen)
	if err != nil {
		return err
	}
	c.cfg.Logger.Info("leading", "epoch", t.epoch, "revision", t.revision, "listen", c.cfg.Listen)
	return t.run(ctx, func(ctx context.Context) error { return transport.Serve(ctx, listener, t.routes()) })
}

// begin becomes the leader and loads what the store holds.
func (c *Coordinator) begin(ctx context.Context) (*term, error) {
	epoch, err := c.store.Lead(ctx)
	if err != nil {
		return nil, fmt.Errorf("become the leader: %w", err)
	}
	l, err := c.load(ctx, c.store, epoch)
	if err != nil {
		return nil, err
	}
	source, err := replica.NewSource(replica.SourceConfig{
		Epoch: epoch, InstanceUUID: uuid.NewString(), EventCapacity: c.cfg.EventCapacity, Confirm: c.store.Confirm,
		Events: replica.SourceEvents{Connected: c.gatewayConnected, Disconnected: c.gatewayDisconnected},
	}, l.tables)
	if err != nil {
		return nil, fmt.Errorf("make the replication source: %w", err)
	}
	if c.cfg.ReplaceQueues {
		c.push(request{name: "set_queue_config", do: &engine.SetQueueConfig{Config: c.cfg.Queues}, respond: c.logRefusal})
	}
	e := engine.New(engine.Config{Seed: c.cfg.Seed}, l.state, l.revision, l.time)
	return &term{Coordinator: c, loaded: l, epoch: epoch, engine: e, source: source}, nil
}

func (c *Coordinator) logRefusal(r *pb.Reply) {
	if e := r.GetError(); e != nil {
		c.cfg.Logger.Error("the queue file was refused and the tree stays as it was", "field", e.GetField(), "error", e.GetMessage())
	}
}
