package qos

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// A use without an offer is above any possible line. It is not shown as a number, which could be
// mistaken for a measurement.
func TestAPartOfNothing(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	m := registry.Find(ExtCPUTotalUsage)
	used, known := extUsage(DimensionExtCPU)(
		&View{Snapshot: &Snapshot{Tasks: []Task{{ExtCPU: Core, CPU: Core, CPUKnown: true}}}},
	)
	if got := m.Format(used); !known || got != "∞ %" {
		t.Errorf("the usage is %q, known: %v", got, known)
	}
	if got := m.Format(used - 95*m.LineScale()); got != "∞ %" {
		t.Errorf("the gap is %q", got)
	}
	if got := m.Format(12_345); got != "12.3 %" {
		t.Errorf("a usual one is %q", got)
	}
}

// Offers in each situation.
func TestExtended(t *testing.T) {
	told := func(target, published int64) Offer { return Offer{Target: target, Published: published, Told: true} }
	for _, c := range []struct {
		name              string
		in                ExtendedInput
		target, published int64
		why               string
	}{
		{
			"what others leave",
			ExtendedInput{Allocatable: 16, Reserve: 2, Predicted: 4, PredictedKnown: true},
			10, 10,
			"unused",
		},
		{
			"nothing is left",
			ExtendedInput{Allocatable: 16, Reserve: 2, Predicted: 20, PredictedKnown: true},
			0, 0,
			"unused",
		},
		{
			"the reserve is larger than the node",
			ExtendedInput{Allocatable: 16, Reserve: 20, PredictedKnown: true},
			0,
			0, "unused",
		},
		{
			"less is left than is held",
			ExtendedInput{Allocatable: 16, Predicted: 12, PredictedKnown: true, Held: 6, Used: 3, Previous: told(8, 8)},
			4, 6, "does not cover",
		},
		{
			"and the holders use it",
			ExtendedInput{Allocatable: 16, Predicted: 12, PredictedKnown: true, Held: 6, Used: 5},
			4, 6, "use too much",
		},
		{
			"nothing is left, and all is held",
			ExtendedInput{Allocatable: 16, Predicted: 16, PredictedKnown: true, Held: 6},
			0, 6, "does not cover",
		},
		{
			"a small change is not published",
			ExtendedInput{Allocatable: 1000, Predicted: 890, PredictedKnown: true, Previous: told(100, 100)},
			110, 100,
			"no more than 10.0 %",
		},
		{
			"a larger one is",
			ExtendedInput{Allocatable: 1000, Predicted: 889, PredictedKnown: true, Previous: told(100, 100)},
			111, 111,
			"unused",
		},
		{
			"a small decrease is not",
			ExtendedInput{Allocatable: 1000, Predicted: 910, PredictedKnown: true, Previous: told(100, 100)},
			90, 100,
			"no more",
		},
		{
			"a larger one is, too",
			ExtendedInput{Allocatable: 1000, Predicted: 911, PredictedKnown: true, Previous: told(100, 100)},
			89, 89,
			"unused",
		},
		{
			"below what is held the dead band does not keep the offer open",
			ExtendedInput{Allocatable: 1000, Predicted: 910, PredictedKnown: true, Held: 95, Previous: told(100, 100)},
			90, 95, "does not cover",
		},
		{
			"another dead band",
			ExtendedInput{
				Allocatable: 1000, Predicted: 889, PredictedKnown: true, Previous: told(100, 100), DeadBand: 200,
			},
			111, 100, "20.0 %",
		},
		{
			"no dead band",
			ExtendedInput{
				Allocatable: 1000, Predicted: 899, PredictedKnown: true, Previous: told(100, 100), DeadBand: -1,
			},
			101, 101, "unused",
		},
		{"nothing is known at first", ExtendedInput{Allocatable: 16, Held: 3}, 3, 3, "too little"},
		{
			"nothing is known, and more is held than there is",
			ExtendedInput{Allocatable: 16, Reserve: 2, Held: 20},
			14, 20, "too little",
		},
		{
			"nothing is known any more",
			ExtendedInput{Allocatable: 16, Held: 3, Previous: told(10, 10)},
			10, 3,
			"any more",
		},
		{
			"nothing is known any more, and holders had to give way",
			ExtendedInput{Allocatable: 16, Held: 3, Previous: told(1, 3)},
			1, 3, "any more",
		},
	} {
		got := Extended(c.in)
		if got.Target != c.target || got.Published != c.published || !strings.Contains(got.Why, c.why) {
			t.Errorf(
				"%s: target %d, published %d, %q; want %d, %d, …%s…", c.name, got.Target, got.Published, got.Why,
				c.target, c.published, c.why,
			)
		}
	}
}

// For any input in any order, no amount that is held is withdrawn on paper. Without a prediction
// nothing beyond it is published. The offer never exceeds the target and the dead band. The target
// is the exact remainder.
func TestExtendedNeverBelowHeld(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(0, 1<<50)
		var last Offer
		for range 20 {
			in := ExtendedInput{
				Allocatable: amount.Draw(t, "allocatable"), Reserve: amount.Draw(t, "reserve"),
				Predicted:      amount.Draw(t, "predicted"),
				PredictedKnown: rapid.Bool().Draw(t, "known"), Held: amount.Draw(t, "held"),
				Used: amount.Draw(t, "used"), Previous: last,
				DeadBand: rapid.Int64Range(-1, 300).Draw(t, "dead band"),
			}
			o := Extended(in)
			left := max(in.Allocatable-in.Reserve-in.Predicted, 0)
			switch {
			case o.Published < in.Held:
				t.Fatalf("%+v: %d is published, less than is held", in, o.Published)
			case !in.PredictedKnown && o.Published != in.Held:
				t.Fatalf("%+v: %d is published without a prediction", in, o.Published)
			case in.PredictedKnown && o.Target != left:
				t.Fatalf("%+v: the target is %d, and %d is left", in, o.Target, left)
			case in.PredictedKnown && o.Published > max(o.Target, in.Held) && o.Published != last.Published:
				t.Fatalf("%+v: %d is published, and the target is %d", in, o.Published, o.Target)
			case in.PredictedKnown && o.Published > in.Held && in.Held > o.Target:
				t.Fatalf("%+v: something new could be placed: %d", in, o.Published)
			case o.Why == "":
				t.Fatalf("%+v: it does not say why", in)
			}
			last = o
		}
	})
}

// The built-in policies are valid, know their metrics, and concern every node and the best-effort
// tasks only.
func TestExtendedPolicies(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	policies := ExtendedPolicies()
	for i := range policies {
		if err := policies[i].Validate(); err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(policies[i].Name(), ReservedPrefix) {
			t.Errorf("%s is not a reserved name", policies[i].Name())
		}
		if n := policies[i].NodeQOS; n != nil {
			for j := range n.Rules {
				if err := registry.CheckRule(&n.Rules[j]); err != nil {
					t.Error(err)
				}
			}
		}
	}
	p := Compile(policies, registry, nil, Options{})
	for class, want := range map[plimsoll.Class]int{
		plimsoll.ClassBestEffort: 2, plimsoll.ClassBurstable: 0, plimsoll.ClassGuaranteed: 0,
	} {
		if actions, _ := p.Allowed(&Task{Class: class}); len(actions) != want {
			t.Errorf("on a %v task %v may act", class, actions)
		}
	}
}

// lending is a node of 8 cores that lends some, with two holders and a best-effort task that holds
// nothing.
func lending(target int64, quotas ...int64) *Snapshot {
	s := &Snapshot{Sequence: 1, At: second, Cores: 8 * Core, Memory: 1 << 36, ExtCPU: target, ExtMemory: 1 << 36}
	for i, name := range []string{"a", "b"} {
		use := 2 * Core
		if i < len(quotas) && quotas[i] > 0 {
			use = min(use, quotas[i])
		}
		g := Group{Name: "/" + name, CPU: use, Quota: Unlimited, Ext: 2 * Core, Shares: 1024}
		if i < len(quotas) {
			g.Quota = quotas[i]
		}
		s.Tasks = append(s.Tasks, Task{
			ID: name, Attempt: 1, Class: plimsoll.ClassBestEffort, CPU: use, CPUKnown: true, MemoryKnown: true,
			ExtCPU: 2 * Core, Groups: []Group{g},
		})
	}
	s.Tasks = append(s.Tasks, Task{
		ID: "c", Attempt: 1, Class: plimsoll.ClassBestEffort, CPU: Core, CPUKnown: true, MemoryKnown: true,
		Groups: []Group{{Name: "/c", CPU: Core, Quota: Unlimited, Shares: 1024}},
	})
	return s
}

// When the target falls below the use of the holders, they are throttled as far as needed. Tasks
// without extended resources are left alone. While the target is not below the use, no task is
// acted on.
func TestExtendedShrinksByThrottling(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	p := Compile(ExtendedPolicies(), registry, nil, Options{})
	for _, c := range []struct {
		target int64
		steps  int
	}{{5 * Core, 0}, {4 * Core, 0}, {39 * Core / 10, 1}, {2 * Core, 2}, {0, 2}} {
		res := Plan(lending(c.target), p, NewLedger(), second)
		if len(res.Steps) != c.steps {
			t.Errorf("target %d: %d steps, want %d: %+v", c.target, len(res.Steps), c.steps, res.Steps)
		}
		for i := range res.Steps {
			if s := &res.Steps[i]; s.Verb != Throttle || s.Task == "c" {
				t.Errorf("target %d: %v of %s", c.target, s.Verb, s.Task)
			}
		}
	}
}
