package executor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// TestMain makes the test binary a supervisor when it is called as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervisor" {
		os.Exit(supervisorMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "attack" {
		os.Exit(attackMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "keyring" {
		os.Exit(keyringMain(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func complain(t Trouble) { fmt.Fprintf(os.Stderr, "%+v\n", t) }

func supervisorMain(args []string) int {
	flags := flag.NewFlagSet("supervisor", flag.ContinueOnError)
	cfg := SupervisorConfig{Events: Events{Trouble: complain}, Node: "test"}
	flags.StringVar(&cfg.Dir, "dir", "", "")
	flags.StringVar(&cfg.CgroupRoot, "cgroups", "", "")
	flags.BoolVar(&cfg.NoTrace, "notrace", false, "")
	flags.DurationVar(&cfg.ThawAfter, "thaw", 0, "")
	flags.DurationVar(&cfg.MeasureDisk, "disk", 0, "")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := New(cfg)
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the supervisor has ended:", err)
		return 1
	}
	return 0
}

// mode is one way of running a supervisor.
type mode struct {
	name    string
	cgroups string
	noTrace bool
	thaw    time.Duration
	disk    time.Duration
}

var (
	inGroups  = mode{name: "control groups", cgroups: cgroup.DefaultRoot}
	bare      = mode{name: "no control groups", cgroups: NoCgroups}
	gated     = mode{name: "no ptrace", cgroups: NoCgroups, noTrace: true}
	inV1Alone = mode{name: "v1 alone", cgroups: "v1"}
)

// node is the directory of an agent with a real supervisor process.
type node struct {
	testing.TB
	mode  mode
	dir   string
	users Users
	wrap  []string // starts the supervisor
	*Client
}

// mayPass lets every user enter a temporary directory of the test.
func mayPass(t testing.TB, dir string) {
	t.Helper()
	for _, dir := range []string{dir, filepath.Dir(dir)} {
		if dir == os.TempDir() {
			return
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func eachMode(t *testing.T, modes []mode, test func(t *testing.T, n *node)) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			test(t, newNode(t, m))
		})
	}
}

func newNode(t testing.TB, m mode) *node {
	t.Helper()
	if m.cgroups == "v1" {
		m.cgroups = onlyV1(t)
	}
	if m.cgroups != NoCgroups {
		if _, err := cgroup.Detect(m.cgroups); err != nil {
			t.Skipf("no control groups that can be written: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "plimsoll-executor-") // short, because a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	n := &node{TB: t, mode: m, dir: dir}
	t.Cleanup(n.tearDown)
	n.connect()
	return n
}

func onlyV1(t testing.TB) string {
	t.Helper()
	if h, err := cgroup.Detect(cgroup.DefaultRoot); err != nil || h.Version() != cgroup.Hybrid {
		t.Skip("the machine has no v1 control groups beside v2")
	}
	dir := t.TempDir()
	for _, name := range []string{"cpu", "cpuacct", "memory", "pids", "freezer"} {
		if err := os.Symlink(filepath.Join(cgroup.DefaultRoot, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (n *node) config() ClientConfig {
	command := []string{
		os.Args[0], "supervisor", "-dir", n.dir, "-cgroups", n.mode.cgroups,
		"-notrace=" + strconv.FormatBool(n.mode.noTrace),
		"-thaw", n.mode.thaw.String(), "-disk", n.mode.disk.String(),
	}
	return ClientConfig{Dir: n.dir, Command: append(slices.Clone(n.wrap), command...), Users: n.users}
}

// connectAs connects anew, as an agent with these users.
func (n *node) connectAs(users Users) {
	n.Helper()
	n.Close()
	n.users = users
	n.connect()
}

func (n *node) connect() {
	n.Helper()
	c, err := Connect(n.limit(), n.config())
	if err != nil {
		n.Fatal(err)
	}
	n.Client = c
	n.Cleanup(c.Close)
}

// limit bounds the work of other processes, also on an emulated machine. It outlives the test's
// context, for cleanups.
func (n *node) limit() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.Context()), time.Minute)
	n.Cleanup(cancel)
	return ctx
}

// tearDown stops every attempt and the supervisor, and removes all files and groups.
func (n *node) tearDown() {
	c, err := Connect(n.limit(), n.config())
	if err != nil {
		n.Error(err)
		return
	}
	var all []Status
	errEnd := errors.New("end")
	if err := c.Watch(n.limit(), func(some []Status, end bool) error {
		all = append(all, some...)
		if end {
			return errEnd
		}
		return nil
	}); !errors.Is(err, errEnd) {
		n.Error(err)
	}
	for _, s := range all {
		if err := c.Stop(
			n.limit(), StopRequest{Task: s.Task, Attempt: s.Attempt, Grace: 1, Result: plimsoll.ResultKilled},
		); err != nil {
			n.Error(err)
		}
	}
	n.Client = c
	for _, s := range all {
		n.waitFor(s.Task, s.Attempt, (*Status).Ended)
	}
	c.Close()
	// No work is under way, and SIGKILL does not wait for connections.
	n.endSupervisor(syscall.SIGKILL)
	if n.mode.cgroups != NoCgroups {
		n.removeGroups()
	}
	if n.Failed() {
		n.Logf("supervisor's log:\n%s", c.tail())
	}
	if log, err := os.ReadFile(
		filepath.Join(n.dir, supervisorLog),
	); err != nil || strings.Contains(string(log), "DATA RACE") {
		n.Errorf("the supervisor's log, %v:\n%s", err, log)
	}
	if err := os.RemoveAll(n.dir); err != nil {
		n.Error(err)
	}
}

func (n *node) hierarchy() *cgroup.Hierarchy {
	n.Helper()
	h, err := cgroup.Detect(n.mode.cgroups)
	if err != nil {
		n.Fatal(err)
	}
	return h
}

func (n *node) subtree() *cgroup.Subtree {
	n.Helper()
	s, err := New(SupervisorConfig{Dir: n.dir, Node: "test"})
	if err != nil {
		n.Fatal(err)
	}
	tree, err := n.hierarchy().Subtree(s.subtreePath())
	if err != nil {
		n.Fatal(err)
	}
	return tree
}

func (n *node) group(task string) *cgroup.Group {
	n.Helper()
	g, err := n.subtree().Open(CgroupName(task, 1))
	if err != nil {
		n.Fatal(err)
	}
	return g
}

// ownGroup returns the supervisor's control group.
func (n *node) ownGroup() *cgroup.Group {
	n.Helper()
	all, err := n.hierarchy().Subtree(groupsPath)
	if err != nil {
		n.Fatal(err)
	}
	g, err := all.Open(filepath.Base(n.subtree().Path()) + ownGroup)
	if err != nil {
		n.Fatal(err)
	}
	return g
}

func (n *node) removeGroups() {
	tree := n.subtree()
	names, err := tree.List()
	if err != nil || len(names) > 0 {
		n.Errorf("control groups left over: %v, %v", names, err)
	}
	if g := n.ownGroup(); errors.Join(g.Kill(n.limit()), g.Remove(n.limit())) != nil {
		n.Errorf("the supervisor's control group cannot be removed")
	}
	for _, name := range names {
		g, err := tree.Open(name)
		if err == nil {
			err = errors.Join(g.Kill(n.limit()), g.Remove(n.limit()))
		}
		if err != nil {
			n.Error(err)
		}
	}
	if err := tree.Remove(); err != nil {
		n.Error(err)
	}
}

// supervisorPID returns the pid of the present supervisor.
func (n *node) supervisorPID() int {
	n.Helper()
	var caps Capabilities
	if ok, err := readJSON(filepath.Join(n.dir, supervisorFile), &caps); err != nil || !ok {
		n.Fatalf("no %s: %v", supervisorFile, err)
	}
	return caps.PID
}

// endSupervisor sends the supervisor a signal and waits for its end.
func (n *node) endSupervisor(sig syscall.Signal) {
	n.Helper()
	pid := n.supervisorPID()
	if err := syscall.Kill(pid, sig); err != nil {
		n.Fatal(err)
	}
	n.eventually("the end of the supervisor", func() bool {
		reaped(pid)
		return !n.running(pid)
	})
}

func (n *node) running(pid int) bool {
	n.Helper()
	p, ok, err := readProcess(pid)
	if err != nil {
		n.Fatal(err)
	}
	return ok && !p.dead()
}

// eventually waits for a condition that depends on processes outside of the test.
func (n *node) eventually(what string, cond func() bool) {
	n.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx := n.limit(); !cond(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.Fatalf("%s did not happen", what)
		}
	}
}

// request returns a start of attempt 1 of a task with a shell script.
func request(task, script string) StartRequest {
	return StartRequest{
		Task: task, Attempt: 1, Job: "job", Node: "n1",
		Spec: plimsoll.GroupSpec{Name: "g", Count: 1, Command: []string{"/bin/sh", "-c", script}},
	}
}

func (n *node) start(req StartRequest) Status {
	n.Helper()
	s, err := n.Start(n.limit(), req)
	if err != nil {
		n.Fatal(err)
	}
	return s
}

// waitFor watches until the attempt fulfils the condition.
func (n *node) waitFor(task string, attempt int32, cond func(*Status) bool) Status {
	n.Helper()
	var found Status
	errFound := errors.New("found")
	err := n.Watch(n.limit(), func(all []Status, _ bool) error {
		for i := range all {
			if all[i].Task == task && all[i].Attempt == attempt {
				found = all[i]
				if cond(&found) {
					return errFound
				}
			}
		}
		return nil
	})
	if !errors.Is(err, errFound) {
		n.Fatalf("waiting for attempt %d of %s, which is %+v: %v", attempt, task, found, err)
	}
	return found
}

// run starts an attempt and waits for its end.
func (n *node) run(req StartRequest) Status {
	n.Helper()
	n.start(req)
	return n.waitFor(req.Task, req.Attempt, (*Status).Ended)
}

func (n *node) output(task, stream string) string {
	n.Helper()
	data, err := os.ReadFile(filepath.Join(AttemptDir(n.dir, task, 1), stream))
	if err != nil {
		n.Fatal(err)
	}
	return string(data)
}

// lines waits until a file in the task's own directory has that many lines, and returns them.
func (n *node) lines(task, file string, count int) []string {
	n.Helper()
	var lines []string
	n.eventually(file+" of "+task, func() bool {
		data, err := os.ReadFile(filepath.Join(TaskDir(n.dir, task), file))
		if err != nil {
			return false
		}
		lines = strings.Fields(string(data))
		return len(lines) >= count && strings.HasSuffix(string(data), "\n")
	})
	return lines
}

func (n *node) pids(task, file string, count int) []int {
	n.Helper()
	var pids []int
	for _, line := range n.lines(task, file, count) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			n.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func (n *node) wantEnd(s Status, result plimsoll.TaskResult, code int32, message string) {
	n.Helper()
	if s.State != plimsoll.TaskFinished || s.Result != result || s.ExitCode != code ||
		!strings.Contains(s.Message, message) {
		n.Errorf(
			"ended as %v %q with code %d, %q; want %q with code %d, %q", s.State, s.Result, s.ExitCode, s.Message,
			result, code, message,
		)
	}
	if s.Finished == 0 || s.Finished < s.Started {
		n.Errorf("started at %d and finished at %d", s.Started, s.Finished)
	}
}
