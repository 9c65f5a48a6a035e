package nodeqos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// tasksCPU is the use of all tasks, as a form of cpu. Unlike the machine's use, it does not depend
// on other programs.
func tasksCPU() Metric {
	return Metric{Metric: qos.Metric{
		Name: "tasks_cpu", Unit: "cores", Scale: qos.Core, Dimension: qos.DimensionCPU,
		Throttleable: true, ThrottleQuantified: true, Evictable: true, EvictQuantified: true,
		Usage: func(v *qos.View) (sum int64, ok bool) {
			for i := range v.Tasks {
				if !v.Tasks[i].CPUKnown {
					return 0, false
				}
				sum += v.Tasks[i].CPU
			}
			return sum, true
		},
	}}
}

// burners starts a burner in each of a number of groups without limits.
func burners(t testing.TB, s *cgroup.Subtree, count int) (tasks []Task, groups []*cgroup.Group) {
	t.Helper()
	for i := range count {
		task := Task{
			ID: "burner-" + strconv.Itoa(i), Attempt: 1, Class: plimsoll.ClassBestEffort,
			Started: time.Now().UnixNano(),
		}
		task.Group = task.ID + "-1"
		g, err := s.Create(task.Group, cgroup.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		burner(t, g)
		tasks, groups = append(tasks, task), append(groups, g)
	}
	return tasks, groups
}

// The loop by itself, on real burners: their use comes down to the line and is held there by
// quotas. When no rule speaks of them any more, they have no quotas, as before.
func TestRealBurnersAreBroughtToTheLine(t *testing.T) {
	s := subtree(t)
	tasks, groups := burners(t, s, 3)
	r := run(
		t, Config{Dir: t.TempDir(), Subtree: s, Interval: 100 * time.Millisecond, Metrics: []Metric{tasksCPU()}},
		tasks...,
	)
	defer r.end(t)
	p := policies(
		plimsoll.Action{Throttle: &plimsoll.ThrottleAction{Step: 50}},
		plimsoll.Rule{Metric: "tasks_cpu", Waterline: "150m", Release: "120m"},
	)
	r.SetPolicies(p)
	eventually(
		t, "being triggered",
		func() bool { st := r.Status(); return len(st.GetLines()) > 0 && st.GetLines()[0].GetTriggered() },
	)
	var usage []int64
	eventually(t, "staying below the line", func() bool {
		st := r.Status()
		usage = append(usage, st.GetLines()[0].GetUsage())
		if len(usage) < 5 {
			return false
		}
		return slices.Max(usage[len(usage)-5:]) <= 150_000_000*105/100
	})
	limited := 0
	for _, g := range groups {
		l, err := g.Limits()
		if err != nil {
			t.Fatal(err)
		}
		if l.CPUMilli > 0 {
			limited++
		}
	}
	if limited == 0 {
		t.Error("below the line without a quota")
	}
	r.SetPolicies(nil)
	eventually(t, "giving everything back", func() bool {
		return !slices.ContainsFunc(
			groups, func(g *cgroup.Group) bool { l, err := g.Limits(); return err != nil || l.CPUMilli != 0 },
		)
	})
}

// A loop that is not asked for pressure sets no trigger. One that is samples as soon as the kernel
// says so, and not only at its interval.
func TestPressureWakesTheLoop(t *testing.T) {
	if _, err := cgroup.MachinePressure("", cgroup.CPU); err != nil {
		t.Skipf("the kernel tells no pressure: %v", err)
	}
	s := subtree(t)
	tasks, _ := burners(t, s, 2*runtime.NumCPU())
	r := run(t, Config{Dir: t.TempDir(), Subtree: s, Interval: MaxInterval}, tasks...)
	defer r.end(t)
	r.SetPolicies(policies(throttleByFifth, plimsoll.Rule{Metric: qos.CPUPressure, Waterline: "50"}))
	trigger, err := cgroup.WatchMachinePressure(
		"", cgroup.Watch{Resource: cgroup.CPU, Kind: cgroup.Some, Stall: stall, Window: stallWindow},
	)
	if err != nil {
		t.Skipf("the kernel has no triggers: %v", err)
	}
	defer func() {
		if err := trigger.Close(); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "a sample before its time", func() bool {
		r.state.Lock()
		// the next one would be in a minute, and pressure is no reason for one so soon after the
		// first
		if r.state.number == 1 {
			r.state.last = time.Now().Add(-MaxInterval)
		}
		r.state.Unlock()
		samples, _ := r.count()
		return samples > 1
	})
}

// The use that other tasks leave is lent to holders of extended processors. When the others want it
// back, the holders are throttled. Amounts that they still hold are not withdrawn on paper.
func TestWhatIsLentIsTakenBackByThrottling(t *testing.T) {
	n := newNode(t, subtree(t))
	n.cfg.Extended = ExtendedConfig{Enabled: true, CPUReserve: 10, WarmUp: 3 * time.Second, HalfLife: time.Minute}
	n.cfg.Allocatable = plimsoll.Resources{plimsoll.CPU: 2000, plimsoll.Memory: 1 << 30}
	n.loop = n.start()
	busy := 0
	tick := func(cores float64) { // the machine's own counters go on
		busy += int(cores * 100)
		writeFile(
			n.t, filepath.Join(n.cfg.Proc, "stat"),
			fmt.Sprintf(
				"cpu  %d 0 0 100 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0 0 0\nintr 1\n", 100+busy,
			),
		)
		n.step()
	}
	tick(0.2)
	if last := n.reports[len(n.reports)-1]; len(last.Extended) > 0 {
		t.Errorf("offered before anything is known: %v", last.Extended)
	}
	for range 6 {
		tick(0.2)
	}
	offer := n.reports[len(n.reports)-1].Extended
	if milli := offer[plimsoll.ExtCPU]; milli < 1500 || milli > 1600 {
		t.Fatalf("offered %v; want 2 cores less a tenth, less 0.2 and a margin", offer)
	}
	if bytes := offer[plimsoll.ExtMemory]; bytes < 350<<20 || bytes > 512<<20 {
		t.Errorf("offered %v; want what is left of half a GiB", offer)
	}
	g := n.add(Task{ID: "a", Class: plimsoll.ClassBestEffort, Resources: plimsoll.Resources{plimsoll.ExtCPU: 1000}})
	c := n.control("a")
	if err := c.SetQuota(cgroup.Quota{Micros: 100_000}); err != nil {
		t.Fatal(err)
	}
	burner(t, g)
	tick(0.2)
	burn := used(t, g)
	eventually(t, "burning", func() bool { return used(t, g) > burn+20*time.Millisecond })
	tick(1.9)
	q, err := c.Quota()
	if err != nil || q.Micros >= 100_000 {
		t.Errorf("the others want everything, and the holder has %v, %v", q, err)
	}
	if offer := n.reports[len(n.reports)-1].Extended; offer[plimsoll.ExtCPU] != 1000 {
		t.Errorf("offered %v; want what is held", offer)
	}
	if err := n.loop.end(); err != nil {
		t.Fatal(err)
	}
	n.loop = n.start()
	tick(1.9)
	tick(1.9)
	if _, ok := n.loop.state.lending.cpu.Peak(n.loop.at(n.now)); !ok {
		t.Error("what was learnt is forgotten after a restart")
	}
	n.kill()
	writeFile(t, n.loop.path(predictorsName), "{")
	n.loop = n.start()
	tick(1.9)
	if offer := n.reports[len(n.reports)-1].Extended; offer[plimsoll.ExtCPU] != 1000 {
		t.Errorf("nothing is known any more, and offered is %v; want what is held", offer)
	}
}

// BenchmarkLoop is one sample of a node with idle tasks: an op is a second of the agent's life.
// cpu-ms/op is its processor time, so the load of a core in tenths of a percent. heap-MB is the
// live heap after it.
func BenchmarkLoop(b *testing.B) {
	for _, tasks := range []int{200, 1000} {
		b.Run("tasks="+strconv.Itoa(tasks), func(b *testing.B) {
			n := newNode(b, subtree(b))
			for i := range tasks {
				n.add(
					Task{
						ID: "task-" + strconv.Itoa(i), Class: plimsoll.ClassBestEffort, Priority: int32(i % 7),
						Resources: plimsoll.Resources{plimsoll.CPU: 100},
					},
				)
			}
			n.loop.SetPolicies(
				policies(throttleByFifth, plimsoll.Rule{Metric: qos.CPUTotalUtilization, Waterline: "99"}),
			)
			n.steps(10)
			before := processorTime(b)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				n.step()
			}
			b.StopTimer()
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MB")
			b.ReportMetric(float64(rss(b))/(1<<20), "rss-MB")
		})
	}
}

// BenchmarkCrossing is from a metric being above its line to the quota being in the kernel, while
// the loop runs by itself. late-ms is by how much the slowest was later than one interval, which is
// when the next sample begins.
func BenchmarkCrossing(b *testing.B) {
	const interval = 100 * time.Millisecond
	s := subtree(b)
	var tasks []Task
	for i := range 20 {
		task := Task{
			ID: "task-" + strconv.Itoa(i), Attempt: 1, Class: plimsoll.ClassBestEffort, Started: 1,
			Resources: plimsoll.Resources{plimsoll.CPU: 1000},
		}
		task.Group = task.ID + "-1"
		if _, err := s.Create(task.Group, cgroup.Limits{CPUMilli: 1000}); err != nil {
			b.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	var level atomic.Int64
	r := run(b, Config{
		Dir: b.TempDir(), Proc: fakeProc(b), Subtree: s, Interval: interval, Metrics: []Metric{direct(&level)},
		Options: qos.Options{Settle: time.Millisecond, Lag: time.Millisecond},
	}, tasks...)
	defer r.end(b)
	// otherwise the flapping guard would keep it for longer
	hasty := plimsoll.Action{Throttle: throttleByFifth.Throttle, CoolDown: time.Millisecond}
	r.SetPolicies(policies(hasty, plimsoll.Rule{Metric: "direct"}))
	g, err := s.Open("task-0-1")
	if err != nil {
		b.Fatal(err)
	}
	quota := func() int64 {
		l, err := g.Limits()
		if err != nil {
			b.Fatal(err)
		}
		return l.CPUMilli
	}
	var took []time.Duration
	pause := time.NewTimer(0)
	for b.Loop() {
		eventually(b, "giving back", func() bool { return quota() == 1000 })
		pause.Reset(time.Duration(len(took)*37%100) * time.Millisecond) // at any time between two samples
		<-pause.C
		began := time.Now()
		level.Store(10_500)
		for quota() == 1000 {
			runtime.Gosched()
		}
		took = append(took, time.Since(began))
		level.Store(1000)
	}
	slices.Sort(took)
	b.ReportMetric(float64((took[len(took)-1]-interval).Microseconds())/1000, "late-ms")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
}

func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func rss(t testing.TB) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(data))
	if err == nil && len(fields) < 2 {
		err = errors.New("it is shorter than expected")
	}
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
