package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// realRoots returns the roots for tests of real groups: the machine's own, its v1 hierarchies alone
// if v2 is mounted beside them, and its v2 hierarchy alone.
func realRoots(t *testing.T) map[string]string {
	t.Helper()
	h, err := Detect(DefaultRoot)
	if err != nil {
		t.Skipf("no control groups that can be written: %v", err)
	}
	roots := map[string]string{h.Version().String(): DefaultRoot}
	if h.Version() != Hybrid {
		return roots
	}
	roots["v2 alone"] = filepath.Join(DefaultRoot, "unified")
	v1 := t.TempDir()
	for _, name := range v1Names {
		if err := os.Symlink(filepath.Join(DefaultRoot, name), filepath.Join(v1, name)); err != nil {
			t.Fatal(err)
		}
	}
	roots["v1 alone"] = v1
	return roots
}

func eachReal(t *testing.T, test func(t *testing.T, s *Subtree)) {
	for name, root := range realRoots(t) {
		t.Run(name, func(t *testing.T) { test(t, realSubtree(t, root)) })
	}
}

func realSubtree(t *testing.T, root string) *Subtree {
	t.Helper()
	h, err := Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Subtree(
		"plimsoll/test-" + filepath.Base(t.TempDir()) + "-" + strings.ReplaceAll(filepath.Base(t.Name()), " ", "_"),
	)
	if err != nil {
		t.Skipf("no subtree can be made: %v", err)
	}
	t.Cleanup(func() {
		names, err := s.List()
		if err != nil {
			t.Error(err)
		}
		for _, name := range names {
			g, err := s.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(g.Kill(timeLimit(t)), g.Remove(timeLimit(t))); err != nil {
				t.Error(err)
			}
		}
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// timeLimit returns a context for kernel work of unknown length. It outlives the test's own
// context, for cleanups.
func timeLimit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func create(t *testing.T, s *Subtree, l Limits) *Group {
	t.Helper()
	g, err := s.Create("task", l)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// shell starts a shell script in the group. The script waits for a line first, so all of it runs as
// a member.
func shell(t *testing.T, g *Group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go\n"+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// eventually waits for a condition that depends on processes outside of the test.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if err := retry(timeLimit(t), func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatalf("%s did not happen: %v", what, err)
	}
}

func pids(t *testing.T, g *Group) []int {
	t.Helper()
	p, err := g.Pids()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLimitsAreSeenInTheKernel(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		if missing := s.h.Missing(); missing != "" {
			t.Skip(missing)
		}
		want := Limits{CPUMilli: 500, MemoryBytes: 64 << 20}
		g := create(t, s, want)
		if got, err := g.Limits(); err != nil || got != want {
			t.Fatalf("limits are %+v, %v; want %+v", got, err, want)
		}
		cpu, _ := g.controller(cpuController)
		if _, err := os.Stat(filepath.Join(cpu, "cpu.shares")); err == nil {
			if n, err := readInt(filepath.Join(cpu, "cpu.shares")); err != nil || n != 512 {
				t.Errorf("cpu.shares is %d, %v; want 512", n, err)
			}
		}
		if u, err := g.Usage(); err != nil || u.CPU != 0 || u.MemoryBytes != 0 {
			t.Errorf("an empty group uses %+v, %v", u, err)
		}
	})
}

func TestGroupWithoutLimits(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		if got, err := create(t, s, Limits{}).Limits(); err != nil || got != (Limits{}) {
			t.Fatalf("limits are %+v, %v; want none", got, err)
		}
	})
}

func TestAddListRemove(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		g := create(t, s, Limits{})
		cmd := shell(t, g, "sleep 1000 & wait")
		eventually(t, "two processes in the group", func() bool { return len(pids(t, g)) == 2 })
		if !slices.Contains(pids(t, g), cmd.Process.Pid) {
			t.Errorf("processes are %v; want %d among them", pids(t, g), cmd.Process.Pid)
		}
		if names, err := s.List(); err != nil || !slices.Equal(names, []string{"task"}) {
			t.Errorf("groups are %v, %v", names, err)
		}
		if err := g.Kill(timeLimit(t)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("the process ended with %v", err)
		}
		if err := g.Remove(timeLimit(t)); err != nil {
			t.Fatal(err)
		}
		if names, err := s.List(); err != nil || len(names) != 0 {
			t.Errorf("groups are %v, %v; want none", names, err)
		}
		if err := errors.Join(g.Kill(timeLimit(t)), g.Remove(timeLimit(t))); err != nil {
			t.Errorf("killing and removing a group that is gone: %v", err)
		}
	})
}

func TestKillReachesForkedIgnoringAndFrozenProcesses(t *testing.T) {
	scripts := map[string]string{
		"ignores signals": "trap '' TERM INT HUP; sleep 1000 & wait; sleep 1000",
		"forks on":        "f() { while :; do (sleep 0.01; (sleep 1000) & ) & sleep 0.01; done; }; f & f & wait",
		"daemonizes":      "setsid sh -c 'setsid sleep 1000 & sleep 1000' & exit 0",
	}
	eachReal(t, func(t *testing.T, s *Subtree) {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				g := create(t, s, Limits{})
				cmd := shell(t, g, script)
				eventually(t, "the processes in the group", func() bool { return len(pids(t, g)) >= 2 })
				for _, f := range g.freezers() {
					if err := f.freeze(); err != nil {
						t.Fatal(err)
					}
				}
				if err := g.Kill(timeLimit(t)); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it was killed, or had ended
				if err := g.Remove(timeLimit(t)); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

func TestProcessBornInItsGroup(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		g := create(t, s, Limits{})
		f, err := g.FD()
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			t.Skip("there is no v2 hierarchy")
		}
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
		if err := errors.Join(cmd.Start(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if got := pids(t, g); !slices.Equal(got, []int{cmd.Process.Pid}) {
			t.Errorf("processes are %v; want %d", got, cmd.Process.Pid)
		}
		if err := g.Kill(timeLimit(t)); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
}

func TestLeave(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		g := create(t, s, Limits{})
		cmd := shell(t, g, "exec sleep 1000")
		if err := s.Hierarchy().Leave(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if got := pids(t, g); len(got) != 0 {
			t.Errorf("processes are %v; want none", got)
		}
		if err := errors.Join(g.Remove(timeLimit(t)), cmd.Process.Kill()); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
}

func TestOutOfMemoryIsCounted(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		if missing := s.h.Missing(); missing != "" {
			t.Skip(missing)
		}
		g := create(t, s, Limits{MemoryBytes: 16 << 20})
		cmd := shell(t, g, "exec dd if=/dev/zero of=/dev/null bs=200M count=1")
		_ = cmd.Wait() // it was killed
		if n, err := g.OOMKills(); err != nil || n < 1 {
			t.Errorf("%d kills, %v; want one", n, err)
		}
		if u, err := g.Usage(); err != nil || u.CPU <= 0 {
			t.Errorf("usage is %+v, %v", u, err)
		}
	})
}

// fakeV2 makes the files that the kernel would make.
func fakeV2(t *testing.T, controllers string) string {
	t.Helper()
	root := t.TempDir()
	fakeGroup(t, root, map[string]string{"cgroup.controllers": controllers})
	fakeGroup(t, filepath.Join(root, "plimsoll"), nil)
	fakeGroup(t, filepath.Join(root, "plimsoll/n1"), map[string]string{"memory.max": "max"})
	fakeGroup(t, filepath.Join(root, "plimsoll/n1/task"), map[string]string{
		"cpu.max": "max 100000", "cpu.weight": "100", "memory.max": "max", "memory.swap.max": "max",
		"memory.oom.group": "0", "pids.max": "max",
		"memory.events": "low 0\noom 1\noom_kill 2\n", "memory.current": "4096\n",
		"cpu.stat": "usage_usec 1500\nuser_usec 1\n", "cgroup.kill": "",
	})
	return root
}

func fakeGroup(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"cgroup.procs": "", "cgroup.subtree_control": ""}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestV2FilesOnAFakeTree(t *testing.T) {
	root := fakeV2(t, "cpuset cpu io memory pids")
	h, err := Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	if h.Version() != V2 || h.Missing() != "" {
		t.Errorf("found %v, missing %q", h.Version(), h.Missing())
	}
	s, err := h.Subtree("plimsoll/n1")
	if err != nil {
		t.Fatal(err)
	}
	want := Limits{CPUMilli: 1500, MemoryBytes: 64 << 20, Pids: 4096}
	g := create(t, s, want)
	if got, err := g.Limits(); err != nil || got != want {
		t.Errorf("limits are %+v, %v; want %+v", got, err, want)
	}
	if err := errors.Join(g.Add(4711), s.LimitMemory(1<<30)); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cgroup.subtree_control": "+cpu +memory +pids", "plimsoll/cgroup.subtree_control": "+cpu +memory +pids",
		"plimsoll/n1/cgroup.subtree_control": "+cpu +memory +pids", "plimsoll/n1/task/pids.max": "4096",
		"plimsoll/n1/memory.max":                  "1073741824",
		"plimsoll/n1/task/cgroup.subtree_control": "", "plimsoll/n1/task/cpu.max": "150000 100000",
		"plimsoll/n1/task/cpu.weight": "59",
		"plimsoll/n1/task/memory.max": "67108864", "plimsoll/n1/task/memory.swap.max": "0",
		"plimsoll/n1/task/memory.oom.group": "1",
		"plimsoll/n1/task/cgroup.procs":     "4711",
	} {
		if got, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", file, got, err, want)
		}
	}
	if n, err := g.OOMKills(); err != nil || n != 2 {
		t.Errorf("%d kills, %v; want 2", n, err)
	}
	if u, err := g.Usage(); err != nil || u != (Usage{CPU: 1500 * time.Microsecond, MemoryBytes: 4096}) {
		t.Errorf("usage is %+v, %v", u, err)
	}
	if got := pids(t, g); !slices.Equal(got, []int{4711}) {
		t.Errorf("processes are %v", got)
	}
}

// The kernel shows a process of an outer pid namespace as 0, and a signal to 0 would reach the
// test's own process group.
func TestKillSparesItsOwnProcessGroup(t *testing.T) {
	h, err := Detect(fakeV2(t, "cpu memory"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Subtree("plimsoll/n1")
	if err != nil {
		t.Fatal(err)
	}
	g := create(t, s, Limits{})
	if err := g.Add(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one try happens all the same
	if err := g.Kill(ctx); err == nil || !strings.Contains(err.Error(), "another pid namespace") {
		t.Errorf("got %v", err)
	}
}

func TestUnusableControlGroupsAreExplained(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct{ root, want string }{
		"not there":        {filepath.Join(empty, "no"), "there are no control groups at"},
		"nothing mounted":  {empty, "no control group hierarchy is mounted below"},
		"no file to write": {fakeV2(t, "cpu memory"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := Detect(c.root)
			if c.want == "" {
				// A directory that is no control group has no kernel files, and none is made in it.
				if _, err = h.Subtree("other"); err == nil || plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
					t.Fatalf("got %v", err)
				}
				return
			}
			if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v; want %q", err, c.want)
			}
		})
	}
}

func TestMissingControllersAreNamed(t *testing.T) {
	h, err := Detect(fakeV2(t, "memory"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(h.Missing(), "no controller for cpu and pids,") {
		t.Errorf("missing: %q", h.Missing())
	}
}

func TestNamesThatLeaveTheSubtreeAreRefused(t *testing.T) {
	h, err := Detect(fakeV2(t, "memory"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Subtree("plimsoll/n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/a"} {
		if _, err := s.Create(name, Limits{}); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("group %q: %v", name, err)
		}
		if name != "a/b" {
			if _, err := h.Subtree(name); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
				t.Errorf("subtree %q: %v", name, err)
			}
		}
	}
}
