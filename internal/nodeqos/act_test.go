package nodeqos

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

var throttleByFifth = plimsoll.Action{Throttle: &plimsoll.ThrottleAction{MinRatio: 10, Step: 20}}

// When a line is crossed by two and a half steps, exactly three tasks are throttled, those of the lowest priority, in the kernel. Below the line they
// get everything back, the highest priority first, to exactly what they had.
func TestThrottleOnlyAsManyAsNeededAndGiveBackExactly(t *testing.T) {
	n := newNode(t, subtree(t))
	n.batch("a", "b", "c", "d")
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{}))
	n.set(5)
	n.steps(2)
	same(t, "below the line", n.quotas(), "a:100000 b:100000 c:100000 d:100000")
	n.told()

	n.set(12.5)
	n.step()
	same(t, "above the line", n.quotas(), "a:80000 b:80000 c:80000 d:100000")
	same(t, "told", n.told(), []string{
		"rule triggered", "throttled a quota 1 cores → quota 0.8 cores", "throttled b quota 1 cores → 0.8 cores", "throttled c quota 1 cores → 0.8 cores",
	})

	n.set(9.85)
	n.step()
	same(t, "at once the one of the highest priority", n.quotas(), "a:80000 b:96000 c:96000 d:100000")
	n.set(5)
	n.steps(3)
	same(t, "given back", n.quotas(), "a:100000 b:100000 c:100000 d:100000")
	if held := n.loop.state.ledger.Held(); len(held) > 0 {
		t.Errorf("still held: %v", held)
	}
}
