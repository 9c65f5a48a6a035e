package qos

import (
	"fmt"
	"slices"
	"time"
)

// Verb is what a step does.
type Verb uint8

// The verbs: those that take, in the order of the ladder, then those that give back.
const (
	Reweight Verb = iota + 1 // lower the weight of a group, or let it run only when nothing else wants to
	Throttle                 // lower the quota of a group
	Freeze                   // let a task stand still
	Reclaim                  // ask the kernel to take back memory of a task
	Evict                    // stop a task; it goes back to its queue
	Thaw                     // let a frozen task go on
	Restore                  // raise the quota of a group toward what it was
	Unweight                 // give a group the weight that it had
)

var verbNames = [...]string{"", "reweight", "throttle", "freeze", "reclaim", "evict", "thaw", "restore", "unweight"}

// String returns the verb's word.
func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "unknown"
}

// VerbOf returns the verb of a word; 0 if there is none.
func VerbOf(word string) Verb { return Verb(max(slices.Index(verbNames[:], word), 0)) }

// Gives reports whether it gives back what was taken.
func (v Verb) Gives() bool { return v >= Thaw }

// Weight is how a group competes with others for processors.
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

// Step is one thing to do about one task.
type Step struct {
	Verb    Verb
	Task    string
	Attempt int32
	Group   string // Reweight, Throttle, Restore, Unweight
	Rule    string // nodeqos/rule for which it is done; for those that give back, for which it had been taken
	Metric  string
	Action  string
	Preview bool // it is only said

	OwnLimit bool // Throttle, Restore: Before and After are a limit of By's own, and no quota

	Before, After int64         // Throttle, Restore: the quota in nanocores, or Unlimited
	Whole         bool          // Restore: After is what the group had before anything was taken
	Weight        Weight        // Reweight, Unweight: what it has
	NewWeight     Weight        // and gets
	Until         int64         // Freeze: Unix nanoseconds at which it is thawed at the latest
	Use           int64         // Freeze: nanocores that it uses
	Bytes         int64         // Reclaim: how much to ask for
	Grace         time.Duration // Evict: between SIGTERM and SIGKILL; 0: the task's own
	// what the node gets back by it, as far as it can be told; for those that give back, what it
	// may cost
	Release []Amount

	Reason string // why, for people

	by       *Metric // whose functions do it; nil: nobody's
	original int64   // OwnLimit: the limit before anything was taken

	overdue, backoff, settle, longest time.Duration
	used                              used // Evict: what it uses
}

// Key names the attempt.
func (s *Step) Key() Key { return Key{s.Task, s.Attempt} }

// By names the metric by whose functions the step is done: Metric, or one that stands in for it;
// empty: by nobody's.
func (s *Step) By() string {
	if s.by == nil {
		return ""
	}
	return s.by.Name
}

// Change describes what is changed, such as "quota 2 cores → 1.6 cores".
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

// Why says why a task was passed over.
type Why uint8

// The reasons.
const (
	WhyLeaving      Why = iota + 1 // it is being stopped, and what it uses is counted as on its way
	WhyOverdue                     // it was stopped and does not go; it is not counted on any more
	WhyFailed                      // an action on it failed lately
	WhyGone                        // it has vanished since the sample
	WhyUnknown                     // what it uses is not known yet
	WhyNothing                     // it uses nothing of what is needed
	WhyFloor                       // it cannot be throttled any lower
	WhyWaits                       // what was taken again soon after it was given back is kept for longer
	WhyLine                        // there is no room below the line to give back more
	WhyActive                      // a rule that may act on it is still triggered
	WhyMissing                     // the metric is missing, and its rule says hold
	WhyFrozenBefore                // it was frozen for this already
	WhyCools                       // a rule that lowered its weight has not cooled down
	WhyReading                     // something was given back by the same reading already
	WhyChanging                    // a limit of it is being changed
)

var whyTexts = [...]string{
	"", "it is being stopped, and what it uses counts as released",
	"it was stopped long ago and does not go; it is not counted on",
	"an action on it failed lately", "it has vanished since the sample", "what it uses is not known yet",
	"it uses nothing of what is needed",
	"it is at its floor already", "it was throttled again soon after it got something back, so it waits longer",
	"there is no room below the line", "a rule that may act on it is still triggered",
	"the metric is missing, and the rule says hold",
	"it was frozen for this already", "its weight is given back when the action's cool-down has passed",
	"something was given back by this reading of the metric; the next one must show what came of it",
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
	Rule string // may be empty for what is given back
	Verb Verb   // what would have been done
	Why  Why
}

// Waterline is a line of one of the three sets (design, "How to control accurately according to the
// water level").
type Waterline struct {
	Metric string
	Rule   string
	Value  int64 // in the metric's finest unit
}

// RuleReport is what one sample says about one rule. Values are in the metric's finest unit, the
// gap in that of its dimension.
type RuleReport struct {
	Rule      string // nodeqos/rule
	Metric    string
	Dimension string
	Action    string
	Preview   bool
	Line      int64 // the waterline
	Target    int64 // where it ends to act
	Usage     int64
	Known     bool  // else the metric is missing
	Absent    bool  // nobody has registered the metric
	NoAction  bool  // its action is not there
	Gap       int64 // above the target, if it fires; below the target, if it does not: never negative
	LeftGap   int64 // what remains of Gap after the plan; negative if it releases, or gives back, more than that
	Above     int32 // readings in a row above the line
	Active    bool  // it is triggered and not restored
	Since     int64 // when it was triggered
	Fires     bool  // it acts on this sample, or has acted on its reading already
	Held      bool  // its reading was counted before, so it waits for a newer one
	Triggered bool  // it has become active with this sample
	Restored  bool  // it has ceased to be active with this sample
	Note      string
}

// MaxSkipped bounds the tasks that a plan says it passed over, so that a plan of many rules stays
// small.
const MaxSkipped = 4_096

// EndedRule is a rule that was active when it was deleted, or was given another metric.
type EndedRule struct {
	Rule   string
	Metric string // that it was about, if that is known
}

// Result is a plan: what one sample calls for.
type Result struct {
	Sequence uint64
	At       int64
	Waits    string // why nothing is planned at all; empty: it is
	Rules    []RuleReport
	Down     []Waterline // of the rules that fire and whose action throttles
	Up       []Waterline // of the rules that are restored, and of those by which something is still held
	Evict    []Waterline // of the rules that fire and whose action evicts
	Ended    []EndedRule // that were active and are not among the policies any more
	Steps    []Step      // in order
	Skipped  []Skip      // the first MaxSkipped of them
	Omitted  int         // how many more were passed over
	Closed   bool        // the node takes no new tasks
	ClosedBy string      // for which rule, with what it waits for
	Spoke    bool        // a rule fired or was restored, or the node was opened

	next                          []ruleState
	overdue, backoff, settle, lag time.Duration
	oldest                        int64 // when the oldest value was measured that a rule goes by
}
