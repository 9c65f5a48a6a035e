package qos

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// repeat takes samples that all have one reading of the metric, taken at an instant, and carries
// out the plans.
func (x *stage) repeat(samples int, metric string, value, at int64) (steps []string) {
	x.s.Times = map[string]int64{metric: at}
	for range samples {
		res := x.sample(metric, value)
		if line := told(res); line != "" {
			steps = append(steps, line)
		}
		x.do(res)
	}
	return steps
}

func (x *stage) wantSteps(got []string, want ...string) {
	x.t.Helper()
	x.want(strings.Join(got, "; "), strings.Join(want, "; "))
}

// A rule that is triggered by three readings in a row counts each of them once, and so does one
// that is restored by two.
func TestARuleCountsAReadingOnce(t *testing.T) {
	p := rules(evicting(), CPUTotalUsage, "4")
	p[2].NodeQOS.Rules[0].TriggerAfter, p[2].NodeQOS.Rules[0].RestoreAfter = 3, 2
	x := newStage(t, p, task("a", 2*Core))
	for i := range 2 {
		x.wantSteps(x.repeat(20, CPUTotalUsage, 5*Core, x.at+1))
		if u := x.l.rules["n/r0"]; u.Above != int32(i+1) || u.Active {
			t.Errorf("after %d readings it is %+v", i+1, u)
		}
	}
	x.wantSteps(x.repeat(20, CPUTotalUsage, 5*Core, x.at+1), "evict a")
	x.repeat(20, CPUTotalUsage, 3*Core, x.at+1)
	if !x.l.rules["n/r0"].Active {
		t.Error("it is restored by one reading")
	}
	x.repeat(1, CPUTotalUsage, 3*Core, x.at+1)
	if x.l.rules["n/r0"].Active {
		t.Error("it is not restored by two readings")
	}
}

// One reading throttles each task once; the next one shows the effect.
func TestAReadingThrottlesOnce(t *testing.T) {
	x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
	x.wantSteps(x.repeat(14, CPUTotalUsage, 9*Core, x.at+1), "throttle a unlimited → 1.6 cores")
	x.wantSteps(x.repeat(14, CPUTotalUsage, 9*Core, x.at+1), "throttle a 1.6 cores → 1.28 cores")
}

// One reading stops as many tasks as it calls for, and no other task when those have gone.
func TestAReadingStopsOnce(t *testing.T) {
	x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", 2*Core), task("b", Core))
	read := x.at + 1
	x.wantSteps(x.repeat(1, CPUTotalUsage, 5*Core, read), "evict a")
	x.s.Tasks = x.s.Tasks[1:]
	x.wantSteps(x.repeat(20, CPUTotalUsage, 5*Core, read))
	x.wantSteps(x.repeat(1, CPUTotalUsage, 5*Core, x.at+1), "evict b")
}

// One reading gives back once.
func TestAReadingGivesBackOnce(t *testing.T) {
	x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
	x.repeat(1, CPUTotalUsage, 9*Core, x.at+1)
	x.wantSteps(x.repeat(20, CPUTotalUsage, Core, x.at+1), "restore a 1.6 cores → 1.92 cores")
	if why := skipped(x.sample(CPUTotalUsage, Core), "a"); why != WhyReading {
		t.Errorf("then it is passed over because %v", why)
	}
	x.wantSteps(x.repeat(20, CPUTotalUsage, Core, x.at+1), "restore a 1.92 cores → 2.304 cores")
}

// In between two readings a rule stays as it is and says so: the node is closed, and the gap is
// that of the reading.
func TestARuleHoldsBetweenReadings(t *testing.T) {
	x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
	x.repeat(7, CPUTotalUsage, 9*Core, x.at+1)
	res := x.sample(CPUTotalUsage, 9*Core)
	u := res.Rules[0]
	if !u.Held || !u.Fires || !u.Active || u.Gap != 5*Core || u.LeftGap != 5*Core || !res.Closed || len(res.Down) != 1 {
		t.Errorf("it is %+v, and the node is closed: %v", u, res.Closed)
	}
	x.want(u.Note, "waits for a newer reading; this one is 8s old")
	x.repeat(3, CPUTotalUsage, Core, x.at+1)
	x.want(x.sample(CPUTotalUsage, Core).Rules[0].Note, "") // it waits for nothing
}

// Of two rules that may act on a task one is measured at odd seconds and the other at even ones.
// Both have a reading that nothing was given back by every second second.
func TestRulesOfDifferentPaceGiveBack(t *testing.T) {
	x := newStage(t, rules(throttling(), CPUTotalUsage, "4", CPUTotalUtilization, "25"), task("a", 2*Core))
	x.do(x.sample(CPUTotalUsage, 9*Core, CPUTotalUtilization, int64(30_000)))
	given := 0
	for i := range 10 {
		next, now := x.at+int64(time.Second), []string{CPUTotalUsage, CPUTotalUtilization}
		if x.s.Times == nil {
			x.s.Times = map[string]int64{now[0]: next, now[1]: next}
		}
		x.s.Times[now[i%2]] = next
		res := x.sample(CPUTotalUsage, Core, CPUTotalUtilization, int64(6_000))
		if x.do(res); len(res.Steps) > 0 {
			given++
		}
	}
	if given != 5 {
		t.Errorf("something was given back %d times in 10 samples, want every second one", given)
	}
}

// A reading does not include steps after it, however long ago they are.
func TestADeedCountsUntilAReadingShowsIt(t *testing.T) {
	slow := Metric{Name: "slow", Scale: Core, Dimension: DimensionCPU, Throttleable: true, ThrottleQuantified: true}
	x := newStageWith(t, rules(throttling(), CPUTotalUsage, "4", "slow", "4"), []Metric{slow}, task("a", 5*Core))
	first := x.at + 1
	x.s.Times = map[string]int64{"slow": first}
	x.do(x.sample(CPUTotalUsage, 4500*milliCore, "slow", 3*Core))
	before := x.at
	for range 10 {
		x.do(x.sample(CPUTotalUsage, 4*Core, "slow", 3*Core))
	}
	x.l = restarted(t, x.l)
	x.s.Sequence = 0
	// This reading is from before half a core was taken, which is all that it calls for.
	x.s.Times["slow"] = before - 1
	x.want(told(x.sample(CPUTotalUsage, 4*Core, "slow", 4500*milliCore)), "")
	x.s.Times["slow"] = before + int64(time.Second)
	x.want(told(x.sample(CPUTotalUsage, 4*Core, "slow", 4500*milliCore)), "throttle a 4.5 cores → 4 cores")
}

// A rule whose metric has gone missing goes on once in Options.Stale, and not with every sample.
func TestAMissingMetricIsActedOnSeldom(t *testing.T) {
	x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
	x.do(x.sample(CPUTotalUsage, 9*Core))
	steps := 0
	for range 21 {
		res := x.sample()
		steps += len(res.Steps)
		x.do(res)
	}
	if steps != 4 {
		t.Errorf("%d steps in the 20 s after it was missed first, want one in 5 s", steps)
	}
}

// A clock that is set back does not keep a rule from reading its metric.
func TestReadingsMoveWithTheClock(t *testing.T) {
	x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), task("a", 2*Core))
	x.repeat(1, CPUTotalUsage, 9*Core, x.at+1)
	x.at -= int64(time.Minute)
	x.wantSteps(x.repeat(5, CPUTotalUsage, 9*Core, x.at+1), "throttle a 1.6 cores → 1.28 cores")
	x.wantSteps(x.repeat(5, CPUTotalUsage, 9*Core, x.at+1), "throttle a 1.28 cores → 1.024 cores")
}

// However seldom a metric is measured, the memory of steps that no reading shows is bounded, and
// none is forgotten.
func TestDeedsThatDoNotShowAreBounded(t *testing.T) {
	l := NewLedger()
	const deeds = 5 * mostRecent
	for i := range deeds {
		l.at = int64(i) * second
		for range 3 {
			amounts := []Amount{{DimensionCPU, 1}, {DimensionExtCPU, 2}}
			l.Done(&Step{Verb: Throttle, Task: "a", Release: amounts}, nil, l.at)
		}
	}
	sum := int64(0)
	for _, c := range l.recent {
		sum += c.Value
	}
	if len(l.recent) != mostRecent || sum != deeds*3*3 {
		t.Errorf("%d entries, and %d in all; want %d and %d", len(l.recent), sum, mostRecent, deeds*3*3)
	}
}

// A cut ends where the gap is gone, and giving back ends at the line. With whole steps neither
// does.
func TestAStepEndsAtTheLine(t *testing.T) {
	ext := func(t *Task) { t.ExtCPU, t.Groups[0].Ext, t.Groups[0].Quota = 3*Core, 3*Core, 3*Core }
	wide := func(t *Task) { t.Groups[0].Quota = 8 * Core }
	two := func(t *Task) { t.Groups = []Group{{Name: "x", CPU: Core}, {Name: "y", CPU: Core}} }
	for _, c := range []struct {
		name             string
		task             Task
		above, below     int64
		cut, given       string
		cutTo, backWhole string
	}{
		{
			"a part of a step", task("a", 2*Core), 4100 * milliCore, 3900 * milliCore,
			"throttle a unlimited → 1.9 cores", "restore a 1.9 cores → 2 cores",
			"throttle a unlimited → 1.6 cores", "restore a 1.6 cores → 1.92 cores",
		},
		{
			"a whole step", task("a", 2*Core), 5 * Core, Core,
			"throttle a unlimited → 1.6 cores", "restore a 1.6 cores → 1.92 cores",
			"throttle a unlimited → 1.6 cores", "restore a 1.6 cores → 1.92 cores",
		},
		{
			"a quota far above the use", with(task("a", Core), wide), 4100 * milliCore, 3900 * milliCore,
			"throttle a 8 cores → 6.4 cores", "restore a 6.4 cores → 6.5 cores",
			"throttle a 8 cores → 6.4 cores", "restore a 6.4 cores → 7.68 cores",
		},
		{
			"a gap that is not worth a step", task("a", 2*Core), 4*Core + 1, 4*Core - milliCore,
			"throttle a unlimited → 1.999 cores", "",
			"throttle a unlimited → 1.6 cores", "restore a 1.6 cores → 1.92 cores",
		},
		{
			"several groups", with(task("a", 2*Core), two), 4250 * milliCore, 3900 * milliCore,
			"throttle a unlimited → 0.8 cores, throttle a unlimited → 0.95 cores", "restore a 0.8 cores → 0.9 cores",
			"throttle a unlimited → 0.8 cores, throttle a unlimited → 0.8 cores",
			"restore a 0.8 cores → 0.96 cores, restore a 0.8 cores → 0.96 cores",
		},
		{
			"what it holds of extended processors", with(task("a", 3*Core), ext), 4500 * milliCore, 3900 * milliCore,
			"throttle a 3 cores → 2.5 cores", "restore a 2.5 cores → 2.6 cores",
			"throttle a 3 cores → 2.4 cores", "restore a 2.4 cores → 3 cores",
		},
	} {
		for _, whole := range []bool{false, true} {
			p := rules(throttling(), CPUTotalUsage, "4")
			x := newStage(t, p, c.task)
			x.s.Tasks[0].Groups = append([]Group(nil), c.task.Groups...)
			x.p = Compile(p, x.p.registry, nil, Options{WholeSteps: whole})
			cut, given := c.cut, c.given
			if whole {
				cut, given = c.cutTo, c.backWhole
			}
			res := x.sample(CPUTotalUsage, c.above)
			if got := told(res); got != cut {
				t.Errorf("%s, whole %v: cut %s, want %s", c.name, whole, got, cut)
			}
			x.do(res)
			if got := told(x.sample(CPUTotalUsage, c.below)); got != given {
				t.Errorf("%s, whole %v: given %s, want %s", c.name, whole, got, given)
			}
		}
	}
}

// Where the gap is not known a step is whole, although the gap of another rule is small.
func TestAStepIsWholeWhereNobodyKnowsTheGap(t *testing.T) {
	p := rules(throttling(), CPUTotalUsage, "4", Load, "1")
	x := newStage(t, p, task("a", 2*Core), task("b", Core), task("c", Core))
	x.want(told(x.sample(CPUTotalUsage, 4100*milliCore, Load, int64(9_000))),
		"throttle a unlimited → 1.6 cores, throttle b unlimited → 0.8 cores, throttle c unlimited → 0.8 cores")
}

// A frozen task is thawed early only if all that it used has room below the line.
func TestAFrozenTaskNeedsRoomForAllOfIt(t *testing.T) {
	a := &plimsoll.Action{Freeze: &plimsoll.FreezeAction{For: time.Minute}}
	x := newStage(t, rules(a, CPUTotalUsage, "4"), task("a", 2*Core))
	x.do(x.sample(CPUTotalUsage, 5*Core))
	x.s.Tasks[0].Groups[0].Frozen = true
	x.want(told(x.sample(CPUTotalUsage, 3*Core)), "")
	x.want(told(x.sample(CPUTotalUsage, 2*Core)), "thaw a")
}

// Giving back stays below the line of a rule that would stop the task, too.
func TestNothingIsGivenBackUpToALineThatStops(t *testing.T) {
	p := rules(throttling(), CPUTotalUsage, "6")
	p = append(p, plimsoll.Policy{Action: &plimsoll.Action{Name: "stop", CoolDown: 1, Evict: &plimsoll.EvictAction{}}})
	p[1].TaskQOS.Allowed = append(p[1].TaskQOS.Allowed, "stop")
	stop := plimsoll.Rule{Name: "stop", Metric: CPUTotalUsage, Waterline: "4", Action: "stop", TriggerAfter: 3}
	p[2].NodeQOS.Rules = append(p[2].NodeQOS.Rules, stop)
	x := newStage(t, p, task("a", 3*Core))
	x.do(x.sample(CPUTotalUsage, 6500*milliCore))
	x.want(told(x.sample(CPUTotalUsage, 3800*milliCore)), "restore a 2.5 cores → 2.7 cores")
	x.want(told(x.sample(CPUTotalUsage, 4*Core)), "")
}
