package qos

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// giveBack plans what tasks get back of what was taken from them. It looks at what is held, not at whether a rule was restored just now: as long as something
// is held and there is room below the line, somebody gets a step. The highest rank comes first.
func (r *round) giveBack() {
	order := r.held()
	if len(order) == 0 {
		return
	}
	r.stand() // with what policies prefer and avoid
	r.sortToRestore(order)
	weights := max(1, len(order)/10)
	for _, i := range order {
		t := &r.tasks[i]
		h := r.l.held[t.Key()]
		if h.Frozen != 0 && h.Frozen <= r.now {
			r.thaw(i, h, "it was frozen for as long as it may be")
			continue
		}
		limit, why := r.room(i, h)
		if why != 0 {
			r.pass(Skip{Task: t.ID, Rule: h.Rule, Verb: Restore, Why: why})
			continue
		}
		switch {
		case h.Frozen != 0 && limit.by.Stepwise: // all that it used, before its time
			r.pass(Skip{Task: t.ID, Rule: h.Rule, Verb: Thaw, Why: WhyMissing})
		case h.Frozen != 0:
			r.thaw(i, h, limit.reason)
		case r.raiseLimits(i, h, limit):
		case h.throttled() && r.raise(i, h, limit):
		case limit.cooling:
			r.pass(Skip{Task: t.ID, Rule: h.Rule, Verb: Unweight, Why: WhyCools})
		case weights > 0 || limit.free:
			if r.unweight(i, h, limit.reason) {
				weights--
			}
		}
	}
}

func (h *hold) throttled() bool {
	return slices.ContainsFunc(h.Groups, func(o original) bool { return o.Throttle })
}

// held returns the tasks from which something is taken.
func (r *round) held() []int32 {
	var order []int32
	if len(r.l.held) > 0 {
		for i := range r.tasks {
			if t := &r.tasks[i]; !t.Gone && r.l.holds(t.Key()) {
				order = append(order, int32(i))
			}
		}
	}
	return order
}

// sortToRestore puts the highest rank first.
func (r *round) sortToRestore(order []int32) {
	OrderedBy(restoreOrder).sort(r.tasks, order)
}

// leeway is how much a task may be given back.
type leeway struct {
	free bool // no rule speaks of it any more: everything at once
	// A rule has fired within its action's cool-down. A low weight takes nothing from a task while processors are idle, and when it is given back
	// nobody can say what that costs, so it waits for that.
	cooling bool
	by      Throttling
	reason  string
	metric  *Metric // whose Restore is used
}

// room looks whether a task may get something back now.
func (r *round) room(i int32, h *hold) (l leeway, why Why) {
	t := &r.tasks[i]
	switch {
	case t.Stopping || r.l.leaving[t.Key()] != nil:
		return l, WhyLeaving
	case r.failed(Restore, i):
		return l, WhyFailed
	case r.acted[i]&^bit(Reclaim) != 0:
		return l, WhyActive
	}
	l.free, l.reason = true, "no rule speaks of it any more"
	l.by = Throttling{Step: 100, Cores: r.Cores}
	least := int64(math.MaxInt64)
	for j := range r.runs {
		u := &r.runs[j]
		if u.Preview || !r.candidate(u, i) || !holdsBack(&r.p.actions[u.action]) {
			continue
		}
		switch {
		case r.now < h.Taken+int64(h.Wait): // guards against flapping, which needs a rule
			return l, WhyWaits
		case u.active():
			return l, WhyActive
		}
		if l.free {
			l.free, l.by.Step = false, 0
		}
		l.cooling = l.cooling || r.now < u.state.LastAbove+int64(r.p.actions[u.action].CoolDown)
		if a := r.p.actions[u.action].Throttle; a != nil {
			l.by.MinRatio, l.by.Step = max(l.by.MinRatio, a.MinRatio), max(l.by.Step, a.Step)
		}
		if why := r.below(u, &l, &least); why != 0 {
			return l, why
		}
	}
	if l.by.Step == 0 {
		l.by.Step = defaultStep
	}
	if h.Wait == 0 {
		l.by.Room = 0 // what it got back was never too much
	}
	return l, 0
}

// defaultStep is used when something is to be given back that no rule throttles any more, in percent.
const defaultStep = 10

// holdsBack reports whether an action takes something that is given back later.
func holdsBack(a *plimsoll.Action) bool {
	return a.Throttle != nil || a.Weight != nil || a.Freeze != nil
}

// below looks whether there is room below one line.
func (r *round) below(u *run, l *leeway, least *int64) Why {
	if u.metric == nil {
		return 0
	}
	if !u.report.Known {
		if u.Hold || time.Duration(r.now-u.state.Missing) < r.p.opt.Stale {
			return WhyMissing
		}
		l.by.Stepwise, l.reason = true, u.report.Note
		return 0
	}
	if !u.metric.ThrottleQuantified {
		if *least == math.MaxInt64 {
			l.reason = fmt.Sprintf("%s: %s is %s, below %s", u.key, u.Metric, u.metric.Format(u.report.Usage), u.metric.Format(u.rule.target))
		}
		return 0
	}
	dimension := u.metric.dimension()
	gap := r.roomBelow(u) - r.givenOf(dimension) - r.givenLately(dimension)
	if gap <= 0 {
		return WhyLine
	}
	if l.by.Room <= 0 || gap < l.by.Room {
		l.by.Room = gap
	}
	if gap < *least {
		*least = gap
		l.metric = u.metric
		l.reason = fmt.Sprintf("%s: %s is %s, %s below the line",
			u.key, u.Metric, u.metric.Format(u.report.Usage), u.metric.FormatAmount(gap))
	}
	return 0
}

// roomBelow is how far a metric is below its target, which it may exceed as much as it is undercut; 0 if it is not below.
func (r *round) roomBelow(u *run) int64 {
	gap := max(u.target-u.amount, 0)
	return plus(gap, mulDiv(gap, r.p.opt.Excess, 1000))
}

func (r *round) givenOf(dimension string) (sum int64) {
	for _, a := range r.given {
		if a.Dimension == dimension {
			sum = plus(sum, a.Value)
		}
	}
	return sum
}

// givenLately is what was given back so lately that it does not show in the figures yet.
func (r *round) givenLately(dimension string) (sum int64) {
	for _, c := range r.l.recent {
		if c.Gives && c.Dimension == dimension && within(r.At-c.At, r.p.opt.Lag) {
			sum += c.Value
		}
	}
	for _, a := range r.l.changes(true) {
		if a.Dimension == dimension {
			sum = plus(sum, a.Value)
		}
	}
	return sum
}

func (r *round) giving(i int32, verb Verb, h *hold, reason string) Step {
	r.acted[i] |= bit(verb)
	t := &r.tasks[i]
	return Step{
		Verb: verb, Task: t.ID, Attempt: t.Attempt, Rule: h.Rule, Reason: reason,
		overdue: r.p.opt.Overdue, backoff: r.p.opt.Backoff, settle: r.p.opt.Settle, longest: r.p.opt.Settle,
	}
}

func (r *round) thaw(i int32, h *hold, reason string) {
	s := r.giving(i, Thaw, h, reason)
	s.Release = r.cost(i, h.FrozenUse)
	r.add(&s)
}

// cost notes what giving back may cost the node.
func (r *round) cost(i int32, cpu int64) []Amount {
	amounts := []Amount{{DimensionCPU, cpu}}
	if r.tasks[i].ExtCPU > 0 {
		amounts = append(amounts, Amount{DimensionExtCPU, cpu})
	}
	r.given = append(r.given, amounts...)
	return amounts
}

// raise gives a task a step of its quotas back; what nobody limits any more, at once.
func (r *round) raise(i int32, h *hold, l leeway) (raised bool) {
	t := &r.tasks[i]
	key := t.Key()
	l.by.Original = func(g *Group) (int64, bool) { return r.l.Original(key, g.Name) }
	changes, own := r.restoring(t, l)
	cpu := int64(0)
	for _, c := range changes {
		if g := &t.Groups[c.Group]; c.After > 0 {
			cpu = plus(cpu, max(c.After-max(g.Quota, 0), 0))
		} else if g.limited() {
			cpu = plus(cpu, max(r.Cores-g.Quota, 0))
		}
	}
	for j, c := range changes {
		s := r.giving(i, Restore, h, l.reason)
		s.Group, s.Before, s.After, s.Whole = t.Groups[c.Group].Name, c.Before, c.After, c.Whole
		if j == 0 {
			s.Release = r.cost(i, cpu)
			if l.metric != nil && l.metric.Restore != nil {
				s.Release = append(s.Release, Amount{l.metric.dimension(), own})
				r.given = append(r.given, Amount{l.metric.dimension(), own})
			}
		}
		r.add(&s)
	}
	return len(changes) > 0
}

func (r *round) restoring(t *Task, l leeway) (changes []QuotaChange, own int64) {
	if !l.free {
		restore := RestoreCPU
		if l.metric != nil && l.metric.Restore != nil {
			restore = l.metric.Restore
		}
		changes, own = restore(t, l.by)
		changes = slices.DeleteFunc(changes, func(c QuotaChange) bool { _, ok := l.by.Original(&t.Groups[c.Group]); return !ok })
	}
	for j := range t.Groups { // what somebody else has lifted meanwhile, or nobody limits any more
		g := &t.Groups[j]
		if most, ok := l.by.Original(g); ok && (l.free || !g.limited()) {
			changes = append(changes, QuotaChange{Group: j, Before: quotaOf(g), After: most, Whole: true})
		}
	}
	return changes, own
}

// unweight gives a task its weight back, if its groups can be reached.
func (r *round) unweight(i int32, h *hold, reason string) (given bool) {
	t := &r.tasks[i]
	for j := range t.Groups {
		g := &t.Groups[j]
		shares, idle, ok := r.l.Weight(t.Key(), g.Name)
		if !ok {
			continue
		}
		s := r.giving(i, Unweight, h, reason)
		s.Group, s.Weight, s.NewWeight = g.Name, Weight{g.Shares, g.Idle}, Weight{shares, idle}
		r.add(&s)
		given = true
	}
	return given
}
