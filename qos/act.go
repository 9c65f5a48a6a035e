package qos

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// act plans the actions of the rules that fire and, on top of them, the actions of the previewed
// rules.
func (r *round) act() {
	for _, preview := range []bool{false, true} {
		first := len(r.demands)
		for i := range r.runs {
			if u := &r.runs[i]; u.Preview == preview && u.action >= 0 && (u.fires && !u.counted || u.actsUnmeasured) {
				r.demands = append(r.demands, r.demand(u))
			}
		}
		set := r.demands[first:]
		if len(set) == 0 {
			continue
		}
		r.classify()
		done := slices.Clone(r.acted)
		r.merged, r.asked = make([]merged, len(r.Tasks)), 0
		r.collectVector()
		r.subtractPending(set)
		r.useRungs(set)
		if preview {
			r.acted = done // previewed steps do not stop giving back
		}
	}
}

// collectVector collects the metrics of the demands whose dimensions are not built in, or that have
// a Release of their own. An evicted task releases an amount of each of their dimensions too; see
// releases.
func (r *round) collectVector() {
	r.vector = r.vector[:0]
	for i := range r.demands {
		m := r.demands[i].metric
		if m == nil || m.Release == nil && builtinDimension(m.dimension()) {
			continue
		}
		if !slices.ContainsFunc(r.vector, func(o *Metric) bool { return o.dimension() == m.dimension() }) {
			r.vector = append(r.vector, m)
		}
	}
}

func builtinDimension(dimension string) bool { return slices.Contains(dimensions[:], dimension) }

var dimensions = [...]string{DimensionCPU, DimensionExtCPU, DimensionMemory, DimensionExtMemory}

// useRungs uses the rungs of the ladder in order: weight, throttle, freeze, reclaim, evict. Demands
// with the highest action priority come first and, within a dimension, those with the lowest line.
// Releases for the lowest line often suffice for the others.
func (r *round) useRungs(set []demand) {
	slices.SortStableFunc(set, func(a, b demand) int {
		if c := cmp.Compare(b.priority(), a.priority()); c != 0 {
			return c
		}
		if c := strings.Compare(a.of, b.of); c != 0 {
			return c
		}
		return cmp.Compare(b.gap, a.gap)
	})
	for i := range set {
		r.reweight(&set[i])
	}
	r.rung(set, throttleRung)
	r.rung(set, freezeRung)
	for i := range set {
		r.reclaim(&set[i])
	}
	r.rung(set, evictRung)
	for i := range set {
		if d := &set[i]; !d.gapUnknown {
			d.report.LeftGap = d.gap
		}
	}
}

// rung is a rung of the ladder that can act precisely: throttle, freeze or evict.
type rung struct {
	verb       Verb
	has        func(a *plimsoll.Action) bool
	able       func(m *Metric) bool
	quantified func(m *Metric) bool
	do         func(r *round, d *demand, m *Metric, task int32) ([]Amount, Why)
}

var (
	throttleRung = &rung{
		Throttle, func(a *plimsoll.Action) bool { return a.Throttle != nil },
		func(m *Metric) bool { return m.Throttleable },
		func(m *Metric) bool { return m.ThrottleQuantified }, (*round).throttle,
	}
	freezeRung = &rung{
		Freeze, func(a *plimsoll.Action) bool { return a.Freeze != nil },
		func(m *Metric) bool { return m.Throttleable },
		func(m *Metric) bool { return m.ThrottleQuantified }, (*round).freeze,
	}
	evictRung = &rung{
		Evict, func(a *plimsoll.Action) bool { return a.Evict != nil }, func(m *Metric) bool { return m.Evictable },
		func(m *Metric) bool { return m.EvictQuantified }, (*round).evict,
	}
)

// rung acts for all demands whose action has the rung. It acts precisely for quantified metrics,
// and on all candidates for the others (design, "Executor phase").
func (r *round) rung(set []demand, g *rung) {
	var substitute *Metric // stands in for metrics that cannot be acted on themselves
	for i := range set {
		d := &set[i]
		if g.has(d.action) && d.metric != nil && g.able(d.metric) &&
			(substitute == nil || higherPriority(d.metric, substitute)) {
			substitute = d.metric
		}
	}
	for i := range set {
		d := &set[i]
		if !g.has(d.action) || d.done {
			continue
		}
		switch precise := d.metric != nil && g.quantified(d.metric); {
		case d.gapUnknown || !precise && (d.metric == nil || g.able(d.metric)):
			r.actOnAll(d, g, substitute)
		case precise:
			r.actPrecisely(set, d, g)
		}
	}
}

// higherPriority reports whether a has the higher action priority. Names decide between equals
// (design: GetHighestPriority…AbleMetric).
func higherPriority(a, b *Metric) bool {
	if a.ActionPriority != b.ActionPriority {
		return a.ActionPriority > b.ActionPriority
	}
	return a.Name < b.Name
}

// actOnAll acts on every candidate, because the gap or the releases are not known. The actions are
// those of substitute, a metric that can be acted on; nil: there is none.
func (r *round) actOnAll(d *demand, g *rung, substitute *Metric) {
	if substitute == nil {
		d.report.Note = "nothing that is measured here can be " + map[Verb]string{
			Throttle: "throttled", Freeze: "frozen", Evict: "evicted",
		}[g.verb]
		return
	}
	for _, i := range r.rankOrder() {
		if !r.candidate(d.run, i) || r.unable(d, g.verb, i) {
			continue
		}
		if amounts, why := g.do(r, d, substitute, i); why != 0 {
			r.skip(d, g.verb, i, why)
		} else {
			release(r.demands, amounts)
			d.done = d.done || g.verb != Evict
		}
	}
}

// actPrecisely acts on one candidate after the other until the gap is gone.
func (r *round) actPrecisely(set []demand, d *demand, g *rung) {
	if d.gap <= 0 {
		return
	}
	left := int64(0)
	if g.verb != Throttle && d.action.Throttle != nil && d.metric.Throttleable {
		left = r.throttleable(d) // later plans can release so much by throttling, so no task is stopped for it
	}
	for _, i := range r.order(d.metric) {
		if d.gap-left <= 0 {
			return
		}
		if !r.candidate(d.run, i) || r.unable(d, g.verb, i) {
			continue
		}
		own := int64(0)
		if left > 0 {
			own = r.throttleableOf(d, i)
		}
		amounts, why := g.do(r, d, d.metric, i)
		if why != 0 {
			r.skip(d, g.verb, i, why)
			continue
		}
		release(set, amounts)
		left -= own // the task releases nothing more by throttling
	}
}

// unable reports whether a task cannot be acted on now, and records the reason.
func (r *round) unable(d *demand, verb Verb, i int32) bool {
	why := r.hindered[i]
	if why == 0 && (r.failed(verb, i) ||
		verb == Evict && d.prefersThrottling() && r.failed(Throttle, i) && !r.givenUp(i)) {
		why = WhyFailed
	}
	if why != 0 {
		r.skip(d, verb, i, why)
		return true
	}
	return r.acted[i]&(bit(verb)|bit(Evict)) != 0 // acted on for another rule, and its release is counted
}

// hindrance returns why a task cannot be acted on now; 0 if it can.
func (r *round) hindrance(i int32) Why {
	t := &r.tasks[i]
	e := r.l.leaving[t.Key()]
	switch {
	case t.Gone:
		return WhyGone
	case e != nil && e.Deadline <= r.now:
		return WhyOverdue
	case e != nil || t.Stopping:
		return WhyLeaving
	}
	return 0
}

// failed reports whether a verb of the same kind failed on a task recently, so that it is not tried
// yet.
func (r *round) failed(verb Verb, i int32) bool {
	f := r.l.failures(verb)[r.tasks[i].Key()]
	return f != nil && f.Until > r.now
}

// givenUp reports whether changes of a task's groups have failed too often to be tried any more.
func (r *round) givenUp(i int32) bool {
	f := r.l.failed[r.tasks[i].Key()]
	return f != nil && f.Count >= maxFailedChanges
}

// maxFailedChanges is the number of failed changes after which a task is stopped instead of
// throttled.
const maxFailedChanges = 3

func (r *round) skip(d *demand, verb Verb, i int32, why Why) {
	r.recordSkip(Skip{Task: r.tasks[i].ID, Rule: d.key, Verb: verb, Why: why})
}

func (r *round) recordSkip(s Skip) {
	if len(r.res.Skipped) >= MaxSkipped {
		r.res.Omitted++
		return
	}
	r.res.Skipped = append(r.res.Skipped, s)
}

func bit(v Verb) uint16 { return 1 << v }

// step begins a step for a demand.
func (r *round) step(d *demand, verb Verb, i int32) Step {
	r.acted[i] |= bit(verb)
	t := &r.tasks[i]
	return Step{
		Verb: verb, Task: t.ID, Attempt: t.Attempt, Rule: d.key, Metric: d.Metric, Action: d.Action, Preview: d.Preview,
		Reason:  d.reason(),
		overdue: r.p.opt.Overdue, backoff: r.p.opt.Backoff, settle: r.p.opt.Settle,
		longest: max(d.action.CoolDown, r.p.opt.Settle),
	}
}

// add appends a step to the plan. A large plan may well take all tasks, some of them twice, so it
// grows in large steps to avoid copies.
func (r *round) add(s *Step) {
	if n := len(r.res.Steps); n == cap(r.res.Steps) && n >= 64 {
		r.res.Steps = slices.Grow(r.res.Steps, max(n, len(r.tasks)*3/2))
	}
	r.res.Steps = append(r.res.Steps, *s)
}

// reweight is the first rung. Its release is not known, so the next sample must show whether it was
// enough.
func (r *round) reweight(d *demand) {
	w := d.action.Weight
	if w == nil || d.metric == nil || !d.metric.Throttleable {
		return // weights share processors only
	}
	for _, i := range r.rankOrder() {
		if r.candidate(d.run, i) && r.tasks[i].heavier(w) && !r.unable(d, Reweight, i) {
			r.reweightTask(d, i)
			d.done = d.state.Weighed == 0 // once: tasks that start later must not hold up the other rungs
		}
	}
}

// heavier reports whether a group of the task weighs more than w.
func (t *Task) heavier(w *plimsoll.WeightAction) bool {
	return slices.ContainsFunc(t.Groups, func(g Group) bool { return g.outweighs(w) })
}

func (g *Group) outweighs(w *plimsoll.WeightAction) bool {
	return g.Name != "" && !g.Idle && (w.Idle || g.Shares > w.Shares)
}

func (r *round) reweightTask(d *demand, i int32) {
	w := d.action.Weight
	for j := range r.tasks[i].Groups {
		g := &r.tasks[i].Groups[j]
		if !g.outweighs(w) {
			continue
		}
		s := r.step(d, Reweight, i)
		s.Group, s.Weight, s.NewWeight = g.Name, Weight{g.Shares, g.Idle}, Weight{w.Shares, w.Idle}
		if w.Idle {
			s.NewWeight.Shares = g.Shares
		}
		r.add(&s)
	}
}

// reclaim asks the kernel for memory that it can take back without harm, before a task is stopped.
// It is done once for each time that the rule is triggered.
func (r *round) reclaim(d *demand) {
	e := d.action.Evict
	if e == nil || !e.Reclaim || d.metric == nil || !d.metric.Reclaimable || d.gapUnknown || d.done {
		return
	}
	if at := r.reclaimed(d.of); at != 0 {
		d.done = r.now < at+int64(ReclaimTime)
		return
	}
	left := plus(d.gap, -r.asked)
	if r.asked > 0 {
		d.done = true // another rule asks already, and its effect must show first
	}
	if d.of != DimensionMemory && d.of != DimensionExtMemory {
		left = reclaimBlind
	}
	for _, i := range r.order(d.metric) {
		if left <= 0 {
			break
		}
		t := &r.tasks[i]
		if !r.candidate(d.run, i) || !t.MemoryKnown || t.Memory <= 0 || r.unable(d, Reclaim, i) {
			continue
		}
		s := r.step(d, Reclaim, i)
		s.Bytes = min(left, t.Memory)
		left -= s.Bytes
		r.asked = plus(r.asked, s.Bytes)
		r.add(&s)
		d.done = true
	}
}

// reclaimed returns the time at which memory of a dimension was asked for since a rule that still
// acts was triggered; 0 if it was not. One request counts for all rules: they see one overload.
func (r *round) reclaimed(dimension string) (latest int64) {
	for _, known := range r.reclaims { // thousands of rules may ask
		if known.Dimension == dimension {
			return known.Value
		}
	}
	defer func() { r.reclaims = append(r.reclaims, Amount{dimension, latest}) }()
	for i := range r.runs {
		if u := &r.runs[i]; u.state.Active && u.report.Dimension == dimension {
			latest = max(latest, u.state.Reclaimed)
		}
	}
	return latest
}

// ReclaimTime is the time that reclaiming memory may take before tasks are stopped instead.
const ReclaimTime = 3 * time.Second

// reclaimBlind is the amount asked for when the gap is not known.
const reclaimBlind = int64(64 << 20)

// evict plans that a task is stopped. Its release is everything that the task uses.
func (r *round) evict(d *demand, m *Metric, i int32) ([]Amount, Why) {
	t := &r.tasks[i]
	releases := r.releases(i)
	if !d.gapUnknown && m.EvictQuantified {
		if _, known := m.release(t); !known {
			return nil, WhyUnknown
		}
		if !slices.ContainsFunc(releases, func(a Amount) bool { return a.Dimension == m.dimension() }) {
			return nil, WhyNothing
		}
	}
	s := r.step(d, Evict, i)
	s.by, s.Grace, s.Release = m, r.merge(i).grace, releases
	s.used.note(t)
	r.add(&s)
	return s.Release, 0
}

// releases returns the amounts that end with a task, less the releases of its steps in this plan.
func (r *round) releases(i int32) []Amount {
	t := &r.tasks[i]
	n := 0
	add := func(dimension string, amount int64, known bool) {
		if dimension == DimensionCPU || dimension == DimensionExtCPU {
			amount = plus(amount, -r.freed[i])
		}
		if known && amount > 0 {
			r.arena, n = append(r.arena, Amount{dimension, amount}), n+1
		}
	}
	for _, dimension := range dimensions {
		if !slices.ContainsFunc(r.vector, func(m *Metric) bool { return m.dimension() == dimension }) {
			amount, known := t.use(dimension)
			add(dimension, amount, known)
		}
	}
	for _, m := range r.vector {
		amount, known := m.release(t)
		add(m.dimension(), amount, known)
	}
	return r.newest(n)
}

// merge returns the combined parameters of the firing rules for a task: the larger floor and step,
// and the shortest grace; grace 0 is the task's own.
func (r *round) merge(i int32) *merged {
	out := &r.merged[i]
	if out.done {
		return out
	}
	out.done, out.throttling.Cores = true, r.Cores
	for j := range r.demands {
		d := &r.demands[j]
		if !r.candidate(d.run, i) {
			continue
		}
		if a := d.action.Throttle; a != nil {
			out.throttling.MinRatio = max(out.throttling.MinRatio, a.MinRatio)
			out.throttling.Step = max(out.throttling.Step, a.Step)
		}
		if a := d.action.Evict; a != nil && a.Grace > 0 && (out.grace == 0 || a.Grace < out.grace) {
			out.grace = a.Grace
		}
	}
	return out
}

// report fills in the gaps of the rules that do not fire: the room below the line, and the
// remainder after giving back.
func (r *round) report() {
	for i := range r.runs {
		switch u := &r.runs[i]; {
		case !u.report.Known:
		case !u.fires:
			u.report.Gap = r.roomBelow(u)
			u.report.LeftGap = u.report.Gap - r.givenOf(u.report.Dimension)
		case u.counted:
			u.report.Gap = r.gapAbove(u)
			u.report.LeftGap = u.report.Gap
		}
	}
}
