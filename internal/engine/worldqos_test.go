package engine_test

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// policy applies or deletes a policy or two. They have few names, so they often refer to each
// other.
func (w *world) policy() {
	action := plimsoll.Policy{
		Action: &plimsoll.Action{
			Name: w.pick([]string{"a", "b"}), CoolDown: time.Duration(1 + w.rng.IntN(3)), DisableScheduling: true,
		},
	}
	switch w.rng.IntN(4) {
	case 0:
		w.send(
			&engine.DeletePolicy{
				Ref: plimsoll.PolicyRef{Kind: plimsoll.PolicyKind(1 + w.rng.IntN(3)), Name: w.pick([]string{"a", "b"})},
			},
		)
	case 1:
		w.send(&engine.ApplyPolicies{Policies: []plimsoll.Policy{action}, DryRun: w.rng.IntN(3) == 0})
	case 2:
		w.send(&engine.ApplyPolicies{Policies: []plimsoll.Policy{action, {TaskQOS: &plimsoll.TaskQOS{
			Name: "a", Labels: map[string]string{"app": "x"}, Allowed: []string{w.pick([]string{"a", "b"})},
		}}}})
	case 3:
		rule := plimsoll.Rule{
			Name: "r", Metric: w.pick([]string{"load", "nope"}), Waterline: "3", Action: w.pick([]string{"a", "b"}),
		}
		w.send(&engine.ApplyPolicies{Policies: []plimsoll.Policy{
			action, {NodeQOS: &plimsoll.NodeQOS{Name: "b", Rules: []plimsoll.Rule{rule}}},
		}})
	}
}

// reportNode closes or opens a node, and changes its extended resources and the use by others.
func (w *world) reportNode() {
	n := w.engine.State().Node(w.node())
	if n == nil {
		return
	}
	cmd := &engine.ReportNode{Node: n.ID, Incarnation: n.Incarnation, Sequence: n.Gate.Sequence + uint64(w.rng.IntN(3))}
	if cmd.Report.SchedulingDisabled = w.rng.IntN(3) == 0; cmd.Report.SchedulingDisabled {
		cmd.Report.SchedulingReason = w.pick([]string{"cpu", "memory"})
	}
	if w.rng.IntN(3) > 0 {
		cmd.Report.Extended = plimsoll.Resources{plimsoll.ExtCPU: int64(w.rng.IntN(4) * 500)}
	}
	if w.rng.IntN(3) > 0 {
		cmd.Report.Occupied = &plimsoll.NodeUse{CPU: w.rng.Int64N(1000), Memory: w.rng.Int64N(3 << 30)}
	}
	cmd.Report.Events = []plimsoll.QOSEvent{
		{Kind: plimsoll.QOSThrottled, Task: "j1.g.0", Before: "none", After: "quota 200m"},
	}
	w.send(cmd)
}
