package qos

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// giveBack plans the return of resources to the tasks from which they were taken. As long as
// something is held and there is room below the line, a task gets a step. It does not matter
// whether a rule was restored just now. The highest rank comes first.
func (r *round) giveBack() {
	order := r.heldTasks()
	if len(order) == 0 {
		return
	}
	r.classify() // sets the bias of each task
	r.sortToRestore(order)
	defer r.markGiven()
	weights := max(1, len(order)/10)
	for _, i := range order {
		t := &r.tasks[i]
		h := r.l.held[t.Key()]
		if h.Frozen != 0 && h.Frozen <= r.now {
			r.thaw(i, h, "it was frozen for as long as it may be")
			continue
		}
		room, why := r.room(i, h)
		if why != 0 {
			r.recordSkip(Skip{Task: t.ID, Rule: h.Rule, Verb: Restore, Why: why})
			continue
		}
		switch {
		case h.Frozen != 0 && room.throttling.Stepwise: // a thaw gives everything back, so it waits
			r.recordSkip(Skip{Task: t.ID, Rule: h.Rule, Verb: Thaw, Why: WhyMissing})
		case h.Frozen != 0 && !r.fits(room, h.FrozenUse):
			r.recordSkip(Skip{Task: t.ID, Rule: h.Rule, Verb: Thaw, Why: WhyLine})
		case h.Frozen != 0:
			r.thaw(i, h, room.reason)
		case r.raiseLimits(i, h, room):
		case h.throttled() && r.raise(i, h, room):
		case room.cooling:
			r.recordSkip(Skip{Task: t.ID, Rule: h.Rule, Verb: Unweight, Why: WhyCools})
		case weights > 0 || room.free:
			if r.unweight(i, h, room.reason) {
				weights--
			}
		}
	}
}

func (h *hold) throttled() bool {
	return slices.ContainsFunc(h.Groups, func(o original) bool { return o.Throttle })
}

// heldTasks returns the tasks from which something is taken.
func (r *round) heldTasks() []int32 {
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

// allowance is the most that one plan may give back to a task.
type allowance struct {
	free bool // no rule may act on the task, so it gets everything back at once
	// A rule has fired within its action's cool-down. A low weight takes nothing from a task while
	// processors are idle. The cost of giving it back is not known, so it waits for the cool-down.
	cooling    bool
	throttling Throttling
	reason     string
	metric     *Metric // its Restore is used
	own        int64   // room below the metric's line, in its dimension's finest unit
}

// room returns the allowance of a task now, or the reason why nothing may be given back to it.
func (r *round) room(i int32, h *hold) (l allowance, why Why) {
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
	l.throttling = Throttling{Step: 100, Cores: r.Cores}
	least := int64(math.MaxInt64)
	for j := range r.runs {
		u := &r.runs[j]
		if u.Preview || !r.candidate(u, i) || !isReversible(&r.p.actions[u.action]) {
			continue
		}
		switch {
		case r.now < h.Taken+int64(h.Wait): // without a rule there is no flapping
			return l, WhyWaits
		case u.active():
			return l, WhyActive
		}
		if l.free {
			l.free, l.throttling.Step = false, 0
		}
		l.cooling = l.cooling || r.now < u.state.LastAbove+int64(r.p.actions[u.action].CoolDown)
		if a := r.p.actions[u.action].Throttle; a != nil {
			l.throttling.MinRatio = max(l.throttling.MinRatio, a.MinRatio)
			l.throttling.Step = max(l.throttling.Step, a.Step)
		}
		if why := r.roomBelowRule(u, t, &l, &least); why != 0 {
			return l, why
		}
	}
	if l.throttling.Step == 0 {
		l.throttling.Step = defaultStep
	}
	if !l.free && !r.fitsEvictLines(i, &l) {
		return l, WhyLine
	}
	return l, 0
}

// fitsEvictLines lowers the room to that below the lines of rules that only stop the task. It
// reports whether any room is left.
func (r *round) fitsEvictLines(i int32, l *allowance) bool {
	for j := range r.runs {
		u := &r.runs[j]
		if u.Preview || !r.candidate(u, i) || isReversible(&r.p.actions[u.action]) {
			continue
		}
		known := u.report.Known && u.metric != nil && u.metric.EvictQuantified
		if known && !l.throttling.limitRoom(u, &r.tasks[i], r.roomLeft(u)) {
			return false
		}
	}
	return true
}

// limitRoom lowers the room of a task to that below the line of a rule on processors. It reports
// whether any room is left.
func (by *Throttling) limitRoom(u *run, t *Task, room int64) bool {
	switch dimension := u.metric.dimension(); {
	case dimension != DimensionCPU && dimension != DimensionExtCPU, dimension == DimensionExtCPU && t.ExtCPU <= 0:
		return true
	case room <= 0:
		return false
	case by.Room <= 0 || room < by.Room:
		by.Room = room
	}
	return true
}

// defaultStep is the step in percent for a task that no rule throttles any more.
const defaultStep = 10

// isReversible reports whether an action takes something that is given back later.
func isReversible(a *plimsoll.Action) bool {
	return a.Throttle != nil || a.Weight != nil || a.Freeze != nil
}

// roomBelowRule lowers the room to that below one rule's line, and returns the reason if none is
// left.
func (r *round) roomBelowRule(u *run, t *Task, l *allowance, least *int64) Why {
	if u.metric == nil {
		return 0
	}
	if !u.report.Known && (u.Hold || time.Duration(r.now-u.state.Missing) < r.p.opt.Stale) {
		return WhyMissing
	}
	if !r.isNewer(u.reading, u.state.Gave) {
		return WhyReading
	}
	if !u.report.Known {
		l.throttling.Stepwise, l.reason = true, u.report.Note
		return 0
	}
	if !u.metric.ThrottleQuantified {
		if *least == math.MaxInt64 {
			l.reason = fmt.Sprintf(
				"%s: %s is %s, below %s", u.key, u.Metric, u.metric.Format(u.report.Usage),
				u.metric.Format(u.rule.target),
			)
		}
		return 0
	}
	gap := r.roomLeft(u)
	if gap <= 0 || !l.throttling.limitRoom(u, t, gap) {
		return WhyLine
	}
	if gap < *least {
		*least = gap
		l.metric, l.own = u.metric, gap
		l.reason = fmt.Sprintf("%s: %s is %s, %s below the line",
			u.key, u.Metric, u.metric.Format(u.report.Usage), u.metric.FormatAmount(gap))
	}
	return 0
}

// roomBelow returns the distance of a metric below its target; 0 if it is not below.
func (r *round) roomBelow(u *run) int64 {
	gap := max(u.target-u.amount, 0)
	if r.p.opt.WholeSteps {
		gap = plus(gap, mulDiv(gap, r.p.opt.Excess, 1000))
	}
	return gap
}

// roomLeft returns the room below a rule's target. It leaves out amounts that are given back in
// this round or are on their way, and those given back since the rule's reading began.
func (r *round) roomLeft(u *run) int64 {
	dimension := u.metric.dimension()
	left := plus(r.roomBelow(u), -r.givenOf(dimension))
	for _, c := range r.l.recent {
		if c.Gives && c.Dimension == dimension && r.hidden(c.At, u.reading.at) {
			left = plus(left, -c.Value)
		}
	}
	for _, a := range r.l.changes(true) {
		if a.Dimension == dimension {
			left = plus(left, -a.Value)
		}
	}
	return left
}

func (r *round) givenOf(dimension string) (sum int64) {
	for _, a := range r.given {
		if a.Dimension == dimension {
			sum = plus(sum, a.Value)
		}
	}
	return sum
}

// giving begins a step that gives something back to a task. It marks the readings of the rules that
// may act on the task: nothing more is given back by the same readings.
func (r *round) giving(i int32, verb Verb, h *hold, reason string) Step {
	r.acted[i] |= bit(verb)
	t := &r.tasks[i]
	for j := range r.runs {
		if u := &r.runs[j]; !u.Preview && r.candidate(u, i) {
			u.gives = true
		}
	}
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

// cost records the amount that giving back may cost the node.
func (r *round) cost(i int32, cpu int64) []Amount {
	amounts := []Amount{{DimensionCPU, cpu}}
	if r.tasks[i].ExtCPU > 0 {
		amounts = append(amounts, Amount{DimensionExtCPU, cpu})
	}
	r.given = append(r.given, amounts...)
	return amounts
}

// fits reports whether the room lets a task use so many more nanocores.
func (r *round) fits(l allowance, cpu int64) bool {
	return l.throttling.Room <= 0 || cpu <= l.throttling.Room || r.p.opt.WholeSteps
}

// raise plans a step up of a task's quotas, as far as there is room. A quota that no rule limits
// any more is restored at once. raise reports whether a step is due, even if there is no room for
// it.
func (r *round) raise(i int32, h *hold, l allowance) (due bool) {
	t := &r.tasks[i]
	key := t.Key()
	l.throttling.Original = func(g *Group) (int64, bool) { return r.l.Original(key, g.Name) }
	changes, own := r.restoring(t, l)
	due, cpu := len(changes) > 0, int64(0)
	if !l.free && !r.p.opt.WholeSteps {
		changes = capRaises(t, changes, l.throttling)
	}
	if due && len(changes) == 0 {
		r.recordSkip(Skip{Task: t.ID, Rule: h.Rule, Verb: Restore, Why: WhyLine})
	}
	for _, c := range changes {
		cpu = plus(cpu, t.Groups[c.Group].raisedBy(c.After, r.Cores))
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
	return due
}

// capRaises lowers the changes to the room below the line. An increase below a hundredth of the
// quota is not worth a step.
func capRaises(t *Task, changes []QuotaChange, by Throttling) []QuotaChange {
	if by.Room <= 0 {
		return changes
	}
	left, out := by.Room, changes[:0]
	for _, c := range changes {
		g := &t.Groups[c.Group]
		more := g.raisedBy(c.After, by.Cores)
		if more > left {
			if left < max(g.grain(), g.Quota/100) {
				continue
			}
			c.After, c.Whole, more = g.Quota+left, false, left
		}
		left -= more
		out = append(out, c)
	}
	return out
}

// raisedBy returns the additional use of a group after its quota is changed, on a machine with so
// many cores.
func (g *Group) raisedBy(after, cores int64) int64 {
	switch {
	case !g.limited():
		return 0 // another program has removed the quota
	case after > 0:
		return max(after-g.Quota, 0)
	}
	return max(cores-g.Quota, 0)
}

func (r *round) restoring(t *Task, l allowance) (changes []QuotaChange, own int64) {
	if !l.free {
		restore := RestoreCPU
		if l.metric != nil && l.metric.Restore != nil {
			restore, l.throttling.Amount = l.metric.Restore, l.own
		}
		changes, own = restore(t, l.throttling)
		changes = slices.DeleteFunc(
			changes, func(c QuotaChange) bool { _, ok := l.throttling.Original(&t.Groups[c.Group]); return !ok },
		)
	}
	for j := range t.Groups { // quotas that another program has removed, or that no rule limits any more
		g := &t.Groups[j]
		if most, ok := l.throttling.Original(g); ok && (l.free || !g.limited()) {
			changes = append(changes, QuotaChange{Group: j, Before: quotaOf(g), After: most, Whole: true})
		}
	}
	return changes, own
}

// unweight plans to restore the weights of a task's groups. It reports whether any was lowered.
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
