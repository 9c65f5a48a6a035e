// Package coordinator is the writer loop around the engine. It becomes the leader, loads the stored
// records, takes commands from gateways, makes turns and commits each batch to the store. Only then
// does it publish the batch to the gateways and send the replies.
//
// A process runs a coordinator like this:
//
//	c, err := coordinator.New(cfg, openStore)
//	if err == nil {
//		err = c.Run(ctx) // until ctx ends or the store cannot be used
//	}
//
// Run is a loop of terms. A term opens the store, becomes the leader with a higher epoch than all
// before, and loads. It leads until a commit fails or ctx ends, and then closes the store. Each
// term is a pipeline of three goroutines and at most four turns. The first makes turns, the second
// encodes and begins the commit, the third waits for the disk, publishes and replies. So turn N+1
// is computed while N is written. The package owns these goroutines, the store of the term, and the
// address for gateways, which answers at all times.
//
// After a term has ended, or could not begin, there are five cases:
//   - Another process leads, or this one can no longer prove that it leads. The term has cut its
//     streams and acknowledged nothing more. The process opens the store again and stands by: the
//     store says when it may lead.
//   - The store belongs to another process (CodeAlreadyRunning). This process is a standby: it
//     tries twice a second to open the store, and takes over once it can.
//   - Opening, leading or loading fails for good: the store is corrupt (CodeCorrupt), of a newer
//     format (CodeConflict), not to be written by this user (CodeDenied), or named wrongly
//     (CodeInvalid). Run returns the error.
//   - The disk has no space left to write at all. The store is opened for reading. Reads and
//     questions are answered, and commands are refused with the reason. The next term begins as
//     soon as there is enough room, or after a minute with a little room. No acknowledged command
//     is lost.
//   - Any other failure, such as a failed commit or a disk error, may pass. The process waits, 1 to
//     2 s at first and 15 to 30 s at last, and begins the next term. A term that led for a minute
//     makes the next pause short again.
//
// Guarantees: a batch is durable before anything of it is visible. Every reply waits until its own
// turn and all earlier turns are durable. That holds for refusals by the engine too. Replies of
// turns that changed nothing, and answers to questions, wait for a proof of leadership that began
// after they were asked (DESIGN.md). Nothing after a failed commit is visible. When a term
// ends, the streams of the gateways are cut. Callers that wait for a reply get CodeOutcomeUnknown
// from their gateway, and commands that wait for a turn are dropped. The inbox is bounded in
// commands and in bytes, with a part for agents. When it is full, a command is refused at once with
// CodeExhausted. A command that cannot be decoded is refused at once too.
//
// Every second the term measures the disk of the store (disk.Gate). Below the least free space,
// submits and other commands that add records are refused; the error gives the missing space.
// Kills, reports and the expiry of jobs go on in that space.
//
// Questions (dry runs, explanations, capacities, plans of moves) wait for no turn: workers answer
// them from a shared copy of the fleet (questions.go). The answer holds all commands that were
// acknowledged before the question came. A copy of 10,000 nodes holds up the turns for about 3 ms.
// More nodes are copied in slices between turns, and at most a tenth of the time goes into copies.
//
// Events for resource managers wait in memory, for each one that has registered, until it has
// acknowledged them (requests.go, DESIGN.md). They end with the term.
//
// Users call gateways, not the coordinator. Beside gateways it answers only /healthz, /readyz and
// /metrics, also while the process does not lead. Gateways that connect then are refused with
// CodeUnavailable and the reason, and try again. The listener has a sixteenth of the descriptors. A
// gateway that does not read its stream for a minute is cut off. Costs: see package engine for a
// turn; encoding is linear in the changed records. An idle coordinator makes no turns.
package coordinator

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// Config configures a coordinator. Zero values are defaults.
type Config struct {
	Listen    string       // address for gateways; host:port or unix:/path; required
	Advertise string       // address at which others reach Listen; Listen
	Peers     string       // addresses of the other coordinators, as replica.ParseFinder reads them
	Tokens    token.Finder // finds the token of gateways at the other coordinators
	// Dial makes the connections to the other coordinators; see replica.FollowerConfig.
	Dial          func(ctx context.Context, address string) (net.Conn, error)
	Hosts         []string             // further hosts that callers may use for Listen; see transport.Serve
	Access        *transport.Access    // who may call Listen; required unless that is a socket
	Queues        plimsoll.QueueConfig // tree of queues of a store that has none; plimsoll.DefaultQueues
	ReplaceQueues bool                 // make Queues the tree even if the store has one
	State         state.Config
	Archive       Archive      // archive of ended jobs; State.Archive follows from it
	MaxInbox      int          // most commands that wait for a turn, a quarter for agents alone; 65,536
	MaxInboxBytes int          // most bytes of these commands, a quarter for agents alone; 256 MiB
	Workers       int          // goroutines that answer questions; half of GOMAXPROCS, at least 1
	MaxQuestions  int          // most questions that wait for a worker; 64
	Seed          uint64       // of the order in which nodes are drawn; 0: random
	Now           func() int64 // Unix nanoseconds; the wall clock
	Version       string       // of this program, for the handshake with gateways
	// Disk measures the space on the disk of the store, every second. Nil: the disk is assumed to
	// have room.
	Disk func() (disk.Space, error)
	// OpenReadOnly opens the store for reading when its disk is too full to write. Nil: reads are
	// not answered then.
	OpenReadOnly Open
	// StoreMetrics are further metrics, of the store.
	StoreMetrics []prometheus.Collector
	// Metrics is a further registry for the metrics, which Listen always serves at /metrics.
	Metrics prometheus.Registerer
	// Events holds the caller's functions for events.
	Events Events
}

// Events holds functions that the coordinator calls at events; nil ones are not called. They must
// not block.
type Events struct {
	// Standby is called when the process becomes a standby: another one leads, or has the store.
	Standby func(err error)
	// Leading is called when a term has begun, with the loaded revision and the address for
	// gateways.
	Leading func(epoch, revision uint64, listen string)
	// NotFollowing is called when a standby cannot follow the leader, once for each reason in a
	// row, with the revision of its copy. Without a copy, which is revision 0, it loads everything
	// when it takes over.
	NotFollowing func(revision uint64, err error)
	// CopyUnused is called when a process takes over and cannot load its copy. It loads everything
	// then.
	CopyUnused func(err error)
	// Following is called when the copy of a standby begins to follow the leader.
	Following func(epoch, revision uint64)
	// Deposed is called when a term has ended because another process leads, or because this one
	// could no longer prove that it leads. Such a term may have ended while it was loaded, without
	// a call of Leading. The process stands by.
	Deposed func(epoch uint64, err error)
	// SteppedDown is called when a term has ended because it was asked to. The process stands by.
	SteppedDown func(epoch uint64)
	// Failed is called when a term has ended, or could not begin, because of err. The next term
	// begins after the pause.
	Failed func(err error, pause time.Duration)
	// Disk is called when the disk of the store becomes too full for more records, with a text that
	// gives the missing space. It is called with an empty text when there is room again.
	Disk func(shortage string)
	// Reading is called when a read-only term has begun, because of err.
	Reading func(err error)
	// QueuesRefused is called when Config.Queues, or the tree of ReloadQueues, cannot replace the
	// stored tree. The stored tree stays.
	QueuesRefused func(err error)
	// QueueConfigRefused is called when a tree of queues by a user cannot replace the stored tree,
	// which stays. A dry run is not told.
	QueueConfigRefused func(err error)
	// QueuesReplaced is called when the tree of ReloadQueues has replaced the stored tree.
	QueuesReplaced func()
	// GatewayUnread is called when a gateway is cut off because it does not read its stream.
	GatewayUnread func(gateway string)
	// Archive is called with the reason when the archive takes no jobs, and when it changes. The
	// text is empty when the archive takes them again.
	Archive func(trouble string)
	// ArchiveStep is called behind each step of archiving, some ten times a second while jobs end.
	ArchiveStep func(step ArchiveStep)
}

const (
	defaultInbox = 65_536
	defaultBytes = 256 << 20 // bytes of commands in the inbox
	pipeline     = 4         // turns between the engine and the disk (architecture, "The way of the data", step 2)
	maxTurn      = 4096
)

func (c Config) withDefaults() Config {
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	if c.Queues.Name == "" {
		c.Queues = plimsoll.DefaultQueues()
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
	c.Events = c.Events.withDefaults()
	return c
}

// withDefaults lets each event that nobody wants do nothing.
func (e Events) withDefaults() Events {
	if e.Standby == nil {
		e.Standby = func(error) {}
	}
	if e.Leading == nil {
		e.Leading = func(uint64, uint64, string) {}
	}
	if e.NotFollowing == nil {
		e.NotFollowing = func(uint64, error) {}
	}
	if e.CopyUnused == nil {
		e.CopyUnused = func(error) {}
	}
	if e.Following == nil {
		e.Following = func(uint64, uint64) {}
	}
	if e.Deposed == nil {
		e.Deposed = func(uint64, error) {}
	}
	if e.SteppedDown == nil {
		e.SteppedDown = func(uint64) {}
	}
	if e.Failed == nil {
		e.Failed = func(error, time.Duration) {}
	}
	if e.Disk == nil {
		e.Disk = func(string) {}
	}
	if e.Reading == nil {
		e.Reading = func(error) {}
	}
	if e.QueuesRefused == nil {
		e.QueuesRefused = func(error) {}
	}
	if e.QueueConfigRefused == nil {
		e.QueueConfigRefused = func(error) {}
	}
	if e.QueuesReplaced == nil {
		e.QueuesReplaced = func() {}
	}
	if e.GatewayUnread == nil {
		e.GatewayUnread = func(string) {}
	}
	if e.Archive == nil {
		e.Archive = func(string) {}
	}
	if e.ArchiveStep == nil {
		e.ArchiveStep = func(ArchiveStep) {}
	}
	return e
}

// Validate reports the first invalid field.
func (c *Config) Validate() error {
	if _, _, err := transport.Split(c.Listen); err != nil {
		return err
	}
	if err := transport.ValidateHosts("host", c.Hosts); err != nil {
		return err
	}
	if c.Peers != "" {
		if _, err := replica.ParseFinder(c.Peers); err != nil {
			return fmt.Errorf("read the addresses of the peers: %w", err)
		}
	}
	var settings plimsoll.EventSettings
	if err := settings.Set(c.State.Events); err != nil {
		return fmt.Errorf("configure the events: %w", err)
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

// Open opens the store for a term; the term closes it. A CodeAlreadyRunning error says that another
// process has the store.
type Open func(ctx context.Context) (store.Store, error)

// Coordinator runs terms, one after the other. Its fields outlive a term.
type Coordinator struct {
	cfg       Config
	openStore Open
	pauses    pauses
	commands  *commandTable
	metrics   *metrics
	status    *status
	copied    *standbyCopy
	lastEpoch uint64 // highest epoch that gateways may know from this process; only leadLoop uses it
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
	c.copied = &standbyCopy{cfg: &c.cfg}
	c.metrics = newMetrics(c.status, c.revision)
	c.metrics.store = cfg.StoreMetrics
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
	return c.Serve(ctx, listener)
}

// Serve is Run on a listener, which it closes.
func (c *Coordinator) Serve(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return transport.Serve(ctx, listener, c.routes(), transport.ServeConfig{
			Hosts: append(slices.Clone(c.cfg.Hosts), c.cfg.Listen, c.cfg.Advertise), Access: c.cfg.Access,
			Connections: transport.FewConnections(c.metrics.refuse),
		})
	})
	group.Go(func() error { return c.leadLoop(ctx) })
	return group.Wait()
}
