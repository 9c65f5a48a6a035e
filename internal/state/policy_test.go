package state_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

func action(name string) plimsoll.Policy {
	return plimsoll.Policy{Action: &plimsoll.Action{Name: name, CoolDown: time.Minute, DisableScheduling: true}}
}

func taskQOS(name string, allowed ...string) plimsoll.Policy {
	return plimsoll.Policy{
		TaskQOS: &plimsoll.TaskQOS{Name: name, Labels: map[string]string{"tier": "batch"}, Allowed: allowed},
	}
}

func rule(name, metric, line, action string) plimsoll.Rule {
	return plimsoll.Rule{Name: name, Metric: metric, Waterline: line, Action: action}
}

func nodeQOS(name string, rules ...plimsoll.Rule) plimsoll.Policy {
	return plimsoll.Policy{NodeQOS: &plimsoll.NodeQOS{Name: name, Rules: rules}}
}

// withPolicies returns a state with a node that measures queue_length, and with policies.
func withPolicies(t *testing.T, policies ...plimsoll.Policy) *state.State {
	t.Helper()
	s := state.New(state.Config{}, plimsoll.DefaultQueues())
	s.Begin(1000, 1)
	node := plimsoll.Node{ID: "n1", Incarnation: 1, Facts: plimsoll.NodeFacts{Metrics: []string{"queue_length"}}}
	if _, err := s.Register(&node, "gw"); err != nil {
		t.Fatal(err)
	}
	if len(policies) > 0 {
		if _, err := s.ApplyPolicies(policies, false); err != nil {
			t.Fatal(err)
		}
	}
	s.Take(new(state.Changes))
	return s
}

func names(s *state.State) (out []string) {
	for _, p := range s.Policies() {
		out = append(out, p.Ref().String())
	}
	return out
}

// A set is applied whole or not at all: if one of its policies is wrong, none of the others is
// applied. The wrong policy may be a new one or a change.
func TestPoliciesRefused(t *testing.T) {
	many := make([]plimsoll.Policy, 0, plimsoll.MaxPolicies+1)
	for i := range plimsoll.MaxPolicies + 1 {
		many = append(many, action(fmt.Sprint("a", i)))
	}
	var rules []plimsoll.Rule
	for i := range plimsoll.MaxRules {
		rules = append(rules, rule(fmt.Sprint("r", i), "load", "3", "old"))
	}
	var full []plimsoll.Policy
	for i := range plimsoll.MaxRulesTotal/plimsoll.MaxRules + 1 {
		full = append(full, nodeQOS(fmt.Sprint("full", i), rules...))
	}
	long := []plimsoll.Requirement{{
		Scope: plimsoll.ScopeOwner, Values: slices.Repeat([]string{strings.Repeat("x", 128)}, 1000),
	}}
	for _, test := range []struct {
		name string
		set  []plimsoll.Policy
		code plimsoll.Code
		want string
	}{
		{
			"a rule without its action",
			[]plimsoll.Policy{nodeQOS("n", rule("r", "load", "3", "nope"))},
			plimsoll.CodeInvalid, `NodeQOS n: rules[0].action: there is no Action "nope"`,
		},
		{
			"a name of the built-in ones",
			[]plimsoll.Policy{action("plimsoll-mine")},
			plimsoll.CodeInvalid,
			`"plimsoll-mine" begins as the names of built-in policies do`,
		},
		{
			"an allowed action that is not there",
			[]plimsoll.Policy{taskQOS("t", "old", "nope")},
			plimsoll.CodeInvalid,
			`TaskQOS t: allowed[1]: there is no Action "nope"`,
		},
		{
			"a metric that nobody measures",
			[]plimsoll.Policy{nodeQOS("n", rule("r", "nope", "3", "old"))},
			plimsoll.CodeInvalid,
			`rules[0].metric: "nope" is measured by no node; there are cpu_pressure, cpu_total_usage, cpu_total_utilization, ext_cpu_total_usage, ` +
				`ext_memory_total_usage, load, memory_pressure, memory_total_usage, memory_total_utilization, queue_length`,
		},
		{
			"more than all",
			[]plimsoll.Policy{nodeQOS("n", rule("r", "memory_total_utilization", "101", "old"))},
			plimsoll.CodeInvalid,
			"rules[0].waterline: 101 is above 100 percent, which memory_total_utilization never is",
		},
		{
			"more than all, in thousandths",
			[]plimsoll.Policy{nodeQOS("n", rule("r", "cpu_pressure", "100.001%", "old"))},
			plimsoll.CodeInvalid,
			"above 100 percent",
		},
		{"bytes without a unit", []plimsoll.Policy{nodeQOS("n", rule("r", "memory_total_usage", "80", "old"))}, plimsoll.CodeInvalid, "rules[0].waterline: 80 is less than a mebibyte, and no node has so little; write the unit, such as 80Gi, or use memory_total_utilization"},
		{"a release line without a unit", []plimsoll.Policy{nodeQOS("n", plimsoll.Rule{Name: "r", Metric: "memory_total_usage", Waterline: "80Gi", Release: "70", Action: "old"})}, plimsoll.CodeInvalid, "rules[0].release: 70 is less than a mebibyte, and no node has so little; write the unit, such as 80Gi, or use memory_total_utilization"},
		{
			"percent of cores",
			[]plimsoll.Policy{nodeQOS("n", rule("r", "cpu_total_usage", "80%", "old"))},
			plimsoll.CodeInvalid, "rules[0].waterline: 80% is a percentage, and cpu_total_usage is measured in cores",
		},
		{
			"a line of zero in a change",
			[]plimsoll.Policy{nodeQOS("there", rule("r", "load", "0", "old"))},
			plimsoll.CodeInvalid, "NodeQOS there: rules[0].waterline: is 0",
		},
		{
			"a metric that nobody measures in a change",
			[]plimsoll.Policy{nodeQOS("there", rule("r", "nope", "1", "old"))},
			plimsoll.CodeInvalid,
			"is measured by no node",
		},
		{
			"zero step in a change",
			[]plimsoll.Policy{
				{Action: &plimsoll.Action{Name: "old", CoolDown: 1, Throttle: &plimsoll.ThrottleAction{}}},
			},
			plimsoll.CodeInvalid, "Action old: throttle.step",
		},
		{"one twice", []plimsoll.Policy{action("x"), action("x")}, plimsoll.CodeInvalid, "Action x stands twice"},
		{"none of the kinds", []plimsoll.Policy{{}}, plimsoll.CodeInvalid, "kind: is missing"},
		{
			"two of the kinds",
			[]plimsoll.Policy{{Action: action("x").Action, TaskQOS: taskQOS("x").TaskQOS}},
			plimsoll.CodeInvalid, "kind: is given twice",
		},
		{"too many", many, plimsoll.CodeExhausted, "at most 1000 are possible"},
		{
			"too large",
			[]plimsoll.Policy{{TaskQOS: &plimsoll.TaskQOS{Name: "t", Match: slices.Repeat(long, 20)}}},
			plimsoll.CodeExhausted, "make TaskQOS t shorter",
		},
		{"too many rules", full, plimsoll.CodeExhausted, "would have 11001 rules; at most 10000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := withPolicies(t, action("old"), nodeQOS("there", rule("r", "load", "3", "old")))
			before := names(s)
			set := append([]plimsoll.Policy{action("good")}, test.set...)
			_, err := s.ApplyPolicies(set, false)
			var e *plimsoll.Error
			if !errors.As(err, &e) || e.Code != test.code || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s: %s", err, test.code, test.want)
			}
			var c state.Changes
			if s.Take(&c); !c.Empty() || cmp.Diff(before, names(s)) != "" {
				t.Errorf("a refused set changed something: %+v, %v", c, names(s))
			}
		})
	}
}

// Policies of a set may refer to each other in any order. A dry run gives the same result and
// changes nothing. A policy that is unchanged is not stored again.
func TestPoliciesApplied(t *testing.T) {
	s := withPolicies(t)
	set := []plimsoll.Policy{
		nodeQOS(
			"n", rule("low", "queue_length", "300", "a"), rule("high", "cpu_total_usage", "3500m", "a"),
			rule("higher", "cpu_total_usage", "4", "a"),
		),
		taskQOS("t", "b", "a"), action("b"), action("a"),
	}
	for _, dryRun := range []bool{true, false} {
		outcomes, err := s.ApplyPolicies(set, dryRun)
		if err != nil || len(outcomes) != 4 ||
			outcomes[0] != (state.PolicyOutcome{Ref: set[0].Ref(), Change: state.PolicyCreated}) {
			t.Fatalf("dry run %t: %+v, %v", dryRun, outcomes, err)
		}
		if got := len(s.Policies()); dryRun != (got == 0) {
			t.Fatalf("dry run %t left %d policies", dryRun, got)
		}
	}
	var c state.Changes
	if s.Take(&c); len(
		c.Policies,
	) != 4 || c.Policies[0].Revision != 1 || c.Policies[0].Kind() != plimsoll.PolicyAction {
		t.Fatalf("handed out %+v", c.Policies)
	}
	s.Begin(2000, 2)
	set[0] = nodeQOS("n", rule("low", "load", "7", "b"))
	outcomes, err := s.ApplyPolicies(set, false)
	if err != nil || outcomes[0].Change != state.PolicyChanged || outcomes[1].Change != state.PolicyUnchanged {
		t.Fatalf("%+v, %v", outcomes, err)
	}
	if s.Take(&c); len(c.Policies) != 1 || c.Policies[0].Name() != "n" || c.Policies[0].Revision != 2 {
		t.Fatalf("handed out %+v", c.Policies)
	}
}

// An Action that other policies name is kept, and the error names them. A policy that is deleted
// and applied again in a turn is put, not deleted.
func TestPolicyDeleted(t *testing.T) {
	s := withPolicies(t, action("a"), action("b"), nodeQOS("n", rule("r", "load", "3", "a")), taskQOS("t", "a"))
	a := plimsoll.PolicyRef{Kind: plimsoll.PolicyAction, Name: "a"}
	err := s.DeletePolicy(a)
	if plimsoll.CodeOf(err) != plimsoll.CodeConflict || !strings.Contains(
		err.Error(), "Action a is in use by TaskQOS t, NodeQOS n (rule r); change or delete them first",
	) {
		t.Fatal(err)
	}
	if err := s.DeletePolicy(
		plimsoll.PolicyRef{Kind: plimsoll.PolicyAction, Name: "nope"},
	); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Fatal(err)
	}
	for _, ref := range []plimsoll.PolicyRef{
		{Kind: plimsoll.PolicyNodeQOS, Name: "n"},
		{Kind: plimsoll.PolicyTaskQOS, Name: "t"},
		a,
		{Kind: plimsoll.PolicyAction, Name: "b"},
	} {
		if err := s.DeletePolicy(ref); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ApplyPolicies([]plimsoll.Policy{action("b")}, false); err != nil {
		t.Fatal(err)
	}
	var c state.Changes
	if s.Take(&c); len(c.DeletedPolicies) != 3 || len(c.Policies) != 1 || c.Policies[0].Name() != "b" {
		t.Errorf("put %v, deleted %v", c.Policies, c.DeletedPolicies)
	}
	if s.Take(&c); !c.Empty() {
		t.Errorf("handed out twice: %+v", c)
	}
}

// Stored policies are loaded unchanged, also a rule whose metric no node measures any more.
// Impossible records are refused.
func TestPoliciesLoad(t *testing.T) {
	load := func(policies ...plimsoll.Policy) (*state.State, error) {
		l := state.NewLoader(state.Config{}, plimsoll.DefaultQueues())
		for _, p := range policies {
			l.Policy(p)
		}
		return l.End(1000)
	}
	s, err := load(nodeQOS("n", rule("r", "gone", "3", "a")), action("a"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"Action a", "NodeQOS n"}, names(s)); d != "" {
		t.Error(d)
	}
	for name, bad := range map[string][]plimsoll.Policy{
		"twice": {action("a"), action("a")}, "no kind": {{}}, "no name": {action("")},
	} {
		if _, err := load(bad...); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A node's record holds at most plimsoll.MaxEvictions evictions. The one that ends first is dropped
// first.
func TestEvictionsAreBounded(t *testing.T) {
	s := state.New(state.Config{}, plimsoll.DefaultQueues())
	s.Begin(1e9, 1)
	if _, err := s.Register(
		&plimsoll.Node{ID: "n1", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 1_000_000}}, "gw",
	); err != nil {
		t.Fatal(err)
	}
	n := s.Node("n1")
	for i := range plimsoll.MaxEvictions + 6 {
		s.Begin(int64(i+1)*1e9, uint64(i+1))
		id := fmt.Sprint("j", i)
		if _, err := s.Submit(&plimsoll.JobSpec{ID: id, Queue: "root.default", Groups: []plimsoll.GroupSpec{
			{Name: "g", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 1}},
		}}, false); err != nil {
			t.Fatal(err)
		}
		s.Continue(state.Budget{})
		ref, ok := s.FindTask(id, "g", 0)
		if !ok {
			t.Fatal("no task")
		}
		s.Bind(ref, n.Slot)
		s.Report(
			n, id, "g", 0,
			&plimsoll.TaskReport{Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultEvicted},
		)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.Take(new(state.Changes))
	}
	if len(n.Evictions) != plimsoll.MaxEvictions || n.Evictions[0].Job != "j6" {
		t.Errorf("%d groups are kept away, the first is %s", len(n.Evictions), n.Evictions[0].Job)
	}
}
