// Package coordinator is the writer loop around the engine: it leads, loads the active state, takes commands from gateways, makes
// turns, commits each batch to the store, and only then publishes it to the gateways and sends the replies.
//
// It owns three goroutines in a row, joined by a pipeline of at most four turns: one makes turns, one encodes and begins the
// commit, one waits for the disk, publishes and replies. So turn N+1 is computed while N is written. It also owns the address
// that gateways connect to, and closes the store when it ends.
//
// Guarantees: a batch is durable before anything of it is visible; every reply, refusals and empty turns included, waits for its
// own turn and all before it; a commit that fails ends the process's leadership, and Run returns the error. The inbox is bounded:
// when it is full, a command is refused with CodeExhausted.
//
// It does not serve users: gateways do. Costs: see package engine for a turn; encoding is linear in what a turn changed.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

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
	if c.EventCapacity < 0 || c.MaxInbox < 0 {
		return plimsoll.Invalid("eventCapacity", "is negative; give zero for the default, or more")
	}
	return c.Queues.Validate()
}

// Coordinator is the writer.
type Coordinator struct {
	cfg   Config
	store store.Store
	wake  chan struct{} // capacity 1: something is in the inbox
	ready chan struct{} // closed when it serves

	mu struct {
		sync.Mutex
		inbox []request
	}
}

// request is a command and where its reply goes.
type request struct {
	do      any
	respond func(*pb.Reply) // nil: nobody waits
}

// turn is one turn on its way through the pipeline.
type turn struct {
	batch    engine.Batch
	respond  []func(*pb.Reply) // as the batch's replies
	revision uint64            // of the last batch when the turn ended
}

// New returns a coordinator over a store. It closes the store when Run ends.
func New(cfg Config, st store.Store) (*Coordinator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Coordinator{cfg: cfg, store: st, wake: make(chan struct{}, 1), ready: make(chan struct{})}, nil
}

// Ready returns a channel that is closed when the coordinator serves gateways.
func (c *Coordinator) Ready() <-chan struct{} { return c.ready }

// Run leads until ctx ends or the leadership is lost. It returns nil if ctx ended.
func (c *Coordinator) Run(ctx context.Context) error {
	err := c.lead(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	if closeErr := c.store.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("close the store: %w", closeErr)
	}
	return err
}

func (c *Coordinator) lead(ctx context.Context) error {
	epoch, err := c.store.Lead(ctx)
	if err != nil {
		return fmt.Errorf("become the leader: %w", err)
	}
	l, err := c.load(ctx, c.store, epoch)
	if err != nil {
		return err
	}
	source, err := replica.NewSource(replica.SourceConfig{
		Epoch: epoch, InstanceUUID: uuid.NewString(), EventCapacity: c.cfg.EventCapacity, Confirm: c.store.Confirm,
	}, l.tables)
	if err != nil {
		return fmt.Errorf("make the replication source: %w", err)
	}
	listener, err := transport.Listen(c.cfg.Listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(replica.NewHandler(source, c.exec, replica.OnGatewayLost(func(gateway string) {
		c.push(request{do: &engine.GatewayLost{Gateway: gateway}})
	})))
	if c.cfg.ReplaceQueues {
		c.push(request{do: &engine.SetQueueConfig{Config: c.cfg.Queues}, respond: c.logRefusal})
	}
	c.cfg.Logger.Info("leading", "epoch", epoch, "revision", l.revision, "listen", c.cfg.Listen)

	g, ctx := errgroup.WithContext(ctx)
	fresh, made, begun := make(chan *turn, pipeline), make(chan *turn, pipeline), make(chan *commit, pipeline)
	for range pipeline {
		fresh <- new(turn)
	}
	limits := c.store.Limits()
	e := engine.New(engine.Config{Seed: c.cfg.Seed, Limits: state.Budget{Ops: limits.Ops, Bytes: limits.Bytes / 2}}, l.state, l.revision, l.time)
	g.Go(func() error { return c.makeTurns(ctx, e, fresh, made) })
	g.Go(func() error { return c.beginCommits(epoch, l, made, begun) })
	g.Go(func() error { return c.finishCommits(source, begun, fresh) })
	g.Go(func() error { return transport.Serve(ctx, listener, mux) })
	stop := context.AfterFunc(ctx, func() { source.Close(nil) }) // gateways are told at once
	defer stop()
	close(c.ready)
	return g.Wait() //nolint:wrapcheck // each loop says what it was doing
}

func (c *Coordinator) logRefusal(r *pb.Reply) {
	if e := r.GetError(); e != nil {
		c.cfg.Logger.Error("the queue file was refused and the tree stays as it was", "field", e.GetField(), "error", e.GetMessage())
	}
}

// exec takes a command from a gateway (replica.Exec).
func (c *Coordinator) exec(_ context.Context, gateway string, cmd *pb.Command, respond func(*pb.Reply)) {
	do, err := decodeCommand(gateway, cmd)
	if err == nil && !c.push(request{do, respond}) {
		err = plimsoll.Errorf(plimsoll.CodeExhausted, "the leader has %d commands waiting; try again", c.cfg.MaxInbox)
	}
	if err != nil {
		respond(encodeReply(&engine.Reply{Err: err}, 0))
	}
}

// push puts a request in the inbox; false says that it is full. What nobody waits for is never refused: there are few of those.
func (c *Coordinator) push(r request) bool {
	c.mu.Lock()
	full := len(c.mu.inbox) >= c.cfg.MaxInbox && r.respond != nil
	if !full {
		c.mu.inbox = append(c.mu.inbox, r)
	}
	c.mu.Unlock()
	if !full {
		select {
		case c.wake <- struct{}{}:
		default: // it is awake already
		}
	}
	return !full
}

// drain moves the inbox behind requests, up to one turn's worth.
func (c *Coordinator) drain(requests []request) []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.mu.inbox), max(0, maxTurn-len(requests)))
	requests = append(requests, c.mu.inbox[:n]...)
	rest := copy(c.mu.inbox, c.mu.inbox[n:])
	clear(c.mu.inbox[rest:])
	c.mu.inbox = c.mu.inbox[:rest]
	if rest > 0 {
		select {
		case c.wake <- struct{}{}:
		default: // it is awake already
		}
	}
	return requests
}

// makeTurns is the writer loop.
func (c *Coordinator) makeTurns(ctx context.Context, e *engine.Engine, fresh <-chan *turn, made chan<- *turn) error {
	defer close(made)
	var commands []engine.Command
	waiting := map[uint64]func(*pb.Reply){} // by command id: those who have not been answered
	var requests []request
	nextID, revision := uint64(0), uint64(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var t *turn
		select {
		case <-ctx.Done():
			return ctx.Err()
		case t = <-fresh:
		}
		requests = c.drain(requests[:0])
		for _, r := range requests {
			nextID++
			waiting[nextID] = r.respond
			commands = append(commands, engine.Command{ID: nextID, Do: r.do})
		}
		taken, wake, more := e.Turn(c.cfg.Now(), commands, &t.batch)
		commands = append(commands[:0], commands[taken:]...)
		if t.batch.Revision != 0 {
			revision = t.batch.Revision
		}
		t.revision = revision
		t.respond = t.respond[:0]
		for i := range t.batch.Replies {
			id := t.batch.Replies[i].ID
			t.respond = append(t.respond, waiting[id])
			delete(waiting, id)
		}
		made <- t // it has room for every turn there is
		if !more {
			if err := c.sleep(ctx, timer, wake); err != nil {
				return err
			}
		}
	}
}

// sleep returns when there is something in the inbox, or the engine wants to be woken.
func (c *Coordinator) sleep(ctx context.Context, timer *time.Timer, wake int64) error {
	var due <-chan time.Time
	if wake != 0 {
		timer.Reset(time.Duration(max(0, wake-c.cfg.Now())))
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.wake:
	case <-due:
	}
	return nil
}
