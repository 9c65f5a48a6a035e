package qos

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// busyNode is a node with many tasks and five policies for them. Half of its rules are on
// processors and half on memory, with two actions. If busy, every rule fires, and about half of the
// tasks must be acted on.
func busyNode(tb testing.TB, tasks, rules int, busy bool) (*Snapshot, *Policies, *Ledger) {
	tb.Helper()
	s := &Snapshot{Sequence: 1, At: int64(time.Hour), Cores: 256 * Core, Memory: 1 << 40, Values: map[string]int64{}}
	for i := range tasks {
		use := int64(i%37+1) * Core / 100
		s.Tasks = append(s.Tasks, Task{
			ID: fmt.Sprintf("job-%d/task-%d", i%50, i), Attempt: 1, Class: plimsoll.Class(1 + i%3),
			Priority: int32(i % 5), Owner: fmt.Sprintf("owner-%d", i%7),
			Queue: "root.batch", Labels: map[string]string{"app": fmt.Sprint(i % 11)}, Started: int64(1 + i%1000),
			CPU: use, CPUKnown: true,
			Memory: int64(i%41+1) << 25, MemoryKnown: true,
			Groups: []Group{{Name: "main", CPU: use, Quota: Unlimited, Shares: 1024}},
		})
		s.Values[CPUTotalUsage] += use
		s.Values[MemoryTotalUsage] += int64(i%41+1) << 25
	}
	line := int64(40) // percent of what is used
	if !busy {
		line = 110
	}
	policies := []plimsoll.Policy{
		{
			Action: &plimsoll.Action{
				Name: "throttle", CoolDown: time.Minute, Throttle: &plimsoll.ThrottleAction{MinRatio: 10, Step: 50},
				Evict: &plimsoll.EvictAction{},
			},
		},
		{
			Action: &plimsoll.Action{
				Name: "evict", CoolDown: time.Minute, Evict: &plimsoll.EvictAction{Grace: 10 * time.Second},
				DisableScheduling: true,
			},
		},
	}
	for i := range 5 {
		policies = append(policies, plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{
			Name: fmt.Sprintf("t%d", i), Allowed: []string{"throttle", "evict"},
			Match: []plimsoll.Requirement{
				{Scope: plimsoll.ScopeClass, Values: []string{"best-effort", "burstable"}},
				{Scope: plimsoll.ScopePriority, Values: []string{fmt.Sprint(i)}},
			},
		}})
	}
	q := &plimsoll.NodeQOS{Name: "n"}
	for i := range rules {
		r := plimsoll.Rule{Name: fmt.Sprintf("r%d", i), Metric: CPUTotalUsage, Action: "throttle"}
		r.Waterline = fmt.Sprintf("%dm", s.Values[CPUTotalUsage]*line/100/(Core/1000)+int64(i))
		if i%2 == 1 {
			r.Metric, r.Action, r.Waterline = MemoryTotalUsage, "evict", fmt.Sprint(
				s.Values[MemoryTotalUsage]*line/100+int64(i),
			)
		}
		q.Rules = append(q.Rules, r)
	}
	policies = append(policies, plimsoll.Policy{NodeQOS: q})
	registry, err := NewRegistry()
	if err != nil {
		tb.Fatal(err)
	}
	return s, Compile(policies, registry, nil, Options{}), NewLedger()
}

// BenchmarkPlan measures one plan when every rule fires, and one when none does, as once a second
// on a node.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct {
		tasks, rules int
		busy         bool
	}{{1000, 10, true}, {1000, 10, false}, {1000, 1000, true}} {
		name := fmt.Sprintf(
			"tasks=%d/rules=%d/%s", size.tasks, size.rules, map[bool]string{true: "firing", false: "idle"}[size.busy],
		)
		b.Run(name, func(b *testing.B) {
			s, p, l := busyNode(b, size.tasks, size.rules, size.busy)
			b.ReportAllocs()
			steps, before := 0, processorTime(b)
			for b.Loop() {
				steps = len(Plan(s, p, l, s.At).Steps)
			}
			b.ReportMetric(float64(steps), "steps")
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is the processor time that the process has used so far. Unlike the wall clock, it
// does not depend on other load of the machine.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
