package qos

import (
	"errors"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Memory that the kernel could not take back from a task does not spare the task: it is still the
// first to be stopped, and no more important task goes in its place.
func TestATaskThatNothingCouldBeReclaimedFromIsStillTheFirst(t *testing.T) {
	a := evicting()
	a.Evict.Reclaim = true
	x := newStage(t, rules(a, MemoryTotalUsage, "8G"),
		with(task("batch", 0), func(t *Task) { t.Memory = 2_000_000_000 }),
		with(task("server", 0), func(t *Task) { t.Memory, t.Class = 2_000_000_000, plimsoll.ClassBurstable }))
	res := x.sample(MemoryTotalUsage, int64(9_000_000_000))
	x.want(told(res), "reclaim batch")
	x.l.Begin(&res.Steps[0], x.at)
	x.l.Done(&res.Steps[0], errors.New("the kernel was still at it"), x.at+int64(ReclaimTime))
	for range 4 {
		if res = x.sample(MemoryTotalUsage, int64(9_000_000_000)); len(res.Steps) > 0 {
			break
		}
	}
	x.want(told(res), "evict batch")
}

// A metric is missing since when this agent found it missing, not since an earlier one did: the
// first sample of an agent that is started again has no processor time, and that is no reason to
// act on everybody.
func TestAnAgentThatWasAwayDoesNotTakeThatForAMissingMetric(t *testing.T) {
	x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", 2*Core), task("b", Core))
	x.do(x.sample(CPUTotalUsage, 4500*milliCore))
	x.s.Tasks = x.s.Tasks[1:]
	x.sample() // the first sample of an agent that is killed after it
	data, err := x.l.Encode()
	if err == nil {
		x.l, err = DecodeLedger(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	x.at += int64(time.Minute)
	x.want(told(x.sample()), "")
}

// A rule that was triggered by one metric and is changed to another one begins anew: it is not
// taken for a triggered one whose metric has gone missing.
func TestARuleWithAnotherMetricBeginsAnew(t *testing.T) {
	x := newStage(t, rules(evicting(), CPUTotalUsage, "4"), task("a", 2*Core), task("b", Core))
	x.do(x.sample(CPUTotalUsage, 4500*milliCore))
	x.p = Compile(rules(evicting(), "disk_iops", "10"), x.p.registry, nil, Options{})
	for range 10 {
		res := x.sample(CPUTotalUsage, 3*Core)
		x.want(told(res), "")
		if res.Rules[0].Active || res.Closed {
			t.Fatalf("it counts as triggered: %+v", res.Rules[0])
		}
	}
}

// A task whose groups cannot be reached now does not keep the others from getting their weight
// back.
func TestATaskThatCannotBeReachedKeepsNobodyFromTheirWeight(t *testing.T) {
	idle := &plimsoll.Action{Weight: &plimsoll.WeightAction{Idle: true}, CoolDown: time.Second}
	x := newStage(
		t, rules(idle, CPUTotalUsage, "4"), with(task("a", 2*Core), func(t *Task) { t.Priority = 9 }), task("b", Core),
	)
	x.do(x.sample(CPUTotalUsage, 4500*milliCore))
	x.s.Tasks[0].Groups, x.s.Tasks[1].Groups[0].Idle, x.s.Tasks[1].Groups[0].Shares = nil, true, 0
	for range 5 {
		x.do(x.sample(CPUTotalUsage, 2*Core))
	}
	if held := x.l.Held(); len(held) != 1 || held[0].Task != "a" {
		t.Errorf("%v is held", held)
	}
}

// A stop that was forgotten, since supervisor and agent were both started again, is not waited for
// for ever. Once it is overdue and the task is not being stopped, the task counts as any other. It
// gets everything back, and can be stopped again.
func TestAStopThatWasForgotten(t *testing.T) {
	a := throttling()
	a.Evict = &plimsoll.EvictAction{}
	a.Throttle.MinRatio = 90
	x := newStage(
		t, rules(a, CPUTotalUsage, "4"), with(task("a", 2*Core), func(t *Task) { t.Groups[0].Limit = 2 * Core }),
	)
	for range 2 {
		x.do(x.sample(CPUTotalUsage, 6*Core))
	}
	if x.l.leaving[Key{"a", 1}] == nil || len(x.l.Held()) != 1 {
		t.Fatal("it was not throttled and told to stop")
	}
	data, err := x.l.Encode()
	if err == nil {
		x.l, err = DecodeLedger(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 120 {
		x.do(x.sample(CPUTotalUsage, 2*Core))
	}
	if held := x.l.Held(); len(held) > 0 {
		t.Errorf("%v is still held", held)
	}
	for range 2 {
		x.do(x.sample(CPUTotalUsage, 6*Core))
	}
	if x.l.leaving[Key{"a", 1}] == nil {
		t.Error("it is never told again")
	}
	x.s.Tasks[0].Stopping = true
	for range 60 {
		if got := told(x.sample(CPUTotalUsage, 6*Core), Evict); got != "" {
			t.Fatalf("one that is being stopped is told again: %s", got)
		}
	}
}

// A task that could not be frozen in time, which happens on a busy machine, runs: it does not count
// as frozen until it would have been thawed, and is frozen when it is left alone no longer.
func TestATaskThatCouldNotBeFrozenIsFrozenLater(t *testing.T) {
	x := newStage(
		t,
		rules(
			&plimsoll.Action{Freeze: &plimsoll.FreezeAction{For: plimsoll.MaxFreeze}, CoolDown: time.Hour},
			CPUTotalUsage, "4",
		),
		task("a", 2*Core),
	)
	res := x.sample(CPUTotalUsage, 5*Core)
	x.want(told(res), "freeze a")
	x.l.Begin(&res.Steps[0], x.at)
	x.l.Done(&res.Steps[0], errors.New("it does not stand still"), x.at)
	if len(x.l.Held()) > 0 {
		t.Error("it counts as frozen")
	}
	for range 6 {
		if res = x.sample(CPUTotalUsage, 5*Core); len(res.Steps) > 0 {
			break
		}
	}
	x.want(told(res), "freeze a")
	x.do(res)
	if until := x.l.FrozenUntil(Key{"a", 1}); until != x.at+int64(plimsoll.MaxFreeze) {
		t.Errorf("it is frozen until %d", until)
	}
}

// A task whose groups cannot be written may still be stopped: else a quota that the kernel refuses
// would keep a machine from getting its memory back.
func TestWhoCannotBeThrottledCanStillBeStopped(t *testing.T) {
	both := append(rules(
		throttling(), CPUTotalUsage, "4",
	), plimsoll.Policy{NodeQOS: &plimsoll.NodeQOS{Name: "m", Rules: []plimsoll.Rule{
		{Name: "mem", Metric: MemoryTotalUsage, Waterline: "4G", Action: "stop"},
	}}})
	stop := evicting()
	stop.Name, stop.CoolDown = "stop", 10*time.Second
	both = append(
		both, plimsoll.Policy{Action: stop},
		plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{Name: "stoppable", Match: allOf, Allowed: []string{"act", "stop"}}},
	)
	x := newStage(t, both, with(task("a", 2*Core), func(t *Task) { t.Memory = 2_000_000_000 }))
	first := x.sample(CPUTotalUsage, 5*Core)
	x.want(told(first), "throttle a unlimited → 1.6 cores")
	x.l.Begin(&first.Steps[0], x.at)
	x.l.Done(&first.Steps[0], errInjected, x.at)
	second := x.sample(CPUTotalUsage, 5*Core, MemoryTotalUsage, int64(5_000_000_000))
	x.want(told(second), "evict a")
	x.l.Begin(&second.Steps[0], x.at)
	x.l.Done(&second.Steps[0], errInjected, x.at)
	x.want(told(x.sample(CPUTotalUsage, 5*Core, MemoryTotalUsage, int64(5_000_000_000))), "")
	x.l = restarted(t, x.l)
	x.s.Sequence, x.at = 0, x.at+6*int64(time.Second)
	x.want(told(x.sample(CPUTotalUsage, 5*Core)), "throttle a unlimited → 1.6 cores")
}

// A task that could not be throttled, frozen or restored just now is not stopped instead. No other
// task is stopped for its share either. After three failures another action is due.
func TestWhoCannotBeThrottledJustNowIsNotStoppedInstead(t *testing.T) {
	for name, a := range map[string]*plimsoll.Action{
		"throttle": {Throttle: &plimsoll.ThrottleAction{Step: 20}, Evict: &plimsoll.EvictAction{}},
		"freeze":   {Freeze: &plimsoll.FreezeAction{For: 10 * time.Second}, Evict: &plimsoll.EvictAction{}},
	} {
		x := newStage(t, rules(a, CPUTotalUsage, "4"), task("a", 2*Core))
		failures, stopped := 0, ""
		for range 60 {
			res := x.sample(CPUTotalUsage, 4500*milliCore)
			if stopped = told(res, Evict); stopped != "" {
				break
			}
			for i := range res.Steps {
				failures++
				x.l.Begin(&res.Steps[i], x.at)
				x.l.Done(&res.Steps[i], errInjected, x.at)
			}
		}
		if failures != maxFailedChanges || stopped != "evict a" {
			t.Errorf("%s: after %d failures %q, want the end of it after %d", name, failures, stopped, maxFailedChanges)
		}
	}
}
