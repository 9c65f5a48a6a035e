package qos

import (
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// The options of policies are put over those of the node, the first policy by name first; the rest
// has its default.
func TestPoliciesSetTheOptions(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	policy := func(name string, selector map[string]string, o plimsoll.QOSOptions) plimsoll.Policy {
		rules := []plimsoll.Rule{{Name: "r", Metric: Load, Waterline: "3", Action: "a"}}
		return plimsoll.Policy{NodeQOS: &plimsoll.NodeQOS{Name: name, Selector: selector, Options: o, Rules: rules}}
	}
	compiled := Compile([]plimsoll.Policy{
		policy("b", nil, plimsoll.QOSOptions{Excess: 50, Settle: time.Minute, Backoff: 2 * time.Second}),
		policy("a", nil, plimsoll.QOSOptions{Excess: 10, Stale: 8 * time.Second}),
		policy("0", map[string]string{"rack": "r2"}, plimsoll.QOSOptions{Excess: 90}),
	}, registry, nil, Options{Overdue: time.Hour, Backoff: time.Second})
	want := Options{
		Excess: 100, Overdue: time.Hour, Stale: 8 * time.Second, Backoff: 2 * time.Second, Settle: time.Minute,
		Lag: 500 * time.Millisecond,
	}
	if got := compiled.Options(); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// The node plans with the options of its policies: with an excess, more than the gap is taken.
func TestAnExcessInAPolicyTakesMore(t *testing.T) {
	policies := rules(&plimsoll.Action{Evict: &plimsoll.EvictAction{}}, CPUTotalUsage, "10")
	tasks := []Task{task("a", 2*Core), task("b", 2*Core), task("c", 2*Core)}
	for excess, want := range map[int32]int{0: 1, 10: 2} {
		policies[2].NodeQOS.Options.Excess = excess
		x := newStage(t, policies, tasks...)
		if res := x.sample(CPUTotalUsage, 12*Core); len(res.Steps) != want {
			t.Errorf("excess %d: %s", excess, told(res))
		}
	}
}
