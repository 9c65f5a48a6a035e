package qos

import (
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// Limit lets a metric throttle tasks by a number of its own, such as a rate of requests or a count
// of workers. Quotas of processors do not change then. All numbers are in the metric's finest unit,
// and Unlimited is no limit. The functions plan; the executor of the plan sets the limit.
//
// The zero value uses each task's value in the snapshot (Task.Values). It takes Step percent of the
// limit, or of the task's value while there is no limit, down to MinRatio percent of Original.
type Limit struct {
	// Original returns the limit that a task has before anything is taken from it. nil: Unlimited.
	Original func(t *Task) int64
	// Throttle returns the limit after one step down, and the amount of the metric's dimension that
	// the task then uses less than in the snapshot. A Step of 100 goes as far down as is allowed.
	// If the limit is not lower than before, nothing more can be taken.
	Throttle func(t *Task, before int64, by Throttling) (after, release int64)
	// Restore returns the limit after one step up, and the amount of the dimension that the task
	// may use in addition. A limit of original or more gives everything back.
	Restore func(t *Task, before, original int64, by Throttling) (after, use int64)
}

// stepDown is Limit.Throttle of the zero value.
func (m *Metric) stepDown(t *Task, before int64, by Throttling) (after, release int64) {
	if m.Limit.Throttle != nil {
		return m.Limit.Throttle(t, before, by)
	}
	value := max(t.Values[m.Name], 0)
	base := before
	if before < 0 {
		if base = value; value == 0 {
			return before, 0 // a limit would release nothing, and hold the task up later
		}
	}
	floor := mulDiv(max(m.original(t), 0), int64(by.MinRatio), 100)
	after = max(mulDiv(base, int64(100-by.Step), 100), floor)
	return after, max(value-after, 0)
}

// stepUp is Limit.Restore of the zero value. A limit that does not hold the task up is taken off;
// any other grows by a step, and by no more than the room below the line.
func (m *Metric) stepUp(t *Task, before, original int64, by Throttling) (after, use int64) {
	if m.Limit.Restore != nil {
		return m.Limit.Restore(t, before, original, by)
	}
	value := max(t.Values[m.Name], 0)
	if original < 0 && !by.Stepwise && value <= mulDiv(before, int64(100-by.Step), 100) {
		return Unlimited, 0
	}
	after = max(mulDiv(before, int64(100+by.Step), 100), plus(before, 1))
	if by.Room > 0 {
		after = min(after, plus(before, by.Room))
	}
	if original >= 0 {
		after = min(after, original)
	}
	return after, max(after-before, 0)
}

func (m *Metric) original(t *Task) int64 {
	if m.Limit.Original == nil {
		return Unlimited
	}
	return max(m.Limit.Original(t), Unlimited)
}

// lower reports whether limit a holds a task to less than limit b.
func lower(a, b int64) bool { return a >= 0 && (b < 0 || a < b) }

// recordedLimit is a metric's own limit that a task was given, with the limit before it.
type recordedLimit struct {
	Metric   string
	Original int64
	Now      int64
}

func (h *hold) limit(metric string) *recordedLimit {
	if h == nil {
		return nil
	}
	for i := range h.Limits {
		if h.Limits[i].Metric == metric {
			return &h.Limits[i]
		}
	}
	return nil
}

// Limited reports whether a task was given a limit of a metric's own.
func (l *Ledger) Limited(k Key) bool {
	h := l.held[k]
	return h != nil && len(h.Limits) > 0
}

// Limits returns steps that set the recorded limits of a task once more. The program that enforces
// the limits may have been started anew, and may have forgotten them.
func (l *Ledger) Limits(k Key, registry *Registry) (steps []Step) {
	if !l.Limited(k) {
		return nil
	}
	h := l.held[k]
	for _, x := range h.Limits {
		if m := registry.Find(x.Metric); m != nil && m.Limit != nil {
			s := Step{
				Verb: Throttle, Task: k.Task, Attempt: k.Attempt, Rule: h.Rule, Reason: "it is the limit on record",
				original: x.Original,
			}
			s.setLimit(m, x.Now, x.Now)
			steps = append(steps, s)
		}
	}
	return steps
}

// limitOf returns the task's limit now, and the limit that it had before anything was taken from
// it.
func (r *round) limitOf(t *Task, m *Metric) (now, original int64) {
	if x := r.l.held[t.Key()].limit(m.Name); x != nil {
		return x.Now, x.Original
	}
	original = m.original(t)
	return original, original
}

// throttleLimit lowers a metric's own limit by one step.
func (r *round) throttleLimit(d *demand, m *Metric, i int32) ([]Amount, Why) {
	t := &r.tasks[i]
	if r.l.changing(t.Key()) {
		return nil, WhyChanging
	}
	if _, known := t.Values[m.Name]; !known && m.Limit.Throttle == nil {
		return nil, WhyUnknown
	}
	before, original := r.limitOf(t, m)
	after, release := m.stepDown(t, before, r.merge(i).throttling)
	if after = max(after, 0); !lower(after, before) {
		return nil, WhyFloor
	}
	s := r.step(d, Throttle, i)
	s.setLimit(m, before, after)
	s.original = original
	if release > 0 {
		r.arena = append(r.arena, Amount{m.dimension(), release})
		s.Release = r.newest(1)
	}
	r.add(&s)
	return s.Release, 0
}

// setLimit turns a step into a change of the metric's own limit.
func (s *Step) setLimit(m *Metric, before, after int64) {
	s.by, s.OwnLimit, s.Before, s.After = m, true, before, after
}

func (s *Step) formatLimit(limit int64) string {
	if limit < 0 {
		return "limit none"
	}
	return "limit " + s.by.Format(limit)
}

// limitable returns the amount that a task would still release if a metric's own limit were lowered
// to its floor.
func (r *round) limitable(m *Metric, i int32) int64 {
	t := &r.tasks[i]
	if _, known := t.Values[m.Name]; !known && m.Limit.Throttle == nil {
		return 0
	}
	before, _ := r.limitOf(t, m)
	by := r.merge(i).throttling
	all := by
	all.Step = 100
	after, release := m.stepDown(t, before, all)
	if !lower(max(after, 0), before) {
		return 0
	}
	if r.acted[i]&bit(Throttle) != 0 { // a step of this plan has taken a part already
		_, taken := m.stepDown(t, before, by)
		release -= taken
	}
	return max(release, 0)
}

// raiseLimits raises one metric's own limit of a task by a step. A task has one such change under
// way at a time.
func (r *round) raiseLimits(i int32, h *hold, l allowance) bool {
	t := &r.tasks[i]
	if len(h.Limits) > 0 && r.l.changing(t.Key()) {
		r.recordSkip(Skip{Task: t.ID, Rule: h.Rule, Verb: Restore, Why: WhyChanging})
		return true
	}
	for j := range h.Limits {
		x := &h.Limits[j]
		m := r.p.registry.Find(x.Metric)
		if m == nil || m.Limit == nil {
			continue
		}
		s := r.giving(i, Restore, h, l.reason)
		after, use := x.Original, int64(0)
		if !l.free && lower(x.Now, x.Original) {
			by := l.throttling
			by.Room = r.roomOf(m)
			after, use = m.stepUp(t, x.Now, x.Original, by)
		}
		s.Whole = after < 0 || !lower(after, x.Original)
		if s.Whole {
			after = x.Original
		}
		s.setLimit(m, x.Now, after)
		if use = max(use, 0); use > 0 {
			s.Release = []Amount{{m.dimension(), use}}
			r.given = append(r.given, s.Release...)
		}
		r.add(&s)
		return true
	}
	return false
}

// roomOf returns the room below the lowest line of a metric's dimension; 0 if no rule has such a
// line.
func (r *round) roomOf(m *Metric) (least int64) {
	for j := range r.runs {
		u := &r.runs[j]
		if u.Preview || u.metric == nil || !u.report.Known || u.report.Dimension != m.dimension() {
			continue
		}
		room := max(r.roomLeft(u), 1)
		if least == 0 || room < least {
			least = room
		}
	}
	return least
}

// changing reports whether a limit of a task is being changed.
func (l *Ledger) changing(k Key) bool {
	_, ok := l.underway[k]
	return ok
}

// beginLimit records a change of a metric's own limit that is about to be made. The change may take
// its time. Until it has ended, its Release counts as on its way.
func (l *Ledger) beginLimit(s *Step) {
	l.underway[s.Key()] = *s
	if s.Verb != Throttle {
		return
	}
	h := l.hold(s.Key(), s.Rule)
	if h.limit(s.By()) == nil {
		h.Limits = append(h.Limits, recordedLimit{Metric: s.By(), Original: s.original})
		slices.SortFunc(h.Limits, func(a, b recordedLimit) int { return strings.Compare(a.Metric, b.Metric) })
	}
	h.limit(s.By()).Now = s.After
}

// doneLimit records the outcome of a change of a metric's own limit. A failed change may have been
// made in part, so the limit is remembered and given back later.
func (l *Ledger) doneLimit(s *Step, err error) {
	delete(l.underway, s.Key())
	h := l.held[s.Key()]
	x := h.limit(s.By())
	switch {
	case x == nil:
	case err != nil:
		x.Now = s.Before
	case s.Verb == Restore && s.Whole:
		h.Limits = slices.DeleteFunc(h.Limits, func(x recordedLimit) bool { return x.Metric == s.By() })
		if len(h.Limits) == 0 {
			h.Limits = nil // DecodeLedger gives nil, too
		}
	default:
		x.Now = s.After
	}
}

// changes returns the amounts that unfinished changes of limits release or, with gives, give back.
func (l *Ledger) changes(gives bool) (amounts []Amount) {
	for _, k := range slices.SortedFunc(maps.Keys(l.underway), compareKeys) {
		if s := l.underway[k]; s.Verb.Gives() == gives {
			amounts = append(amounts, s.Release...)
		}
	}
	return amounts
}

// checkLimit returns an error if the metric's own limit contradicts its other fields.
func (m *Metric) checkLimit() error {
	switch {
	case m.Limit == nil:
		return nil
	case !m.Throttleable:
		return plimsoll.Invalid("metric", "%s: it has a limit of its own; say that it is throttleable too", m.Name)
	case m.Throttle != nil || m.Restore != nil:
		return plimsoll.Invalid("metric",
			"%s: it has a limit of its own beside Throttle or Restore, which change quotas; give one of them", m.Name)
	}
	return nil
}
