package qos

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// lagging is a node above its line by memory and by processors, with the policies that throttle and
// stop its only candidates.
func lagging(t *testing.T, lag time.Duration) (
	*Policies, func(at int64, cpu, memory int64, tasks ...string) *Snapshot,
) {
	t.Helper()
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	policies := []plimsoll.Policy{
		{Action: &plimsoll.Action{Name: "slow", CoolDown: time.Minute, Throttle: &plimsoll.ThrottleAction{Step: 50}}},
		{
			Action: &plimsoll.Action{
				Name: "stop", CoolDown: time.Minute, Evict: &plimsoll.EvictAction{Grace: time.Second},
			},
		},
		{TaskQOS: &plimsoll.TaskQOS{
			Name: "batch", Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}},
			Allowed: []string{"slow", "stop"},
		}},
		{NodeQOS: &plimsoll.NodeQOS{Name: "node", Rules: []plimsoll.Rule{
			{Name: "cpu", Metric: CPUTotalUsage, Waterline: "4", Action: "slow"},
			{Name: "mem", Metric: MemoryTotalUsage, Waterline: "1000", Action: "stop"},
		}}},
	}
	sequence := uint64(0)
	return Compile(policies, registry, nil, Options{Lag: lag}), func(at, cpu, memory int64, tasks ...string) *Snapshot {
		sequence++
		s := &Snapshot{
			Sequence: sequence, At: at, Cores: 8 * Core, Memory: 2000,
			Values: map[string]int64{CPUTotalUsage: cpu, MemoryTotalUsage: memory},
		}
		for _, name := range tasks {
			s.Tasks = append(s.Tasks, Task{
				ID: name, Attempt: 1, Class: plimsoll.ClassBestEffort, CPU: 2 * Core, CPUKnown: true, Memory: 300,
				MemoryKnown: true,
				Groups:      []Group{{Name: "/" + name, CPU: 2 * Core, Quota: Unlimited, Shares: 1024}},
			})
		}
		return s
	}
}

// turn plans, accepts, and does all steps.
func turn(t *testing.T, s *Snapshot, p *Policies, l *Ledger, fail error) []Step {
	t.Helper()
	res := Plan(s, p, l, s.At)
	l.Accept(res, s)
	for i := range res.Steps {
		l.Begin(&res.Steps[i], s.At)
		l.Done(&res.Steps[i], fail, s.At)
	}
	return res.Steps
}

// A task that is throttled again soon after it got something back waits longer, but only for as
// long as a rule speaks of it: without one it gets everything at once.
func TestNobodyWaitsForARuleThatIsGone(t *testing.T) {
	p, at := lagging(t, 0)
	none := Compile(nil, p.registry, nil, Options{})
	l := NewLedger()
	second := int64(time.Second)
	turn(t, at(0, 7*Core, 0, "a"), p, l, nil)
	h := l.held[Key{Task: "a", Attempt: 1}]
	h.Taken, h.Wait = 0, time.Minute
	quota := func(s *Snapshot) *Snapshot {
		s.Tasks[0].Groups[0].Quota = Core
		return s
	}
	if steps := turn(t, quota(at(2*second, 1*Core, 0, "a")), p, l, nil); len(steps) != 0 {
		t.Errorf("while the rule is there: %v, want nothing before the wait is over", steps)
	}
	steps := turn(t, quota(at(3*second, 1*Core, 0, "a")), none, l, nil)
	if len(steps) != 1 || steps[0].Verb != Restore || steps[0].After != Unlimited {
		t.Errorf("without the rule: %v, want all of the quota back", steps)
	}
}

// A rule that was active and is not there any more has ended, as has one that is now about another
// metric. That is said with one plan.
func TestRulesThatEnd(t *testing.T) {
	p, at := lagging(t, 0)
	none := Compile(nil, p.registry, nil, Options{})
	l := NewLedger()
	turn(t, at(1, 7*Core, 0), p, l, nil)
	res := Plan(at(2, 7*Core, 0), none, l, 2)
	if len(res.Ended) != 1 || res.Ended[0] != (EndedRule{Rule: "node/cpu", Metric: CPUTotalUsage}) {
		t.Errorf("ended are %v, want the rule that was active", res.Ended)
	}
	other := *p
	other.rules = slices.Clone(p.rules)
	for i := range other.rules {
		other.rules[i].Metric = CPUPressure
	}
	if res := Plan(at(3, 7*Core, 0), &other, l, 3); len(res.Ended) != 1 {
		t.Errorf("with another metric, ended are %v, want the rule that was active", res.Ended)
	}
	if res := Plan(at(4, 7*Core, 0), p, l, 4); res.Ended != nil {
		t.Errorf("with all rules, ended are %v", res.Ended)
	}
	turn(t, at(5, 7*Core, 0), none, l, nil)
	if res := Plan(at(6, 7*Core, 0), none, l, 6); res.Ended != nil {
		t.Errorf("said already, ended are %v", res.Ended)
	}
}

// A throttling step counts as released until the figures show it. A failed step counts for nothing.
func TestThrottledCountsUntilItShows(t *testing.T) {
	for _, c := range []struct {
		name  string
		lag   time.Duration
		fail  error
		after time.Duration
		steps int
	}{
		{"at once", 2500 * time.Millisecond, nil, time.Second, 0},
		{"just before", 2500 * time.Millisecond, nil, 2 * time.Second, 0},
		{"when it must have shown", 2500 * time.Millisecond, nil, 3 * time.Second, 1},
		{"by default the next sample shows it", 0, nil, time.Second, 1},
		{"what failed counts for nothing", 2500 * time.Millisecond, errors.New("no such device"), time.Second, 1},
		{"a clock that was set back does not make it count for longer", 2500 * time.Millisecond, nil, -time.Hour, 1},
	} {
		p, sample := lagging(t, c.lag)
		l, at := NewLedger(), int64(time.Hour)*1000
		if got := turn(t, sample(at, 5*Core, 0, "a", "b"), p, l, c.fail); len(got) != 1 || got[0].Task != "a" {
			t.Fatalf("%s: first %+v", c.name, got)
		}
		if got := turn(t, sample(at+int64(c.after), 5*Core, 0, "a", "b"), p, l, nil); len(got) != c.steps {
			t.Errorf("%s: %d steps, want %d", c.name, len(got), c.steps)
		}
	}
}

// A task that was stopped is in the node's figures for a while after it has gone, also if the agent
// has started anew meanwhile: nobody else is stopped for it.
func TestGoneCountsUntilItShows(t *testing.T) {
	for _, anew := range []bool{false, true} {
		p, sample := lagging(t, 2500*time.Millisecond)
		l, at := NewLedger(), int64(time.Hour)
		got := turn(t, sample(at, 0, 1200, "a", "b"), p, l, nil)
		if len(got) != 1 || got[0].Task != "a" || got[0].Verb != Evict {
			t.Fatalf("first %+v", got)
		}
		for i, want := range []int{0, 0, 0, 1} {
			if anew {
				l = restarted(t, l)
			}
			at += second
			if got := turn(t, sample(at, 0, 1200, "b"), p, l, nil); len(got) != want {
				t.Errorf("anew %v, %d samples after it has gone: %d steps, want %d", anew, i, len(got), want)
			}
		}
	}
}

func restarted(t *testing.T, l *Ledger) *Ledger {
	t.Helper()
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if l, err = DecodeLedger(data); err != nil {
		t.Fatal(err)
	}
	return l
}

// An agent that is killed between the record of an eviction and the eviction itself does not take
// the task as leaving for ever: it is stopped in the sample after the next one if that is still
// needed. If the eviction was done after all, it counts.
func TestEvictionThatNobodyKnowsOf(t *testing.T) {
	for _, done := range []bool{false, true} {
		p, sample := lagging(t, 0)
		l, at := NewLedger(), int64(time.Hour)
		s := sample(at, 0, 1200, "a", "b")
		res := Plan(s, p, l, at)
		l.Accept(res, s)
		l.Begin(&res.Steps[0], at)
		l = restarted(t, l)
		var stopped []string
		for range 2 {
			at += second
			s := sample(at, 0, 1200, "a", "b")
			s.Tasks[0].Stopping = done
			for _, step := range turn(t, s, p, l, nil) {
				stopped = append(stopped, step.Task)
			}
		}
		if done && len(stopped) > 0 || !done && (len(stopped) != 1 || stopped[0] != "a") {
			t.Errorf("done %v: then %v are stopped", done, stopped)
		}
	}
}

// After the clock was set back by an hour, a frozen task does not stand still for an hour more. A
// waiting task does not wait for an hour more.
func TestLedgerMovesWithTheClock(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	_, sample := lagging(t, 0)
	p := Compile([]plimsoll.Policy{
		{
			Action: &plimsoll.Action{
				Name: "halt", CoolDown: time.Minute, Freeze: &plimsoll.FreezeAction{For: 10 * time.Second},
			},
		},
		{TaskQOS: &plimsoll.TaskQOS{
			Name: "batch", Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}},
			Allowed: []string{"halt"},
		}},
		{
			NodeQOS: &plimsoll.NodeQOS{
				Name:  "node",
				Rules: []plimsoll.Rule{{Name: "cpu", Metric: CPUTotalUsage, Waterline: "4", Action: "halt"}},
			},
		},
	}, registry, nil, Options{})
	l, at := NewLedger(), 5*int64(time.Hour)
	if got := turn(t, sample(at, 5*Core, 0, "a"), p, l, nil); len(got) != 1 || got[0].Verb != Freeze {
		t.Fatalf("first %+v", got)
	}
	at -= int64(time.Hour)
	for i := range 13 {
		l = restarted(t, l)
		s := sample(at+int64(i)*second, 5*Core, 0, "a")
		s.Tasks[0].Groups[0].Frozen = true
		if got := turn(t, s, p, l, nil); len(got) == 1 && got[0].Verb == Thaw {
			return
		}
	}
	t.Error("it stands still for longer than it may")
}
