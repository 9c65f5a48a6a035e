package plimsoll

import (
	"strconv"
	"strings"
)

// Bounds on the report of a node's QoS agent. A larger report is refused.
const (
	MaxQOSEvents  = 500 // in one report
	MaxQOSText    = 160 // bytes of a rule, a metric, and the values before and after
	MaxQOSMessage = 512 // bytes of a message, and of the reason why a node is closed
	MaxMetrics    = 64  // names of metrics that a node announces
)

// NodeReport is the report of a node's QoS agent. The condition and the offers are the present
// ones; the events are those since the last report.
type NodeReport struct {
	SchedulingDisabled bool
	SchedulingReason   string    // reason for people; empty unless SchedulingDisabled
	Extended           Resources // offers of ext-cpu and ext-memory; empty: nothing is offered
	Events             []QOSEvent
	Occupied           *NodeUse // what runs on the node outside of its tasks; nil: not measured
}

// QOSEvent is one action or observation of a QoS agent. Before and After are for people, such as
// "quota 200m".
type QOSEvent struct {
	At      int64 // Unix nanoseconds, by the node's clock
	Kind    QOSEventKind
	Task    string // id of the task; empty: the event is about the node
	Attempt int32
	Rule    string // nodeqos/rule
	Metric  string
	Before  string
	After   string
	Message string
}

// QOSEventKind is the kind of an action or observation of a QoS agent.
type QOSEventKind uint8

// The kinds.
const (
	QOSRuleTriggered      QOSEventKind = iota + 1 // a metric went over its waterline
	QOSRuleRestored                               // the metric is back at the release line
	QOSPreviewed                                  // an action that would be taken, but its rule is a preview
	QOSReweighted                                 // a task was given a lower weight on a busy processor
	QOSThrottled                                  // a task's quota was lowered
	QOSFrozen                                     // a task was suspended
	QOSThawed                                     // the task runs again
	QOSRestored                                   // an earlier throttle or weight was undone, in part or in full
	QOSReclaimed                                  // memory was reclaimed without killing a task
	QOSEvicting                                   // a task is being stopped
	QOSFailed                                     // an action failed
	QOSSkipped                                    // a task was passed over
	QOSMetricMissing                              // there is no usable sample
	QOSSchedulingDisabled                         // the node refuses new tasks
	QOSSchedulingEnabled                          // the node takes new tasks again

	numQOSEventKinds
)

var qosEventKindNames = [numQOSEventKinds]string{
	"", "rule triggered", "rule restored", "previewed", "reweighted", "throttled", "frozen", "thawed", "restored",
	"reclaimed", "evicting",
	"failed", "skipped", "metric missing", "scheduling disabled", "scheduling enabled",
}

// Known reports whether this version has the kind.
func (k QOSEventKind) Known() bool { return k >= QOSRuleTriggered && k < numQOSEventKinds }

// String returns the kind in words, such as "rule triggered".
func (k QOSEventKind) String() string { return wordOf(qosEventKindNames[:], k) }

// Text returns the event as one line: the kind, the rule, the metric and the values before and
// after.
func (e *QOSEvent) Text() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	if e.Rule != "" {
		b.WriteString(" by " + e.Rule)
	}
	if e.Metric != "" {
		b.WriteString(" (" + e.Metric + ")")
	}
	if e.Before != "" || e.After != "" {
		b.WriteString(": " + e.Before + " → " + e.After)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	return b.String()
}

// Validate reports the first field that is wrong.
func (r *NodeReport) Validate() error {
	if len(r.SchedulingReason) > MaxQOSMessage {
		return Invalid(
			"schedulingReason", "is %d bytes long; at most %d are possible", len(r.SchedulingReason), MaxQOSMessage,
		)
	}
	if r.SchedulingReason != "" && !r.SchedulingDisabled {
		return Invalid("schedulingReason", "has no meaning while scheduling is not disabled; leave it empty")
	}
	if err := r.Extended.Validate("extended"); err != nil {
		return err
	}
	if err := r.Extended.validateOfNode("extended"); err != nil {
		return err
	}
	for _, name := range r.Extended.Names() {
		if !Extended(name) {
			return Invalid("extended."+name, "cannot be offered; a node offers %s and %s", ExtCPU, ExtMemory)
		}
	}
	if r.Occupied != nil {
		if err := r.Occupied.validate("occupied"); err != nil {
			return err
		}
	}
	if len(r.Events) > MaxQOSEvents {
		return Invalid("events", "has %d entries; at most %d are possible in one report", len(r.Events), MaxQOSEvents)
	}
	for i := range r.Events {
		if err := r.Events[i].validate("events[" + strconv.Itoa(i) + "]"); err != nil {
			return err
		}
	}
	return nil
}

func (e *QOSEvent) validate(field string) error {
	if !e.Kind.Known() {
		return Invalid(field+".kind", "is not known")
	}
	if e.Attempt < 0 {
		return Invalid(field+".attempt", "is negative; attempts are counted from 1")
	}
	for _, text := range []struct {
		name, value string
		most        int
	}{
		{".rule", e.Rule, MaxQOSText},
		{".metric", e.Metric, MaxQOSText},
		{".before", e.Before, MaxQOSText},
		{".after", e.After, MaxQOSText},
		{".message", e.Message, MaxQOSMessage},
		{".task", e.Task, 256},
	} {
		if len(text.value) > text.most {
			return Invalid(field+text.name, "is %d bytes long; at most %d are possible", len(text.value), text.most)
		}
	}
	return nil
}

// Extended reports whether a resource is extended: only a node's QoS agent offers it.
func Extended(resource string) bool { return resource == ExtCPU || resource == ExtMemory }

// NodeGate is the condition of a node that its QoS agent owns. A new registration of the agent
// resets it to the zero value.
type NodeGate struct {
	Sequence uint64 // last report that was accepted from this incarnation
	Closed   bool   // the node takes no new tasks
	Reason   string
}

// Eviction keeps the tasks of a group from a node for a while, after one of them was evicted
// there.
type Eviction struct {
	Job   string
	Group string
	Index int32 // index of the task that was evicted last
	Until int64 // Unix nanoseconds
}
