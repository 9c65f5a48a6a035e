package qos

import (
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// wait of a task, if the ledger remembers it.
func (x *stage) wait(id string) time.Duration {
	if h := x.l.held[Key{Task: id, Attempt: 1}]; h != nil {
		return h.Wait
	}
	return 0
}

// Of two tasks the one that ranks lower is taken from, although the other one got too much back. It
// waits as if it had got that itself: else it would be taken from and given back to over and over
// for the sake of the other.
func TestWhoPaysForWhatAnotherOneGotWaitsToo(t *testing.T) {
	high := with(task("high", Core), func(t *Task) { t.Priority = 2 })
	low := with(task("low", 2*Core), func(t *Task) { t.Priority = 1 })
	x := newStage(t, rules(throttling(), CPUTotalUsage, "4"), high, low)
	first := x.sample(CPUTotalUsage, 6*Core)
	x.want(told(first), "throttle low unlimited → 1.6 cores, throttle high unlimited → 0.8 cores")
	x.do(first)
	if x.wait("low") != 0 {
		t.Errorf("it waits for %v after nothing was given to anybody", x.wait("low"))
	}
	given := x.sample(CPUTotalUsage, 3900*milliCore)
	x.want(told(given), "restore high 0.8 cores → 0.9 cores")
	x.do(given)
	taken := x.sample(CPUTotalUsage, 4100*milliCore)
	x.want(told(taken), "throttle low 1.6 cores → 1.5 cores")
	x.do(taken)
	if got := x.wait("low"); got != 10*time.Second {
		t.Errorf("it waits for %v, want 10s", got)
	}
	x.do(x.sample(CPUTotalUsage, 4100*milliCore))
	if got := x.wait("low"); got != 10*time.Second {
		t.Errorf("it waits for %v after a second step for the same thing, want 10s", got)
	}
}

// How long a task waits is remembered for a cool-down after it got everything back, through a
// restart too, and forgotten then.
func TestTheWaitIsRememberedForACoolDown(t *testing.T) {
	a := throttling()
	a.CoolDown = 90 * time.Second
	x := newStage(t, rules(a, CPUTotalUsage, "4"), with(task("a", 2*Core), func(t *Task) { t.Groups[0].CPU = 0 }))
	h := x.l.hold(Key{Task: "a", Attempt: 1}, "n/r0")
	h.Wait, h.Longest, h.Given = 20*time.Second, a.CoolDown, x.at
	for i := range 90 {
		if x.sample(CPUTotalUsage, 3*Core); x.wait("a") != 20*time.Second && i < 89 {
			t.Fatalf("%d s after it got everything back, its wait is %v", i+1, x.wait("a"))
		}
		x.l = restarted(t, x.l)
		x.s.Sequence = 0
	}
	if x.wait("a") != 0 {
		t.Errorf("after the cool-down its wait is %v", x.wait("a"))
	}
}

// A holder of extended cores gets them back at once. While the metric of another rule is missing it
// gets them step by step: the room is not known.
func TestWhoCannotSeeGivesBackStepByStep(t *testing.T) {
	for _, missing := range []bool{false, true} {
		p := append(rules(throttling(), CPUTotalUsage, "4"), ExtendedPolicies()...)
		x := newStage(t, p, with(task("a", Core/4), func(t *Task) {
			t.ExtCPU, t.Groups[0].Ext, t.Groups[0].Quota = 2*Core, 2*Core, Core/4
		}))
		x.s.ExtCPU = 4 * Core
		h := x.l.hold(Key{Task: "a", Attempt: 1}, "n/r0")
		h.Groups, h.Wait = []original{{Group: "a", Throttle: true, Quota: 2 * Core}}, time.Second
		want, got := "restore a 0.25 cores → 2 cores", ""
		if missing {
			want = "restore a 0.25 cores → 0.3 cores"
		}
		for range 7 {
			if got != "" {
				break
			}
			if missing {
				got = told(x.sample())
			} else {
				got = told(x.sample(CPUTotalUsage, Core))
			}
		}
		x.want(got, want)
	}
}

// A task of several groups is one task: its wait doubles once.
func TestManyGroupsWaitOnce(t *testing.T) {
	l := NewLedger()
	h := l.hold(Key{Task: "a", Attempt: 1}, "n/r0")
	h.Given, h.Taken = 5*second, second
	for _, group := range []string{"a", "b", "c"} {
		l.Begin(
			&Step{Verb: Throttle, Task: "a", Attempt: 1, Group: group, settle: 10 * time.Second, longest: time.Hour},
			6*second,
		)
	}
	if h.Wait != 10*time.Second {
		t.Errorf("it waits for %v, want 10s", h.Wait)
	}
}

// A rule that takes many samples to be triggered guards against flapping as well: the time of
// crossing the line counts.
func TestFlappingIsSeenHoweverLateARuleIsTriggered(t *testing.T) {
	p := rules(throttling(), CPUTotalUsage, "4")
	p[2].NodeQOS.Rules[0].TriggerAfter = 12
	high, low := with(task("high", Core), func(t *Task) { t.Priority = 2 }), task("low", 2*Core)
	x := newStage(t, p, high, low)
	above := func(cpu int64) {
		for range 12 {
			x.do(x.sample(CPUTotalUsage, cpu))
		}
	}
	above(6 * Core)
	x.do(x.sample(CPUTotalUsage, 3900*milliCore))
	above(4100 * milliCore)
	if got := x.wait("low"); got != 10*time.Second {
		t.Errorf("it waits for %v, want 10s", got)
	}
}

// Thawing other tasks at the end of their time, while a rule is above its line, has not caused the
// overload.
func TestThawingDuringAnOverloadIsNoFlapping(t *testing.T) {
	a := throttling()
	a.Throttle.Step, a.CoolDown = 5, 5*time.Minute
	tasks := []Task{task("y", 3*Core)}
	for _, id := range []string{"z1", "z2", "z3", "z4"} {
		tasks = append(tasks, with(task(id, 0), func(t *Task) { t.Groups[0].Frozen = true }))
	}
	x := newStage(t, rules(a, CPUTotalUsage, "4"), tasks...)
	for i := range 4 {
		x.l.hold(Key{Task: tasks[i+1].ID, Attempt: 1}, "n/r0").Frozen = x.at + int64(i+1)*second
	}
	for i := range 6 {
		res := x.sample(CPUTotalUsage, 6*Core)
		if x.do(res); i < 4 && len(res.Steps) != 2 {
			t.Errorf("sample %d: %s", i, told(res))
		}
	}
	if x.wait("y") != 0 {
		t.Errorf("it waits for %v", x.wait("y"))
	}
}

// While a metric is missing no task is thawed before its time.
func TestWhoCannotSeeThawsNobodyEarly(t *testing.T) {
	a := &plimsoll.Action{Freeze: &plimsoll.FreezeAction{For: time.Minute}, CoolDown: time.Second}
	x := newStage(t, rules(a, CPUTotalUsage, "4"), with(task("a", Core), func(t *Task) { t.Groups[0].Frozen = true }))
	h := x.l.hold(Key{Task: "a", Attempt: 1}, "n/r0")
	h.Frozen, h.FrozenUse = x.at+30*second, Core
	for i := range 30 {
		want := ""
		if i == 29 {
			want = "thaw a"
		}
		x.want(told(x.sample()), want)
	}
}

// A task that was given something recently is remembered through a restart, even if it has gone
// since.
func TestWhatWasGivenIsRemembered(t *testing.T) {
	l := NewLedger()
	l.hold(Key{Task: "a", Attempt: 1}, "n/r0")
	l.Done(&Step{Verb: Restore, Task: "a", Attempt: 1, Group: "a", Before: Core, After: Core}, nil, 4*second)
	if l.given != 0 {
		t.Errorf("nothing was given, and it counts as given at %d", l.given)
	}
	l.Done(&Step{Verb: Restore, Task: "a", Attempt: 1, Group: "a", Before: Core, After: 2 * Core}, nil, 5*second)
	delete(l.held, Key{Task: "a", Attempt: 1})
	if got := restarted(t, l).given; got != 5*second {
		t.Errorf("it reads back as %d", got)
	}
}
