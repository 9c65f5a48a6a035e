package agent

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// Policies see the priority that a group has on its nodes. It may be set apart from the one by
// which the queues place its tasks.
func TestWorthHasThePriorityOnTheNode(t *testing.T) {
	zero := int32(0)
	for want, spec := range map[int32]plimsoll.GroupSpec{
		7: {Priority: 7}, 0: {Priority: 7, NodePriority: &zero},
	} {
		if w := (&assignment{spec: spec}).worth(); w.Priority != want {
			t.Errorf("%+v: the priority on the node is %d, not %d", spec, w.Priority, want)
		}
	}
}
