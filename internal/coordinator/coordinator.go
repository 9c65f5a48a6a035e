// Package coordinator is the writer loop around the engine. It leads, loads the active state, takes
// commands from gateways, makes turns and commits each batch to the store. Only then does it
// publish the batch to the gateways and send the replies.
//
// Run is a loop of terms. A term opens the store, becomes the leader with a higher epoch than all
// before, loads, and leads until a commit fails or Run is told to stop; then it closes the store.
// Each term has three goroutines in a row, joined by a pipeline of at most four turns: one makes
// turns, one encodes and begins the commit, one waits for the disk, publishes and replies. So turn
// N+1 is computed while N is written. The package owns these, the store of the term, and the
// address that gateways connect to, which answers all the time.
//
// After a term has ended, or could not begin, there are four cases:
//   - The store belongs to another process (CodeAlreadyRunning). This one is a standby: it looks
//     twice a second whether the store has become free, and takes over then.
//   - Opening, leading or loading fails for good: the store is corrupt (CodeCorrupt), of a newer
//     format (CodeConflict), not to be written by this user (CodeDenied), or named wrongly
//     (CodeInvalid). Run returns the error.
//   - The disk has no space left to write at all. The store is opened for reading, and reads and
//     questions are answered from it; commands are refused with the reason. The next term tries to
//     lead as soon as there is room, or after a minute with some. What was acknowledged is there.
//   - Anything else passes by itself, or once somebody looks after the disk: a failed commit, an
//     error of the disk. The process waits, 1 to 2 s at first and 15 to 30 s at last, and begins
//     the next term. A term that led for a minute makes the next pause short again.
//
// Guarantees: a batch is durable before anything of it is visible. Every reply waits for its own
// turn and all before it, also a refusal by the engine and the reply of a turn that changed
// nothing. Nothing after a commit that failed is visible. When a term ends, the streams of the
// gateways are cut: a caller that waits for a reply is told by its gateway that the outcome is
// not known (CodeOutcomeUnknown), and commands that wait for a turn are dropped. The inbox is
// bounded in commands and in bytes, with a part for agents: when it is full, a command is refused
// at once with CodeExhausted. One that cannot be read is refused at once too.
//
// Every second the term looks at the disk of the store (disk.Gate). Below its least, submits and
// other commands that make the state larger are refused with what is missing; kills, reports and
// the expiry of jobs go on, for which that least is kept.
//
// Questions (dry runs, explanations, capacities, plans of moves) wait for no turn: workers answer
// them from a copy of the fleet that all who ask share (questions.go). The answer's revision is at
// least that of all that was acknowledged before the question came. A copy holds up the turns by
// some 3 ms for 10,000 nodes; more are copied in slices between turns, and at most a tenth of the
// time goes into copies.
//
// It does not serve users: gateways do. Beside them only /healthz and /metrics are answered, also
// while the process does not lead; gateways that connect then are refused with CodeUnavailable and
// the reason, and try again. Its listener has a sixteenth of the descriptors, and a gateway that
// does not read its stream for a minute is cut off. Costs: see package engine for a turn; encoding
// is linear in what a turn changed. An idle coordinator makes no turns.
package coordinator

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// Config sets up a coordinator. Zero values are defaults.
type Config struct {
	Listen        string               // address for gateways; host:port or unix:/path; required
	Hosts         []string             // further hosts that callers may use for Listen; see transport.Serve
	Access        *transport.Access    // who may call Listen; required unless that is a socket
	Queues        plimsoll.QueueConfig // tree of queues of a store that has none; plimsoll.DefaultQueues
	ReplaceQueues bool                 // make Queues the tree even if the store has one
	State         state.Config
	EventCapacity int          // recent events that are kept; 100,000
	MaxInbox      int          // commands that may wait for a turn; 65,536; a quarter is for agents alone
	MaxInboxBytes int          // bytes that they may take; 256 MiB; the same
	Workers       int          // answer questions beside the turns; half of GOMAXPROCS, at least 1
	MaxQuestions  int          // questions that may wait for them; 64
	Seed          uint64       // of the order in which nodes are drawn; 0: random
	Now           func() int64 // Unix nanoseconds; the wall clock
	// Disk is what the disk of the store has; it is asked every second. Nil: it is taken to have
	// room.
	Disk func() (disk.Space, error)
	// OpenReadOnly opens the store when its disk is too full to write, so that reads are answered
	// until there is room; nil: they are not.
	OpenReadOnly Open
	// Metrics gets the coordinator's metrics too. They are always served on Listen, at /metrics.
	Metrics prometheus.Registerer
	// Events tells what happens.
	Events Events
}

// Events tells what happens to a coordinator. A nil function is not called. They must not block.
type Events struct {
	// Standby is called when the store turns out to belong to another process, once until that
	// changes.
	Standby func(err error)
	// Leading is called when a term has begun, with the revision that was loaded and the address
	// for gateways.
	Leading func(epoch, revision uint64, listen string)
	// Failed is called when a term has ended, or could not begin, because of err; the next one
	// begins after the pause.
	Failed func(err error, pause time.Duration)
	// Disk is called when the disk of the store becomes too full for more state, with what is
	// missing, and with an empty text when there is room again.
	Disk func(shortage string)
	// Reading is called when a term has begun that only reads, because of err.
	Reading func(err error)
	// QueuesRefused is called when Config.Queues cannot replace the stored tree, which stays as it
	// was.
	QueuesRefused func(err error)
	// GatewayUnread is called when a gateway is cut off because it does not read its stream.
	GatewayUnread func(gateway string)
}

const (
	defaultInbox = 65_536
	defaultBytes = 256 << 20 // of the inbox
	pipeline     = 4         // turns between the engine and the disk (architecture, "The way of the data", step 2)
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
	if c.MaxInboxBytes == 0 {
		c.MaxInboxBytes = defaultBytes
	}
	if c.Workers == 0 {
		c.Workers = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if c.MaxQuestions == 0 {
		c.MaxQuestions = defaultQuestions
	}
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixNano() }
	}
	if c.Seed == 0 {
		id := uuid.New()
		for _, b := range id[:8] {
			c.Seed = c.Seed<<8 | uint64(b)
		}
	}
	if c.Events.Standby == nil {
		c.Events.Standby = func(error) {}
	}
	if c.Events.Leading == nil {
		c.Events.Leading = func(uint64, uint64, string) {}
	}
	if c.Events.Failed == nil {
		c.Events.Failed = func(error, time.Duration) {}
	}
	if c.Events.Disk == nil {
		c.Events.Disk = func(string) {}
	}
	if c.Events.Reading == nil {
		c.Events.Reading = func(error) {}
	}
	if c.Events.QueuesRefused == nil {
		c.Events.QueuesRefused = func(error) {}
	}
	if c.Events.GatewayUnread == nil {
		c.Events.GatewayUnread = func(string) {}
	}
	return c
}

// Validate reports the first field that is wrong.
func (c *Config) Validate() error {
	if _, _, err := transport.Split(c.Listen); err != nil {
		return err
	}
	if err := transport.ValidateHosts("host", c.Hosts); err != nil {
		return err
	}
	if c.EventCapacity < 0 {
		return plimsoll.Invalid("eventCapacity", "is negative; give 0 for the default, or more")
	}
	if c.MaxInbox < 0 {
		return plimsoll.Invalid("maxInbox", "is negative; give 0 for the default, or more")
	}
	if c.MaxInboxBytes < 0 {
		return plimsoll.Invalid("maxInboxBytes", "is negative; give 0 for the default, or more")
	}
	if c.Workers < 0 {
		return plimsoll.Invalid("workers", "is negative; give 0 for the default, or more")
	}
	if c.MaxQuestions < 0 {
		return plimsoll.Invalid("maxQuestions", "is negative; give 0 for the default, or more")
	}
	queues := c.withDefaults().Queues
	return queues.Validate()
}

// Open opens the store for a term, which closes it. A CodeAlreadyRunning error says that another
// process has it.
type Open func(ctx context.Context) (store.Store, error)

// Coordinator is the writer: what of it outlives a term.
type Coordinator struct {
	cfg       Config
	openStore Open
	pauses    pauses
	commands  *commandTable
	metrics   *metrics
	status    *status
	seen      uint64 // the highest epoch that gateways may have heard of from here; leadOn's alone
}

// New returns a coordinator over the store that open opens. Nothing is opened before Run.
func New(cfg Config, open Open) (*Coordinator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Coordinator{
		cfg: cfg, openStore: open, pauses: defaultPauses, commands: newCommandTable(), status: newStatus(),
	}
	c.metrics = newMetrics(c.status)
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(c.metrics); err != nil {
			return nil, fmt.Errorf("register the coordinator's metrics: %w", err)
		}
	}
	return c, nil
}

// Run listens, and leads whenever it can, until ctx ends or the store cannot be used. It returns
// nil if ctx ended.
func (c *Coordinator) Run(ctx context.Context) error {
	listener, err := transport.Listen(c.cfg.Listen)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return transport.Serve(ctx, listener, c.routes(), transport.ServeConfig{
			Hosts: append(slices.Clone(c.cfg.Hosts), c.cfg.Listen), Access: c.cfg.Access,
			Connections: transport.FewConnections(c.metrics.refuse),
		})
	})
	group.Go(func() error { return c.leadOn(ctx) })
	return group.Wait()
}
