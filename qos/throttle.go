package qos

import (
	"fmt"
	"slices"
)

// Throttling holds the bounds and the step of a change of quotas.
type Throttling struct {
	MinRatio int32 // percent of a group's limit that it keeps
	Step     int32 // percent of the quota, or of the use where there is none
	Cores    int64 // nanocores of the node
	// Room is the room below the line when something is given back, in nanocores; 0: not known.
	Room int64
	// Gap is the amount above the line when something is taken, in nanocores; 0: not known.
	Gap int64
	// Amount is the most that Metric.Throttle is to release, or Metric.Restore to give back, of the
	// metric's own dimension.
	Amount   int64
	Stepwise bool // the metric of a rule is missing, so giving back takes single steps, whatever the room
	// Original returns the quota that a group had before anything was taken from it; ok is false if
	// it is not recorded.
	Original func(g *Group) (quota int64, ok bool)
}

// QuotaChange is a new quota for a group of a task.
type QuotaChange struct {
	Group         int // index in Task.Groups
	Before, After int64
	Whole         bool // After is the group's original quota
}

// ThrottleCPU lowers the quotas of a task's groups by one step, to quota × (1 − step). A group
// without a quota gets use × (1 − step). The floor is the largest of three: the group's request,
// its limit × MinRatio, and the least quota that the kernel takes. Groups without a name are left
// alone. The step ends where by.Gap is released.
//
// release is the decrease of their use, in nanocores: a quota far above the use releases nothing
// yet.
func ThrottleCPU(t *Task, by Throttling) (changes []QuotaChange, release int64) {
	return throttleCPU(nil, t, by)
}

func throttleCPU(changes []QuotaChange, t *Task, by Throttling) (_ []QuotaChange, release int64) {
	left := by.Gap
	for i := range t.Groups {
		g := &t.Groups[i]
		if g.Name == "" {
			continue
		}
		if by.Gap > 0 && left <= 0 {
			break
		}
		base := g.CPU
		switch {
		case g.limited():
			base = g.Quota
		case g.CPU <= 0:
			continue // a quota of an idle group releases nothing, and holds it up later
		}
		next := max(mulDiv(max(base, 0), int64(100-by.Step), 100), g.floor(by))
		if by.Gap > 0 {
			use := g.uses()
			if by.Cores > 0 {
				use = min(use, by.Cores) // a larger use is an error of the figures
			}
			next = max(next, use-max(left, g.grain()))
		}
		if g.limited() && next >= g.Quota {
			continue
		}
		changes = append(changes, QuotaChange{Group: i, Before: quotaOf(g), After: next})
		released := max(g.uses()-next, 0)
		release, left = plus(release, released), left-released
	}
	return changes, release
}

// uses returns the use of a group below its quota. The measured use may be from before the quota
// was lowered.
func (g *Group) uses() int64 {
	if g.limited() {
		return min(g.CPU, g.Quota)
	}
	return g.CPU
}

// grain is the least change of a quota that is worth a step.
func (g *Group) grain() int64 { return g.leastQuota() / 10 }

func quotaOf(g *Group) int64 {
	if !g.limited() {
		return Unlimited
	}
	return g.Quota
}

// floor is the quota below which a group is not throttled.
func (g *Group) floor(by Throttling) int64 {
	return max(g.Request, mulDiv(max(g.Limit, 0), int64(by.MinRatio), 100), g.leastQuota())
}

// RestoreCPU raises the quotas of a task's groups by one step, to quota × (1 + step), at most to
// the original quota. A group that holds extended cores gets all of them back at once. Plan limits
// the step to the room below the line. use is the amount that the groups may use in addition, in
// nanocores.
func RestoreCPU(t *Task, by Throttling) (changes []QuotaChange, use int64) {
	for i := range t.Groups {
		g := &t.Groups[i]
		if g.Name == "" || !g.limited() {
			continue
		}
		most, known := by.Original(g)
		if !known {
			most = Unlimited
			if g.Limit > 0 {
				most = g.Limit
			}
		}
		next := mulDiv(g.Quota, int64(100+by.Step), 100)
		if g.Ext > g.Quota && !by.Stepwise {
			next = g.Ext
		}
		c := QuotaChange{Group: i, Before: g.Quota}
		switch {
		case known && most > 0 && g.Quota >= most:
			c.After, c.Whole = g.Quota, true // another program has raised the quota further

		case most > 0 && next >= most:
			c.After, c.Whole = most, true
		case most <= 0 && by.Cores > 0 && next >= by.Cores && g.Ext <= 0:
			c.After, c.Whole = Unlimited, true // the node has no more cores
		default:
			c.After = next
		}
		if c.After > 0 && c.After <= g.Quota && !known {
			continue // the group has its full quota
		}
		changes = append(changes, c)
		if c.After > 0 {
			use = plus(use, max(c.After-g.Quota, 0))
		} else {
			use = plus(use, max(by.Cores-g.Quota, 0))
		}
	}
	return changes, use
}

// throttle plans one step down for a task.
func (r *round) throttle(d *demand, m *Metric, i int32) ([]Amount, Why) {
	t := &r.tasks[i]
	switch {
	case t.Frozen():
		return nil, WhyFloor
	case m.dimension() == DimensionExtCPU && t.ExtCPU <= 0:
		return nil, WhyNothing
	}
	if m.Limit != nil {
		return r.throttleLimit(d, m, i)
	}
	var changes []QuotaChange
	own := int64(0)
	if m.Throttle != nil {
		by := r.merge(i).throttling
		by.Gap, by.Amount = r.mostToRelease(d, i), max(d.gap, 0)
		changes, own = m.Throttle(t, by)
	} else {
		if !t.CPUKnown && !t.limited() {
			return nil, WhyUnknown
		}
		by := r.merge(i).throttling
		whole, release := throttleCPU(r.changes[:0], t, by)
		if changes = whole; release > d.gap {
			by.Gap = r.mostToRelease(d, i)
			changes, _ = throttleCPU(changes[:0], t, by)
		}
		r.changes = changes
	}
	if len(changes) == 0 {
		return nil, WhyFloor
	}
	amounts := r.quotaRelease(i, changes)
	if own > 0 && m.dimension() != DimensionCPU && m.dimension() != DimensionExtCPU {
		amounts = append(amounts, Amount{m.dimension(), own})
	}
	for j, c := range changes {
		s := r.step(d, Throttle, i)
		s.Group, s.Before, s.After = t.Groups[c.Group].Name, c.Before, c.After
		if j == 0 {
			s.Release = amounts // the sum over all groups
		}
		r.add(&s)
	}
	return amounts, 0
}

// mostToRelease returns the bound of a task's release: the largest gap of the rules that throttle
// it. It returns 0, for no bound, if the gap or the releases of one of them are not known.
func (r *round) mostToRelease(asking *demand, i int32) (gap int64) {
	if r.p.opt.WholeSteps || asking.gapUnknown || !asking.metric.ThrottleQuantified {
		return 0
	}
	for j := range r.demands {
		d := &r.demands[j]
		switch {
		case d.Preview != asking.Preview || d.action.Throttle == nil || d.done || !r.candidate(d.run, i):
		case d.gapUnknown || d.metric.Throttleable && !d.metric.ThrottleQuantified:
			return 0
		case d.of == DimensionCPU || d.of == DimensionExtCPU && r.tasks[i].ExtCPU > 0:
			gap = max(gap, d.gap)
		case d.metric.Throttleable && d.gap > 0:
			return 0
		}
	}
	return gap
}

// Frozen reports whether a group of the task stands still.
func (t *Task) Frozen() bool {
	for i := range t.Groups {
		if t.Groups[i].Frozen {
			return true
		}
	}
	return false
}

// limited reports whether all groups of a task have a quota.
func (t *Task) limited() bool {
	for i := range t.Groups {
		if g := &t.Groups[i]; g.Name != "" && !g.limited() {
			return false
		}
	}
	return true
}

// quotaRelease returns the release of lower quotas: of the processors and, if the task holds
// extended processors, of those too.
func (r *round) quotaRelease(i int32, changes []QuotaChange) []Amount {
	t, sum := &r.tasks[i], int64(0)
	for _, c := range changes {
		sum = plus(sum, max(t.Groups[c.Group].uses()-c.After, 0))
	}
	r.freed[i] = plus(r.freed[i], sum)
	if sum == 0 {
		return nil
	}
	r.arena = append(r.arena, Amount{DimensionCPU, sum})
	n := 1
	if t.ExtCPU > 0 {
		r.arena = append(r.arena, Amount{DimensionExtCPU, sum})
		n = 2
	}
	return r.newest(n)
}

// newest returns the last n amounts of the arena. Appending to them copies them.
func (r *round) newest(n int) []Amount { return slices.Clip(r.arena[len(r.arena)-n:]) }

// throttleable returns the amount that the candidates of a demand would still release at their
// floors, beyond the steps of this plan.
func (r *round) throttleable(d *demand) (sum int64) {
	for _, i := range r.open {
		sum = plus(sum, r.throttleableOf(d, i))
	}
	return sum
}

// throttleableOf returns the same amount for one task.
func (r *round) throttleableOf(d *demand, i int32) int64 {
	t := &r.tasks[i]
	if d.of == DimensionExtCPU && t.ExtCPU <= 0 || !r.candidate(d.run, i) || t.Frozen() || r.hindered[i] != 0 ||
		r.givenUp(i) {
		return 0
	}
	if d.metric.Limit != nil {
		return r.limitable(d.metric, i)
	}
	if d.metric.Throttle != nil && !builtinDimension(d.of) {
		return r.throttleableOwn(d.metric, i)
	}
	by, whole := r.merge(i).throttling, int64(0)
	for j := range t.Groups {
		if g := &t.Groups[j]; g.Name != "" {
			whole = plus(whole, max(g.CPU-g.floor(by), 0))
		}
	}
	return max(whole-r.freed[i], 0)
}

// freeze plans that a task stands still for a bounded time.
func (r *round) freeze(d *demand, m *Metric, i int32) ([]Amount, Why) {
	t := &r.tasks[i]
	h := r.l.held[t.Key()]
	switch {
	case t.Frozen() || h != nil && h.Frozen != 0:
		return nil, WhyFloor
	case h != nil && h.Thawed != 0 && r.now-h.Thawed < int64(d.action.CoolDown):
		return nil, WhyFrozenBefore
	case m.dimension() == DimensionExtCPU && t.ExtCPU <= 0:
		return nil, WhyNothing
	case !t.CPUKnown:
		return nil, WhyUnknown
	}
	use := max(t.CPU-r.freed[i], 0)
	if use == 0 && !d.gapUnknown {
		return nil, WhyNothing
	}
	s := r.step(d, Freeze, i)
	s.Until, s.Use = r.now+int64(d.action.Freeze.For), t.CPU
	s.Release = []Amount{{DimensionCPU, use}}
	if t.ExtCPU > 0 {
		s.Release = append(s.Release, Amount{DimensionExtCPU, use})
	}
	if own, known := m.release(t); known && own > 0 && !builtinDimension(m.dimension()) {
		s.Release = append(s.Release, Amount{m.dimension(), own})
	}
	r.freed[i] = plus(r.freed[i], use)
	s.Reason += fmt.Sprintf("; for %v at most", d.action.Freeze.For)
	r.add(&s)
	return s.Release, 0
}
