package nodeqos

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// reporter sends changes of the node's condition and offers, and events, to Deps.Report.
type reporter struct {
	events  []plimsoll.QOSEvent // Invariant: at most maxEvents
	leftOut int                 // number of events for which there was no room

	reported bool // the condition was reported since Run began
	closed   bool
	reason   string
	extended plimsoll.Resources
	occupied *plimsoll.NodeUse

	missing   map[string]*absence  // metrics of rules that are missing
	previewed map[string]time.Time // previewed steps that were reported, and the time of their last plan
}

// absence is the time since which a metric is missing, and whether that was reported.
type absence struct {
	since    time.Time
	reported bool
}

// maxEvents leaves room in a report for one event that counts the omitted ones.
const maxEvents = plimsoll.MaxQOSEvents - 1

// previewAgain is the pause after which a previewed step is reported anew.
const previewAgain = time.Minute

// maxPreviewed bounds the memory of previewed steps.
const maxPreviewed = 10_000

func (rep *reporter) init() {
	rep.missing, rep.previewed = map[string]*absence{}, map[string]time.Time{}
}

// add queues an event for the next report. Its texts are cut to the length that a report accepts.
func (rep *reporter) add(e plimsoll.QOSEvent) {
	if len(rep.events) >= maxEvents {
		rep.leftOut++
		return
	}
	for _, text := range []*string{&e.Rule, &e.Metric, &e.Before, &e.After} {
		*text = cut(*text, plimsoll.MaxQOSText)
	}
	e.Message = cut(e.Message, plimsoll.MaxQOSMessage)
	rep.events = append(rep.events, e)
}

func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "?") // the text may come from a program
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

var doneKinds = map[qos.Verb]plimsoll.QOSEventKind{
	qos.Reweight: plimsoll.QOSReweighted, qos.Throttle: plimsoll.QOSThrottled, qos.Freeze: plimsoll.QOSFrozen,
	qos.Reclaim: plimsoll.QOSReclaimed,
	qos.Evict:   plimsoll.QOSEvicting, qos.Thaw: plimsoll.QOSThawed, qos.Restore: plimsoll.QOSRestored,
	qos.Unweight: plimsoll.QOSRestored,
}

func eventOf(step *qos.Step, kind plimsoll.QOSEventKind, at time.Time) plimsoll.QOSEvent {
	before, after := step.Change()
	return plimsoll.QOSEvent{
		At: at.UnixNano(), Kind: kind, Task: step.Task, Attempt: step.Attempt, Rule: step.Rule, Metric: step.Metric,
		Before: before, After: after,
		Message: step.Reason,
	}
}

// done reports a step that was done or, for Evict, begun.
func (rep *reporter) done(l *Loop, step *qos.Step) {
	e := eventOf(step, doneKinds[step.Verb], l.deps.Now())
	if step.Verb == qos.Reclaim { // Bytes is the reclaimed amount
		e.Before, e.After = "", ""
		e.Message = fmt.Sprintf("%s given back; %s", qos.FormatAmount(qos.DimensionMemory, step.Bytes), step.Reason)
	}
	rep.add(e)
}

// failed reports a step that failed.
func (rep *reporter) failed(l *Loop, step *qos.Step, err error) {
	e := eventOf(step, plimsoll.QOSFailed, l.deps.Now())
	e.Message = fmt.Sprintf("%s: %v; %s", step.Verb, err, step.Reason)
	rep.add(e)
	l.deps.Events.StepFailed(step, err)
}

// preview reports a previewed step once, and not again as long as it stays planned.
func (rep *reporter) preview(step *qos.Step, now time.Time) {
	key := fmt.Sprintf("%s/%s/%d/%s", step.Verb, step.Task, step.Attempt, step.Rule)
	last, known := rep.previewed[key]
	if len(rep.previewed) >= maxPreviewed && !known {
		maps.DeleteFunc(rep.previewed, func(_ string, at time.Time) bool { return now.Sub(at) >= previewAgain })
		if len(rep.previewed) >= maxPreviewed {
			rep.leftOut++
			return
		}
	}
	rep.previewed[key] = now
	if !known || now.Sub(last) >= previewAgain {
		rep.add(eventOf(step, plimsoll.QOSPreviewed, now))
	}
}

// rules reports changes of the rules: triggered, restored, and metrics that are missing for long.
func (rep *reporter) rules(l *Loop, res *qos.Result) {
	now := l.state.now
	if len(rep.missing) > len(res.Rules) { // rules have been removed
		clear(rep.missing)
	}
	for _, r := range res.Ended {
		l.state.dirty = true
		rep.add(plimsoll.QOSEvent{
			At: now.UnixNano(), Kind: plimsoll.QOSRuleRestored, Rule: r.Rule, Metric: r.Metric,
			Message: "there is no such rule for this node any more",
		})
	}
	for i := range res.Rules {
		r := &res.Rules[i]
		e := plimsoll.QOSEvent{At: now.UnixNano(), Rule: r.Rule, Metric: r.Metric}
		if r.Triggered {
			e.Kind, e.Message = plimsoll.QOSRuleTriggered, l.levels(r)
			l.state.dirty = true
			rep.add(e)
		}
		if r.Restored {
			e.Kind, e.Message = plimsoll.QOSRuleRestored, l.levels(r)
			l.state.dirty = true
			rep.add(e)
		}
		rep.absence(l, r, e)
	}
}

// absence reports once that a metric is missing, as soon as that matters to its rule.
func (rep *reporter) absence(l *Loop, r *qos.RuleReport, e plimsoll.QOSEvent) {
	if r.Known && !r.Absent {
		delete(rep.missing, r.Metric)
		return
	}
	now := l.state.now
	a := rep.missing[r.Metric]
	if a == nil {
		a = &absence{since: now}
		rep.missing[r.Metric] = a
	}
	if a.reported || !r.Absent && now.Sub(a.since) < l.state.policies.Options().Stale {
		return
	}
	a.reported = true
	e.Kind, e.Message = plimsoll.QOSMetricMissing, r.Note
	if r.Absent {
		e.Message = "nobody has registered it on this node"
	} else if why := l.gauges.trouble(r.Metric); why != "" {
		e.Message = why
	}
	rep.add(e)
}

// levels describes the metric's value and the lines of a rule.
func (l *Loop) levels(r *qos.RuleReport) string {
	m := l.registry.Find(r.Metric)
	if m == nil {
		return ""
	}
	text := fmt.Sprintf("it is %s, the line %s", m.Format(r.Usage), m.Format(r.Line))
	if r.Target != r.Line {
		text += ", the release line " + m.Format(r.Target)
	}
	return text
}

// gate returns the condition of the node, with a reason that does not change while it lasts.
func (s *loopState) gate() (closed bool, reason string) {
	if s.result == nil || s.result.Waits != "" {
		return s.reporter.closed, s.reporter.reason
	}
	reason, _, _ = strings.Cut(s.result.ClosedBy, " for another ")
	return s.result.Closed, cut(reason, plimsoll.MaxQOSMessage)
}

// flush sends a report if anything has changed.
func (rep *reporter) flush(l *Loop, s *loopState) {
	closed, reason := s.gate()
	extended := s.lending.offered()
	if closed != rep.closed {
		e := plimsoll.QOSEvent{At: l.deps.Now().UnixNano(), Kind: plimsoll.QOSSchedulingEnabled}
		if closed {
			e.Kind, e.Message = plimsoll.QOSSchedulingDisabled, reason
		}
		rep.add(e)
	}
	occupied := s.occupied.reported
	if rep.reported && closed == rep.closed && reason == rep.reason && maps.Equal(extended, rep.extended) &&
		occupied == rep.occupied && len(rep.events) == 0 {
		return
	}
	rep.reported, rep.closed, rep.reason, rep.extended = true, closed, reason, extended
	rep.occupied = occupied
	events := rep.events
	if rep.leftOut > 0 {
		events = append(events, plimsoll.QOSEvent{
			At: l.deps.Now().UnixNano(), Kind: plimsoll.QOSSkipped,
			Message: fmt.Sprintf("%d more events at once were left out", rep.leftOut),
		})
	}
	rep.events, rep.leftOut = nil, 0
	for i := range events {
		if isLogged(events[i].Kind) {
			l.deps.Events.Happened(events[i])
		}
	}
	l.deps.Report(
		plimsoll.NodeReport{
			SchedulingDisabled: closed, SchedulingReason: reason, Extended: maps.Clone(extended), Events: events,
			Occupied: occupied,
		},
	)
}

// isLogged reports whether an event also goes to Events.Happened, for operators with access to this
// machine only. The small steps do not: there are many of them.
func isLogged(kind plimsoll.QOSEventKind) bool {
	switch kind {
	case plimsoll.QOSRuleTriggered, plimsoll.QOSRuleRestored, plimsoll.QOSEvicting, plimsoll.QOSFrozen,
		plimsoll.QOSFailed,
		plimsoll.QOSMetricMissing, plimsoll.QOSSchedulingDisabled, plimsoll.QOSSchedulingEnabled:
		return true
	}
	return false
}

// resend reports the condition once more.
func (l *Loop) resend() {
	s := &l.state
	s.Lock()
	defer s.Unlock()
	if s.snapshot == nil {
		return // the first sample will report it
	}
	s.reporter.reported = false
	s.reporter.flush(l, s)
}
