package sample

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// files makes files below dir in place of the kernel.
func files(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// closing closes c after the test.
func closing(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// fakeGroup makes a v2 group of plain files, and returns its directory.
func fakeGroup(t *testing.T) (*cgroup.Group, string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "tasks/task")
	files(
		t, root,
		map[string]string{
			"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory",
			"tasks/cgroup.subtree_control": "cpu memory",
		},
	)
	files(t, dir, map[string]string{"cgroup.procs": "", "cpu.stat": "", "memory.current": "", "memory.stat": ""})
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Subtree("tasks")
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Create("task", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return g, dir
}

const (
	stat    = "cpu  1000 200 300 40000 500 60 70 80 90 0\ncpu0 500 100 150 20000 250 30 35 40 45 0\ncpu1 500 100 150 20000 250 30 35 40 45 0\nintr 5 6 7\nctxt 9\n"
	meminfo = "MemTotal:        2000 kB\nMemFree:          100 kB\nMemAvailable:    1500 kB\nBuffers: 1 kB\n"
	loadavg = "1.25 0.50 0.10 2/300 4000\n"
	stalled = "some avg10=12.34 avg60=1.00 avg300=0.50 total=999\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=5\n"
)

func fakeProc(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files(
		t, dir,
		map[string]string{
			"stat": stat, "meminfo": meminfo, "loadavg": loadavg, "pressure/cpu": stalled, "pressure/memory": stalled,
		},
	)
	return dir
}

// The rates of a group are those since the value was last known. A value that is cut short,
// missing, backwards or too large is not known. It is never negative, and does not affect later
// sweeps.
func TestRatesOfAGroup(t *testing.T) {
	g, dir := fakeGroup(t)
	s, err := New(Config{Proc: fakeProc(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, s)
	if err := s.Track("task", g); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	cpu := func(used, throttled string) string {
		return fmt.Sprintf("usage_usec %s\nuser_usec 1\nthrottled_usec %s\n", used, throttled)
	}
	var out Sweep
	for i, step := range []struct {
		name  string
		after time.Duration
		cpu   string
		want  Group
	}{
		{"first", time.Second, cpu("1000000", "10"), Group{}},
		{
			"half a core", time.Second, cpu("1500000", "35"),
			Group{CPU: 500_000_000, CPUKnown: true, Throttled: 25_000, ThrottledKnown: true},
		},
		{
			"two cores for 4 s", 4 * time.Second, cpu("9500000", "35"),
			Group{CPU: 2_000_000_000, CPUKnown: true, ThrottledKnown: true},
		},
		{"garbage", time.Second, "usage_usec nan\nthrottled_usec\n", Group{}},
		{"empty", time.Second, "", Group{}},
		{
			"back: of 3 s", time.Second, cpu("11000000", "65"),
			Group{CPU: 500_000_000, CPUKnown: true, Throttled: 30_000, ThrottledKnown: true},
		},
		{"backwards", time.Second, cpu("10", "0"), Group{}},
		{
			"on from there", time.Second, cpu("1000010", "0"),
			Group{CPU: 1_000_000_000, CPUKnown: true, ThrottledKnown: true},
		},
		{"a clock that stands still", 0, cpu("1000020", "0"), Group{}},
		{"a clock that goes back", -time.Second, cpu("1000030", "0"), Group{}},
		{"cut short", time.Second, "usage_usec 99", Group{}},
		{"overflow", time.Second, cpu("18446744073709551615", "18446744073709551615"), Group{}},
		{"more than two cores can give", time.Second, cpu("4000000000000000", "0"), Group{ThrottledKnown: true}},
	} {
		now = now.Add(step.after)
		files(
			t, dir,
			map[string]string{
				"cpu.stat": step.cpu, "memory.current": "9000\n",
				"memory.stat": "inactive_file 4000\nactive_file 1000\n",
			},
		)
		if err := s.Sweep(now, &out); err != nil {
			t.Fatal(err)
		}
		want := step.want
		want.Key, want.Memory, want.MemoryKnown = "task", 4000, true
		if out.Groups[0] != want {
			t.Errorf("%s: %+v; want %+v", step.name, out.Groups[0], want)
		}
		if out.Sequence != uint64(i+1) || !out.At.Equal(now) {
			t.Errorf("%s: sweep %d at %v", step.name, out.Sequence, out.At)
		}
	}
}

// The busy time of the machine is neither idle, nor waiting for a disk, nor stolen.
func TestNode(t *testing.T) {
	proc := fakeProc(t)
	s, err := New(Config{Proc: proc})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, s)
	now, pressure := time.Unix(1000, 0), Pressure{Avg10: 1234, Full: 100, Known: true}
	full := Node{
		Cores: 2, MemoryTotal: 2000 << 10, MemoryAvailable: 1500 << 10, MemoryKnown: true, Load1: 1250, LoadKnown: true,
		CPUPressure: pressure, MemoryPressure: pressure, CPUKnown: true,
	}
	with := func(change func(*Node)) Node { n := full; change(&n); return n }
	total := strings.SplitAfter(stat, "\n")[0]
	for _, step := range []struct {
		name, file, text string
		want             Node
	}{
		{"first", "stat", stat, with(func(n *Node) { n.CPUKnown = false })},
		{
			"busy 1.5 cores", "stat", strings.Replace(stat, total, "cpu  1050 220 340 40500 900 80 90 580 90 0\n", 1),
			with(func(n *Node) { n.CPU = 1_500_000_000 }),
		},
		{
			"busier than all, by the grain of the counters", "stat",
			strings.Replace(stat, total, "cpu  1260 220 340 40500 900 80 90 580 90 0\n", 1),
			with(func(n *Node) { n.CPU = 2_000_000_000 }),
		},
		{"backwards", "stat", stat, with(func(n *Node) { n.CPUKnown = false })},
		{"negative", "stat", strings.Replace(stat, " 300 ", " -300 ", 1), with(func(n *Node) { n.CPUKnown = false })},
		{
			"few fields", "stat", "cpu  1 2 3\ncpu0 1 2 3\nintr 1\n",
			with(func(n *Node) { n.Cores, n.CPUKnown = 1, false }),
		},
		{"cut short", "stat", stat[:60], with(func(n *Node) { n.Cores, n.CPUKnown = 0, false })},
		{"empty", "stat", "", with(func(n *Node) { n.Cores, n.CPUKnown = 0, false })},
		{
			"many processors", "stat",
			total + strings.Repeat("cpu7 500 100 150 20000 250 30 35 40 45 0\n", 1024) + "intr 1\n",
			with(func(n *Node) { n.Cores = 1024 }),
		},
		{
			"no memory", "meminfo", "MemTotal: 5 kB\n",
			with(func(n *Node) { n.Cores, n.MemoryTotal, n.MemoryAvailable, n.MemoryKnown = 1024, 0, 0, false }),
		},
		{
			"more than there is", "meminfo", strings.Replace(meminfo, "1500", "2500", 1),
			with(func(n *Node) { n.Cores, n.MemoryTotal, n.MemoryAvailable, n.MemoryKnown = 1024, 0, 0, false }),
		},
		{"no load", "loadavg", "nan", with(func(n *Node) {
			n.Cores, n.MemoryTotal, n.MemoryAvailable, n.MemoryKnown, n.Load1, n.LoadKnown = 1024, 0, 0, false, 0, false
		})},
	} {
		files(t, proc, map[string]string{step.file: step.text})
		var out Sweep
		now = now.Add(time.Second)
		if err := s.Sweep(now, &out); err != nil || out.Node != step.want {
			t.Errorf("%s: %+v, %v; want %+v", step.name, out.Node, err, step.want)
		}
	}
}

// Without pressure files (an old kernel) pressure is not known; without the other files nothing
// can be measured.
func TestMachinesThatTellLess(t *testing.T) {
	proc := fakeProc(t)
	if err := os.RemoveAll(filepath.Join(proc, "pressure")); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Proc: proc})
	if err != nil {
		t.Fatal(err)
	}
	var out Sweep
	if err := s.Sweep(
		time.Unix(1, 0), &out,
	); err != nil || out.Node.CPUPressure.Known || out.Node.MemoryPressure.Known || !out.Node.MemoryKnown {
		t.Errorf("%+v, %v", out.Node, err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Sweep(time.Unix(2, 0), &out); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a sampler that is closed: %v", err)
	}
	if _, err := New(Config{Proc: t.TempDir()}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// For any content of the machine's files, no value is negative and nothing panics.
func FuzzNode(f *testing.F) {
	for _, seed := range []string{
		stat, meminfo, loadavg, stalled, "cpu  9223372036854775807 9223372036854775807 0 0 0 0 0\ncpu0\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		busy, cores, whole, ok := parseStat(b)
		total, available, memoryOK := parseMeminfo(b)
		load, _ := parseLoad(b)
		p := pressureOf(b)
		if min(
			busy, cores, total, available, load, p.Avg10, p.Full,
		) < 0 || ok && !whole || memoryOK && available > total {
			t.Errorf(
				"%q is busy %d (%v, whole %v), %d cores, memory %d of %d, load %d, pressure %+v", b, busy, ok, whole,
				cores, available, total, load, p,
			)
		}
	})
}

// The effect of an action is in the next sample, unlike in the kernel's averages.
func TestPressureIsThatSinceTheLastSweep(t *testing.T) {
	var c counter
	start := time.Unix(1000, 0)
	if _, ok := c.share(start, 5_000_000, true); ok {
		t.Error("the first value tells a share")
	}
	for _, step := range []struct {
		seconds, micros, want int64
		ok                    bool
	}{
		{1, 5_250_000, 25_00, true},
		{2, 5_250_000, 0, true},
		{3, 9_000_000, 100_00, true},
		{4, 1, 0, false},
		{5, 100_001, 10_00, true},
	} {
		got, ok := c.share(start.Add(time.Duration(step.seconds)*time.Second), step.micros, true)
		if got != step.want || ok != step.ok {
			t.Errorf("after %d s: %d, %v; want %d, %v", step.seconds, got, ok, step.want, step.ok)
		}
	}
}
