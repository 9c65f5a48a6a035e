package qos

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
)

// Offer is what a node lends of one extended resource: what is allocated on it but not used.
type Offer struct {
	// Target is what there really is to lend. The use of the holders is measured against it
	// (Snapshot.ExtCPU and ExtMemory), so that they are acted on when it falls below what they use.
	Target int64
	// Published is what others are told, and what may be placed. Invariant: at least what running
	// tasks hold, so that nothing is withdrawn on paper that was not taken back by acting on
	// somebody.
	Published int64
	Told      bool   // Target comes from a prediction, perhaps from an earlier one
	Why       string // for people
}

// ExtendedInput is what Extended goes by, all in one unit: nanocores, or bytes.
type ExtendedInput struct {
	Allocatable int64 // what the node gives to tasks
	Reserve     int64 // what is never lent
	// Predicted is the peak to reckon with of all that runs on the node and holds nothing extended
	// (Predictor.Peak).
	Predicted      int64
	PredictedKnown bool
	Held           int64 // what running tasks hold of the resource
	Used           int64 // what they use
	Previous       Offer // what was answered last; zero: nothing yet
	// DeadBand is by how much an offer must change to be published anew, in thousandths of the one
	// before. 0: 100; a negative one is none.
	DeadBand int64
}

// Extended says what a node may lend now: allocatable − reserve − predicted. While nothing can be
// predicted, the target that was told last stands, and nothing is offered beyond what is held.
func Extended(in ExtendedInput) Offer {
	most := max(in.Allocatable-max(in.Reserve, 0), 0)
	held := max(in.Held, 0)
	if !in.PredictedKnown {
		o := Offer{
			Target: min(held, most), Published: held, Told: in.Previous.Told,
			Why: "too little is known yet of what the other tasks use",
		}
		if o.Told {
			o.Target, o.Why = min(max(in.Previous.Target, 0), most), "it is not known any more what the other tasks use"
		}
		return o
	}
	o := Offer{Target: max(most-max(in.Predicted, 0), 0), Told: true}
	if o.Target < held {
		o.Published, o.Why = held, "what is left does not cover what is held; nothing new is lent"
		if in.Used > o.Target {
			o.Why += ", and the holders use too much of it"
		}
		return o
	}
	o.Published, o.Why = o.Target, "what the other tasks leave unused at their peak"
	band := in.DeadBand
	if band == 0 {
		band = defaultDeadBand
	}
	was := in.Previous.Published
	if change := max(o.Target-was, was-o.Target); was > 0 && was >= held && change <= mulDiv(was, max(band, 0), 1000) {
		o.Published = was
		o.Why = fmt.Sprintf("it has changed by no more than %d.%d %%", max(band, 0)/10, max(band, 0)%10)
	}
	return o
}

const defaultDeadBand = 100

// ReservedPrefix is that of the names of built-in policies. Nobody else's policy may have such a
// name.
const ReservedPrefix = "plimsoll-"

// ExtendedPolicies are the rules that a node adds to those of its users when it lends extended
// resources: when the holders use more than there is to lend, their quotas are lowered, and memory
// is taken back, if need be by stopping them. They are acted on and nobody else is: what a task
// that holds nothing extended releases does not count.
func ExtendedPolicies() []plimsoll.Policy {
	const cpu, memory = ReservedPrefix + "ext-cpu", ReservedPrefix + "ext-memory"
	return []plimsoll.Policy{
		{
			Action: &plimsoll.Action{
				Name: cpu, CoolDown: plimsoll.DefaultCoolDown, Throttle: &plimsoll.ThrottleAction{Step: 20},
			},
		},
		{
			Action: &plimsoll.Action{
				Name: memory, CoolDown: plimsoll.DefaultCoolDown, Evict: &plimsoll.EvictAction{Reclaim: true},
			},
		},
		{TaskQOS: &plimsoll.TaskQOS{
			Name: ReservedPrefix + "extended",
			Match: []plimsoll.Requirement{
				{Scope: plimsoll.ScopeClass, Values: []string{plimsoll.ClassBestEffort.String()}},
			},
			Allowed: []string{cpu, memory},
		}},
		{NodeQOS: &plimsoll.NodeQOS{Name: ReservedPrefix + "extended", Rules: []plimsoll.Rule{
			{Name: "cpu", Metric: ExtCPUTotalUsage, Waterline: "100", Release: "95", Action: cpu},
			{Name: "memory", Metric: ExtMemoryTotalUsage, Waterline: "100", Release: "95", Action: memory},
		}}},
	}
}
