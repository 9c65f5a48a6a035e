package sample

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// subtree makes a subtree of the machine's own control groups. It is removed with all its groups
// after the test.
func subtree(tb testing.TB) *cgroup.Subtree {
	tb.Helper()
	h, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		tb.Skipf("no control groups that can be written: %v", err)
	}
	s, err := h.Subtree(
		fmt.Sprintf(
			"plimsoll/sample-%d-%s-%s", os.Getpid(), filepath.Base(tb.TempDir()),
			strings.NewReplacer("/", "_", "=", "_").Replace(tb.Name()),
		),
	)
	if err != nil {
		tb.Skipf("no subtree can be made: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		names, err := s.List()
		if err != nil {
			tb.Error(err)
		}
		for _, name := range names {
			g, err := s.Open(name)
			if err != nil {
				tb.Fatal(err)
			}
			if err := errors.Join(g.Kill(ctx), g.Remove(ctx)); err != nil {
				tb.Error(err)
			}
		}
		if err := s.Remove(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func group(tb testing.TB, s *cgroup.Subtree, name string) *cgroup.Group {
	tb.Helper()
	g, err := s.Create(name, cgroup.Limits{})
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func sampler(tb testing.TB) *Sampler {
	tb.Helper()
	s, err := New(Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// run starts a shell script in the group. The script waits for a line before it runs.
func run(tb testing.TB, g *cgroup.Group, script string) {
	tb.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go\n"+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		tb.Fatal(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cmd.Wait() }) // the subtree's cleanup, which comes later, kills it
}

// A throttled spinner beside an idle group shows in every value of a sweep.
func TestSweepOfRealGroups(t *testing.T) {
	tree, s := subtree(t), sampler(t)
	busy, idle := group(t, tree, "busy"), group(t, tree, "idle")
	c, err := busy.Control()
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, c)
	if err := c.SetQuota(cgroup.Quota{Micros: 20_000, PeriodMicros: 100_000}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.TrackWith("b", busy, TrackOptions{Pressure: true}), s.Track("a", idle)); err != nil {
		t.Fatal(err)
	}
	spin(t, busy)
	var out Sweep
	if err := s.Sweep(time.Now(), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Groups) != 2 || out.Groups[0].Key != "a" || out.Groups[1].Key != "b" ||
		out.Groups[0].CPUKnown || out.Groups[1].CPUKnown || out.Node.CPUKnown {
		t.Fatalf("the first sweep is %+v", out)
	}
	deadline, start := time.Now().Add(time.Minute), out.At
	for out.Groups[1].Throttled == 0 || out.Groups[1].Memory < 2<<20 || out.Groups[1].CPU == 0 ||
		out.Node.CPU == 0 || time.Since(start) < time.Second {
		if time.Now().After(deadline) {
			t.Fatalf("the spinner is not seen: %+v", out)
		}
		wait(t, 500*time.Millisecond)
		if err := s.Sweep(time.Now(), &out); err != nil {
			t.Fatal(err)
		}
	}
	checkReal(t, out)
}

// spin keeps 2 MiB of memory and then one processor busy in the group, until the test's cleanup.
func spin(t *testing.T, g *cgroup.Group) {
	t.Helper()
	run(t, g, `held=$(dd if=/dev/zero bs=1048576 count=2 2>/dev/null | tr '\0' x); while :; do :; done`)
	t.Cleanup(func() {
		if err := g.Kill(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// wait lets time pass for the kernel's counters, by waiting for a pipe that is never written.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	if _, err := unix.Poll(nil, int(d.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(err)
	}
}

func checkReal(t *testing.T, out Sweep) {
	t.Helper()
	idle, busy, node := out.Groups[0], out.Groups[1], out.Node
	if !idle.CPUKnown || idle.CPU != 0 || !idle.MemoryKnown || idle.Memory > 1<<20 ||
		idle.CPUPressureKnown || idle.Gone {
		t.Errorf("the group that does nothing is %+v", idle)
	}
	if !busy.CPUKnown || busy.CPU > 300_000_000 ||
		!busy.MemoryKnown || busy.Memory < 2<<20 || busy.Memory > 64<<20 || !busy.ThrottledKnown {
		t.Errorf("the spinner at a fifth of a processor is %+v", busy)
	}
	h, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil || busy.CPUPressureKnown != (h.Version() != cgroup.V1) ||
		busy.MemoryPressureKnown != busy.CPUPressureKnown {
		t.Errorf("pressure of the spinner: %+v, %v", busy, err)
	}
	if node.Cores < 1 || !node.CPUKnown || node.CPU > (node.Cores+1)*1e9 || !node.MemoryKnown ||
		node.MemoryAvailable <= 0 || node.MemoryAvailable > node.MemoryTotal || !node.LoadKnown {
		t.Errorf("the machine is %+v", node)
	}
}

// A removed group is in one more sweep, as gone. A key that is tracked again denotes the new
// group.
func TestGroupsThatGo(t *testing.T) {
	tree, s := subtree(t), sampler(t)
	groups := map[string]*cgroup.Group{}
	for _, name := range []string{"c", "a", "d", "b"} {
		groups[name] = group(t, tree, name)
		if err := s.Track(name, groups[name]); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	var out Sweep
	sweep := func(want string) {
		t.Helper()
		now = now.Add(time.Second)
		if err := s.Sweep(now, &out); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, g := range out.Groups {
			got += g.Key
			if g.Gone {
				got += "-"
			}
			if g.CPUKnown {
				got += "+"
			}
		}
		if got != want {
			t.Errorf("sweep %d has %s; want %s", out.Sequence, got, want)
		}
	}
	sweep("abcd")
	sweep("a+b+c+d+")
	if err := errors.Join(groups["b"].Remove(t.Context()), groups["d"].Remove(t.Context())); err != nil {
		t.Fatal(err)
	}
	sweep("a+b-c+d-")
	sweep("a+c+")
	if err := s.Track("b", groups["b"]); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("tracking a group that is gone: %v", err)
	}
	again := group(t, tree, "b")
	if err := errors.Join(s.Track("b", again), s.Track("a", again)); err != nil {
		t.Fatal(err)
	}
	sweep("abc+")
	s.Drop("a")
	s.Drop("a")
	sweep("b+c+")
	if s.Len() != 2 {
		t.Errorf("%d groups are tracked", s.Len())
	}
}

// Sweeping allocates nothing, with pressure and without.
func TestSweepAllocatesNothing(t *testing.T) {
	tree, s := subtree(t), sampler(t)
	for i := range 20 {
		name := fmt.Sprint("task-", i)
		if err := s.TrackWith(name, group(t, tree, name), TrackOptions{Pressure: i%2 == 0}); err != nil {
			t.Fatal(err)
		}
	}
	var out Sweep
	now := time.Unix(1000, 0)
	if n := testing.AllocsPerRun(50, func() {
		now = now.Add(time.Second)
		if err := s.Sweep(now, &out); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a sweep", n)
	}
}

// BenchmarkSweep measures the agent's cost per second, beside the plain way to read the same three
// files, in real groups.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{100, 1000} {
		tree := subtree(b)
		var groups []*cgroup.Group
		for i := range n {
			groups = append(groups, group(b, tree, fmt.Sprintf("task-%04d", i)))
		}
		b.Run(fmt.Sprintf("groups=%d", n), func(b *testing.B) { benchSweep(b, groups, TrackOptions{}) })
		b.Run(
			fmt.Sprintf("groups=%d/pressure", n),
			func(b *testing.B) { benchSweep(b, groups, TrackOptions{Pressure: true}) },
		)
		b.Run(fmt.Sprintf("groups=%d/readfile", n), func(b *testing.B) { benchReadFile(b, tree, groups) })
	}
}

func benchSweep(b *testing.B, groups []*cgroup.Group, o TrackOptions) {
	s := sampler(b)
	for _, g := range groups {
		if err := s.TrackWith(g.Name(), g, o); err != nil {
			b.Fatal(err)
		}
	}
	var out Sweep
	now := time.Unix(1000, 0)
	measure(b, func() error {
		now = now.Add(time.Second)
		return s.Sweep(now, &out)
	})
}

// benchReadFile is the peer: os.ReadFile of each file, with its contents left unparsed.
func benchReadFile(b *testing.B, tree *cgroup.Subtree, groups []*cgroup.Group) {
	var files []string
	for _, g := range groups {
		for _, file := range []string{
			"cpuacct/%s/cpuacct.usage", "cpu/%s/cpu.stat", "memory/%s/memory.usage_in_bytes",
		} {
			path := filepath.Join(cgroup.DefaultRoot, fmt.Sprintf(file, filepath.Join(tree.Path(), g.Name())))
			if tree.Hierarchy().Version() == cgroup.V2 {
				path = filepath.Join(
					cgroup.DefaultRoot, tree.Path(), g.Name(),
					[]string{"cpu.stat", "memory.current", "memory.stat"}[len(files)%3],
				)
			}
			files = append(files, path)
		}
	}
	measure(b, func() error {
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				return err
			}
		}
		return nil
	})
}

// measure runs the operation and reports processor time beside wall time, because other programs
// may use the machine.
func measure(b *testing.B, op func() error) {
	if err := op(); err != nil { // the first run grows buffers
		b.Fatal(err)
	}
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		if err := op(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
