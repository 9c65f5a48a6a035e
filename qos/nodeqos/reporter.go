package nodeqos

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// voice is what the loop tells: the node's condition and offers when they change, and what happens
// once, when it happens.
type voice struct {
	events  []plimsoll.QOSEvent // Invariant: at most maxEvents
	leftOut int                 // events for which there was no room

	told     bool // something was reported
	closed   bool
	reason   string
	extended plimsoll.Resources

	missing   map[string]*absence  // metrics of rules that are not measured
	previewed map[string]time.Time // steps that were told as previews, and when they were planned last
}

// absence is since when a metric is missing, and whether that was told.
type absence struct {
	since time.Time
	told  bool
}

// maxEvents leaves room in a report for one that says how many were left out.
const maxEvents = plimsoll.MaxQOSEvents - 1

// previewAgain is after how long a step that would not be done any more is told again when it would
// be.
const previewAgain = time.Minute

// maxPreviewed bounds what is remembered of previews.
const maxPreviewed = 10_000

func (v *voice) init() {
	v.missing, v.previewed = map[string]*absence{}, map[string]time.Time{}
}

// add tells an event. Texts are cut to what a report takes.
func (v *voice) add(e plimsoll.QOSEvent) {
	if len(v.events) >= maxEvents {
		v.leftOut++
		return
	}
	for _, text := range []*string{&e.Rule, &e.Metric, &e.Before, &e.After} {
		*text = cut(*text, plimsoll.MaxQOSText)
	}
	e.Message = cut(e.Message, plimsoll.MaxQOSMessage)
	v.events = append(v.events, e)
}

func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "?") // it may come from a program
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

// done tells of a step that was done, or for Evict that is under way.
func (v *voice) done(l *Loop, step *qos.Step) {
	e := eventOf(step, doneKinds[step.Verb], l.deps.Now())
	if step.Verb == qos.Reclaim { // Bytes is what came of it
		e.Before, e.After = "", ""
		e.Message = fmt.Sprintf("%s given back; %s", qos.FormatAmount(qos.DimensionMemory, step.Bytes), step.Reason)
	}
	v.add(e)
}

// failed tells of a step that was not done.
func (v *voice) failed(l *Loop, step *qos.Step, err error) {
	e := eventOf(step, plimsoll.QOSFailed, l.deps.Now())
	e.Message = fmt.Sprintf("%s: %v; %s", step.Verb, err, step.Reason)
	v.add(e)
	l.deps.Events.StepFailed(step, err)
}

// preview tells of a step that would be done, once, and not again while it would still be.
func (v *voice) preview(step *qos.Step, now time.Time) {
	key := fmt.Sprintf("%s/%s/%d/%s", step.Verb, step.Task, step.Attempt, step.Rule)
	last, known := v.previewed[key]
	if len(v.previewed) >= maxPreviewed && !known {
		maps.DeleteFunc(v.previewed, func(_ string, at time.Time) bool { return now.Sub(at) >= previewAgain })
		if len(v.previewed) >= maxPreviewed {
			v.leftOut++
			return
		}
	}
	v.previewed[key] = now
	if !known || now.Sub(last) >= previewAgain {
		v.add(eventOf(step, plimsoll.QOSPreviewed, now))
	}
}

// rules tells what has changed about the rules: triggered, restored, and metrics that are missing
// for so long that it matters.
func (v *voice) rules(l *Loop, res *qos.Result) {
	now := l.state.now
	if len(v.missing) > len(res.Rules) { // of rules that are not there any more
		clear(v.missing)
	}
	for _, r := range res.Ended {
		l.state.dirty = true
		v.add(plimsoll.QOSEvent{
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
			v.add(e)
		}
		if r.Restored {
			e.Kind, e.Message = plimsoll.QOSRuleRestored, l.levels(r)
			l.state.dirty = true
			v.add(e)
		}
		v.absence(l, r, e)
	}
}

// absence tells once that a metric is missing, as soon as that matters to its rule.
func (v *voice) absence(l *Loop, r *qos.RuleReport, e plimsoll.QOSEvent) {
	if r.Known && !r.Absent {
		delete(v.missing, r.Metric)
		return
	}
	now := l.state.now
	a := v.missing[r.Metric]
	if a == nil {
		a = &absence{since: now}
		v.missing[r.Metric] = a
	}
	if a.told || !r.Absent && now.Sub(a.since) < l.state.policies.Options().Stale {
		return
	}
	a.told = true
	e.Kind, e.Message = plimsoll.QOSMetricMissing, r.Note
	if r.Absent {
		e.Message = "nobody has registered it on this node"
	} else if why := l.gauges.trouble(r.Metric); why != "" {
		e.Message = why
	}
	v.add(e)
}

// levels says where a metric is.
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

// gate returns the condition of the node with a reason that does not change while it lasts.
func (s *state) gate() (closed bool, reason string) {
	if s.result == nil || s.result.Waits != "" {
		return s.voice.closed, s.voice.reason
	}
	reason, _, _ = strings.Cut(s.result.ClosedBy, " for another ")
	return s.result.Closed, cut(reason, plimsoll.MaxQOSMessage)
}

// flush reports what is new.
func (v *voice) flush(l *Loop, s *state) {
	closed, reason := s.gate()
	extended := s.lending.offered()
	if closed != v.closed {
		e := plimsoll.QOSEvent{At: l.deps.Now().UnixNano(), Kind: plimsoll.QOSSchedulingEnabled}
		if closed {
			e.Kind, e.Message = plimsoll.QOSSchedulingDisabled, reason
		}
		v.add(e)
	}
	if v.told && closed == v.closed && reason == v.reason && maps.Equal(extended, v.extended) && len(v.events) == 0 {
		return
	}
	v.told, v.closed, v.reason, v.extended = true, closed, reason, extended
	events := v.events
	if v.leftOut > 0 {
		events = append(events, plimsoll.QOSEvent{
			At: l.deps.Now().UnixNano(), Kind: plimsoll.QOSSkipped,
			Message: fmt.Sprintf("%d more events at once were left out", v.leftOut),
		})
	}
	v.events, v.leftOut = nil, 0
	for i := range events {
		if loud(events[i].Kind) {
			l.deps.Events.Happened(events[i])
		}
	}
	l.deps.Report(
		plimsoll.NodeReport{
			SchedulingDisabled: closed, SchedulingReason: reason, Extended: maps.Clone(extended), Events: events,
		},
	)
}

// loud reports whether an event is told on this machine too, for whoever has nothing but this
// machine: not the small steps, of which there are many.
func loud(kind plimsoll.QOSEventKind) bool {
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
		return // the first sample will tell it
	}
	s.voice.told = false
	s.voice.flush(l, s)
}
