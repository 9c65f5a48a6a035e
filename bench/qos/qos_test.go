package qos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// groups are real control groups, in the order of their names.
type groups struct {
	tree *cgroup.Subtree
	v2   bool // v2 alone
	all  []*cgroup.Group
}

// path is where a group is below the root of each hierarchy.
func (gs *groups) path(g *cgroup.Group) string { return filepath.Join("/", gs.tree.Path(), g.Name()) }

// dir is a group's directory for a controller.
func (gs *groups) dir(g *cgroup.Group, controller string) string {
	if gs.v2 {
		controller = ""
	}
	return filepath.Join(cgroup.DefaultRoot, controller, gs.path(g))
}

// makeGroups makes empty groups, which are removed in the end with all that runs in them.
func makeGroups(tb testing.TB, count int) *groups {
	tb.Helper()
	h, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		tb.Skipf("no control groups that can be written: %v", err)
	}
	if missing := h.Missing(); missing != "" {
		tb.Skip(missing)
	}
	tree, err := h.Subtree(fmt.Sprintf("plimsoll/bench-%d-%d", os.Getpid(), count))
	if err != nil {
		tb.Skipf("no subtree can be made: %v", err)
	}
	gs := &groups{tree: tree, v2: h.Version() == cgroup.V2}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		for _, g := range gs.all {
			if err := errors.Join(g.Kill(ctx), g.Remove(ctx)); err != nil {
				tb.Error(err)
			}
		}
		if err := tree.Remove(); err != nil {
			tb.Error(err)
		}
	})
	for i := range count {
		g, err := tree.Create(fmt.Sprintf("task-%04d", i), cgroup.Limits{})
		if err != nil {
			tb.Fatal(err)
		}
		gs.all = append(gs.all, g)
	}
	for _, controller := range []string{"cpu", "cpuacct", "memory"} {
		if dir := gs.dir(gs.all[0], controller); !exists(dir) {
			tb.Skipf("there is no %s: its controller is not mounted by itself, as peers expect it", dir)
		}
	}
	return gs
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// All methods read the same values of a group that has worked, was throttled and holds memory: the
// benchmarks compare the same work.
func TestSameValues(t *testing.T) {
	gs := makeGroups(t, 2)
	control := controlOf(t, gs.all[1])
	if err := control.SetQuota(cgroup.Quota{Micros: 10_000, PeriodMicros: 100_000}); err != nil {
		t.Fatal(err)
	}
	var sweeps []func([]use) error
	var names []string
	for _, m := range methods {
		if m.parses {
			sweeps, names = append(sweeps, m.opened(t, gs)), append(names, m.name)
		}
	}
	found := make([][2]use, len(sweeps))
	sweep := func() {
		for i := range sweeps {
			if err := sweeps[i](found[i][:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	sweep() // ours counts from here
	work(t, gs.all[1])
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() { // what is over may be counted a moment later
		sweep()
		same := true
		for i := range found {
			same = same && alike(found[0], found[i])
		}
		if busy := found[0][1]; same && busy.cpu > 0 && busy.throttled > 0 && busy.memory >= 4<<20 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("of an idle group and one that has worked, %v have read %+v", names, found)
		}
	}
}

// alike reports whether two readings agree. Memory may differ by the pages that the kernel charges
// ahead.
func alike(a, b [2]use) bool {
	for i := range a {
		if a[i].cpu != b[i].cpu || a[i].throttled != b[i].throttled ||
			max(a[i].memory-b[i].memory, b[i].memory-a[i].memory) > 1<<20 {
			return false
		}
	}
	return true
}

// work lets a process in the group hold 4 MiB and use some processor time, less than a second even
// on an emulated processor. The process then waits until it is killed.
func work(t *testing.T, g *cgroup.Group) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `read go
held=$(dd if=/dev/zero bs=1048576 count=4 2>/dev/null | tr '\0' x)
i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done
echo done; read never`)
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start(), g.Add(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(context.WithoutCancel(t.Context())), in.Close()); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "done\n" {
		t.Fatalf("the worker says %q, %v", line, err)
	}
}

func controlOf(tb testing.TB, g *cgroup.Group) *cgroup.Control {
	c, err := g.Control()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// BenchmarkQoSSweep reads processor time, memory in use and throttling of idle groups, which the
// agent does every second.
func BenchmarkQoSSweep(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("groups=%d", n), func(b *testing.B) {
			gs := makeGroups(b, n)
			for _, m := range methods {
				b.Run(m.name, func(b *testing.B) {
					sweep, out := m.opened(b, gs), make([]use, n)
					measure(b, "cpu-ms/op", time.Millisecond, func() error { return sweep(out) })
				})
			}
		})
	}
}

// BenchmarkQoSQuota changes the quota of a group and leaves its period, which the agent does to
// throttle.
func BenchmarkQoSQuota(b *testing.B) {
	gs := makeGroups(b, 1)
	g := gs.all[0]
	var micros int64
	next := func() *int64 {
		micros = 50_000 + (micros+1)%2
		return &micros
	}
	b.Run("plimsoll", func(b *testing.B) {
		c := controlOf(b, g)
		measure(b, "cpu-us/op", time.Microsecond, func() error { return c.SetQuota(cgroup.Quota{Micros: *next()}) })
	})
	b.Run("containerd", func(b *testing.B) {
		if gs.v2 {
			c := loadV2(b, gs, g)
			measure(b, "cpu-us/op", time.Microsecond, func() error {
				return c.Update(&cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(next(), nil)}})
			})
			return
		}
		c := loadV1(b, gs, g, cgroup1.Cpu)
		measure(b, "cpu-us/op", time.Microsecond, func() error {
			return c.Update(&specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: next()}})
		})
	})
}

// measure runs the operation and reports its processor time in a unit.
func measure(b *testing.B, name string, unit time.Duration, op func() error) {
	if err := op(); err != nil { // the first one grows buffers
		b.Fatal(err)
	}
	runtime.GC() // nobody pays for another one's garbage
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		if err := op(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(unit)/float64(b.N), name)
}

func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
