package attacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// The bounds of each process of a fleet.
const (
	memoryLimit = 2 << 30
	descriptors = 1024
)

// patience bounds the time for something that will happen.
const patience = time.Minute

// program is the path of the built program.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(canaryServer) != "" {
		fmt.Fprintln(os.Stderr, runCanary())
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "attacks")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // a directory of the system's temporary ones
	program = filepath.Join(dir, "plimsoll")
	build := exec.Command("go", "build", "-o", program, "github.com/plimsoll-dev/plimsoll/cmd/plimsoll")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, said)
		return 1
	}
	return m.Run()
}

// fleet is a coordinator, a gateway and an agent.
type fleet struct {
	t         testing.TB
	dir       string
	tree      *cgroup.Subtree // nil on a machine without control groups
	leader    string          // address of the coordinator
	gateway   string          // address for users
	processes map[string]*process
}

// newFleet starts a fleet and waits until its node takes tasks.
func newFleet(t testing.TB) *fleet {
	t.Helper()
	f := makeFleet(t)
	f.startAll()
	return f
}

// makeFleet makes the directory of a fleet and its control groups. At the end of the test all
// processes of the fleet are ended.
func makeFleet(t testing.TB) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleet")
	if err == nil {
		err = os.Chmod(dir, 0o755) // tasks need to traverse it
	}
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, dir: dir, leader: freePort(t), gateway: freePort(t), processes: map[string]*process{}}
	f.makeTree()
	t.Cleanup(f.clean)
	if err := os.WriteFile(f.path("queues.yaml"), []byte(queues), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// startAll starts the processes and waits until the node takes tasks.
func (f *fleet) startAll() {
	f.t.Helper()
	f.start("coordinator", f.coordinatorArgs()...)
	f.made("store", "gateway.token")
	f.start("gateway", f.gatewayArgs()...)
	f.made("gateway", "agent.token")
	f.start("agent", f.agentArgs()...)
	f.nodeReady()
}

func (f *fleet) path(names ...string) string {
	return filepath.Join(append([]string{f.dir}, names...)...)
}

func (f *fleet) coordinatorArgs() []string {
	return []string{"--data", f.path("store"), "--listen", f.leader, "--queues", f.path("queues.yaml")}
}

func (f *fleet) gatewayArgs() []string {
	return []string{
		"--data", f.path("gateway"), "--listen", f.gateway, "--leader", f.leader, "--gateway-token-file",
		f.path("store", "gateway.token"),
	}
}

func (f *fleet) agentArgs() []string {
	return []string{
		"--data", f.path("agent"), "--gateways", f.gateway, "--agent-token-file", f.path("gateway", "agent.token"),
		"--node", "n1", "--capacity", "cpu=64;memory=8Gi",
	}
}

// queues gives each user a separate queue, so that no user's jobs delay another's.
const queues = `partitions:
  - name: default
    queues:
      - name: root
        queues: [{name: canary}, {name: sleepers}, {name: alice}, {name: mallory}]
`

// made waits until a process has made a file.
func (f *fleet) made(names ...string) {
	f.t.Helper()
	f.eventually("wait for "+f.path(names...), func() error {
		_, err := os.Stat(f.path(names...))
		return err
	})
}

// freePort returns an unused address of this machine.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// makeTree makes the control groups of the fleet.
func (f *fleet) makeTree() {
	f.t.Helper()
	h, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		f.t.Logf("without a bound on memory: no control groups: %v", err)
		return
	}
	if f.tree, err = h.Subtree("plimsoll-attacks-" + filepath.Base(f.dir)); err != nil {
		f.t.Logf("without a bound on memory: no control groups: %v", err)
		f.tree = nil
	}
}

// process is one process of a fleet.
type process struct {
	name  string
	cmd   *exec.Cmd
	group *cgroup.Group
	ended chan struct{}

	said struct {
		sync.Mutex
		text strings.Builder
	}
}

// start starts a role in its control group. Its flags are kept for restart.
func (f *fleet) start(role string, args ...string) {
	f.t.Helper()
	p := &process{name: role, ended: make(chan struct{})}
	// See lowerPriority for the priority.
	script := fmt.Sprintf(
		`read go && ulimit -n %d && { renice -n 0 -p $$ >/dev/null 2>&1; exec "$0" "$@"; }`, descriptors,
	)
	p.cmd = exec.Command("/bin/sh", append([]string{"-c", script, program, role}, args...)...)
	p.cmd.Env, p.cmd.Stderr, p.cmd.WaitDelay = f.environment(), p, 10*time.Second
	in, err := p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	if f.tree != nil {
		if p.group, err = f.tree.Create(role, cgroup.Limits{MemoryBytes: memoryLimit}); err == nil {
			err = p.group.Add(p.cmd.Process.Pid)
		}
	}
	if _, writeErr := io.WriteString(in, "go\n"); errors.Join(err, writeErr) != nil {
		f.t.Fatal(errors.Join(err, writeErr))
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState records how it ended
		close(p.ended)
	}()
	f.processes[role] = p
}

// environment returns that of the tests without the variables of plimsoll.
func (f *fleet) environment() []string {
	env := []string{"HOME=" + f.dir}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PLIMSOLL_") && !strings.HasPrefix(v, "HOME=") &&
			!strings.HasPrefix(v, "GOMEMLIMIT=") {
			env = append(env, v)
		}
	}
	return env
}

// Write implements io.Writer for stderr. It keeps the first 256 KiB.
func (p *process) Write(data []byte) (int, error) {
	p.said.Lock()
	defer p.said.Unlock()
	if p.said.text.Len() < 256<<10 {
		p.said.text.Write(data)
	}
	return len(data), nil
}

func (p *process) stderr() string {
	p.said.Lock()
	defer p.said.Unlock()
	return p.said.text.String()
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill kills the process without warning and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// peak returns the most memory that the process has had, in MiB.
func (p *process) peak() int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)) // 0 for a process that has ended
	kib := 0
	for line := range strings.Lines(string(data)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			break
		}
	}
	return kib >> 10
}

// stands wants every process of the fleet to be the one first started.
func (f *fleet) stands() {
	f.t.Helper()
	for name, p := range f.processes {
		if !p.alive() || p.peak() == 0 { // a killed process has no memory, even before it is waited for
			said := p.stderr()
			f.t.Fatalf("the %s has ended: %v\n%s", name, p.cmd.ProcessState, said[max(0, len(said)-4<<10):])
		}
	}
}

// once is the budget of a client that does not retry.
const once = -1

// client returns a client that retries for the budget.
func (f *fleet) client(budget time.Duration) *client.Client {
	f.t.Helper()
	c, err := client.New(
		client.Config{Server: f.gateway, TokenFile: f.path("gateway", "user.token"), RetryBudget: budget},
	)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

func (f *fleet) nodeReady() {
	f.t.Helper()
	c := f.client(patience)
	f.eventually("wait for the node", func() error {
		nodes, err := c.Nodes(f.t.Context())
		for i := range nodes {
			if nodes[i].Node.ID == "n1" && nodes[i].Node.Ready {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("%d nodes, and n1 is not ready", len(nodes)))
	})
}

// eventually waits until there is no error.
func (f *fleet) eventually(doing string, try func() error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			f.t.Fatalf("%s: %v", doing, err)
		}
	}
}

// clean ends every process of the fleet, including tasks and the supervisor, and removes its
// files.
func (f *fleet) clean() {
	for _, p := range f.processes {
		p.kill()
		if said := p.stderr(); f.t.Failed() && said != "" {
			f.t.Logf("the last lines of the %s:\n%s", p.name, said[max(0, len(said)-2<<10):])
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), patience)
	defer cancel()
	f.killLeft(ctx)
	if f.tree != nil {
		for name := range f.processes {
			g, err := f.tree.Open(name)
			if err == nil {
				err = errors.Join(g.Kill(ctx), g.Remove(ctx))
			}
			if err != nil {
				f.t.Error(err)
			}
		}
		if err := f.tree.Remove(); err != nil {
			f.t.Error(err)
		}
	}
	if err := os.RemoveAll(f.dir); err != nil {
		f.t.Error(err)
	}
}

// killLeft kills the supervisor and the tasks. They are found by the directory of the fleet in
// their arguments or environment.
func (f *fleet) killLeft(ctx context.Context) {
	for ctx.Err() == nil {
		found := false
		for _, pid := range f.left() {
			found = true
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				f.t.Error(err)
			}
		}
		if !found {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
	f.t.Error("processes of the fleet are left")
}

func (f *fleet) left() (pids []int) {
	entries, _ := os.ReadDir("/proc") // without it no process is found, and the directory cannot be removed
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		words, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // it may have ended
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))   // as above
		if strings.Contains(string(words), f.dir+"/") || strings.Contains(string(env), "PLIMSOLL_TASK_DIR="+f.dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}
