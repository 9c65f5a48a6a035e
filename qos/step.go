package qos

import (
	"fmt"
	"slices"
	"time"
)

// Verb is the kind of a step.
type Verb uint8

// The verbs: those that take, in the order of the rungs (see the package comment), then those that
// give back.
const (
	Reweight Verb = iota + 1 // lower the weight of a group, or let it run only when nothing else wants to
	Throttle                 // lower the quota of a group
	Freeze                   // freeze a task
	Reclaim                  // ask the kernel to reclaim memory of a task
	Evict                    // stop a task; it goes back to its queue
	Thaw                     // thaw a frozen task
	Restore                  // raise the quota of a group toward the original
	Unweight                 // restore the weight of a group
)

var verbNames = [...]string{"", "reweight", "throttle", "freeze", "reclaim", "evict", "thaw", "restore", "unweight"}

// String returns the verb's word.
func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "unknown"
}

// VerbOf returns the verb of a word; 0 for an unknown word.
func VerbOf(word string) Verb { return Verb(max(slices.Index(verbNames[:], word), 0)) }

// Gives reports whether the verb gives back earlier cuts.
func (v Verb) Gives() bool { return v >= Thaw }

// Weight is the weight with which a group competes for processors.
type Weight struct {
	Shares int64 // in the units of cpu.shares
	Idle   bool
}

// String returns "idle", or the shares.
func (w Weight) String() string {
	if w.Idle {
		return "idle"
	}
	return fmt.Sprintf("%d shares", w.Shares)
}

// Step is one action on one task.
type Step struct {
	Verb    Verb
	Task    string
	Attempt int32
	Group   string // Reweight, Throttle, Restore, Unweight
	Rule    string // nodeqos/rule; of steps that give back, the rule for which something was taken
	Metric  string
	Action  string
	Preview bool // the step is reported and not done

	OwnLimit bool // Throttle, Restore: Before and After are a limit of By's own, and no quota

	Before, After int64         // Throttle, Restore: the quota in nanocores, or Unlimited
	Whole         bool          // Restore: After is the original quota or limit
	Weight        Weight        // Reweight, Unweight: the weight before
	NewWeight     Weight        // Reweight, Unweight: the weight after
	Until         int64         // Freeze: latest time of the thaw, in Unix nanoseconds
	Use           int64         // Freeze: nanocores that the task uses
	Bytes         int64         // Reclaim: the amount to ask for
	Grace         time.Duration // Evict: between SIGTERM and SIGKILL; 0: the task's own
	// Release is the amount that the node gets back by the step, as far as it is known. For steps
	// that give back it is the amount that they may cost.
	Release []Amount

	Reason string // the reason, for people

	by       *Metric // its functions do the step; nil: no metric's functions
	original int64   // OwnLimit: the original limit

	overdue, backoff, settle, longest time.Duration
	used                              used // Evict: the task's use
}

// Key names the attempt.
func (s *Step) Key() Key { return Key{s.Task, s.Attempt} }

// By returns the name of the metric whose functions do the step: Metric, or one that stands in for
// it. It is empty if no metric's functions do it.
func (s *Step) By() string {
	if s.by == nil {
		return ""
	}
	return s.by.Name
}

// Change describes the step for people, such as "quota 2 cores → 1.6 cores".
func (s *Step) Change() (before, after string) {
	switch s.Verb {
	case Throttle, Restore:
		if s.OwnLimit {
			return s.formatLimit(s.Before), s.formatLimit(s.After)
		}
		return "quota " + formatQuota(s.Before), "quota " + formatQuota(s.After)
	case Reweight, Unweight:
		return "weight " + s.Weight.String(), "weight " + s.NewWeight.String()
	case Freeze:
		return "running", "frozen"
	case Thaw:
		return "frozen", "running"
	case Evict:
		return "running", "stopping"
	case Reclaim:
		return "", "asked for " + formatBytes(s.Bytes)
	}
	return "", ""
}

func formatQuota(q int64) string {
	if q <= 0 {
		return "unlimited"
	}
	return FormatAmount(DimensionCPU, q)
}

// Why is the reason for which a task was passed over.
type Why uint8

// The reasons.
const (
	WhyLeaving      Why = iota + 1 // being stopped; its use is counted as on its way
	WhyOverdue                     // stopped, but still there; not counted on any more
	WhyFailed                      // an action on it failed recently
	WhyGone                        // gone since the sample
	WhyUnknown                     // its use is not known yet
	WhyNothing                     // it uses nothing of the needed resource
	WhyFloor                       // at its floor
	WhyWaits                       // throttled again soon after it got something back, so it waits longer
	WhyLine                        // no room below the line to give back more
	WhyActive                      // a rule that may act on it is still triggered
	WhyMissing                     // the metric is missing, and its rule has Hold
	WhyFrozenBefore                // frozen for this already
	WhyCools                       // a rule that lowered its weight has not cooled down
	WhyReading                     // something was given back by the same reading already
	WhyChanging                    // a limit of it is being changed
)

var whyTexts = [...]string{
	"", "it is being stopped, and what it uses counts as released",
	"it was stopped long ago and does not go; it is not counted on",
	"an action on it failed lately", "it has vanished since the sample", "what it uses is not known yet",
	"it uses nothing of the needed resource",
	"it is at its floor already", "it was throttled again soon after it got something back, so it waits longer",
	"there is no room below the line", "a rule that may act on it is still triggered",
	"the metric is missing, and the rule says hold",
	"it was frozen for this already", "its weight is given back when the action's cool-down has passed",
	"something was given back by this reading of the metric; the next one must show the effect",
	"a limit of it is being changed",
}

// String returns a sentence for people.
func (w Why) String() string {
	if int(w) < len(whyTexts) {
		return whyTexts[w]
	}
	return "unknown"
}

// Skip is a task that was passed over although its turn had come.
type Skip struct {
	Task string
	Rule string // may be empty for giving back
	Verb Verb   // the verb of the step that was not planned
	Why  Why
}

// Waterline is a line of one of the three sets (design, "How to control accurately according to the
// water level").
type Waterline struct {
	Metric string
	Rule   string
	Value  int64 // in the metric's finest unit
}

// RuleReport is the outcome of one sample for one rule. Values are in the metric's finest unit, the
// gap is in that of its dimension. Invariant: Target <= Line.
type RuleReport struct {
	Rule      string // nodeqos/rule
	Metric    string
	Dimension string
	Action    string
	Preview   bool
	Line      int64 // the waterline
	Target    int64 // the rule acts down to here
	Usage     int64
	Known     bool  // otherwise the metric is missing
	Absent    bool  // the metric is not registered
	NoAction  bool  // the action does not exist
	Gap       int64 // above the target if the rule fires, below it otherwise; never negative
	LeftGap   int64 // remainder of Gap after the plan; negative if the plan exceeds Gap
	Above     int32 // readings in a row above the line
	Active    bool  // triggered and not restored
	Since     int64 // when it was triggered
	Fires     bool  // acts on this sample, or has acted on its reading already
	Held      bool  // its reading was counted before, so it waits for a newer one
	Triggered bool  // became active with this sample
	Restored  bool  // ceased to be active with this sample
	Note      string
}

// MaxSkipped bounds the list of skipped tasks, so that a plan of many rules stays small.
const MaxSkipped = 4_096

// EndedRule is a rule that was deleted, or given another metric, while it was active.
type EndedRule struct {
	Rule   string
	Metric string // the former metric; may be unknown
}

// Result is the plan that one sample calls for.
type Result struct {
	Sequence uint64
	At       int64
	Waits    string // why nothing is planned at all; empty: there is a plan
	Rules    []RuleReport
	Down     []Waterline // lines of rules that fire and whose action throttles
	Up       []Waterline // lines of restored rules, and of rules for which something is still held
	Evict    []Waterline // lines of rules that fire and whose action evicts
	Ended    []EndedRule // rules that were active and no longer exist
	Steps    []Step      // in order
	Skipped  []Skip      // the first MaxSkipped skipped tasks
	Omitted  int         // number of further skipped tasks
	Closed   bool        // the node takes no new tasks
	ClosedBy string      // rule that closed the node, and its state
	Spoke    bool        // a rule fired or was restored, or the node was opened

	next                          []ruleState
	overdue, backoff, settle, lag time.Duration
	oldest                        int64 // time of the oldest value that a rule uses
}
