package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd"
	"github.com/plimsoll-dev/plimsoll/internal/store/pebble"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// roleCommands are the commands that run the processes of a cluster.
type roleCommands struct {
	Dev         devCmd         `cmd:"" help:"Run every role in one process on an embedded store."`
	Coordinator coordinatorCmd `cmd:"" help:"Run the coordinator, which owns the active state."`
	Gateway     gatewayCmd     `cmd:"" help:"Run a gateway, which serves users and agents."`
	Agent       agentCmd       `cmd:"" help:"Run the agent of this machine, which makes it a node."`
	Evaluator   evaluatorCmd   `cmd:"" help:"Run an evaluator, which places tasks next to the data of a part of a fleet."`
	Historian   historianCmd   `cmd:"" help:"Run a historian, which keeps all events and answers for the past."`
	Cluster     clusterCmd     `cmd:"" help:"Run a whole cluster of processes on this machine, to try it."`
	Supervisor  supervisorCmd  `cmd:"" hidden:"" help:"Run the supervisor of this machine's tasks. The agent starts it."`
}

// roleFlags belong to every role. Each flag can also stand in the file of --config, by its name, or
// in the environment.
type roleFlags struct {
	Config   kong.ConfigFlag `help:"YAML file with flags of this command, by their names." placeholder:"FILE"`
	LogLevel slog.Level      `help:"Lowest level that is logged to stderr: debug, info, warn or error." default:"info" env:"PLIMSOLL_LOG_LEVEL"`
}

func (f *roleFlags) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: f.LogLevel}))
}

// hostFlags belong to every role that can listen on a port.
type hostFlags struct {
	Host []string `help:"Another name or IP address by which callers reach this listener; it may be repeated. Requests for other hosts get 403." env:"PLIMSOLL_HOST" placeholder:"NAME"`
}

// readQueues reads a queue file, and logs the notes on it; nil if none is named.
func readQueues(a *app, log *slog.Logger, path string) (*plimsoll.QueueConfig, error) {
	if path == "" {
		return nil, nil
	}
	name, data, err := a.readFile(path)
	if err != nil {
		return nil, err
	}
	c, notes, err := config.ReadQueues(name, data)
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		log.Info("a note on the queue file", "note", n.In(name))
	}
	return &c, nil
}

// readPlacement reads a placement file, if one is named.
func readPlacement(a *app, path string) (config.Placement, error) {
	if path == "" {
		return config.DefaultPlacement(), nil
	}
	name, data, err := a.readFile(path)
	if err != nil {
		return config.Placement{}, err
	}
	p, err := config.ParsePlacement(name, data)
	if err != nil {
		err = otherKind(err, name, data, config.QueueFileKind, "is a queue file, not a placement file; use --queues")
		return config.Placement{}, otherKind(
			err, name, data, config.JobFileKind, "is a job file, not a placement file; use plimsoll submit",
		)
	}
	return p, nil
}

// parseCapacity reads amounts such as nvidia.com/gpu=2.
func parseCapacity(amounts map[string]string) (plimsoll.Resources, error) {
	r := plimsoll.Resources{}
	for _, pair := range plimsoll.SortedPairs(amounts) {
		v, err := plimsoll.ParseQuantity(pair[0], pair[1])
		if err != nil {
			return nil, plimsoll.Invalid("capacity."+pair[0], "%s", err)
		}
		r[pair[0]] = v
	}
	return r, r.Validate("capacity")
}

// supervisorCommand returns the command that starts a supervisor. The caller appends its directory.
func supervisorCommand() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start the supervisor: %w", err)
	}
	return []string{self, "supervisor", "--dir"}, nil
}

type devCmd struct {
	roleFlags
	hostFlags
	connectionFlags
	stateFlags
	archiveFlags
	historyFlags
	Data      string `help:"Directory of the state." default:"plimsoll-data" env:"PLIMSOLL_DATA"`
	Listen    string `help:"Address to serve." default:"127.0.0.1:9080" env:"PLIMSOLL_LISTEN"`
	Insecure  bool   `help:"Allow an address that other machines can reach, although nothing is encrypted."`
	Queues    string `help:"Queue file; replaces the tree of queues. It is read again at SIGHUP." placeholder:"FILE"`
	Placement string `help:"Placement file: the stages that choose a node, and their settings." placeholder:"FILE"`
	gatewayTokenFlags
	agentAddressFlags
	nodeFlags
	userFlags
	qosFlags
}

// Help is the detail of the help text.
func (devCmd) Help() string {
	return example("plimsoll dev", "plimsoll dev --data /var/lib/plimsoll --listen 127.0.0.1:9080",
		"plimsoll dev --queues examples/queues.yaml",
		"plimsoll dev --placement examples/placement.yaml",
		"plimsoll dev --trait ssd --trait gpu=a100,h100 --reserve memory=15% --attributes rack=r7",
		"plimsoll dev --extended --extended-cpu-reserve 20% --metrics examples/metrics.yaml")
}

// Run serves until it is stopped. Running tasks go on, and are taken up again at the next start.
func (cmd *devCmd) Run(ctx context.Context, a *app) error {
	began := a.now()
	syscall.Umask(nodeMask)
	if err := checkListen(cmd.Listen, cmd.Insecure); err != nil {
		return err
	}
	reloads, stop := catchReloads(cmd.Queues != "") // without a file dev ends with its terminal
	defer stop()
	log := cmd.logger()
	queues, err := readQueues(a, log, cmd.Queues)
	if err != nil {
		return err
	}
	chosen, err := readPlacement(a, cmd.Placement)
	if err != nil {
		return err
	}
	node, err := cmd.nodeFlags.parse()
	if err != nil {
		return err
	}
	qos, err := cmd.qosFlags.parse()
	if err != nil {
		return err
	}
	agents, err := cmd.agentNetworks()
	if err != nil {
		return err
	}
	supervisor, err := supervisorCommand()
	if err != nil {
		return err
	}
	warnOpen(a, log, cmd.Listen, cmd.NoToken, cmd.OpenWS)
	users, err := cmd.userFlags.parse(os.Getenv)
	if err != nil {
		return err
	}
	cfg := dev.Config{
		NoToken: cmd.NoToken, OpenWS: cmd.OpenWS, UserTokenFile: cmd.UserTokenFile, AgentTokenFile: cmd.AgentTokenFile,
		Data: cmd.Data, Listen: cmd.Listen, Insecure: cmd.Insecure, Hosts: cmd.Host,
		Node: cmd.Node, Capacity: node.capacity, Queues: queues,
		Attributes: cmd.Attributes, Facts: node.facts, Networks: cmd.Network, TaskPids: cmd.TaskPids,
		Supervisor: supervisor, Logger: log,
		QOS: qos, Users: users, Logs: node.logs,
	}
	cfg.Gateway.Version = buildVersion().Version
	if err := cmd.bound(&cfg.Gateway); err != nil {
		return err
	}
	cfg.Gateway.EventStates = cmd.WSEventState
	cfg.Coordinator.State.Chain, cfg.Coordinator.State.EvictedFor = chosen.Chain, int64(chosen.EvictedFor)
	if err := cmd.apply(&cfg.Coordinator.State); err != nil {
		return err
	}
	if err := cmd.keep(&cfg); err != nil {
		return err
	}
	cfg.Gateway.AgentAddresses, cfg.Coordinator.Version = agents, buildVersion().Version
	d, err := dev.New(cfg)
	if err != nil {
		return err
	}
	reload := queueReloads{file: cmd.Queues, asked: reloads, log: log}
	return cmd.serve(ctx, a, d, began, &reload)
}

// serve runs the system, and says when it is ready.
func (cmd *devCmd) serve(
	ctx context.Context, a *app, d *dev.Dev, began time.Time, reloads *queueReloads,
) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.Run(ctx) })
	g.Go(func() error {
		reloads.run(ctx, a, d.ReloadQueues)
		return nil
	})
	g.Go(func() error {
		if d.Ready(ctx) == nil {
			a.notes.printf(
				"plimsoll is ready at %s after %s, with its data in %s\n", d.URL(),
				a.now().Sub(began).Round(time.Millisecond), cmd.Data,
			)
		}
		return nil // Run returns the error
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return cmd.retire(ctx, a, d)
}

// keep sets what the archive and the history keep.
func (cmd *devCmd) keep(cfg *dev.Config) (err error) {
	if cfg.Archive, err = cmd.archiveFlags.parse(&cfg.Coordinator.State); err != nil {
		return err
	}
	cfg.History, err = cmd.historyFlags.parse()
	return err
}

// leaveTimeout bounds the time in which an agent ends an idle supervisor and leaves the cluster.
const leaveTimeout = 5 * time.Second

// retireTimeout bounds the time in which an idle supervisor ends.
const retireTimeout = 5 * time.Second

// retire ends the supervisor if no task runs, and prints a note if one does. ctx has ended.
func (cmd *devCmd) retire(ctx context.Context, a *app, d *dev.Dev) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retireTimeout)
	defer cancel()
	running, err := d.Retire(ctx)
	if err != nil {
		return err
	}
	if running == 0 {
		a.notes.printf("stopped; no task runs\n")
		return nil
	}
	a.notes.printf(
		"stopped; tasks still run (%d), and are taken up again by: plimsoll dev --data %s\n", running, cmd.Data,
	)
	return nil
}

type coordinatorCmd struct {
	roleFlags
	hostFlags
	stateFlags
	archiveFlags
	Data     string `help:"Directory of the active state." default:"plimsoll-data/store" env:"PLIMSOLL_DATA"`
	Listen   string `help:"Address for gateways: host:port or unix:/path." default:"127.0.0.1:9081" env:"PLIMSOLL_LISTEN"`
	Insecure bool   `help:"Allow an address that other machines can reach, although nothing is encrypted."`
	Queues   string `help:"Queue file; replaces the tree of queues. It is read again at SIGHUP." placeholder:"FILE"`
	leadershipFlags

	Peers string `help:"Addresses of the other coordinators, separated by commas, or dns:NAME:PORT for all addresses of a name. While this one stands by, it follows the one that leads, and takes over sooner." env:"PLIMSOLL_PEERS" placeholder:"ADDRESS"`

	Placement string `help:"Placement file: the stages that choose a node, and their settings." placeholder:"FILE"`

	noTokenFlag
	GatewayTokenFile string `help:"File with the token of gateways, made if it is not there; default: gateway.token in --data." env:"PLIMSOLL_GATEWAY_TOKEN_FILE" placeholder:"FILE"`
}

// Help is the detail of the help text.
func (coordinatorCmd) Help() string {
	return example("plimsoll coordinator --data /var/lib/plimsoll/store --listen 127.0.0.1:9081",
		"plimsoll coordinator --data /var/lib/plimsoll/store --placement examples/placement.yaml",
		"plimsoll coordinator --etcd https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379 --advertise 10.0.0.1:9081")
}

// Run leads, or stands by until it can lead. It ends when it is stopped.
func (cmd *coordinatorCmd) Run(ctx context.Context, a *app) error {
	if err := checkListen(cmd.Listen, cmd.Insecure); err != nil {
		return err
	}
	reloads, stop := catchReloads(true)
	defer stop()
	log := cmd.logger()
	queues, err := readQueues(a, log, cmd.Queues)
	if err != nil {
		return err
	}
	chosen, err := readPlacement(a, cmd.Placement)
	if err != nil {
		return err
	}
	cfg := coordinator.Config{
		Listen: cmd.Listen, Hosts: cmd.Host, Version: buildVersion().Version, Events: dev.CoordinatorEvents(log),
		Peers: cmd.Peers, Tokens: token.Finder{Kind: token.Gateway, File: cmd.GatewayTokenFile},
	}
	if cmd.GatewayTokenFile == "" && listensOnPort(cmd.Listen) { // all coordinators have the same token
		cfg.Tokens.File = filepath.Join(cmd.Data, token.Gateway.FileName())
	}
	cfg.Access = cmd.access(a, log, cmd.Listen, token.Gateway, cmd.GatewayTokenFile, cmd.Data)
	cfg.State.Chain, cfg.State.EvictedFor = chosen.Chain, int64(chosen.EvictedFor)
	if err := cmd.apply(&cfg.State); err != nil {
		return err
	}
	archived, err := cmd.parse(&cfg.State)
	if err != nil {
		return err
	}
	cfg.Archive = archived.Coordinator(cmd.Data)
	if queues != nil {
		cfg.Queues, cfg.ReplaceQueues = *queues, true
	}
	open, err := cmd.store(&cfg, log)
	if err != nil {
		return err
	}
	c, err := coordinator.New(cfg, open)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Run(ctx) })
	g.Go(func() error {
		reload := queueReloads{file: cmd.Queues, asked: reloads, log: log}
		reload.run(ctx, a, c.ReloadQueues)
		return nil
	})
	return g.Wait()
}

// store returns the way to open the store, and sets what a coordinator does with one of its kind.
func (cmd *coordinatorCmd) store(cfg *coordinator.Config, log *slog.Logger) (coordinator.Open, error) {
	failed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "plimsoll_coordinator_etcd_compaction_failures_total",
		Help: "Times at which etcd did not forget old revisions although the leader asked it to.",
	})
	silent := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "plimsoll_coordinator_etcd_members_silent",
		Help: "Addresses of etcd that were given and do not answer now.",
	})
	cfg.StoreMetrics = []prometheus.Collector{failed, silent} // of a store in a directory too: 0 there
	if cmd.used() {
		stored, err := cmd.storeConfig(cmd.Listen, log)
		if err != nil {
			return nil, err
		}
		stored.CompactionFailed = func(error) { failed.Inc() }
		stored.Silent = func(members int) { silent.Set(float64(members)) }
		cfg.Advertise = stored.Advertise
		if err := os.MkdirAll(cmd.Data, 0o700); err != nil { // for the token
			return nil, fmt.Errorf("make the directory for the token: %w", err)
		}
		return func(ctx context.Context) (store.Store, error) { return etcd.Open(ctx, stored) }, nil
	}
	stored := pebble.Config{Dir: cmd.Data, Logger: log}
	cfg.Disk = func() (disk.Space, error) { return disk.Measure(cmd.Data) }
	cfg.OpenReadOnly = func(context.Context) (store.Store, error) { return pebble.OpenReadOnly(stored) }
	return func(context.Context) (store.Store, error) { return pebble.Open(stored) }, nil
}

func checkListen(address string, insecure bool) error {
	if _, _, err := transport.Split(address); err != nil {
		return plimsoll.Invalid(
			"listen", "%q is not an address; write for example 127.0.0.1:9080 or unix:/run/plimsoll.sock", address,
		)
	}
	if !insecure && !transport.Loopback(address) {
		return plimsoll.Invalid(
			"listen",
			"%s can be reached from other machines, and nothing is encrypted: listen on 127.0.0.1, or add --insecure",
			address,
		)
	}
	return nil
}

type agentCmd struct {
	roleFlags
	hostFlags
	Data      string   `help:"Directory of the node's tasks." default:"plimsoll-data/agent" env:"PLIMSOLL_DATA"`
	Gateways  []string `help:"Addresses of gateways. An agent begins with one that its node id chooses, so that a fleet with one list is spread. If one fails, the next is tried." default:"127.0.0.1:9080" env:"PLIMSOLL_GATEWAYS"`
	Listen    string   `help:"Address of the log service: host:port, or a socket in the directory; default: the socket agent.sock in it." env:"PLIMSOLL_LISTEN" placeholder:"ADDRESS"`
	Advertise string   `help:"Address at which gateways reach the log service; default: --listen. Gateways accept only the address that the agent calls from, or one that their --agent-addresses allow." placeholder:"ADDRESS"`
	Insecure  bool     `help:"Allow an address that other machines can reach, although nothing is encrypted."`
	noTokenFlag
	AgentTokenFile string `help:"File with the token of agents, from the gateway; default: found if it is on this machine." env:"PLIMSOLL_AGENT_TOKEN_FILE" placeholder:"FILE"`
	LogTokenFile   string `help:"File with the token of a --listen with a port, made if it is not there; default: log.token in --data." env:"PLIMSOLL_LOG_TOKEN_FILE" placeholder:"FILE"`
	nodeFlags
	userFlags
	qosFlags
}

// Help is the detail of the help text.
func (agentCmd) Help() string {
	return example("plimsoll agent --data /var/lib/plimsoll/agent --gateways 127.0.0.1:9080 --capacity nvidia.com/gpu=1",
		"plimsoll agent --gateways 10.0.0.1:9080 --agent-token-file agent.token --listen 10.0.0.7:9082 --log-token-file log.token --insecure",
		"plimsoll agent --node n7 --attributes rack=r7 --trait ssd --network storage=eth1 --reserve memory=15% --overprovision cpu=4",
		"plimsoll agent --node n7 --extended --extended-cpu-reserve 20% --metrics /etc/plimsoll/metrics.yaml --qos-interval 500ms") +
		"\n\nSIGTERM takes the node out of use at once. Tasks that run go on, for the next agent of the directory."
}

// Run runs the agent until it is stopped. Running tasks go on, and are taken up again at the next
// start.
func (cmd *agentCmd) Run(ctx context.Context, a *app) error {
	node, err := cmd.nodeFlags.parse()
	if err != nil {
		return err
	}
	qos, err := cmd.qosFlags.parse()
	if err != nil {
		return err
	}
	syscall.Umask(nodeMask)
	dir, err := filepath.Abs(cmd.Data)
	if err != nil {
		return fmt.Errorf("find the directory: %w", err)
	}
	command, err := supervisorCommand()
	if err != nil {
		return err
	}
	users, err := cmd.userFlags.parse(nil)
	if err != nil {
		return err
	}
	if err := executor.CheckUsers(dir, users); err != nil {
		return err
	}
	supervised, err := agent.NewSupervised(executor.ClientConfig{Dir: dir, Command: append(command, dir), Users: users})
	if err != nil {
		return err
	}
	log := cmd.logger()
	access := cmd.access(a, log, cmd.Listen, token.Log, cmd.LogTokenFile, dir)
	ag, err := agent.New(agent.Config{
		Access: access, Tokens: token.Finder{Kind: token.Agent, File: cmd.AgentTokenFile}.For,
		Node: cmd.Node, Dir: dir, Gateways: cmd.Gateways, Listen: cmd.Listen, Advertise: cmd.Advertise, Hosts: cmd.Host,
		Insecure: cmd.Insecure,
		Capacity: node.capacity, Attributes: cmd.Attributes, Facts: node.facts, Networks: cmd.Network,
		TaskPids: cmd.TaskPids,
		QOS:      qos, Users: users, Logs: node.logs, LeaveTimeout: leaveTimeout,
	}, agent.Deps{Executor: supervised, Retire: supervised.Retire, Events: dev.AgentEvents(log)})
	if err != nil {
		return err
	}
	return ag.Run(ctx)
}

type supervisorCmd struct {
	Dir        string     `help:"The agent's directory." required:"" placeholder:"DIR"`
	Socket     string     `help:"Path of the socket; default: supervisor.sock in the directory." placeholder:"PATH"`
	Node       string     `help:"Word in the name of the node's control group."`
	CgroupRoot string     `help:"Directory where control groups are mounted, or none." env:"PLIMSOLL_CGROUP_ROOT"`
	LogLevel   slog.Level `help:"Lowest level that is logged to stderr." default:"info" env:"PLIMSOLL_LOG_LEVEL"`
}

// Help is the detail of the help text.
func (supervisorCmd) Help() string {
	return example("plimsoll supervisor --dir /var/lib/plimsoll/agent")
}

// Run supervises tasks until it is stopped. Tasks go on.
func (cmd *supervisorCmd) Run(ctx context.Context, _ *app) error {
	syscall.Umask(nodeMask)
	s, err := executor.New(executor.SupervisorConfig{
		Dir: cmd.Dir, Socket: cmd.Socket, Node: cmd.Node, CgroupRoot: cmd.CgroupRoot,
		Events: dev.SupervisorEvents(
			slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cmd.LogLevel})),
		),
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
