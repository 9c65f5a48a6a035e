package qos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// stage is a node on which samples are taken a second apart.
type stage struct {
	t  *testing.T
	s  *Snapshot
	p  *Policies
	l  *Ledger
	at int64
}

func newStage(t *testing.T, policies []plimsoll.Policy, tasks ...Task) *stage {
	t.Helper()
	return newStageWith(t, policies, nil, tasks...)
}

func newStageWith(t *testing.T, policies []plimsoll.Policy, metrics []Metric, tasks ...Task) *stage {
	t.Helper()
	registry, err := NewRegistry(metrics...)
	if err != nil {
		t.Fatal(err)
	}
	return &stage{
		t: t, p: Compile(policies, registry, nil, Options{}), l: NewLedger(), at: int64(time.Hour),
		s: &Snapshot{Cores: 16 * Core, Memory: 16_000_000_000, Values: map[string]int64{}, Tasks: tasks},
	}
}

// sample takes the next sample, in which metrics have these values (pairs of a name and a value),
// plans, and accepts the plan.
func (x *stage) sample(values ...any) *Result {
	x.t.Helper()
	x.at += int64(time.Second)
	x.s.Sequence, x.s.At, x.s.Values = x.s.Sequence+1, x.at, map[string]int64{}
	for i := 0; i < len(values); i += 2 {
		x.s.Values[values[i].(string)] = values[i+1].(int64)
	}
	res := Plan(x.s, x.p, x.l, x.at)
	if res.Waits != "" {
		x.t.Fatal(res.Waits)
	}
	x.l.Accept(res, x.s)
	return res
}

// do executes a plan, and lets quotas be felt.
func (x *stage) do(res *Result) {
	for i := range res.Steps {
		s := &res.Steps[i]
		x.l.Begin(s, x.at)
		x.l.Done(s, nil, x.at+int64(time.Millisecond))
		for j := range x.s.Tasks {
			t := &x.s.Tasks[j]
			for k := range t.Groups {
				if g := &t.Groups[k]; t.ID == s.Task && g.Name == s.Group && (s.Verb == Throttle || s.Verb == Restore) {
					g.Quota = s.After
				}
			}
		}
	}
}

// told prints the steps of a plan with these verbs, such as "throttle a 2 cores → 1.6 cores".
func told(res *Result, verbs ...Verb) string {
	var out []string
	for i := range res.Steps {
		s := &res.Steps[i]
		if len(verbs) > 0 && !slices.Contains(verbs, s.Verb) {
			continue
		}
		line := s.Verb.String() + " " + s.Task
		if s.Verb == Throttle || s.Verb == Restore {
			line += fmt.Sprintf(" %s → %s", formatQuota(s.Before), formatQuota(s.After))
		}
		out = append(out, line)
	}
	return strings.Join(out, ", ")
}

func (x *stage) want(got, want string) {
	x.t.Helper()
	if got != want {
		x.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// task is a best-effort task with one group that has no quota.
func task(id string, use int64) Task {
	return Task{
		ID: id, Attempt: 1, Class: plimsoll.ClassBestEffort, Started: 1, CPU: use, CPUKnown: true, MemoryKnown: true,
		PressureKnown: true,
		Groups:        []Group{{Name: id, CPU: use, Quota: Unlimited, Shares: 1024}},
	}
}

// with changes a task.
func with(t Task, change func(t *Task)) Task {
	change(&t)
	return t
}

// rules are policies: a rule for each pair of a metric and a line, with an action that is allowed
// on every task.
func rules(a *plimsoll.Action, pairs ...string) []plimsoll.Policy {
	if a.CoolDown == 0 {
		a.CoolDown = 10 * time.Second
	}
	a.Name = "act"
	q := &plimsoll.NodeQOS{Name: "n"}
	for i := 0; i < len(pairs); i += 2 {
		q.Rules = append(
			q.Rules,
			plimsoll.Rule{Name: fmt.Sprintf("r%d", i/2), Metric: pairs[i], Waterline: pairs[i+1], Action: "act"},
		)
	}
	return []plimsoll.Policy{
		{Action: a}, {TaskQOS: &plimsoll.TaskQOS{Name: "all", Match: allOf, Allowed: []string{"act"}}}, {NodeQOS: q},
	}
}

func throttling() *plimsoll.Action {
	return &plimsoll.Action{Throttle: &plimsoll.ThrottleAction{Step: 20}, DisableScheduling: true}
}

func evicting() *plimsoll.Action {
	return &plimsoll.Action{Evict: &plimsoll.EvictAction{}, DisableScheduling: true}
}

func skipped(res *Result, id string) Why {
	for _, s := range res.Skipped {
		if s.Task == id {
			return s.Why
		}
	}
	return 0
}
