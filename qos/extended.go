package qos

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
)

// Offer is the amount of one extended resource that a node lends: allocated on the node but not
// used.
type Offer struct {
	// Target is the amount that there really is to lend. The use of the holders is measured against
	// it (Snapshot.ExtCPU and ExtMemory). When it falls below their use, they are acted on.
	Target int64
	// Published is the amount that the scheduler may place. Invariant: at least the amount that
	// running tasks hold. Nothing is withdrawn on paper before it was taken back from a task.
	Published int64
	Told      bool   // Target comes from a prediction, perhaps from an earlier one
	Why       string // for people
}

// ExtendedInput is the input of Extended, all in one unit: nanocores, or bytes.
type ExtendedInput struct {
	Allocatable int64 // amount that the node gives to tasks
	Reserve     int64 // amount that is never lent
	// Predicted is the expected peak of all use on the node outside of the extended resource
	// (Predictor.Peak).
	Predicted      int64
	PredictedKnown bool
	Held           int64 // amount of the resource that running tasks hold
	Used           int64 // amount of it that they use
	Previous       Offer // the last result; zero: there was none
	// DeadBand is the least change of an offer that is published anew, in thousandths of the offer
	// before. 0: 100; negative: every change is published.
	DeadBand int64
}

// Extended returns the amount that a node may lend now: allocatable − reserve − predicted. Without
// a prediction the last predicted target stands, and nothing is offered beyond the amount that is
// held.
func Extended(in ExtendedInput) Offer {
	most := max(in.Allocatable-max(in.Reserve, 0), 0)
	held := max(in.Held, 0)
	if !in.PredictedKnown {
		o := Offer{
			Target: min(held, most), Published: held, Told: in.Previous.Told,
			Why: "too little is known yet of the use by other tasks",
		}
		if o.Told {
			o.Target, o.Why = min(max(in.Previous.Target, 0), most), "the use by other tasks is not known any more"
		}
		return o
	}
	o := Offer{Target: max(most-max(in.Predicted, 0), 0), Told: true}
	if o.Target < held {
		o.Published, o.Why = held, "the remainder does not cover the amount that is held; nothing new is lent"
		if in.Used > o.Target {
			o.Why += ", and the holders use too much of it"
		}
		return o
	}
	o.Published, o.Why = o.Target, "the part that the other tasks leave unused at their peak"
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

// ReservedPrefix begins the names of built-in policies. No other policy may have such a name.
const ReservedPrefix = "plimsoll-"

// ExtendedPolicies returns the rules that a node adds to those of its users when it lends extended
// resources. When the holders use more than there is to lend, their quotas are lowered. Memory is
// taken back, if need be by stopping them. No other task is acted on, since releases of a task
// without extended resources do not count.
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
