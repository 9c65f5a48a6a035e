package qos

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// run is one rule in one sample. Invariants: at most one of fires and actsUnmeasured is true;
// counted and actsUnmeasured are never both true.
type run struct {
	*rule
	state          *ruleState // its state after the sample
	report         *RuleReport
	fires          bool
	actsUnmeasured bool  // active, with a missing metric, and without hold: it acts without a value
	counted        bool  // its reading was counted in an earlier plan, so it takes nothing now
	gives          bool  // something is given back by its reading
	amount         int64 // usage in the dimension's finest unit
	target         int64 // target in the same unit

	reading reading
}

// active reports whether resources taken for the rule must not be given back now.
func (u *run) active() bool { return u.state.Active }

// round holds the working data of one call of Plan.
type round struct {
	View
	p    *Policies
	l    *Ledger
	now  int64
	runs []run
	res  *Result

	tasks       []Task        // tasks of the snapshot, with their bias
	eligibility []eligibility // by task; nil until a task is to be acted on
	orders      []ordered
	open        []int32  // tasks that some action may act on
	hindered    []Why    // by task: why it cannot be acted on now
	acted       []uint16 // by task: bits of the verbs of its steps
	freed       []int64  // by task: nanocores that its steps release, without stopping it
	merged      []merged // by task; made anew for each set of demands
	vector      []*Metric
	byRank      []int32
	asked       int64    // bytes that the kernel is asked to reclaim
	reclaims    []Amount // by dimension: when memory was asked for before
	measured    []measurement
	arena       []Amount      // backing array of the steps' amounts, so that each need not be allocated
	changes     []QuotaChange // scratch space for the task that is being throttled
	demands     []demand
	given       []Amount // amounts given back in this round
	back        bool     // the clock was set back since the last plan, so older times mean nothing
}

// measurement is the value of a metric, computed once however many rules have the metric.
type measurement struct {
	metric *Metric
	value  int64
	known  bool
}

// merged holds the combined parameters of all demands for one task.
type merged struct {
	throttling Throttling
	grace      time.Duration
	done       bool
}

type ordered struct {
	metric *Metric
	order  []int32
}

// Plan returns the actions that one sample calls for: the tasks to act on, the order and the
// amounts, and the resources to give back. It changes nothing, and the same arguments give the same
// plan. Ledger.Accept makes the plan count.
//
// Each rule brings its metric to its line and no further. Tasks are taken in the order of the
// metric's sorter. Each release is subtracted from the gaps of all rules whose dimension it lowers.
// When the gap is gone no other task is touched.
func Plan(s *Snapshot, p *Policies, l *Ledger, now int64) *Result {
	r := newRound(s, p, l, now)
	if r.res.Waits = r.waits(); r.res.Waits != "" {
		return r.res
	}
	r.analyze()
	r.act()
	r.giveBack()
	r.report()
	return r.res
}

func newRound(s *Snapshot, p *Policies, l *Ledger, now int64) *round {
	return &round{
		View: View{Snapshot: s, ledger: l}, p: p, l: l, now: now, tasks: s.Tasks, back: s.At < l.at,
		res: &Result{
			Sequence: s.Sequence, At: now, overdue: p.opt.Overdue, backoff: p.opt.Backoff, settle: p.opt.Settle,
			lag: p.opt.Lag,
		},
	}
}

// waits returns why nothing is planned at all; empty if there is a plan.
func (r *round) waits() string {
	switch {
	case r.l.sequence != 0 && r.Sequence <= r.l.sequence:
		return "a plan was made of this sample already"
	case r.now-r.At > int64(r.p.opt.Stale):
		return fmt.Sprintf("the last sample is %v old", time.Duration(r.now-r.At).Round(time.Millisecond))
	}
	return ""
}

// analyze updates every rule: whether its metric is above the line, for how long, and whether it
// fires (crane's analyzer). A sample below the line begins the count anew. Between the release line
// and the waterline an active rule goes on to act.
func (r *round) analyze() {
	r.runs = make([]run, len(r.p.rules))
	r.res.Rules = make([]RuleReport, len(r.p.rules))
	r.res.next = make([]ruleState, len(r.p.rules))
	known := 0
	for i := range r.p.rules {
		rule := &r.p.rules[i]
		if old := r.l.rules[rule.key]; old != nil && old.of(rule) {
			r.res.next[i] = *old
			known++
		}
		r.res.next[i].Rule, r.res.next[i].Metric = rule.key, rule.Metric
		r.runs[i] = run{rule: rule, state: &r.res.next[i], report: &r.res.Rules[i]}
		r.analyzeRule(&r.runs[i])
	}
	if known < len(r.l.rules) {
		r.ended()
	}
	r.res.oldest = r.oldest()
	r.decideScheduling()
	r.waterlines()
}

// of reports whether the state belongs to the rule, and not to an earlier one of the same name.
func (s *ruleState) of(rule *rule) bool {
	return s.Metric == rule.Metric || s.Metric == ""
}

// ended records the rules that were active and no longer exist, so that their end is reported.
func (r *round) ended() {
	rules := make(map[string]*rule, len(r.p.rules))
	for i := range r.p.rules {
		rules[r.p.rules[i].key] = &r.p.rules[i]
	}
	for _, key := range slices.Sorted(maps.Keys(r.l.rules)) {
		s := r.l.rules[key]
		if now := rules[key]; s.Active && (now == nil || !s.of(now)) {
			r.res.Ended = append(r.res.Ended, EndedRule{Rule: key, Metric: s.Metric})
		}
	}
}

func (r *round) analyzeRule(u *run) {
	rep, st := u.report, u.state
	*rep = RuleReport{
		Rule: u.key, Metric: u.Metric, Action: u.Action, Preview: u.Preview, Line: u.line, Target: u.rule.target,
		Absent:   u.metric == nil,
		NoAction: u.action < 0, Dimension: u.Metric,
	}
	value, known := r.Values[u.Metric]
	known = known && value >= 0
	if u.metric != nil {
		rep.Dimension = u.metric.dimension()
		value, known = r.usage(u.metric)
	}
	rep.Usage, rep.Known = value, known
	if !known {
		r.missing(u)
	} else {
		st.Missing = 0
		r.countReading(u, value)
		if u.metric != nil {
			u.amount, u.target = u.metric.amount(&r.View, value), u.metric.amount(&r.View, u.rule.target)
		} else {
			u.amount, u.target = value, u.rule.target
		}
	}
	rep.Above, rep.Active, rep.Since, rep.Fires, rep.Held = st.Above, st.Active, st.Since, u.fires, u.counted
	r.res.Spoke = r.res.Spoke || u.fires || rep.Restored
}

func (r *round) usage(m *Metric) (value int64, known bool) {
	for i := range r.measured {
		if x := &r.measured[i]; x.metric == m {
			return x.value, x.known
		}
	}
	value, known = m.usage(&r.View)
	known = known && value >= 0
	r.measured = append(r.measured, measurement{m, value, known})
	return value, known
}

// count adds a reading to the rule's counts.
func (u *run) count(value, now int64) {
	st, rep := u.state, u.report
	if value > u.line {
		if st.Above == 0 && !st.Active {
			st.Rising = now
		}
		st.Above, st.Below = min(st.Above+1, u.Trigger()), 0
		if !st.Active && st.Above >= u.Trigger() {
			st.Active, st.Since, rep.Triggered = true, now, true
			st.Reclaimed, st.Weighed = 0, 0
		}
		u.fires = st.Active
	} else {
		st.Above = 0
		switch {
		case !st.Active:
		case value > u.rule.target:
			st.Below, u.fires = 0, true
		default:
			if st.Below++; st.Below >= u.Restore() {
				st.Active, st.Below, st.Since, rep.Restored = false, 0, 0, true
			}
		}
	}
	if u.fires {
		st.LastAbove = now
	}
}

// missing handles a rule whose metric was not measured. Nothing is triggered and nothing restored.
// After Options.Stale an active rule acts without a value, unless its Hold is set.
func (r *round) missing(u *run) {
	st, rep := u.state, u.report
	if st.Missing == 0 {
		st.Missing = r.now
	}
	away := time.Duration(r.now - st.Missing)
	switch {
	case !st.Active || away < r.p.opt.Stale:
		rep.Note = "not measured this time"
	case u.Hold:
		rep.Note = fmt.Sprintf("not measured for %v; the rule says hold", away.Round(time.Second))
	default:
		rep.Note = fmt.Sprintf("not measured for %v, so the amount to release is unknown", away.Round(time.Second))
		u.actsUnmeasured = true
	}
	r.paceUnmeasured(u)
}

// decideScheduling decides whether the node takes new tasks. The node is closed while a rule is
// active whose action disables scheduling, and until that action's cool-down has passed since the
// rule last fired. A rule whose action does not exist closes the node too, so that the overload
// does not grow.
func (r *round) decideScheduling() {
	was := false
	for i := range r.runs {
		u := &r.runs[i]
		if u.Preview {
			continue
		}
		cool, closes := int64(0), true
		if u.action >= 0 {
			a := &r.p.actions[u.action]
			cool, closes = int64(a.CoolDown), a.DisableScheduling
		}
		if !closes || u.state.LastAbove == 0 {
			continue
		}
		left := u.state.LastAbove + cool - r.now
		if !u.state.Active && left <= 0 {
			was = true
			u.state.LastAbove = 0
			continue
		}
		if r.res.Closed {
			continue
		}
		r.res.Closed, r.res.ClosedBy = true, u.key+" is above its line"
		if !u.state.Active {
			r.res.ClosedBy = fmt.Sprintf("%s cools down for another %v", u.key, time.Duration(left).Round(time.Second))
		}
	}
	r.res.Spoke = r.res.Spoke || was && !r.res.Closed
}

// waterlines fills in the three sets of lines.
func (r *round) waterlines() {
	for i := range r.runs {
		u := &r.runs[i]
		if u.Preview || u.action < 0 {
			continue
		}
		a := &r.p.actions[u.action]
		line := Waterline{Metric: u.Metric, Rule: u.key, Value: u.line}
		if u.fires && a.Throttle != nil {
			r.res.Down = append(r.res.Down, line)
		}
		if u.fires && a.Evict != nil {
			r.res.Evict = append(r.res.Evict, line)
		}
		if a.Throttle != nil && !u.state.Active && (u.report.Restored || u.report.Known && len(r.l.held) > 0) {
			r.res.Up = append(r.res.Up, line)
		}
	}
}

// Smallest returns the lowest line of a metric; ok is false if the metric has none (design: "the
// minimum value in the waterline").
func Smallest(lines []Waterline, metric string) (value int64, ok bool) {
	for i := range lines {
		if lines[i].Metric == metric && (!ok || lines[i].Value < value) {
			value, ok = lines[i].Value, true
		}
	}
	return value, ok
}

// classify evaluates the policies for every task, once per plan.
func (r *round) classify() {
	if r.eligibility != nil {
		return
	}
	r.eligibility = make([]eligibility, len(r.Tasks))
	r.acted = make([]uint16, len(r.Tasks))
	r.freed = make([]int64, len(r.Tasks))
	r.hindered = make([]Why, len(r.Tasks))
	r.open = make([]int32, 0, len(r.Tasks))
	bits := make([]bool, len(r.Tasks)*len(r.p.actions))
	if r.p.biased {
		r.tasks = slices.Clone(r.Tasks)
	}
	for i := range r.Tasks {
		n := len(r.p.actions)
		r.eligibility[i].allowed = bits[i*n : (i+1)*n : (i+1)*n]
		r.p.classify(&r.Tasks[i], &r.eligibility[i])
		r.hindered[i] = r.hindrance(int32(i))
		if s := &r.eligibility[i]; s.critical == "" && slices.Contains(s.allowed, true) {
			r.open = append(r.open, int32(i))
		}
		if r.p.biased {
			r.tasks[i].Bias = r.eligibility[i].bias
		}
	}
}

// candidate reports whether a rule's action may act on a task.
func (r *round) candidate(u *run, task int32) bool {
	s := &r.eligibility[task]
	return u.action >= 0 && s.critical == "" && s.allowed[u.action]
}

// order returns the tasks that may be acted on, in the order of a metric's sorter.
func (r *round) order(m *Metric) []int32 {
	for i := range r.orders {
		if o := &r.orders[i]; o.metric == m || o.metric.Sort == m.Sort {
			return o.order
		}
	}
	order := slices.Clone(r.open)
	m.sorter().sort(r.tasks, order)
	r.orders = append(r.orders, ordered{m, order})
	return order
}

// rankOrder returns the tasks that may be acted on, ordered by class and priority alone. It serves
// actions whose release is not known.
func (r *round) rankOrder() []int32 {
	if r.byRank == nil {
		r.byRank = slices.Clone(r.open)
		OrderedBy(ClassAndPriority).sort(r.tasks, r.byRank)
	}
	return r.byRank
}
