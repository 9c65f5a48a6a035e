package qos

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// ids returns the ids of tasks in a sorter's order.
func (s Sorter) ids(tasks ...Task) string {
	out := ""
	for _, i := range s.Sort(tasks) {
		out += tasks[i].ID + " "
	}
	return out
}

func ranked(id string, class plimsoll.Class, priority int32, use int64, started int64) Task {
	return with(task(id, use), func(t *Task) { t.Class, t.Priority, t.Started = class, priority, started })
}

// sentences are the sentences of the design that this package implements, each with its test. The
// quotations are from the design.
var sentences = []struct {
	says string
	test func(t *testing.T)
}{
	{"Compare QOS class first and then class value; those with high priority are ranked later", func(t *testing.T) {
		got := GeneralSorter().ids(
			ranked("g", plimsoll.ClassGuaranteed, -9, 0, 1), ranked("be-hi", plimsoll.ClassBestEffort, 9, 0, 1),
			ranked("be-lo", plimsoll.ClassBestEffort, 1, 0, 1),
		)
		equal(t, got, "be-lo be-hi g ")
	}},
	{"The one with a long running time is ranked later", func(t *testing.T) {
		got := GeneralSorter().ids(
			ranked("old", 1, 0, 9, 10), ranked("new", 1, 0, 1, 90), ranked("unstarted", 1, 0, 1, 0),
		)
		equal(t, got, "unstarted new old ")
	}},
	{"CpuUsageSorter: classAndPriority, cpuUsage, extCpuUsage, runningTime", func(t *testing.T) {
		ext := with(ranked("ext", 1, 0, Core, 1), func(t *Task) { t.ExtCPU = Core })
		got := CPUUsageSorter().ids(
			ranked("old", 1, 0, Core, 1), ranked("young", 1, 0, Core, 9), ext, ranked("heavy", 1, 0, 2*Core, 1),
			ranked("hi", 1, 1, 9*Core, 1),
		)
		equal(t, got, "heavy ext young old hi ")
	}},
	{"whether the extended CPU resources are used by two pods; if both are used, the ratio of usage to limit", func(
		t *testing.T,
	) {
		holds := func(n int64) func(t *Task) { return func(t *Task) { t.ExtCPU = n } }
		got := ExtCPUUsageSorter().ids(
			task("none", 9*Core), with(task("half", Core), holds(2*Core)), with(task("third", Core), holds(3*Core)),
		)
		equal(t, got, "third half none ")
	}},
	{"customized sorting of pods can be realized by freely matching the general sorting methods", func(t *testing.T) {
		rate := func(n int64) func(t *Task) { return func(t *Task) { t.Values = map[string]int64{"rate": n} } }
		got := OrderedBy(ClassAndPriority, ByValue("rate"), RunningTime).ids(
			task("unknown", 0), with(task("slow", 0), rate(1)), with(task("fast", 0), rate(2)),
		)
		equal(t, got, "fast slow unknown ")
	}},
	{"ActionPriority: 0 is the lowest and 10 is the highest", func(t *testing.T) {
		for _, n := range []int{-1, 11} {
			if _, err := NewRegistry(Metric{Name: "m", ActionPriority: n}); err == nil {
				t.Errorf("%d is accepted", n)
			}
		}
	}},
	{"if the metric has a sorting method it uses its sortfunc; if not, generalsorter", func(t *testing.T) {
		heavy := with(task("old", 9*Core), func(t *Task) { t.Values = map[string]int64{"m": 9} })
		young := with(task("young", Core), func(t *Task) { t.Values, t.Started = map[string]int64{"m": 9}, 5 })
		x := newStageWith(
			t, rules(evicting(), "m", "1"), []Metric{{Name: "m", Scale: 1, Evictable: true, EvictQuantified: true}},
			heavy, young,
		)
		x.want(told(x.sample("m", int64(2))), "evict young")
		y := newStage(t, rules(evicting(), CPUTotalUsage, "1"), heavy, young)
		y.want(told(y.sample(CPUTotalUsage, 2*Core)), "evict old")
	}},
	{"for memory usage the pod can only be expelled, and effective suppression cannot be carried out", func(
		t *testing.T,
	) {
		a := throttling()
		a.Weight = &plimsoll.WeightAction{Idle: true}
		x := newStage(
			t, rules(a, MemoryTotalUsage, "1G"), with(task("a", Core), func(t *Task) { t.Memory = 2_000_000_000 }),
		)
		x.want(told(x.sample(MemoryTotalUsage, int64(2_000_000_000))), "")
	}},
	{"CPU usage released after suppression can be calculated by the current running value and the value after suppression", func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
		res := x.sample(CPUTotalUsage, 4500*milliCore)
		equal(t, fmt.Sprint(res.Steps[0].Release), fmt.Sprint([]Amount{{DimensionCPU, 400 * milliCore}}))
	}},
	{"three waterline sets: throttledown, throttleup and evict", func(t *testing.T) {
		a := throttling()
		a.Evict = &plimsoll.EvictAction{}
		x := newStage(t, rules(a, CPUTotalUsage, "4", CPUTotalUsage, "6"), task("a", Core))
		x.do(x.sample(CPUTotalUsage, 7*Core))
		res := x.sample(CPUTotalUsage, 5*Core)
		equal(t, fmt.Sprint(lines(res.Down), lines(res.Up), lines(res.Evict)),
			"map[cpu_total_usage:[4000000000]] map[cpu_total_usage:[6000000000]] map[cpu_total_usage:[4000000000]]")
	}},
	{"the difference between the consumption and the minimum value in the waterline", func(t *testing.T) {
		x := newStage(
			t, rules(evicting(), CPUTotalUsage, "6", CPUTotalUsage, "4", CPUTotalUsage, "5"), task("a", Core),
			task("b", Core),
		)
		res := x.sample(CPUTotalUsage, 5500*milliCore)
		x.want(told(res), "evict a, evict b")
		if least, ok := Smallest(res.Evict, CPUTotalUsage); !ok || least != 4*Core {
			t.Errorf("the smallest is %d", least)
		}
	}},
	{"the gap value is always kept positive", func(t *testing.T) {
		for _, use := range []int64{0, 4 * Core, 9 * Core} {
			x := newStage(t, rules(evicting(), CPUTotalUsage, "4"))
			if gap := x.sample(CPUTotalUsage, use).Rules[0].Gap; gap != max(use-4*Core, 4*Core-use) {
				t.Errorf("at %d it is %d", use, gap)
			}
		}
	}},
	{"if there is a metric that cannot be quantized, the metric with the highest action priority suppresses all the selected pods", func(t *testing.T) {
		x := newStage(t, rules(throttling(), Load, "10"), task("a", Core), task("b", 2*Core))
		x.want(
			told(x.sample(Load, int64(11_000))), "throttle a unlimited → 0.8 cores, throttle b unlimited → 1.6 cores",
		)
	}},
	{"a metric whose real-time usage cannot be obtained: suppress all the selected pods", func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", Core), task("b", 2*Core))
		x.sample(CPUTotalUsage, 4*Core+1)
		got := ""
		for range 8 {
			got += told(x.sample())
		}
		if got == "" {
			t.Error("nobody is")
		}
	}},
	{"or, as a rule may say, hold: nothing is done while its usage cannot be obtained", func(t *testing.T) {
		p := rules(throttling(), CPUTotalUsage, "4")
		p[2].NodeQOS.Rules[0].Hold = true
		x := newStage(t, p, task("a", Core))
		x.sample(CPUTotalUsage, 4*Core+1)
		for range 8 {
			x.want(told(x.sample()), "")
		}
	}},
	{"it will traverse with the registered metric, avoiding a metric that is not registered", func(t *testing.T) {
		x := newStage(t, rules(evicting(), "typo_total", "4"), task("a", Core))
		res := x.sample("typo_total", int64(9_000))
		x.want(told(res), "")
		if !res.Rules[0].Absent {
			t.Error("it is not said")
		}
	}},
	{"until the gap corresponding to this metric no longer exists: just below the water level, and no further", func(
		t *testing.T,
	) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", 3*Core), task("b", 2*Core), task("c", Core))
		x.want(told(x.sample(CPUTotalUsage, 8*Core)), "evict a, evict b")
	}},
	{"to reduce the CPU usage as soon as possible, select the pod with more CPU usage", func(t *testing.T) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("light", Core), task("heavy", 3*Core))
		x.want(told(x.sample(CPUTotalUsage, 5*Core)), "evict heavy")
	}},
	{"it is necessary to judge whether the pod has been expelled; take out a pod that has not been executed", func(
		t *testing.T,
	) {
		x := newStage(
			t, rules(evicting(), CPUTotalUsage, "4", MemoryTotalUsage, "1G"),
			with(task("a", Core), func(t *Task) { t.Memory = 1e9 }),
			with(task("b", 0), func(t *Task) { t.Memory = 2e9 }),
		)
		x.want(told(x.sample(CPUTotalUsage, 5*Core, MemoryTotalUsage, int64(3_500_000_000))), "evict a, evict b")
	}},
	{"RestoreFunc: after being throttled, to execute the recovery action", func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
		x.do(x.sample(CPUTotalUsage, 4500*milliCore))
		x.want(told(x.sample(CPUTotalUsage, 3*Core)), "restore a 1.6 cores → 1.92 cores")
	}},
	{"you can define your own metric and register it; its functions are used", func(t *testing.T) {
		m := Metric{
			Name: "net_rate", Scale: 1, Throttleable: true, ThrottleQuantified: true,
			Throttle: func(t *Task, _ Throttling) ([]QuotaChange, int64) {
				return []QuotaChange{{Group: 0, Before: Unlimited, After: Core}}, t.Values["net_rate"] / 2
			},
		}
		rate := func(t *Task) { t.Values = map[string]int64{"net_rate": 100} }
		x := newStageWith(
			t, rules(throttling(), "net_rate", "150"), []Metric{m}, with(task("a", Core), rate),
			with(task("b", Core), rate),
		)
		res := x.sample("net_rate", int64(200))
		x.want(told(res), "throttle a unlimited → 1 core")
		if res.Rules[0].LeftGap != 0 {
			t.Errorf("%d is left", res.Rules[0].LeftGap)
		}
	}},
}

// TestSentences runs the tests of the design's sentences.
func TestSentences(t *testing.T) {
	for _, s := range sentences {
		t.Run(s.says, s.test)
	}
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestLadder: weight first, and a wait for the next sample. Then quotas step by step. Then the end
// of tasks, for the rest that quotas cannot release.
func TestLadder(t *testing.T) {
	a := &plimsoll.Action{
		CoolDown: 10 * time.Second, Weight: &plimsoll.WeightAction{Idle: true},
		Throttle: &plimsoll.ThrottleAction{MinRatio: 50, Step: 20}, Evict: &plimsoll.EvictAction{},
	}
	limited := func(t *Task) { t.Groups[0].Limit = 2 * Core }
	x := newStage(t, rules(a, CPUTotalUsage, "4"), with(task("a", 2*Core), limited), with(task("b", 2*Core), limited))
	x.want(told(x.sample(CPUTotalUsage, 5500*milliCore)), "reweight a, reweight b")
	for i := range x.s.Tasks {
		x.s.Tasks[i].Groups[0].Idle = true
	}
	// 1.5 cores are too many, and both at their floors use two less: throttling will do.
	x.want(
		told(x.sample(CPUTotalUsage, 5500*milliCore)),
		"throttle a unlimited → 1.6 cores, throttle b unlimited → 1.6 cores",
	)
	// Three cores are too many for that.
	x.want(
		told(x.sample(CPUTotalUsage, 7*Core)),
		"throttle a unlimited → 1.6 cores, throttle b unlimited → 1.6 cores, evict a",
	)
}

// TestNewTasksDoNotHoldUpTheLadder: a rule waits once for its weights to show their effect, not
// again for each task that starts later.
func TestNewTasksDoNotHoldUpTheLadder(t *testing.T) {
	a := throttling()
	a.Weight = &plimsoll.WeightAction{Idle: true}
	x := newStage(t, rules(a, CPUTotalUsage, "4"), task("a", 2*Core))
	x.do(x.sample(CPUTotalUsage, 4100*milliCore))
	x.s.Tasks[0].Groups[0].Idle = true
	x.s.Tasks = append(x.s.Tasks, task("new", Core))
	x.want(told(x.sample(CPUTotalUsage, 4400*milliCore)), "reweight new, throttle a unlimited → 1.6 cores")
}

// TestReclaimComesBeforeStopping: memory that the kernel can take back is asked for first, once,
// and waited for.
func TestReclaimComesBeforeStopping(t *testing.T) {
	a := evicting()
	a.Evict.Reclaim = true
	x := newStage(
		t, rules(a, MemoryTotalUsage, "4G", MemoryTotalUtilization, "25"),
		with(task("a", Core), func(t *Task) { t.Memory = 3_000_000_000 }),
	)
	first := x.sample(MemoryTotalUsage, int64(5_000_000_000), MemoryTotalUtilization, int64(31_250))
	x.want(told(first), "reclaim a")
	if first.Steps[0].Bytes != 1_000_000_000 {
		t.Errorf("%d bytes are asked for", first.Steps[0].Bytes)
	}
	x.do(first)
	got := ""
	for range 4 {
		got += told(x.sample(MemoryTotalUsage, int64(5_000_000_000), MemoryTotalUtilization, int64(31_250))) + ";"
	}
	x.want(got, ";;evict a;evict a;")
}

// TestFlapping: each time that something is taken again soon after it was given back, it is kept
// for longer.
func TestFlapping(t *testing.T) {
	x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
	longest, waited := 0, 0
	for range 120 {
		use := 3900 * milliCore // below the line while it is held, above as soon as it is not
		if q := x.s.Tasks[0].Groups[0].Quota; q <= 0 || q > 1600*milliCore {
			use = 4100 * milliCore
		}
		res := x.sample(CPUTotalUsage, use)
		x.do(res)
		if waited++; told(res) != "" {
			longest, waited = max(longest, waited), 0
		}
	}
	if longest < 10 {
		t.Errorf("the longest that it was left as it is was %d samples", longest)
	}
}

// TestSparedTasksGetBackFirst: a task that a policy avoids comes last when something is taken. It
// comes first when it is given back, also when nothing fires.
func TestSparedTasksGetBackFirst(t *testing.T) {
	p := append(rules(throttling(), CPUTotalUsage, "4"), plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{
		Name: "spare", Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeOwner, Values: []string{"bob"}}},
		Avoid: true,
	}})
	x := newStage(t, p, with(task("spared", Core), func(t *Task) { t.Owner = "bob" }), task("other", Core))
	res := x.sample(CPUTotalUsage, 5*Core)
	x.want(told(res), "throttle other unlimited → 0.8 cores, throttle spared unlimited → 0.8 cores")
	x.do(res)
	x.sample(CPUTotalUsage, 4*Core)
	x.want(told(x.sample(CPUTotalUsage, 3840*milliCore)), "restore spared 0.8 cores → 0.96 cores")
}
