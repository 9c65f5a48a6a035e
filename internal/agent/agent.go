package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// Agent runs the tasks of one node that the coordinator has assigned to it.
type Agent struct {
	cfg     Config
	deps    Deps
	machine machine
	newLoop func(nodeqos.Config, nodeqos.Deps) (qosLoop, error)

	tasksMemory int64 // memory limit of all tasks together; set before any task starts
}

// retryDelay is the pause after an operation that the supervisor could not do.
const retryDelay = time.Second

// New makes an agent. It starts nothing and touches nothing on the machine.
func New(cfg Config, deps Deps) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Executor == nil {
		return nil, plimsoll.Invalid("executor", "is missing; an agent needs the node's supervisor")
	}
	deps.Events = deps.Events.withDefaults()
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg, deps: deps, machine: thisMachine(), newLoop: newQOSLoop}, nil
}

// Run takes the directory, becomes the node's next incarnation and works until ctx ends, when it
// returns nil. It returns an error if it cannot continue. CodeAlreadyRunning means that another
// agent uses the directory, CodeStale that another agent has taken over the node's id. In either
// case tasks run on. While the disk of the directory is full, Run waits for space.
//
// When ctx ends, the agent first leaves, see Config.LeaveTimeout.
func (a *Agent) Run(ctx context.Context) error {
	for waits := false; ; waits = true {
		err := a.start(ctx)
		if !noSpace(err) || ctx.Err() != nil {
			return err
		}
		if !waits {
			a.deps.Events.Trouble(Trouble{Kind: TroubleDisk, Err: err})
		}
		pause(ctx, fullPause)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// start is Run without waiting for space.
func (a *Agent) start(ctx context.Context) (err error) {
	unlock, err := lockDir(a.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	id, err := beginIncarnation(a.cfg.Dir, a.cfg.Node, time.Now())
	if err != nil {
		return err
	}
	key, err := openKey(a.cfg.Dir)
	if err != nil {
		return err
	}
	out, dropped, err := openOutbox(filepath.Join(a.cfg.Dir, "reports"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	if dropped > 0 {
		a.deps.Events.ReportsCut(dropped)
	}
	ledger, err := a.openLedger(id.Node, out)
	if err != nil {
		return err
	}
	listener, err := transport.Listen(a.cfg.Listen)
	if err != nil {
		return err
	}
	a.deps.Events.Users(a.cfg.Users.Describe())
	node, err := a.describe(id, listener.Addr())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	node.Key, node.Session = key.Public(), nodekey.Hash(key.Session())
	s := a.newSessionManager(node, id, key, ledger, out)
	err = a.work(ctx, s, proofHandler{node.ID, key}, listener)
	if err == nil && ctx.Err() != nil && a.cfg.LeaveTimeout > 0 {
		a.leave(ctx, s)
	}
	return err
}

func (a *Agent) openLedger(node string, out *outbox) (*ledger, error) {
	l := newLedger(node, a.cfg.Dir, out, a.deps.Events.Trouble)
	for _, dir := range []string{l.root, l.trash} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory for tasks: %w", err)
		}
	}
	if err := executor.Protect(a.cfg.Dir); err != nil {
		return nil, err
	}
	before, err := discardedBefore(l.trash)
	if err != nil {
		return nil, fmt.Errorf("list the trash: %w", err)
	}
	l.mu.discarded = before
	dirs, err := scanDirs(l.root, l.trouble)
	if err != nil {
		return nil, err
	}
	l.restore(dirs, out.ends())
	return l, nil
}

// describe measures the node and returns its description for the coordinator.
func (a *Agent) describe(id identity, listening net.Addr) (plimsoll.Node, error) {
	capacity, err := a.machine.capacity(a.cfg.Dir)
	if err != nil {
		return plimsoll.Node{}, err
	}
	measured := capacity[plimsoll.Memory]
	maps.Copy(capacity, a.cfg.Capacity)
	a.tasksMemory = tasksMemory(measured, capacity[plimsoll.Memory], a.cfg.Facts.Reserve[plimsoll.Memory])
	attributes, err := a.machine.attributes()
	if err != nil {
		return plimsoll.Node{}, err
	}
	maps.Copy(attributes, a.cfg.Attributes)
	facts, err := a.machine.facts(&a.cfg)
	if err != nil {
		return plimsoll.Node{}, err
	}
	if len(a.cfg.QOS.Metrics) > 0 {
		facts.Metrics = nodeqos.MetricNames(a.cfg.QOS.Metrics)
	}
	node := plimsoll.Node{
		ID: id.Node, Incarnation: id.Incarnation, Capacity: capacity, Attributes: attributes, Mode: plimsoll.NodeActive,
		Ready: true, Address: a.address(listening, attributes["hostname"]), Facts: facts,
	}
	return node, node.Validate()
}

// describeCgroups adds the supervisor's facts to the description, and reports once the limits that
// are missing.
func (a *Agent) describeCgroups(node *plimsoll.Node) {
	caps := a.deps.Executor.Capabilities()
	kind := caps.Cgroups
	if kind == "" {
		kind = CgroupNone
	}
	missing := caps.Limits
	if disk := diskLimit(&caps); disk != "" {
		node.Attributes["disk"] = DiskNotMeasured
		missing = strings.TrimPrefix(missing+"; "+disk, "; ")
	}
	if missing != "" {
		a.deps.Events.Limited(kind, missing)
	}
	if node.Attributes["cgroup"] == "" { // unless Config.Attributes has it
		node.Attributes["cgroup"] = kind
	}
}

// address returns the address of the log service for gateways.
func (a *Agent) address(listening net.Addr, host string) string {
	if a.cfg.Advertise != "" {
		return a.cfg.Advertise
	}
	tcp, ok := listening.(*net.TCPAddr)
	switch {
	case !ok:
		path, _ := strings.CutPrefix(a.cfg.Listen, "unix:")
		if abs, err := filepath.Abs(strings.TrimPrefix(path, "//")); err == nil {
			path = abs
		}
		return "unix:" + path
	case tcp.IP.IsUnspecified():
		return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
	}
	return tcp.String()
}

func (a *Agent) newSessionManager(
	node plimsoll.Node, id identity, key *nodekey.Key, l *ledger, out *outbox,
) *sessionManager {
	return &sessionManager{
		node: node, gateways: a.cfg.Gateways, every: a.cfg.HeartbeatInterval, timeout: a.cfg.CallTimeout, ledger: l,
		out: out, events: a.deps.Events,
		networks: func() (map[string]bool, error) { return a.machine.networks(&a.cfg) },
		nodeOut:  newNodeOutbox(),
		dial:     func(address string) (gateway, error) { return dialGateway(address, key, a.cfg.Tokens) },
		rebase: func() (uint64, bool, error) {
			changed, err := id.rebase(a.cfg.Dir, time.Now())
			return id.Incarnation, changed, err
		},
	}
}

// work runs all parts of the agent until ctx ends or one of them fails.
func (a *Agent) work(ctx context.Context, s *sessionManager, proof proofHandler, listener net.Listener) error {
	node, l, out := &s.node, s.ledger, s.out
	hosts := append(slices.Clone(a.cfg.Hosts), a.cfg.Listen, node.Address)
	watch := &qosHandler{node: node.ID}
	logs := &logHandler{l, a.deps.Events.Trouble, newLogSlots(), a.cfg.Logs.Bytes}
	k := newKeeper(l, a.cfg.Logs, mostAttempts(a.cfg.Users.UIDs))
	m := newMetrics(s.nodeOut, watch, logs.slots, k.metrics)
	if a.deps.Metrics != nil {
		if err := a.deps.Metrics.Register(m); err != nil {
			return errors.Join(fmt.Errorf("register the agent's metrics: %w", err), listener.Close())
		}
		defer a.deps.Metrics.Unregister(m)
	}
	held := make(chan struct{}) // closed when the supervisor has sent its first complete list
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		handler := newHandler(logs, watch, proof, m.handler())
		return transport.Serve(ctx, listener, handler, transport.ServeConfig{
			Hosts: hosts, Access: a.cfg.Access.For(node.Address),
			Connections: transport.FewConnections(logs.slots.refuse),
		})
	})
	group.Go(func() error { a.followSupervisor(ctx, l, sync.OnceFunc(func() { close(held) })); return nil })
	group.Go(func() error { a.performAll(ctx, l, out); return nil })
	group.Go(func() error {
		w := diskWatch{dir: a.cfg.Dir, measure: a.machine.room, nodeOut: s.nodeOut, trouble: a.deps.Events.Trouble}
		w.run(ctx)
		return nil
	})
	group.Go(func() error {
		select {
		case <-held: // before that the node could not run tasks
			a.describeCgroups(&s.node)
			return a.runLoopAndSessions(ctx, s, l, m)
		case <-ctx.Done():
			return nil
		}
	})
	group.Go(func() error {
		a.repeat(ctx, func(ctx context.Context) error { return k.sweep(ctx, time.Now()) })
		return nil
	})
	// A loop of its own, so that a task with millions of files does not delay the sweeps.
	group.Go(func() error {
		a.repeat(ctx, func(ctx context.Context) error { return emptyDir(ctx, l.trash) })
		return nil
	})
	return group.Wait()
}

// repeat calls do at intervals, until ctx ends.
func (a *Agent) repeat(ctx context.Context, do func(context.Context) error) {
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := do(ctx); err != nil {
				a.deps.Events.Trouble(Trouble{Kind: TroubleOldDirs, Err: err})
			}
		}
	}
}

// runLoopAndSessions runs the QoS loop and the sessions with gateways. The loop needs no gateway,
// and a loop that fails does not end the sessions.
func (a *Agent) runLoopAndSessions(ctx context.Context, s *sessionManager, l *ledger, m *metrics) error {
	loop, policies, err := a.makeQOS(&s.node, l, m.report)
	if err != nil {
		return err
	}
	s.policies, s.registered = policies, func() {
		s.nodeOut.registered()
		loop.Resend()
	}
	m.watch.loop.Store(&loop)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := loop.Run(ctx); err != nil && ctx.Err() == nil {
			a.deps.Events.Trouble(Trouble{Kind: TroubleQOS, Err: err})
		}
		return nil
	})
	group.Go(func() error { return s.run(ctx) })
	return group.Wait()
}

// followSupervisor records the supervisor's attempts in the ledger, and reconnects when the
// connection is lost.
func (a *Agent) followSupervisor(ctx context.Context, l *ledger, first func()) {
	for failures := 1; ; failures++ {
		l.beginAttempts()
		err := a.deps.Executor.Watch(ctx, func(attempts []executor.Status, synced bool) error {
			l.attempts(attempts, synced)
			if synced {
				failures = 0
				first()
			}
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		wait := redial.Jittered(failures, rand.Int64N)
		a.deps.Events.SupervisorLost(err, wait)
		pause(ctx, wait)
	}
}

// perform carries out the ledger's operations, several at a time, and writes reports to the disk.
func (a *Agent) performAll(ctx context.Context, l *ledger, out *outbox) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		ops := l.settle(time.Now())
		if notes := l.takeNotes(); len(notes) > 0 {
			calls.Go(func() { a.writeNotes(l, notes) })
		}
		for _, o := range ops {
			calls.Go(func() {
				result, err := a.perform(ctx, l, &o)
				if err != nil {
					a.deps.Events.Trouble(Trouble{Kind: TroubleSupervisor, Task: executor.TaskOf(o.task), Err: err})
					if o.kind == opStop || transient(err) {
						pause(ctx, retryDelay)
					}
				}
				l.done(&o, result, err, time.Now())
			})
		}
		if err := out.flush(); err != nil {
			a.deps.Events.Trouble(Trouble{Kind: TroubleKeepReports, Err: err})
		}
	}
}

// writeNotes writes the worth of attempts into their directories.
func (a *Agent) writeNotes(l *ledger, notes []note) {
	for i := range notes {
		if err := notes[i].write(l.attemptDir(notes[i].key)); err != nil {
			a.deps.Events.Trouble(Trouble{Kind: TroubleNoteWorth, Task: executor.TaskOf(notes[i].key.task), Err: err})
		}
	}
}

func (a *Agent) perform(ctx context.Context, l *ledger, o *op) (result executor.Status, err error) {
	if o.kind == opStart {
		// An agent that stops must know whether the attempt has started.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
	defer cancel()
	switch o.kind {
	case opStart:
		o.start.Pids, o.start.TasksMemory = a.cfg.TaskPids, a.tasksMemory
		result, err = a.deps.Executor.Start(ctx, o.start)
	case opStop:
		err = a.deps.Executor.Stop(ctx, o.stop)
	case opForget:
		if o.mark {
			if err := writeMark(l.attemptDir(attemptKey{o.task, o.end.Attempt}), &o.end); err != nil {
				a.deps.Events.Trouble(Trouble{Kind: TroubleNoteEnd, Task: executor.TaskOf(o.task), Err: err})
			}
		}
		err = a.deps.Executor.Forget(ctx, o.task, o.end.Attempt)
		if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
			err = nil
		}
	}
	if err != nil && ctx.Err() != nil {
		err = &plimsoll.Error{Code: plimsoll.CodeDeadline, Op: "call the supervisor", Err: err}
	}
	return result, err
}
