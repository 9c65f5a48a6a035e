package cgroup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

func control(t *testing.T, g *Group) *Control {
	t.Helper()
	c, err := g.Control()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// closing closes c at the end of the test.
func closing(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// eachControl runs a test on every real hierarchy that has the controller. Without any, it checks
// the answers of the calls instead.
func eachControl(t *testing.T, controller string, test func(t *testing.T, g *Group, c *Control)) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		g := create(t, s, Limits{})
		c := control(t, g)
		if s.h.mountOf(controller) < 0 {
			unsupported(t, c, controller)
			return
		}
		test(t, g, c)
	})
}

// A request without its controller is ErrUnsupported, and the error names the controller.
func unsupported(t *testing.T, c *Control, controller string) {
	t.Helper()
	calls := map[string]map[string]func() error{
		cpuController: {
			"Quota":         func() error { _, err := c.Quota(); return err },
			"SetQuota":      func() error { return c.SetQuota(Quota{Micros: 50_000}) },
			"Burst":         func() error { _, err := c.Burst(); return err },
			"SetBurst":      func() error { return c.SetBurst(1000) },
			"Scheduling":    func() error { _, err := c.Scheduling(); return err },
			"SetScheduling": func() error { return c.SetScheduling(Scheduling{Idle: true}) },
		},
		memoryController: {"Reclaim": func() error { _, err := c.Reclaim(t.Context(), Everything); return err }},
	}
	for name, call := range calls[controller] {
		if err := call(); !errors.Is(
			err, ErrUnsupported,
		) || plimsoll.CodeOf(err) != plimsoll.CodeUnimplemented || !strings.Contains(err.Error(), controller) {
			t.Errorf("%s without the controller %s: %v", name, controller, err)
		}
	}
}

// kernelFile reads a file of the group in a controller's hierarchy, without the code under test.
func kernelFile(t *testing.T, g *Group, controller, v1, v2 string) string {
	t.Helper()
	dir, isV2 := g.controller(controller)
	file := v1
	if isV2 {
		file = v2
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// A quota is in the kernel when SetQuota returns, and Quota reads it back. Without a period, the
// present one stays.
func TestQuotaIsSeenInTheKernel(t *testing.T) {
	eachControl(t, cpuController, func(t *testing.T, g *Group, c *Control) {
		if q, err := c.Quota(); err != nil || q != (Quota{-1, 100_000}) {
			t.Errorf("a new group has %+v, %v; want no limit", q, err)
		}
		for _, step := range []struct {
			set, want Quota
			v1, v2    string
		}{
			{Quota{50_000, 100_000}, Quota{50_000, 100_000}, "50000", "50000 100000"},
			{Quota{1000, 0}, Quota{1000, 100_000}, "1000", "1000 100000"},
			{Quota{10_000, 20_000}, Quota{10_000, 20_000}, "10000", "10000 20000"},
			{Quota{300_000, 200_000}, Quota{300_000, 200_000}, "300000", "300000 200000"},
			{Quota{-1, 100_000}, Quota{-1, 100_000}, "-1", "max 100000"},
			{Quota{70_000, 0}, Quota{70_000, 100_000}, "70000", "70000 100000"},
			{Quota{-5, 0}, Quota{-1, 100_000}, "-1", "max 100000"},
		} {
			if err := c.SetQuota(step.set); err != nil {
				t.Fatalf("set %v: %v", step.set, err)
			}
			if got := kernelFile(t, g, cpuController, "cpu.cfs_quota_us", "cpu.max"); got != step.v1 && got != step.v2 {
				t.Errorf("after %v the kernel has %q", step.set, got)
			}
			if got, err := c.Quota(); err != nil || got != step.want {
				t.Errorf("after %v the quota is %+v, %v; want %+v", step.set, got, err, step.want)
			}
		}
	})
}

// A quota that the kernel cannot have is refused before any write. The error names the quotas that
// would be accepted.
func TestQuotaThatIsRefusedChangesNothing(t *testing.T) {
	eachControl(t, cpuController, func(t *testing.T, _ *Group, c *Control) {
		before := Quota{50_000, 100_000}
		if err := errors.Join(c.SetQuota(before), c.SetBurst(20_000)); err != nil {
			t.Fatal(err)
		}
		for name, step := range map[string]struct {
			quota Quota
			want  string
		}{
			"nothing":               {Quota{0, 0}, "less than the 1000us"},
			"under the minimum":     {Quota{999, 0}, "less than the 1000us"},
			"period too short":      {Quota{5000, 999}, "not between 1000us and 1000000us"},
			"period too long":       {Quota{5000, 1_000_001}, "not between 1000us and 1000000us"},
			"less than its burst":   {Quota{10_000, 0}, "not less than the burst of 20000us"},
			"and with a new period": {Quota{10_000, 50_000}, "not less than the burst of 20000us"},
		} {
			err := c.SetQuota(step.quota)
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), step.want) {
				t.Errorf("%s: got %v; want %q", name, err, step.want)
			}
			if q, err := c.Quota(); err != nil || q != before {
				t.Errorf("%s: the quota is %v, %v; want what it was", name, q, err)
			}
		}
	})
}

// With v1 a group has no more than its parent: the kernel says EINVAL, and the error gives the
// parent's quota.
func TestQuotaAboveTheParentsIsExplained(t *testing.T) {
	eachControl(t, cpuController, func(t *testing.T, g *Group, c *Control) {
		dir, v2 := g.controller(cpuController)
		file, value := "cpu.cfs_quota_us", "60000"
		if v2 {
			file = "cpu.max"
		}
		if err := write(filepath.Join(filepath.Dir(dir), file), value); err != nil {
			t.Fatal(err)
		}
		err := c.SetQuota(Quota{80_000, 0})
		switch {
		case v2 && err != nil:
			t.Errorf("v2 takes it, and the group has what its parent has: %v", err)
		case !v2 && (plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !errors.Is(err, unix.EINVAL) ||
			!strings.Contains(err.Error(), "refuses 80000us;") ||
			!strings.Contains(err.Error(), "no more than the parent's 60000us of 100000us")):
			t.Errorf("got %v", err)
		}
	})
}

// Under a parent's limit every change of quota and period succeeds, whichever of the two files must
// be written first.
func TestPeriodChangesUnderAParentsLimit(t *testing.T) {
	eachControl(t, cpuController, func(t *testing.T, g *Group, c *Control) {
		dir, v2 := g.controller(cpuController)
		file := "cpu.cfs_quota_us"
		if v2 {
			file = "cpu.max"
		}
		if err := write(filepath.Join(filepath.Dir(dir), file), "60000"); err != nil {
			t.Fatal(err)
		}
		for _, q := range []Quota{
			{50_000, 100_000},
			{10_000, 20_000},
			{300_000, 600_000},
			{-1, 20_000},
			{12_000, 20_000},
			{6000, 10_000},
			{600_000, 1_000_000},
			{-1, 100_000},
		} {
			if err := c.SetQuota(q); err != nil {
				t.Errorf("set %v: %v", q, err)
			}
			if got, err := c.Quota(); err != nil || got != q {
				t.Errorf("after %v the quota is %v, %v", q, got, err)
			}
		}
	})
}

// One Control serves many callers, and may be closed meanwhile. A call either succeeds or says that
// the Control is closed, and reaches no other file.
func TestControlServesManyCallers(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		c := control(t, create(t, s, Limits{}))
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for range 50 {
					err := errors.Join(
						c.SetQuota(Quota{Micros: int64(2000 + i)}), c.SetScheduling(Scheduling{Shares: int64(100 + i)}),
					)
					_, frozen := c.Frozen()
					for _, err := range []error{err, frozen} {
						if err != nil && !errors.Is(err, fs.ErrClosed) && !errors.Is(err, ErrUnsupported) {
							t.Error(err)
						}
					}
				}
			})
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		callers.Wait()
	})
}

// Burst is at most the quota.
func TestBurst(t *testing.T) {
	eachControl(t, cpuController, func(t *testing.T, g *Group, c *Control) {
		if err := errors.Join(c.SetQuota(Quota{50_000, 100_000}), c.SetBurst(30_000)); err != nil {
			t.Fatal(err)
		}
		if got := kernelFile(t, g, cpuController, "cpu.cfs_burst_us", "cpu.max.burst"); got != "30000" {
			t.Errorf("the kernel has %q", got)
		}
		if err := c.SetBurst(50_001); plimsoll.CodeOf(err) != plimsoll.CodeInvalid ||
			!strings.Contains(err.Error(), "at most the quota, which is 50000us of 100000us") {
			t.Errorf("a burst above the quota: %v", err)
		}
		if err := c.SetBurst(-1); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("a negative burst: %v", err)
		}
		if got, err := c.Burst(); err != nil || got != 30_000 {
			t.Errorf("burst is %d, %v", got, err)
		}
	})
}

// SetScheduling restores a weight from Scheduling, also after idle, though the kernel forgets the
// weight of an idle group.
func TestWeightComesBackAfterIdle(t *testing.T) {
	eachControl(t, cpuController, func(t *testing.T, g *Group, c *Control) {
		for _, shares := range []int64{MinShares, 512, 1024, 4321, MaxShares} {
			if err := c.SetScheduling(Scheduling{Shares: shares}); err != nil {
				t.Fatal(err)
			}
			inKernel := kernelFile(t, g, cpuController, "cpu.shares", "cpu.weight")
			before, err := c.Scheduling()
			if err != nil || before.Idle {
				t.Fatalf("scheduling is %+v, %v", before, err)
			}
			if err := c.SetScheduling(Scheduling{Idle: true}); err != nil {
				t.Fatal(err)
			}
			if got := kernelFile(t, g, cpuController, "cpu.idle", "cpu.idle"); got != "1" {
				t.Errorf("cpu.idle is %q", got)
			}
			if got, err := c.Scheduling(); err != nil || got != (Scheduling{Idle: true}) {
				t.Errorf("an idle group is %+v, %v", got, err)
			}
			if err := c.SetScheduling(before); err != nil {
				t.Fatal(err)
			}
			if got := kernelFile(t, g, cpuController, "cpu.shares", "cpu.weight"); got != inKernel {
				t.Errorf("the weight was %s, and is %s after idle", inKernel, got)
			}
			if got, err := c.Scheduling(); err != nil || got != before {
				t.Errorf("scheduling was %+v, and is %+v, %v", before, got, err)
			}
		}
		for _, s := range []Scheduling{{}, {Shares: 1}, {Shares: MaxShares + 1}, {Shares: -5}} {
			if err := c.SetScheduling(s); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
				t.Errorf("%+v: %v", s, err)
			}
		}
	})
}

// Each v2 weight survives being read as shares and written back.
func TestWeightsAndSharesAreInverse(t *testing.T) {
	for w := int64(1); w <= 10_000; w++ {
		if got := weightOf(sharesOf(w)); got != w {
			t.Fatalf("weight %d is %d shares, which is weight %d", w, sharesOf(w), got)
		}
	}
	if sharesOf(1) != MinShares || sharesOf(10_000) != MaxShares {
		t.Errorf("the ends are %d and %d shares", sharesOf(1), sharesOf(10_000))
	}
}

// cpuTime returns the group's processor time.
func cpuTime(t *testing.T, g *Group) time.Duration {
	t.Helper()
	u, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return u.CPU
}

// A spinner under a quota of a fifth of a processor gets about a fifth. The test has only an upper
// bound, because other processes may want the processor too.
func TestQuotaHoldsASpinner(t *testing.T) {
	eachControl(t, cpuController, func(t *testing.T, g *Group, c *Control) {
		if err := c.SetQuota(Quota{20_000, 100_000}); err != nil {
			t.Fatal(err)
		}
		shell(t, g, "while :; do :; done")
		eventually(t, "the spinner being throttled", func() bool {
			return reading(t, g).Throttled > 0
		})
		start, before := time.Now(), cpuTime(t, g)
		eventually(t, "a second of the clock and some processor time", func() bool {
			return time.Since(start) > time.Second && cpuTime(t, g) > before
		})
		used := float64(cpuTime(t, g)-before) / float64(time.Since(start))
		t.Logf("used %.3f of a processor", used)
		if used > 0.30 {
			t.Errorf("used %.2f of a processor; the quota is 0.20", used)
		}
	})
}

func reading(t *testing.T, g *Group) Reading {
	t.Helper()
	r, err := g.Reader(ReaderOptions{Pressure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, r)
	var out Reading
	if err := r.Read(make([]byte, 16<<10), &out, true); err != nil {
		t.Fatal(err)
	}
	return out
}

// A process in a frozen group does not run, which its counter shows, and continues when thawed.
func TestFreezeStopsASpinner(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		g := create(t, s, Limits{})
		c := control(t, g)
		shell(t, g, "while :; do :; done")
		eventually(t, "processor time", func() bool { return cpuTime(t, g) > 0 })
		if frozen, err := c.Frozen(); err != nil || frozen {
			t.Fatalf("frozen is %v, %v", frozen, err)
		}
		if err := c.Freeze(timeLimit(t)); err != nil {
			t.Fatal(err)
		}
		if frozen, err := c.Frozen(); err != nil || !frozen {
			t.Fatalf("frozen is %v, %v", frozen, err)
		}
		stopped, start := cpuTime(t, g), time.Now()
		eventually(t, "a fifth of a second", func() bool { return time.Since(start) > 200*time.Millisecond })
		if now := cpuTime(t, g); now-stopped > 20*time.Millisecond {
			t.Errorf("a frozen group used %v", now-stopped)
		}
		if err := errors.Join(c.Thaw(), c.Thaw()); err != nil {
			t.Fatal(err)
		}
		eventually(
			t, "processor time after thawing", func() bool { return cpuTime(t, g) > stopped+50*time.Millisecond },
		)
	})
}

// An empty group stands still at once.
func TestFreezeAnEmptyGroup(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		c := control(t, create(t, s, Limits{}))
		if err := errors.Join(c.Freeze(timeLimit(t)), c.Thaw()); err != nil {
			t.Error(err)
		}
	})
}

// A group that is not frozen in time runs again, and the error says so.
func TestFreezeEndsWithItsContext(t *testing.T) {
	h, err := Detect(fakeV2(t, "cpu memory"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Subtree("plimsoll/n1")
	if err != nil {
		t.Fatal(err)
	}
	g := create(t, s, Limits{})
	fakeGroup(t, g.dirs[0], map[string]string{"cgroup.freeze": "0\n", "cgroup.events": "populated 1\nfrozen 0\n"})
	c := control(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Freeze(ctx); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "does not stand still") {
		t.Errorf("got %v", err)
	}
	if frozen, err := c.Frozen(); err != nil || frozen {
		t.Errorf("after a freeze that failed: frozen is %v, %v", frozen, err)
	}
}

// Kill ends processes that Control has frozen.
func TestKillReachesAFrozenGroup(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		g := create(t, s, Limits{})
		c := control(t, g)
		cmd := shell(t, g, "sleep 1000 & sleep 1000 & wait")
		eventually(t, "the processes in the group", func() bool { return len(pids(t, g)) == 3 })
		if err := c.Freeze(timeLimit(t)); err != nil {
			t.Fatal(err)
		}
		if err := g.Kill(timeLimit(t)); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
	})
}

// Once a group is removed every call is ErrGone, even when a new group has the same name.
func TestAGroupThatIsGone(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		g := create(t, s, Limits{})
		c := control(t, g)
		r, err := g.Reader(ReaderOptions{Pressure: true})
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, r)
		trigger := trigger(t, s, c)
		if err := g.Remove(timeLimit(t)); err != nil {
			t.Fatal(err)
		}
		if trigger != nil {
			if err := trigger.Wait(timeLimit(t)); !errors.Is(err, ErrGone) {
				t.Errorf("a trigger of a group that is gone: %v", err)
			}
		}
		if _, err := g.Control(); !errors.Is(err, ErrGone) || plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			t.Errorf("opening a group that is gone: %v", err)
		}
		if _, err := g.Reader(ReaderOptions{}); !errors.Is(err, ErrGone) {
			t.Errorf("reading a group that is gone: %v", err)
		}
		create(t, s, Limits{})
		var out Reading
		for name, call := range map[string]func() error{
			"Read":       func() error { return r.Read(make([]byte, 4096), &out, true) },
			"Thaw":       c.Thaw,
			"Freeze":     func() error { return c.Freeze(t.Context()) },
			"Frozen":     func() error { _, err := c.Frozen(); return err },
			"Quota":      func() error { _, err := c.Quota(); return err },
			"SetQuota":   func() error { return c.SetQuota(Quota{5000, 0}) },
			"Scheduling": func() error { return c.SetScheduling(Scheduling{Shares: 2}) },
			"Idle":       func() error { return c.SetScheduling(Scheduling{Idle: true}) },
			"Reclaim":    func() error { _, err := c.Reclaim(t.Context(), Everything); return err },
			"Pressure":   func() error { _, err := c.Pressure(CPU); return err },
		} {
			if err := call(); !errors.Is(err, ErrGone) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s of a group that is gone: %v", name, err)
			}
		}
		if err := c.Thaw(); !errors.Is(err, ErrGone) || errors.Is(err, ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	})
}

// A closed Control says so, and closing it again is fine.
func TestAControlThatIsClosed(t *testing.T) {
	eachReal(t, func(t *testing.T, s *Subtree) {
		c := control(t, create(t, s, Limits{}))
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		if err := c.Thaw(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// EBUSY becomes a conflict that names the value. The test makes the error itself, because the
// kernel has it for few files and not on demand.
func TestErrorsNameTheValue(t *testing.T) {
	c := &Control{name: "task"}
	for _, test := range []struct {
		err  error
		code plimsoll.Code
	}{
		{unix.EBUSY, plimsoll.CodeConflict},
		{unix.EINVAL, plimsoll.CodeInvalid},
		{unix.ERANGE, plimsoll.CodeInvalid},
		{gone(unix.ENODEV), plimsoll.CodeNotFound},
		{unix.EACCES, plimsoll.CodeInternal},
	} {
		err := c.refused(kernelError("file", test.err), "cpu quota", "5000us", "it takes more")
		if plimsoll.CodeOf(err) != test.code || !strings.Contains(err.Error(), "5000us") ||
			!strings.Contains(err.Error(), "cpu quota of the control group task") {
			t.Errorf("%v: got %v (%v)", test.err, err, plimsoll.CodeOf(err))
		}
	}
}

// BenchmarkControl measures the system calls of each action.
func BenchmarkControl(b *testing.B) {
	h, err := Detect(DefaultRoot)
	if err != nil {
		b.Skipf("no control groups that can be written: %v", err)
	}
	s, err := h.Subtree("plimsoll/bench-" + filepath.Base(b.TempDir()))
	if err != nil {
		b.Skipf("no subtree can be made: %v", err)
	}
	g, err := s.Create("task", Limits{})
	if err != nil {
		b.Fatal(err)
	}
	c, err := g.Control()
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := errors.Join(c.Close(), g.Remove(b.Context()), s.Remove()); err != nil {
			b.Error(err)
		}
	}()
	n := int64(0)
	for name, op := range map[string]func() error{
		"quota":      func() error { n++; return c.SetQuota(Quota{Micros: 50_000 + n%2}) },
		"read quota": func() error { _, err := c.Quota(); return err },
		"weight":     func() error { n++; return c.SetScheduling(Scheduling{Shares: 1000 + n%2}) },
		"freeze":     func() error { return errors.Join(c.Freeze(b.Context()), c.Thaw()) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := op(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
