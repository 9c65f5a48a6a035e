// Package dev assembles every role in one process: a coordinator on an embedded store, a gateway,
// an agent and a historian. They speak to each other over sockets, by the same protocols as on many
// machines: reads take no short cut to the coordinator.
//
// The package owns a data directory DIR; everything else is owned by the roles:
//
//   - DIR/store: the active state.
//   - DIR/history: the history of all events, which a historian in this process writes.
//   - DIR/archive: the archive of ended jobs, which a gateway beside reads too.
//   - DIR/coordinator.sock: the coordinator's address for the gateway.
//   - DIR/agents.sock: the gateway's address for the agent, whose slots no user can take.
//   - DIR/user.token, DIR/agent.token: the tokens of users and agents.
//   - DIR/agent: the node's tasks and its supervisor, a process of its own that outlives this one.
//
// The process may be killed at any instant. At the next start the acknowledged state is there, and
// running tasks are taken up again.
//
// The Events of the roles become log lines in this package (log.go), also for the commands that run
// one role alone.
//
// The callers are the command `plimsoll dev`, tests and benchmarks. The process is ready in a
// fraction of a second.
//
//	d, err := dev.New(dev.Config{Data: dir, Listen: "127.0.0.1:0", NoAgent: true})
//	...
//	go d.Run(ctx)
//	err = d.Ready(ctx)
//	c, err := client.New(client.Config{Server: d.URL()})
package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// Config sets up the process.
type Config struct {
	Data     string   // data directory; made if it is not there; required
	Listen   string   // address of the gateway; default 127.0.0.1:9080
	Insecure bool     // allow Listen to be reached from other machines
	Hosts    []string // further hosts that callers may use for Listen; see transport.Serve
	NoToken  bool     // answer callers of Listen without a token
	OpenWS   bool     // answer GET under /ws/v1 without a token
	NoAgent  bool     // do not make this machine a node
	// command that starts the node's supervisor; the directory is added as its last word
	Supervisor []string
	Users      executor.Users        // users that tasks run as, if this process is root
	Node       string                // id of this machine as a node; the host's name
	Capacity   plimsoll.Resources    // amounts that replace the measured ones
	Attributes map[string]string     // facts that are added to the measured ones
	Facts      plimsoll.NodeFacts    // facts of this machine that placement uses
	Networks   map[string]string     // names of networks and their interfaces
	TaskPids   int64                 // the most processes and threads of a task at once; 0: the agent's default
	QOS        agent.QOSConfig       // how this machine is kept at its waterlines
	Logs       agent.LogBounds       // how long the logs of attempts are kept
	Queues     *plimsoll.QueueConfig // replaces the tree of queues; nil: keep what is stored, or the default
	Store      pebble.Config         // Dir and Logger are set here
	Archive    ArchiveConfig         // of ended jobs
	History    HistoryConfig         // of all events
	Logger     *slog.Logger          // nil: nothing is logged

	// Files with the tokens of users and agents for a Listen of TCP, made if they are not there;
	// default user.token and agent.token in Data.
	UserTokenFile, AgentTokenFile string

	Coordinator coordinator.Config // Listen, Queues, Archive, Events and Metrics are set here
	Gateway     gateway.Config     // its addresses, Access, Archive, History, Events and Registry are set here
}

// Dev is the process.
type Dev struct {
	cfg      Config
	listener net.Listener                  // of the gateway, for users
	agents   net.Listener                  // of the gateway, for the agent; nil: there is none
	parts    []func(context.Context) error // the Run of each role
	follower *replica.Follower             // of the gateway
	leader   *coordinator.Coordinator
	serving  chan struct{} // closed when callers are answered

	agentToken *token.Source // of this machine as a node
}

// New opens the address and the data directory and makes the roles. It starts none of them. An
// address or a directory in use is a CodeAlreadyRunning error.
func New(cfg Config) (*Dev, error) {
	if cfg.Data == "" {
		return nil, plimsoll.Invalid("data", "is empty; name a directory to keep the state in")
	}
	data, err := filepath.Abs(cfg.Data)
	if err != nil {
		return nil, fmt.Errorf("find the data directory: %w", err)
	}
	cfg.Data = data
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:9080"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Dev{cfg: cfg, serving: make(chan struct{})}
	if err := d.make(); err != nil {
		return nil, err
	}
	return d, nil
}

// maxSocketPath is the longest path of a unix socket that the kernel takes.
const maxSocketPath = 107

func (d *Dev) make() error {
	cfg := &d.cfg
	cfg.Gateway.Listen, cfg.Gateway.Insecure, cfg.Gateway.Hosts = cfg.Listen, cfg.Insecure, cfg.Hosts
	if cfg.Gateway.ID == "" {
		cfg.Gateway.ID = "dev"
	}
	cfg.Gateway.Events = GatewayEvents(cfg.Logger)
	cfg.Gateway.Events.Serving = func(string) { close(d.serving) } // the process says it itself
	if !cfg.NoAgent {
		cfg.Gateway.ListenAgents = "unix:" + filepath.Join(cfg.Data, "agents.sock")
	}
	registry := prometheus.NewRegistry()
	cfg.Gateway.Registry, cfg.Coordinator.Metrics = registry, registry
	cfg.Coordinator.Listen, cfg.Coordinator.Events = "unix:"+filepath.Join(
		cfg.Data, "coordinator.sock",
	), CoordinatorEvents(cfg.Logger)
	if cfg.Queues != nil {
		cfg.Coordinator.Queues, cfg.Coordinator.ReplaceQueues = *cfg.Queues, true
	}
	if err := cfg.Gateway.Validate(); err != nil {
		return err
	}
	if err := cfg.Coordinator.Validate(); err != nil {
		return err
	}
	if n := len(filepath.Join(cfg.Data, "agent", "supervisor.sock")); n > maxSocketPath {
		return plimsoll.Invalid(
			"data", "%s is too long a path for the sockets in it; choose one that is %d characters shorter", cfg.Data,
			n-maxSocketPath,
		)
	}
	listener, err := transport.Listen(cfg.Listen)
	if err != nil {
		return err
	}
	d.listener = listener
	if err := d.makeRoles(); err != nil {
		return errors.Join(err, listener.Close())
	}
	return nil
}

func (d *Dev) makeRoles() error {
	cfg := &d.cfg
	if err := makeData(cfg.Data); err != nil {
		return plimsoll.Invalid(
			"data", "%s cannot be made: %v; choose a directory that you may write to", cfg.Data, err,
		)
	}
	d.makeAccess()
	if !cfg.NoAgent {
		if err := executor.CheckUsers(d.agentDir(), cfg.Users); err != nil {
			return err
		}
	}
	cfg.Store.Dir, cfg.Store.Logger = filepath.Join(cfg.Data, "store"), cfg.Logger
	// The store is opened here for the first term, so that a directory in use, or a damaged store,
	// is refused at once. On a full disk the coordinator opens it for reading only.
	first := &firstStore{config: cfg.Store}
	switch st, err := pebble.Open(cfg.Store); {
	case err == nil:
		first.opened = st
	case !errors.Is(err, syscall.ENOSPC):
		return err
	}
	cfg.Coordinator.Archive = cfg.Archive.Coordinator(cfg.Store.Dir)
	cfg.Coordinator.Disk = func() (disk.Space, error) { return disk.Measure(cfg.Store.Dir) }
	cfg.Coordinator.OpenReadOnly = func(context.Context) (store.Store, error) { return pebble.OpenReadOnly(cfg.Store) }
	c, err := coordinator.New(cfg.Coordinator, first.open)
	if err == nil && cfg.Gateway.ListenAgents != "" {
		d.agents, err = transport.Listen(cfg.Gateway.ListenAgents)
	}
	if err == nil {
		err = d.makeHistorian()
	}
	if err == nil {
		err = d.makeReaders()
	}
	if err == nil && !cfg.NoAgent {
		err = d.makeAgent()
	}
	if err != nil {
		if d.agents != nil {
			err = errors.Join(err, d.agents.Close())
		}
		return errors.Join(err, first.close())
	}
	d.leader = c
	d.parts = append(d.parts, func(ctx context.Context) error { return errors.Join(c.Run(ctx), first.close()) })
	return nil
}

// ReloadQueues replaces the tree of queues by that of the queue file, which was read again, or
// refuses it; see coordinator.Coordinator.ReloadQueues. The outcome is logged.
func (d *Dev) ReloadQueues(queues *plimsoll.QueueConfig, err error) {
	d.leader.ReloadQueues(queues, err)
}

// makeData makes the data directory. Other users may pass through the directory, because tasks that
// run as users of their own must reach theirs; its other entries are protected by modes of their
// own. An existing directory keeps its mode.
func makeData(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711) // Chmod does not depend on the umask
}

// firstStore hands the coordinator the store that New has opened, and opens it anew for later
// terms.
type firstStore struct {
	config pebble.Config
	opened store.Store // nil once it is given away
}

func (f *firstStore) open(context.Context) (store.Store, error) {
	if st := f.opened; st != nil {
		f.opened = nil
		return st, nil
	}
	return pebble.Open(f.config)
}

// close closes the store if the coordinator has never opened it.
func (f *firstStore) close() error {
	if f.opened == nil {
		return nil
	}
	return f.opened.Close()
}

func (d *Dev) makeReaders() error {
	follower, err := replica.NewFollower(replica.FollowerConfig{
		Gateway: d.cfg.Gateway.ID, Leader: d.cfg.Coordinator.Listen,
		Version: d.cfg.Coordinator.Version,
	})
	if err != nil {
		return err
	}
	closeArchive := func() error { return nil }
	if path := d.cfg.Archive.Path(d.cfg.Store.Dir); path != "" {
		archived := sqlite.OpenReader(path)
		d.cfg.Gateway.Archive, closeArchive = archived, archived.Close
	}
	g, err := gateway.New(d.cfg.Gateway, follower)
	if err != nil {
		return errors.Join(err, closeArchive())
	}
	d.follower = follower
	d.parts = append(
		d.parts, follower.Run, func(ctx context.Context) error {
			err := g.Serve(ctx, gateway.Listeners{Users: d.listener, Agents: d.agents})
			return errors.Join(err, closeArchive())
		},
	)
	return nil
}

// URL returns the address of the gateway.
func (d *Dev) URL() string {
	if address := d.listener.Addr(); address.Network() == "tcp" {
		return "http://" + address.String()
	}
	return d.cfg.Listen // unix:/path, which knows its own scheme
}

// Ready waits until reads and writes are answered, or ctx ends.
func (d *Dev) Ready(ctx context.Context) error {
	if err := d.follower.Ready(ctx); err != nil {
		return err
	}
	select {
	case <-d.serving:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until callers are answered: %w", ctx.Err())
	}
}

// Run runs all roles until ctx ends or one of them fails, and closes what New opened.
func (d *Dev) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	errs := make([]error, len(d.parts)) // the group would keep only the first
	for i, run := range d.parts {
		group.Go(func() error {
			errs[i] = run(ctx)
			return errs[i]
		})
	}
	if group.Wait() == nil {
		return nil
	}
	return errors.Join(errs...)
}

// Retire ends the supervisor of this machine's tasks if none of them runs, and returns how many
// run. It is called after Run has returned.
func (d *Dev) Retire(ctx context.Context) (running int, err error) {
	if d.cfg.NoAgent {
		return 0, nil
	}
	c, err := executor.Connect(ctx, executor.ClientConfig{Dir: d.agentDir()})
	if plimsoll.CodeOf(err) == plimsoll.CodeUnavailable {
		return 0, nil // there is none
	}
	if err != nil {
		return 0, fmt.Errorf("reach the supervisor: %w", err)
	}
	defer c.Close()
	return c.Retire(ctx)
}

func (d *Dev) agentDir() string { return filepath.Join(d.cfg.Data, "agent") }

func (d *Dev) makeAgent() error {
	cfg := &d.cfg
	dir := d.agentDir()
	supervised, err := agent.NewSupervised(executor.ClientConfig{
		Dir: dir, Command: append(slices.Clone(cfg.Supervisor), dir), Users: cfg.Users,
	})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Config{
		Node: cfg.Node, Dir: dir, Gateways: []string{cfg.Gateway.ListenAgents}, Capacity: cfg.Capacity,
		Attributes: cfg.Attributes, Facts: cfg.Facts, Networks: cfg.Networks, TaskPids: cfg.TaskPids, QOS: cfg.QOS,
		Users: cfg.Users, Logs: cfg.Logs,
		Tokens: func(string) *token.Source { return d.agentToken },
	}, agent.Deps{Executor: supervised, Events: AgentEvents(cfg.Logger), Metrics: cfg.Coordinator.Metrics})
	if err != nil {
		return err
	}
	d.parts = append(d.parts, func(ctx context.Context) error {
		if d.Ready(ctx) != nil {
			return nil // told to stop: a gateway that is not ready would only make the agent complain
		}
		return a.Run(ctx)
	})
	return nil
}
