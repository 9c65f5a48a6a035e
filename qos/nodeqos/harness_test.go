package nodeqos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
)

const burnVariable = "NODEQOS_TEST_BURN"

var burnt atomic.Int64

// TestMain is also the program that tests run in control groups: a process that uses all its
// processor time, and 8 MiB, so that no shell is needed.
func TestMain(m *testing.M) {
	if os.Getenv(burnVariable) != "" {
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err == nil {
			memory := make([]byte, 8<<20)
			for n := 0; ; n++ {
				memory[n*4096%len(memory)]++
				burnt.Store(int64(n))
			}
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// burner starts a process that burns, as a member of the group.
func burner(t testing.TB, g *cgroup.Group) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{burnVariable + "=1", "GOMAXPROCS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		err = g.Add(cmd.Process.Pid)
	}
	if err == nil {
		_, err = io.WriteString(in, "\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have been killed already
		_ = cmd.Wait()         // which is what killing it looks like
	})
	return cmd
}

// subtree makes one for the test, in the real hierarchy.
func subtree(t testing.TB) *cgroup.Subtree {
	t.Helper()
	h, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		t.Skipf("no control groups that can be written: %v", err)
	}
	if missing := h.Missing(); strings.Contains(missing, "cpu") {
		t.Skipf("control groups without processors: %s", missing)
	}
	s, err := h.Subtree("plimsoll/nodeqos-test-" + filepath.Base(filepath.Dir(t.TempDir())))
	if err != nil {
		t.Skipf("no subtree can be made: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		names, err := s.List()
		for _, name := range names {
			g, openErr := s.Open(name)
			err = errors.Join(err, openErr, g.Kill(ctx), g.Remove(ctx))
		}
		if err = errors.Join(err, s.Remove()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// node is a loop that the test drives by hand. It also is the loop's clock, the machine's counters,
// and the receiver of reports.
type node struct {
	t    testing.TB
	loop *Loop
	tree *cgroup.Subtree
	cfg  Config

	mu      sync.Mutex
	now     time.Time
	tasks   []Task
	level   float64 // of the metric "pretend"
	reports []plimsoll.NodeReport
	evicted []string
	evict   func(ctx context.Context, task string) error
	during  func(task string) // called while a plan throttles a task
}

// pretend is a metric whose value the test sets. A task that is throttled by a step releases 1, and
// a stopped task releases 2.
func (n *node) pretend() Metric {
	m := Metric{Every: MinEvery, Metric: qos.Metric{
		Name: "pretend", ActionPriority: 9, Throttleable: true, ThrottleQuantified: true, Evictable: true,
		EvictQuantified: true, Reclaimable: true,
		Throttle: func(t *qos.Task, by qos.Throttling) ([]qos.QuotaChange, int64) {
			if n.during != nil {
				n.during(t.ID)
			}
			changes, _ := qos.ThrottleCPU(t, by)
			if len(changes) == 0 {
				return nil, 0
			}
			return changes, plimsoll.LineScale
		},
		Restore: func(t *qos.Task, by qos.Throttling) ([]qos.QuotaChange, int64) {
			changes, _ := qos.RestoreCPU(t, by)
			return changes, plimsoll.LineScale / 10
		},
		Release: func(*qos.Task) (int64, bool) { return 2 * plimsoll.LineScale, true },
	}}
	m.Measure = func(context.Context, *Task) (float64, bool, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.level, true, nil
	}
	return m
}

// newNode makes one on a machine that has two cores and nothing to do.
func newNode(t testing.TB, tree *cgroup.Subtree) *node {
	n := &node{t: t, tree: tree, now: time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)}
	n.cfg = Config{Dir: t.TempDir(), Node: "n1", Subtree: tree, Proc: fakeProc(t), Metrics: []Metric{n.pretend()}}
	n.loop = n.start()
	return n
}

func fakeProc(t testing.TB) string {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"stat":                      "cpu  100 0 0 100 0 0 0 0 0 0\ncpu0 50 0 0 50 0 0 0 0 0 0\ncpu1 50 0 0 50 0 0 0 0 0 0\nintr 1\n",
		"loadavg":                   "0.50 0.40 0.30 1/2 3\n",
		"meminfo":                   "MemTotal: 1048576 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB\n",
		"sys/kernel/random/boot_id": "boot-1\n",
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// start makes a new loop over the same directory, as a new agent would.
func (n *node) start() *Loop {
	n.t.Helper()
	l, err := New(n.cfg, Deps{
		Tasks: func() []Task { return slices.Clone(n.tasks) },
		Evict: func(ctx context.Context, task string, _ int32, _ time.Duration, _ string) error {
			n.mu.Lock()
			n.evicted = append(n.evicted, task)
			evict := n.evict
			n.mu.Unlock()
			if evict != nil {
				return evict(ctx, task)
			}
			return nil
		},
		Report: func(r plimsoll.NodeReport) {
			if err := r.Validate(); err != nil {
				n.t.Errorf("a report that nobody would take: %v", err)
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.reports = append(n.reports, r)
		},
		Now: func() time.Time { return n.now },
	})
	if err == nil {
		err = l.begin()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		l.background.wait()
		if l.state.sampler != nil {
			if err := l.end(); err != nil {
				n.t.Error(err)
			}
		}
	})
	return l
}

// step lets a second pass and samples.
func (n *node) step() {
	n.now = n.now.Add(time.Second)
	for i := range n.cfg.Metrics {
		n.loop.measureAll(n.t.Context(), &n.loop.cfg.Metrics[i])
	}
	n.loop.sample(n.t.Context())
}

func (n *node) steps(count int) {
	for range count {
		n.step()
	}
}

func (n *node) set(level float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.level = level
}

// add makes a task with its group, as the executor does.
func (n *node) add(task Task) *cgroup.Group {
	n.t.Helper()
	task.Attempt, task.Group, task.Started = 1, task.ID+"-1", n.now.UnixNano()
	var g *cgroup.Group
	if n.tree != nil {
		var err error
		if g, err = n.tree.Create(task.Group, cgroup.Limits{CPUMilli: task.Resources[plimsoll.CPU]}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.tasks = append(n.tasks, task)
	return g
}

func (n *node) task(id string) *Task {
	return &n.tasks[slices.IndexFunc(n.tasks, func(t Task) bool { return t.ID == id })]
}

func (n *node) control(id string) *cgroup.Control {
	n.t.Helper()
	g, err := n.tree.Open(id + "-1")
	if err != nil {
		n.t.Fatal(err)
	}
	c, err := g.Control()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			n.t.Error(err)
		}
	})
	return c
}

// quotas returns the quotas in the kernel, such as "a:80000 b:-1".
func (n *node) quotas() string {
	n.t.Helper()
	var all []string
	for _, t := range n.tasks {
		q, err := n.control(t.ID).Quota()
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s:%d", t.ID, q.Micros))
	}
	return strings.Join(all, " ")
}

// told returns what was reported since it was called last, an event a line.
func (n *node) told() (lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.reports {
		for _, e := range r.Events {
			line := e.Kind.String()
			if e.Task != "" {
				line += " " + e.Task
			}
			if e.Before != "" || e.After != "" {
				line += " " + e.Before + " → " + e.After
			}
			lines = append(lines, line)
		}
	}
	n.reports = nil
	return lines
}

// policies are one rule on the metric pretend that may act on all best-effort tasks.
func policies(a plimsoll.Action, r plimsoll.Rule) []plimsoll.Policy {
	a.Name, r.Name, r.Action = "act", "rule", "act"
	if a.CoolDown == 0 {
		a.CoolDown = time.Minute
	}
	if r.Metric == "" {
		r.Metric = "pretend"
	}
	if r.Waterline == "" {
		r.Waterline = "10"
	}
	return []plimsoll.Policy{
		{Action: &a},
		{TaskQOS: &plimsoll.TaskQOS{
			Name: "batch", Allowed: []string{"act"},
			Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}},
		}},
		{NodeQOS: &plimsoll.NodeQOS{Name: "node", Rules: []plimsoll.Rule{r}}},
	}
}

// batch adds best-effort tasks of one core each; the first has the lowest priority.
func (n *node) batch(ids ...string) {
	for i, id := range ids {
		n.add(
			Task{
				ID: id, Class: plimsoll.ClassBestEffort, Priority: int32(i),
				Resources: plimsoll.Resources{plimsoll.CPU: 1000},
			},
		)
	}
}

// burning adds a best-effort task that uses all the processor time it gets, in a group of its own.
func (n *node) burning(id string) *cgroup.Group {
	n.t.Helper()
	n.batch(id)
	g, err := n.tree.Open(id + "-1")
	if err != nil {
		n.t.Fatal(err)
	}
	burner(n.t, g)
	return g
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got  %v\n\twant %v", what, got, want)
	}
}

// eventually waits for an effect of the kernel or of another goroutine.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for range 20_000 {
		if cond() {
			return
		}
		<-ticker.C
	}
	t.Fatalf("%s did not happen", what)
}

// used returns how much processor time a group has used.
func used(t testing.TB, g *cgroup.Group) time.Duration {
	t.Helper()
	u, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return u.CPU
}

// settle waits until the background steps have ended, and lets the loop record them.
func (n *node) settle() {
	n.loop.background.wait()
	n.loop.collectFinished(n.t.Context())
}
