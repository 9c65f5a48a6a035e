package qos

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// faults are those of the original that concern planning, by their number in DESIGN.md; each has a
// test here that we do not have it.
var faults = map[string]func(t *testing.T){
	"01 a metric that is not collected any more keeps its last value": func(t *testing.T) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", 2*Core))
		x.do(x.sample(CPUTotalUsage, 3*Core))
		x.want(told(x.sample()), "")
		x.s.Sequence++
		if res := Plan(x.s, x.p, x.l, x.s.At+int64(time.Minute)); res.Waits == "" || len(res.Steps) > 0 {
			t.Errorf("a sample of a minute ago is planned with: %+v", res)
		}
	},
	"02 a task that is being stopped is chosen and counted again": func(t *testing.T) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", 2*Core), task("b", Core))
		x.do(x.sample(CPUTotalUsage, 5*Core))
		res := x.sample(CPUTotalUsage, 5*Core) // it takes its time
		x.want(told(res), "")
		x.s.Tasks[0].Stopping = true
		res = x.sample(CPUTotalUsage, 6500*milliCore)
		x.want(told(res), "evict b")
		if why := skipped(res, "a"); why != WhyLeaving {
			t.Errorf("it is passed over because %v", why)
		}
	},
	"03 a dip does not begin the count anew": func(t *testing.T) {
		p := rules(evicting(), CPUTotalUsage, "4")
		p[2].NodeQOS.Rules[0].TriggerAfter = 2
		x := newStage(t, p, task("a", 2*Core))
		for _, use := range []int64{5, 3, 5} {
			x.want(told(x.sample(CPUTotalUsage, use*Core)), "")
		}
		x.want(told(x.sample(CPUTotalUsage, 5*Core)), "evict a")
	},
	"04 a throttled task gets one step back and no more": func(t *testing.T) {
		x := newStage(
			t, rules(throttling(), CPUTotalUsage, "4"),
			with(task("a", Core), func(t *Task) { t.Groups[0].Quota = 2 * Core }),
		)
		for range 4 {
			x.do(x.sample(CPUTotalUsage, 5*Core))
		}
		if q := x.s.Tasks[0].Groups[0].Quota; q >= Core {
			t.Fatalf("its quota is %d", q)
		}
		for range 60 {
			x.do(x.sample(CPUTotalUsage, 2*Core))
		}
		if q := x.s.Tasks[0].Groups[0].Quota; q != 2*Core || len(x.l.Held()) > 0 {
			t.Errorf("a minute later its quota is %s, and %v is held", formatQuota(q), x.l.Held())
		}
	},
	"05 scheduling stays disabled when the rule is restored within the cool-down, and looking at it prolongs it": func(t *testing.T) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "4"))
		closed := []bool{x.sample(CPUTotalUsage, 5*Core).Closed}
		for range 12 {
			closed = append(closed, x.sample(CPUTotalUsage, 3*Core).Closed)
		}
		if first := slices.Index(closed, false); first != 10 || slices.Contains(closed[first:], true) {
			t.Errorf("cool-down 10 s: closed by second %v", closed)
		}
	},
	"06 a preview does not say who would be acted on": func(t *testing.T) {
		p := rules(evicting(), CPUTotalUsage, "4")
		p[2].NodeQOS.Rules[0].Preview = true
		x := newStage(t, p, task("a", 2*Core), task("b", Core))
		res := x.sample(CPUTotalUsage, 5*Core)
		x.want(told(res), "evict a")
		if !res.Steps[0].Preview || res.Closed || len(res.Evict) > 0 {
			t.Errorf("it is more than said: %+v", res)
		}
		x.do(res)
		if len(x.l.leaving) > 0 {
			t.Error("it counts as told to stop")
		}
	},
	"07 a task that only the lenient rule may touch pays for the strict one": func(t *testing.T) {
		p := rules(evicting(), CPUTotalUsage, "8")
		strict := *evicting()
		strict.Name, strict.CoolDown = "strict", time.Second
		p[2].NodeQOS.Rules = append(
			p[2].NodeQOS.Rules, plimsoll.Rule{Name: "s", Metric: CPUTotalUsage, Waterline: "4", Action: "strict"},
		)
		p = append(p, plimsoll.Policy{Action: &strict}, plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{
			Name: "batch", Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeOwner, Values: []string{"batch"}}},
			Allowed: []string{"strict"},
		}})
		x := newStage(t, p, task("lenient", 3*Core), with(task("batch", Core), func(t *Task) { t.Owner = "batch" }))
		res := x.sample(CPUTotalUsage, 9*Core)
		x.want(told(res), "evict batch") // 9 → 8: the lenient rule is content, and the strict one has nobody left
	},
	"08 a line with a fraction is rounded up": func(t *testing.T) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "3500m"), task("a", Core))
		x.want(told(x.sample(CPUTotalUsage, 3500*milliCore)), "")
		x.want(told(x.sample(CPUTotalUsage, 3501*milliCore)), "evict a")
	},
	"09 one missing metric stops everybody, although no rule speaks of it": func(t *testing.T) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", 2*Core), task("b", Core))
		x.want(told(x.sample(CPUTotalUsage, 4100*milliCore)), "evict a") // nothing is known of memory
	},
	"10 a rule on a metric that nobody has stops everybody": func(t *testing.T) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "4", "disk_iops", "10"), task("a", 2*Core), task("b", Core))
		for range 10 {
			res := x.sample(CPUTotalUsage, 3*Core)
			x.want(told(res), "")
			if !res.Rules[1].Absent {
				t.Fatal("nobody says that the metric is not there")
			}
		}
	},
	"11 one map holds the gaps of throttling and of restoring": func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4", CPUTotalUsage, "8"), task("a", 2*Core))
		res := x.sample(CPUTotalUsage, 4300*milliCore)
		x.want(told(res), "throttle a unlimited → 1.7 cores")
		if res.Rules[0].Gap != 300*milliCore || res.Rules[1].Gap != 3700*milliCore {
			t.Errorf("gaps: %d and %d", res.Rules[0].Gap, res.Rules[1].Gap)
		}
	},
	"12 of several excluded priorities only the last counts, and one without a priority crashes": func(t *testing.T) {
		p := rules(evicting(), CPUTotalUsage, "4")
		p[1].TaskQOS.Match = []plimsoll.Requirement{
			{Scope: plimsoll.ScopePriority, Not: true, Values: []string{"3000", "7", "0"}},
		}
		x := newStage(
			t, p, with(task("excluded", 3*Core), func(t *Task) { t.Priority = 3000 }), task("unset", 2*Core),
			with(task("c", Core), func(t *Task) { t.Priority = 1 }),
		)
		x.want(told(x.sample(CPUTotalUsage, 9*Core)), "evict c")
	},
	"13 equals come in any order": func(t *testing.T) {
		for range 20 {
			x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("z", Core), task("a", Core), task("m", Core))
			x.want(told(x.sample(CPUTotalUsage, 4500*milliCore)), "evict a")
		}
	},
	"14 without a quota the ratio of use to quota is negative, and the lighter user comes first": func(t *testing.T) {
		guaranteed := func(t *Task) { t.Class = plimsoll.ClassGuaranteed }
		limited := func(t *Task) { t.Class, t.Groups[0].Quota = plimsoll.ClassGuaranteed, 8*Core }
		x := newStage(
			t, rules(evicting(), CPUTotalUsage, "4"), with(task("light", Core), guaranteed),
			with(task("heavy", 3*Core), limited),
		)
		x.want(told(x.sample(CPUTotalUsage, 4500*milliCore)), "evict heavy")
	},
	"15 the floor is a hundred times too high": func(t *testing.T) {
		a := throttling()
		a.Throttle.MinRatio = 30
		x := newStage(
			t, rules(a, CPUTotalUsage, "4"),
			with(task("a", 1400*milliCore), func(t *Task) { t.Groups[0].Limit = 4 * Core }),
		)
		x.want(told(x.sample(CPUTotalUsage, 5*Core)), "throttle a unlimited → 1.2 cores")
	},
	"16 of several groups only the last counts": func(t *testing.T) {
		two := with(
			task("a", 2*Core), func(t *Task) { t.Groups = []Group{{Name: "x", CPU: Core}, {Name: "y", CPU: Core}} },
		)
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), two, task("b", 900*milliCore))
		res := x.sample(CPUTotalUsage, 4400*milliCore)
		x.want(told(res), "throttle a unlimited → 0.8 cores, throttle a unlimited → 0.8 cores")
	},
	"17 who refuses, has gone or is critical counts as released": func(t *testing.T) {
		p := append(
			rules(evicting(), CPUTotalUsage, "4"),
			plimsoll.Policy{
				TaskQOS: &plimsoll.TaskQOS{Name: "c", Labels: map[string]string{"critical": "yes"}, Critical: true},
			},
		)
		x := newStage(t, p, with(task("gone", 4*Core), func(t *Task) { t.Gone = true }),
			with(task("critical", 3*Core), func(t *Task) { t.Labels = map[string]string{"critical": "yes"} }),
			task("refuses", 2*Core), task("goes", Core))
		res := x.sample(CPUTotalUsage, 5*Core)
		x.want(told(res), "evict refuses")
		x.l.Begin(&res.Steps[0], x.at)
		x.l.Done(&res.Steps[0], errInjected, x.at)
		res = x.sample(CPUTotalUsage, 5*Core)
		x.want(told(res), "evict goes")
		got := fmt.Sprint(skipped(res, "gone"), "; ", skipped(res, "refuses"))
		if got != fmt.Sprint(WhyGone, "; ", WhyFailed) {
			t.Errorf("passed over: %s", got)
		}
	},
	"18 one overload seen as cores and as percent stops twice as many": func(t *testing.T) {
		x := newStage(
			t, rules(evicting(), CPUTotalUsage, "10400m", CPUTotalUtilization, "65"), task("a", 1600*milliCore),
			task("b", 1600*milliCore),
		)
		x.want(told(x.sample(CPUTotalUsage, 12*Core, CPUTotalUtilization, int64(75_000))), "evict a")
	},
	"19 what is released is subtracted from the metric in hand only": func(t *testing.T) {
		heavy := func(t *Task) { t.Memory = 2_000_000_000 }
		x := newStage(
			t, rules(evicting(), CPUTotalUsage, "4", MemoryTotalUsage, "8G"), with(task("a", 2*Core), heavy),
			with(task("b", Core), heavy),
		)
		x.want(told(x.sample(CPUTotalUsage, 5*Core, MemoryTotalUsage, int64(9_000_000_000))), "evict a")
	},
	"20 it does not end when nothing is released or nobody is left": func(t *testing.T) {
		wide := func(t *Task) { t.Groups[0].Quota = 16 * Core }
		x := newStage(
			t, rules(throttling(), CPUTotalUsage, "4"), with(task("a", Core), wide), with(task("b", Core), wide),
		)
		x.want(
			told(x.sample(CPUTotalUsage, 9*Core)), "throttle a 16 cores → 12.8 cores, throttle b 16 cores → 12.8 cores",
		)
		y := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", Core))
		y.want(told(y.sample(CPUTotalUsage, 9*Core)), "evict a")
	},
	"21 nobody looks between two tasks whether the gap is gone": func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core), task("b", Core))
		x.want(told(x.sample(CPUTotalUsage, 4300*milliCore)), "throttle a unlimited → 1.7 cores")
	},
	"22 rounding takes one task too many": func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core), task("b", 1500*milliCore))
		res := x.sample(CPUTotalUsage, 4400*milliCore)
		x.want(told(res), "throttle a unlimited → 1.6 cores")
		if res.Rules[0].LeftGap != 0 {
			t.Errorf("%d is left", res.Rules[0].LeftGap)
		}
	},
	"23 quotas are asked for that the kernel refuses or takes as unchanged": func(t *testing.T) {
		all := throttling()
		all.Throttle.Step = 100
		x := newStage(t, rules(all, CPUTotalUsage, "4"), task("a", 5*milliCore))
		res := x.sample(CPUTotalUsage, 5*Core)
		x.want(told(res), "throttle a unlimited → 0.01 cores") // 1000 us of 100 ms
	},
	"24 what had no limit never gets that back": func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
		x.do(x.sample(CPUTotalUsage, 4300*milliCore))
		last := ""
		for len(x.l.Held()) > 0 && x.s.Sequence < 100 {
			res := x.sample(CPUTotalUsage, Core)
			last = told(res)
			x.do(res)
		}
		if !strings.HasSuffix(last, "→ unlimited") {
			t.Errorf("the last that it got was %q", last)
		}
	},
	"25 giving back to all crashes": func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4", "disk_iops", "3"), task("a", 2*Core), task("b", Core))
		x.do(x.sample(CPUTotalUsage, 4600*milliCore))
		for range 4 {
			x.do(x.sample(CPUTotalUsage, 3*Core, "disk_iops", int64(0)))
		}
		got := ""
		for range 10 {
			res := x.sample() // nothing is measured any more
			got += told(res)
			x.do(res)
		}
		if !strings.Contains(got, "restore a") || !strings.Contains(got, "restore b") {
			t.Errorf("got %s", got)
		}
	},
	"26 the least important get back first": func(t *testing.T) {
		x := newStage(
			t, rules(throttling(), CPUTotalUsage, "4"), task("low", Core),
			with(task("high", Core), func(t *Task) { t.Priority = 9 }),
		)
		x.do(x.sample(CPUTotalUsage, 5*Core))
		x.do(x.sample(CPUTotalUsage, 4*Core))
		x.want(told(x.sample(CPUTotalUsage, 3840*milliCore)), "restore high 0.8 cores → 0.96 cores")
	},
	"27 the first failure keeps the rest from being done": func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("bad", 2*Core), task("b", Core), task("c", Core))
		res := x.sample(CPUTotalUsage, 5*Core)
		for i := range res.Steps {
			var err error
			if res.Steps[i].Task == "bad" {
				err = errInjected
			}
			x.l.Begin(&res.Steps[i], x.at)
			x.l.Done(&res.Steps[i], err, x.at)
		}
		x.want(
			told(res),
			"throttle bad unlimited → 1.6 cores, throttle b unlimited → 0.8 cores, throttle c unlimited → 0.8 cores",
		)
		if len(x.l.failed) != 1 || !x.l.holds(Key{"b", 1}) {
			t.Errorf("the ledger holds %v", x.l.Held())
		}
	},
	"28 the grace period of the action is dropped": func(t *testing.T) {
		a := evicting()
		a.Evict.Grace = 15 * time.Second
		x := newStage(t, rules(a, CPUTotalUsage, "4"), task("a", 2*Core))
		if res := x.sample(CPUTotalUsage, 5*Core); len(res.Steps) != 1 || res.Steps[0].Grace != 15*time.Second {
			t.Errorf("steps: %+v", res.Steps)
		}
	},
	"29 one sample is acted on twice": func(t *testing.T) {
		x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", 2*Core))
		x.do(x.sample(CPUTotalUsage, 5*Core))
		if res := Plan(x.s, x.p, x.l, x.at); res.Waits == "" || len(res.Steps) > 0 {
			t.Errorf("it is planned again: %+v", res)
		}
	},
	"30 throttling and stopping both take the whole gap": func(t *testing.T) {
		a := throttling()
		a.Evict = &plimsoll.EvictAction{}
		x := newStage(t, rules(a, CPUTotalUsage, "4"), task("a", 2*Core), task("b", 2*Core))
		x.want(
			told(x.sample(CPUTotalUsage, 5*Core)), "throttle a unlimited → 1.6 cores, throttle b unlimited → 1.6 cores",
		)
	},
	"31 a task is throttled for one line and given back for another at once": func(t *testing.T) {
		x := newStage(t, rules(throttling(), CPUTotalUsage, "3", CPUTotalUsage, "6"), task("a", 2*Core))
		x.do(x.sample(CPUTotalUsage, 7*Core))
		x.want(told(x.sample(CPUTotalUsage, 5*Core), Restore), "")
	},
}

// TestFaults runs the tests of all faults of the original.
func TestFaults(t *testing.T) {
	names := make([]string, 0, len(faults))
	for name := range faults {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, faults[name])
	}
}

// TestFaultsAreListed holds the numbers of the faults against the table in DESIGN.md.
func TestFaultsAreListed(t *testing.T) {
	page, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range faults {
		number := strings.TrimPrefix(name[:2], "0")
		if !regexp.MustCompile(`(?m)^\| ` + number + ` \|`).Match(page) {
			t.Errorf("DESIGN.md does not have fault %s", name)
		}
	}
	if !bytes.Contains(page, []byte("TestFaults")) {
		t.Error("DESIGN.md does not say where the tests are")
	}
}
