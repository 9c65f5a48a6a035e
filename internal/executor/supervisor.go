package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// maxSocketPath is the longest path of a unix socket that the kernel accepts.
const maxSocketPath = 107

// maxRequestBytes bounds an agent's request, which holds a group's specification from a job.
const maxRequestBytes = 4 << 20

// NoCgroups is the CgroupRoot that runs all attempts without control groups.
const NoCgroups = "none"

// Names in the agent's directory.
const (
	supervisorLock = "supervisor.lock"
	supervisorFile = "supervisor.json"
	supervisorLog  = "supervisor.log"
	socketFile     = "supervisor.sock"
)

// ownGroup, after the name of the node's group, names the supervisor's own control group. It is
// beside the node's group, so that the tasks' common limit does not apply to the supervisor.
const ownGroup = "_supervisor"

// groupsPath is the directory of all nodes' control groups.
const groupsPath = "plimsoll"

// SupervisorConfig configures a supervisor.
type SupervisorConfig struct {
	Dir        string // the agent's directory, absolute; it must exist
	Socket     string // path of the unix socket; empty: supervisor.sock in Dir
	Node       string // part of the name of the node's control group; empty: none
	CgroupRoot string // mount point of control groups; empty: /sys/fs/cgroup; NoCgroups: use none
	NoTrace    bool   // start programs through a shell even if ptrace is permitted

	MeasureDisk time.Duration // interval of measuring disk usage; 0: DefaultMeasureDisk

	// ThawAfter is the time without agent after which frozen attempts are thawed; 0:
	// DefaultThawAfter.
	ThawAfter time.Duration
	Events    Events // callbacks for events
}

// Validate fills in defaults and reports the first field that is wrong.
func (c *SupervisorConfig) Validate() error {
	if !filepath.IsAbs(c.Dir) {
		return plimsoll.Invalid("dir", "%q is not an absolute path; give the agent's data directory", c.Dir)
	}
	if c.Socket == "" {
		c.Socket = filepath.Join(c.Dir, socketFile)
	}
	if len(c.Socket) > maxSocketPath {
		return plimsoll.Invalid(
			"socket", "%q is longer than the %d characters that the kernel takes; choose a shorter path", c.Socket,
			maxSocketPath,
		)
	}
	if c.CgroupRoot == "" {
		c.CgroupRoot = cgroup.DefaultRoot
	}
	if c.ThawAfter <= 0 {
		c.ThawAfter = DefaultThawAfter
	}
	if c.MeasureDisk <= 0 {
		c.MeasureDisk = DefaultMeasureDisk
	}
	c.Events = c.Events.withDefaults()
	return nil
}

// Capabilities are the capabilities of a supervisor on its machine. supervisor.json has the same
// form, for the agent.
type Capabilities struct {
	PID int `json:"pid"`
	// Cgroups is the version in use; empty: none, and tasks run without limits.
	Cgroups string `json:"cgroups,omitempty"`
	// Limits that are missing, and why, for people; empty: none.
	Limits string `json:"limits,omitempty"`
	// Users is true if the supervisor obeys Users. An older supervisor runs all tasks as itself.
	Users bool `json:"users,omitempty"`
	// IDs is true if the supervisor tells a task's id from its local name. The program of an older
	// one finds the local name in PLIMSOLL_TASK_ID.
	IDs bool `json:"ids,omitempty"`
	// Disk is DiskMeasured, or the reason for not measuring. It is empty for an older supervisor,
	// which does not measure.
	Disk string `json:"disk,omitempty"`
	// Trace is the reason for starting programs through a shell; empty: they are not.
	Trace string `json:"trace,omitempty"`

	// CgroupRoot is the mount point of control groups; empty if Cgroups is.
	CgroupRoot string `json:"cgroupRoot,omitempty"`
	// Subtree is the path of the node's control group, in which CgroupName names an attempt's.
	Subtree string `json:"subtree,omitempty"`
}

// Supervisor is one node's supervisor. Make it with New and run it once. It reaps all children of
// its process and their orphans, so the process must have no other use.
type Supervisor struct {
	cfg      SupervisorConfig
	reaper   *reaper
	launcher *launcher
	uids     *uids
	boot     string          // of the present run of the kernel
	tree     *cgroup.Subtree // nil: no control groups; set before anything starts
	stopping chan struct{}   // closed when Run begins to end

	mu sync.Mutex // guards the fields below, and the mutable fields of attempts

	// attempts has every attempt that was started or found, until it is forgotten.
	attempts map[attemptKey]*attempt
	watchers map[*watcher]struct{}
	// unwatchedSince is the start of the time without watcher, or its last thaw; zero: an agent
	// watches.
	unwatchedSince time.Time
	work           *errgroup.Group // nil before Run and after it began to end
	workCtx        func() context.Context
	caps           Capabilities
	memory         int64 // present common limit of all tasks; 0: none
}

// New makes a supervisor. It touches nothing on the machine.
func New(cfg SupervisorConfig) (*Supervisor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	r := newReaper()
	return &Supervisor{
		cfg: cfg, reaper: r, stopping: stopping,
		launcher: &launcher{
			reaper: r, work: make(chan func(*thread)), asRoot: make(chan func(*thread)), done: stopping,
			traced: !cfg.NoTrace,
		},
		uids:     newUIDs(cfg.Dir),
		attempts: map[attemptKey]*attempt{}, watchers: map[*watcher]struct{}{},
	}, nil
}

// Capabilities returns the supervisor's capabilities, which are known once it answers on its
// socket.
func (s *Supervisor) Capabilities() Capabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caps
}

func (s *Supervisor) now() int64 { return time.Now().UnixNano() }

// Run supervises until ctx ends; tasks run on without it. If another supervisor runs for the
// directory the error is CodeAlreadyRunning.
func (s *Supervisor) Run(ctx context.Context) (err error) {
	// The directory is not made here: a late supervisor must not bring back a removed directory.
	lock, ok, err := lockPath(filepath.Join(s.cfg.Dir, supervisorLock))
	if err != nil {
		return err
	}
	if !ok {
		return plimsoll.Errorf(plimsoll.CodeAlreadyRunning, "another supervisor runs for %s; stop it first", s.cfg.Dir)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := errors.Join(closeOnExec(), s.protectTasks()); err != nil {
		return err
	}
	if s.boot, err = bootID(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	reapCtx, stopReaping := context.WithCancel(context.WithoutCancel(ctx))
	reaping := make(chan error, 1)
	go func() { reaping <- s.reaper.run(reapCtx) }()
	err = s.supervise(ctx)
	stopReaping() // last, because a launch that is under way needs the reaper
	return errors.Join(err, <-reaping)
}

func (s *Supervisor) supervise(ctx context.Context) error {
	work, workCtx := errgroup.WithContext(ctx)
	s.mu.Lock()
	s.work, s.workCtx = work, func() context.Context { return workCtx }
	s.mu.Unlock()
	for range launchers {
		work.Go(func() error { return s.launcher.run(workCtx, s.launcher.work) })
	}
	if os.Geteuid() == 0 {
		work.Go(func() error { return s.launcher.run(workCtx, s.launcher.asRoot) })
	}
	work.Go(func() error {
		<-workCtx.Done() // this goroutine keeps the group alive as long as spawn may add to it
		s.mu.Lock()
		s.work = nil
		s.mu.Unlock()
		close(s.stopping)
		return nil
	})
	work.Go(func() error { return s.trim(workCtx) })
	work.Go(func() error {
		if err := s.takeOver(workCtx); err != nil {
			return err
		}
		work.Go(func() error { return s.thawUnwatched(workCtx) }) // from now on agents can connect
		if s.Capabilities().Disk == DiskMeasured {
			work.Go(func() error { return s.watchDisk(workCtx) })
		}
		l, err := transport.Listen("unix:" + s.cfg.Socket)
		if err != nil {
			return err
		}
		_, handler := plimsollv1connect.NewSupervisorServiceHandler(
			&service{s: s}, wire.Bounded(wire.RequestBounds(maxRequestBytes)),
		)
		// A unix socket needs no access check.
		return transport.Serve(workCtx, l, handler, transport.ServeConfig{Access: nil})
	})
	err := work.Wait()
	if s.quiesce() && s.tree != nil {
		if err := s.closeGroups(); err != nil {
			s.cfg.Events.Trouble(Trouble{Kind: TroubleNodeGroups, Err: err})
		}
	}
	return err
}

// quiesce stops all timers, and reports whether every attempt has ended.
func (s *Supervisor) quiesce() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	allEnded := true
	for _, a := range s.attempts {
		for _, t := range a.timers {
			t.Stop()
		}
		allEnded = allEnded && a.status.Ended()
	}
	return allEnded
}

// closeGroups removes the node's control groups, so that an agent that is retired leaves none.
func (s *Supervisor) closeGroups() error {
	if err := s.tree.Hierarchy().Leave(os.Getpid()); err != nil {
		return err
	}
	own, err := s.ownGroup()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return errors.Join(own.Remove(ctx), s.tree.Remove())
}

// takeOver finds out the machine's capabilities, reports them once, and takes over the attempts of
// earlier supervisors.
func (s *Supervisor) takeOver(ctx context.Context) error {
	caps := Capabilities{PID: os.Getpid(), Users: true, IDs: true}
	if s.cfg.NoTrace {
		caps.Trace = "asked for by the configuration"
	} else if err := s.probeTrace(); err != nil {
		caps.Trace = "ptrace is not permitted: " + err.Error()
		s.launcher.traced = false
	}
	if err := s.openGroups(&caps); err != nil {
		return err
	}
	caps.Disk = probeDisk(s.cfg.Dir)
	s.mu.Lock()
	s.caps = caps
	s.mu.Unlock()
	s.cfg.Events.Started(caps)
	if err := s.adoptAll(ctx); err != nil {
		return err
	}
	return replaceJSON(s.cfg.Dir, supervisorFile, caps)
}

func (s *Supervisor) probeTrace() error {
	result := make(chan error, 1)
	select {
	case s.launcher.work <- func(t *thread) { result <- s.launcher.probe(t) }:
		return <-result
	case <-s.stopping:
		return errStopping()
	}
}

// openGroups makes the node's control groups, if it can, and moves the supervisor out of the
// agent's.
func (s *Supervisor) openGroups(caps *Capabilities) error {
	if s.cfg.CgroupRoot == NoCgroups {
		caps.Limits = "control groups are turned off by the configuration"
		return nil
	}
	h, err := cgroup.Detect(s.cfg.CgroupRoot)
	if err == nil {
		s.tree, err = h.Subtree(s.subtreePath())
	}
	if plimsoll.CodeOf(err) == plimsoll.CodeUnavailable {
		caps.Limits = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	caps.Cgroups, caps.Limits = h.Version().String(), h.Missing()
	caps.CgroupRoot, caps.Subtree = h.Root(), s.tree.Path()
	own, err := s.ownGroup()
	if err != nil {
		return err
	}
	return own.Add(os.Getpid())
}

// ownGroup makes (or finds) the supervisor's own control group.
func (s *Supervisor) ownGroup() (*cgroup.Group, error) {
	all, err := s.tree.Hierarchy().Subtree(groupsPath)
	if err != nil {
		return nil, err
	}
	return all.Create(path.Base(s.tree.Path())+ownGroup, cgroup.Limits{})
}

// subtreePath is plimsoll/<node>-<hash of the directory>, so that two agents of one machine have
// different groups.
func (s *Supervisor) subtreePath() string {
	sum := sha256.Sum256([]byte(s.cfg.Dir))
	name := hex.EncodeToString(sum[:4])
	if node := strings.Trim(strings.ReplaceAll(s.cfg.Node, "/", "-"), "."); node != "" {
		name = node + "-" + name
	}
	return path.Join(groupsPath, name)
}

// spawn runs f as a part of Run, with a context that ends when Run begins to end; false: Run is
// ending already.
func (s *Supervisor) spawn(f func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.work == nil {
		return false
	}
	ctx := s.workCtx()
	s.work.Go(func() error {
		f(ctx)
		return nil
	})
	return true
}

// running returns the attempts whose processes run.
func (s *Supervisor) running() []*attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*attempt
	for _, a := range s.attempts {
		if a.status.State == plimsoll.TaskRunning || a.status.State == plimsoll.TaskStopping {
			all = append(all, a)
		}
	}
	return all
}

// forget drops an attempt that has ended.
func (s *Supervisor) forget(key attemptKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[key]
	if a == nil {
		return nil // forgotten before
	}
	if !a.status.Ended() {
		return plimsoll.Errorf(plimsoll.CodeConflict, "%v has not ended; stop it first", key)
	}
	// The mark is not synced, and a full disk is no error: without the mark the next supervisor
	// only reports the attempt once more.
	f, err := os.Create(filepath.Join(a.dir, forgotten))
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a missing directory needs no mark
		s.trouble(TroubleForget, key, err)
	}
	delete(s.attempts, key)
	return nil
}
