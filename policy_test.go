package plimsoll_test

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Every unusable field of a policy is refused with an error that names it.
func TestPoliciesRefused(t *testing.T) {
	action := func(change func(*plimsoll.Action)) plimsoll.Policy {
		a := &plimsoll.Action{
			Name: "a", CoolDown: time.Minute, Throttle: &plimsoll.ThrottleAction{MinRatio: 10, Step: 20},
		}
		change(a)
		return plimsoll.Policy{Action: a}
	}
	tasks := func(change func(*plimsoll.TaskQOS)) plimsoll.Policy {
		q := &plimsoll.TaskQOS{Name: "a", Labels: map[string]string{"a": "b"}}
		change(q)
		return plimsoll.Policy{TaskQOS: q}
	}
	match := func(scope plimsoll.Scope, values ...string) plimsoll.Policy {
		return tasks(func(q *plimsoll.TaskQOS) { q.Match = []plimsoll.Requirement{{Scope: scope, Values: values}} })
	}
	rule := func(change func(*plimsoll.Rule)) plimsoll.Policy {
		r := plimsoll.Rule{Name: "r", Metric: "load", Waterline: "3", Action: "a"}
		change(&r)
		return plimsoll.Policy{NodeQOS: &plimsoll.NodeQOS{Name: "a", Rules: []plimsoll.Rule{r}}}
	}
	options := func(o plimsoll.QOSOptions) plimsoll.Policy {
		p := rule(func(*plimsoll.Rule) {})
		p.NodeQOS.Options = o
		return p
	}
	for _, p := range []plimsoll.Policy{
		options(plimsoll.QOSOptions{Excess: 100, Stale: time.Second, Lag: time.Hour}),
		action(func(*plimsoll.Action) {}), tasks(func(*plimsoll.TaskQOS) {}),
		match(plimsoll.ScopePriority, "-10", "-5--1", "1000-3000"), rule(func(*plimsoll.Rule) {}),
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", p.Ref(), err)
		}
	}
	for _, test := range []struct {
		policy plimsoll.Policy
		field  string
		msg    string
	}{
		{plimsoll.Policy{}, "kind", "is missing"},
		{plimsoll.Policy{Action: &plimsoll.Action{}, NodeQOS: &plimsoll.NodeQOS{}}, "kind", "is given twice"},
		{action(func(a *plimsoll.Action) { a.Name = "" }), "name", "is missing; give 1 to 63 small letters"},
		{action(func(a *plimsoll.Action) { a.Name = "-a" }), "name", "not a possible name"},
		{action(func(a *plimsoll.Action) { a.Name = strings.Repeat("a", 64) }), "name", "not a possible name"},
		{action(func(a *plimsoll.Action) { a.CoolDown = 0 }), "coolDown", "above 0"},
		{action(func(a *plimsoll.Action) { a.CoolDown = 25 * time.Hour }), "coolDown", "up to 24h"},
		{action(func(a *plimsoll.Action) { a.Throttle = nil }), "action", "does nothing"},
		{action(func(a *plimsoll.Action) { a.Throttle.Step = 101 }), "throttle.step", "1 to 100"},
		{action(func(a *plimsoll.Action) { a.Throttle.MinRatio = -1 }), "throttle.minRatio", "0 to 100"},
		{
			action(func(a *plimsoll.Action) { a.Weight = &plimsoll.WeightAction{Shares: 1} }), "weight.shares",
			"2 to 262144",
		},
		{
			action(func(a *plimsoll.Action) { a.Weight = &plimsoll.WeightAction{Shares: 2, Idle: true} }),
			"weight.shares", "idle",
		},
		{action(func(a *plimsoll.Action) { a.Freeze = &plimsoll.FreezeAction{} }), "freeze.for", "up to 10m"},
		{action(func(a *plimsoll.Action) { a.Evict = &plimsoll.EvictAction{Grace: -1} }), "evict.grace", "up to 1h"},
		{tasks(func(q *plimsoll.TaskQOS) { q.Labels = nil }), "match", "no task would match"},
		{tasks(func(q *plimsoll.TaskQOS) { q.Labels[""] = "x" }), "labels", "a key has 1 to"},
		{tasks(func(q *plimsoll.TaskQOS) { q.Allowed = make([]string, 1001) }), "allowed", "at most 1000"},
		{tasks(func(q *plimsoll.TaskQOS) { q.Match = make([]plimsoll.Requirement, 1001) }), "match", "at most 1000"},
		{tasks(func(q *plimsoll.TaskQOS) { q.Allowed = []string{"A"} }), "allowed[0]", "not a possible name"},
		{tasks(func(q *plimsoll.TaskQOS) { q.Prefer, q.Avoid = true, true }), "avoid", "exclude each other"},
		{tasks(func(q *plimsoll.TaskQOS) { q.Critical, q.Allowed = true, []string{"a"} }), "allowed", "critical"},
		{match(0, "a"), "match[0].scope", "is not known"},
		{match(plimsoll.ScopeOwner), "match[0].values", "give 1 to"},
		{match(plimsoll.ScopeOwner, ""), "match[0].values[0]", "1 to 128"},
		{match(plimsoll.ScopeClass, "gold"), "match[0].values[0]", "is not a class"},
		{match(plimsoll.ScopePriority, "3-1"), "match[0].values[0]", "is not a priority"},
		{match(plimsoll.ScopePriority, "99999999999"), "match[0].values[0]", "is not a priority"},
		{match(plimsoll.ScopeQueue, "batch"), "match[0].values[0]", "not a full queue path"},
		{plimsoll.Policy{NodeQOS: &plimsoll.NodeQOS{Name: "a"}}, "rules", "is empty"},
		{
			plimsoll.Policy{NodeQOS: &plimsoll.NodeQOS{Name: "a", Rules: make([]plimsoll.Rule, 1001)}},
			"rules",
			"at most 1000",
		},
		{options(plimsoll.QOSOptions{Excess: 101}), "options.excess", "0 to 100"},
		{options(plimsoll.QOSOptions{Lag: -1}), "options.lag", "up to 1h"},
		{options(plimsoll.QOSOptions{Overdue: 2 * time.Hour}), "options.overdue", "up to 1h"},
		{options(plimsoll.QOSOptions{Stale: time.Millisecond}), "options.stale", "100ms or more"},
		{rule(func(r *plimsoll.Rule) { r.Name = "" }), "rules[0].name", "not a possible name"},
		{rule(func(r *plimsoll.Rule) { r.Metric = "a b" }), "rules[0].metric", "not a possible name"},
		{rule(func(r *plimsoll.Rule) { r.Waterline = "" }), "rules[0].waterline", "is missing; write a quantity"},
		{rule(func(r *plimsoll.Rule) { r.Waterline = "NaN" }), "rules[0].waterline", "cannot be read"},
		{rule(func(r *plimsoll.Rule) { r.Waterline = "-1" }), "rules[0].waterline", "is negative"},
		{rule(func(r *plimsoll.Rule) { r.Waterline = "1e90" }), "rules[0].waterline", "absurdly large"},
		{rule(func(r *plimsoll.Rule) { r.Waterline = "0" }), "rules[0].waterline", "always above"},
		{rule(func(r *plimsoll.Rule) { r.Release = "3001m" }), "rules[0].release", "above the waterline"},
		{rule(func(r *plimsoll.Rule) { r.TriggerAfter = 3601 }), "rules[0].triggerAfter", "1 to 3600"},
		{rule(func(r *plimsoll.Rule) { r.RestoreAfter = -1 }), "rules[0].restoreAfter", "1 to 3600"},
		{rule(func(r *plimsoll.Rule) { r.Action = "" }), "rules[0].action", "is missing"},
		{rule(func(r *plimsoll.Rule) { r.Action = "Act_1" }), "rules[0].action", "not a possible name"},
	} {
		refused(t, test.policy.Validate(), test.field, test.msg)
	}
}

// A NodeQOS applies to nodes that have all attributes of its selector; without one it applies to
// every node.
func TestNodeQOSSelects(t *testing.T) {
	node := map[string]string{"rack": "r1", "pool": "shared"}
	for _, test := range []struct {
		selector map[string]string
		want     bool
	}{
		{nil, true},
		{map[string]string{"rack": "r1"}, true},
		{map[string]string{"rack": "r1", "pool": "shared"}, true},
		{map[string]string{"rack": "r2"}, false},
		{map[string]string{"rack": "r1", "zone": ""}, false},
	} {
		q := plimsoll.NodeQOS{Selector: test.selector}
		if got := q.Selects(node); got != test.want {
			t.Errorf("%v: %t", test.selector, got)
		}
	}
}

// Extended resources are for the lowest class. A group that requests them is of that class unless
// it names another.
func TestExtendedResourcesAreForBestEffort(t *testing.T) {
	spec := func(class plimsoll.Class, resource string) plimsoll.JobSpec {
		return plimsoll.JobSpec{ID: "j", Queue: "root.default", Groups: []plimsoll.GroupSpec{
			{Name: "g", Count: 1, Command: []string{"true"}, Class: class, Resources: plimsoll.Resources{resource: 1}},
		}}
	}
	for _, test := range []struct {
		class    plimsoll.Class
		resource string
		worth    plimsoll.Class
		field    string
	}{
		{plimsoll.ClassUnset, plimsoll.ExtCPU, plimsoll.ClassBestEffort, ""},
		{plimsoll.ClassBestEffort, plimsoll.ExtMemory, plimsoll.ClassBestEffort, ""},
		{plimsoll.ClassUnset, plimsoll.CPU, plimsoll.ClassBurstable, ""},
		{plimsoll.ClassGuaranteed, plimsoll.CPU, plimsoll.ClassGuaranteed, ""},
		{plimsoll.ClassBurstable, plimsoll.ExtCPU, plimsoll.ClassBurstable, "groups[0].resources.ext-cpu"},
		{plimsoll.ClassGuaranteed, plimsoll.ExtMemory, plimsoll.ClassGuaranteed, "groups[0].resources.ext-memory"},
		{plimsoll.Class(4), plimsoll.CPU, plimsoll.Class(4), "groups[0].class"},
	} {
		s := spec(test.class, test.resource)
		if got := s.Groups[0].Worth(); got != test.worth {
			t.Errorf("%s with %s is worth %s, want %s", test.class, test.resource, got, test.worth)
		}
		if err := s.Validate(); test.field != "" {
			refused(t, err, test.field, "")
		} else if err != nil {
			t.Error(err)
		}
	}
	node := plimsoll.Node{ID: "n", Incarnation: 1, Capacity: plimsoll.Resources{plimsoll.ExtCPU: 1}}
	refused(t, node.Validate(), "capacity.ext-cpu", "the node's QoS agent offers it")
}

// The metrics that a node announces have names, are sorted and unique, and are not too many.
func TestAnnouncedMetrics(t *testing.T) {
	for _, test := range []struct {
		metrics []string
		msg     string
	}{
		{[]string{"a", "b_total"}, ""},
		{[]string{"b", "a"}, "out of order"},
		{[]string{"a", "a"}, "stands twice"},
		{[]string{"1a"}, "not a possible name"},
		{make([]string, 65), "at most 64"},
	} {
		f := plimsoll.NodeFacts{Metrics: test.metrics}
		if err := f.Validate(""); test.msg == "" && err != nil ||
			test.msg != "" && (err == nil || !strings.Contains(err.Error(), test.msg)) {
			t.Errorf("%.3v: %v, want %q", test.metrics, err, test.msg)
		}
	}
}

// The text of an event holds the action, the rule, and the values before and after.
func TestQOSEventText(t *testing.T) {
	e := plimsoll.QOSEvent{
		Kind: plimsoll.QOSThrottled, Rule: "busy/cpu", Metric: "cpu_total_usage", Before: "no quota",
		After: "quota 200m", Message: "300m over the line",
	}
	if got, want := e.Text(), "throttled by busy/cpu (cpu_total_usage): no quota → quota 200m: 300m over the line"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (&plimsoll.QOSEvent{Kind: plimsoll.QOSSchedulingEnabled}).Text(); got != "scheduling enabled" {
		t.Errorf("got %q", got)
	}
}
