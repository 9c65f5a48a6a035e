package nodeqos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// Before Linux 5.15 no group can be idle. There it gets the least weight instead, once, and has its own back in the end; the rungs above go on.
func TestWhereNoGroupCanBeIdle(t *testing.T) {
	tree := fakeTree(t, "a-1")
	n := newNode(t, tree)
	dir := filepath.Join(tree.Hierarchy().Root(), "n1", "a-1")
	if err := os.Remove(filepath.Join(dir, "cpu.idle")); err != nil {
		t.Fatal(err)
	}
	n.tasks = []Task{{
		ID: "a", Attempt: 1, Group: "a-1", Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano(), Resources: plimsoll.Resources{plimsoll.CPU: 1000},
	}}
	weight := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "cpu.weight"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	n.loop.SetPolicies(policies(plimsoll.Action{CoolDown: 1, Weight: &plimsoll.WeightAction{Idle: true}, Throttle: &plimsoll.ThrottleAction{Step: 50}}, plimsoll.Rule{}))
	n.set(20)
	n.steps(12)
	same(t, "weight", weight(), "1")
	events := strings.Join(n.told(), "\n")
	if strings.Contains(events, "failed") || strings.Count(events, "reweighted") != 1 || !strings.Contains(events, "throttled") {
		t.Errorf("told:\n%s", events)
	}
	n.set(1)
	n.steps(90)
	same(t, "weight after all", weight(), "100")
}
