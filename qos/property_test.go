package qos

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// seldom is true once in n times.
func seldom(t *rapid.T, n int) bool { return rapid.IntRange(1, n).Draw(t, "seldom") == n }

func oneOf[V any](t *rapid.T, values ...V) V { return rapid.SampledFrom(values).Draw(t, "one of") }

// drawn is everything that a plan is made of.
type drawn struct {
	snapshot *Snapshot
	policies *Policies
	all      []plimsoll.Policy // of which policies are made
	options  Options
	actions  map[string]*plimsoll.Action
	rules    map[string]*plimsoll.Rule // by key
	registry *Registry
	ledger   *Ledger
	now      int64
	absurd   bool // some figures are beyond all measure
}

// own are metrics of the user's: one that is quantified by the tasks' own values, one of which
// nobody can say how much is enough.
func own() []Metric {
	sort := OrderedBy(ClassAndPriority, ByValue("disk_rate"), RunningTime)
	return []Metric{
		{Name: "disk_rate", Sort: &sort, Evictable: true, EvictQuantified: true, ActionPriority: 7},
		{Name: "latency", Throttleable: true, Evictable: true, ActionPriority: 9},
		{
			Name: "requests", Sort: &sort, Throttleable: true, ThrottleQuantified: true, Limit: &Limit{},
			Evictable:       true,
			EvictQuantified: true, ActionPriority: 6,
		},
	}
}

func drawWorld(t *rapid.T) *drawn {
	registry, err := NewRegistry(own()...)
	if err != nil {
		t.Fatal(err)
	}
	w := &drawn{
		registry: registry, ledger: NewLedger(), now: int64(time.Hour), absurd: seldom(t, 10),
		actions: map[string]*plimsoll.Action{}, rules: map[string]*plimsoll.Rule{},
	}
	w.snapshot = &Snapshot{
		Sequence: 7, At: w.now - int64(oneOf(t, 0, time.Second)), Cores: 16 * Core, Memory: 64 << 30,
		Values: map[string]int64{},
	}
	w.snapshot.Times = map[string]int64{}
	w.snapshot.ExtCPU, w.snapshot.ExtMemory = oneOf(t, 0, 4*Core), oneOf[int64](t, 0, 8<<30)
	for i := range rapid.IntRange(1, 60).Draw(t, "tasks") {
		w.snapshot.Tasks = append(w.snapshot.Tasks, w.drawTask(t, i))
	}
	for _, m := range registry.metrics {
		if !seldom(t, 6) {
			w.snapshot.Values[m.Name] = w.figure(t, drawValue(t, &m))
		}
		if seldom(t, 4) {
			w.snapshot.Times[m.Name] = w.snapshot.At - int64(oneOf(t, 0, time.Second, 20*time.Second, -time.Second))
		}
	}
	w.policies = w.drawPolicies(t)
	w.drawLedger(t)
	return w
}

// drawValue draws a value around the lines that drawRule draws.
func drawValue(t *rapid.T, m *Metric) int64 {
	percent := int64(rapid.IntRange(0, 130).Draw(t, "value"))
	switch m.Unit {
	case unitCores:
		return percent * 16 * Core / 100
	case unitBytes:
		return percent * (64 << 30) / 100
	}
	return percent * plimsoll.LineScale
}

// figure replaces a figure by an absurd one now and then.
func (w *drawn) figure(t *rapid.T, v int64) int64 {
	if w.absurd && seldom(t, 3) {
		return oneOf[int64](t, math.MaxInt64, math.MinInt64, -1, 1<<60, 0, math.MaxInt64/2)
	}
	return v
}

func (w *drawn) drawTask(t *rapid.T, i int) Task {
	task := Task{
		ID: fmt.Sprintf("task-%d", i), Attempt: oneOf[int32](t, 1, 1, 2),
		Class:    plimsoll.Class(rapid.IntRange(0, 3).Draw(t, "class")),
		Priority: int32(rapid.IntRange(-2, 2).Draw(t, "priority")), Owner: oneOf(t, "alice", "bob", "carol"),
		Queue:    oneOf(t, "root.batch", "root.web"),
		Labels:   oneOf(t, nil, map[string]string{"app": "web"}, map[string]string{"app": "db"}),
		Started:  int64(rapid.IntRange(0, 3).Draw(t, "started")),
		CPUKnown: !seldom(t, 8), MemoryKnown: !seldom(t, 8), PressureKnown: !seldom(t, 4), OwnQuota: seldom(t, 4),
		CPUPressure: int64(rapid.IntRange(0, 100_000).Draw(t, "pressure")), Stopping: seldom(t, 12),
		Gone:   seldom(t, 12),
		Memory: w.figure(t, int64(rapid.IntRange(0, 4).Draw(t, "GiB"))<<30),
	}
	if seldom(t, 3) {
		task.ExtCPU, task.ExtMemory = oneOf(t, 0, Core), oneOf[int64](t, 0, 1<<30)
	}
	if seldom(t, 2) {
		task.Values = map[string]int64{"disk_rate": w.figure(t, int64(rapid.IntRange(0, 40_000).Draw(t, "rate")))}
		if seldom(t, 2) {
			task.Values["requests"] = w.figure(t, int64(rapid.IntRange(0, 40_000).Draw(t, "requests")))
		}
	}
	for j := range rapid.IntRange(0, 2).Draw(t, "groups") {
		g := Group{
			Name:   oneOf(t, "", "main", "main") + fmt.Sprint(j),
			CPU:    w.figure(t, int64(rapid.IntRange(0, 30).Draw(t, "cpu"))*Core/10),
			Quota:  oneOf(t, Unlimited, Unlimited, Core/100, Core/2, Core, 4*Core),
			Period: oneOf[int64](t, 0, DefaultPeriod, DefaultPeriod/10),
			Limit:  oneOf(t, 0, Core, 4*Core), Request: oneOf(t, 0, Core/2), Shares: oneOf[int64](t, 2, 1024),
			Idle: seldom(t, 6), Frozen: seldom(t, 12),
		}
		if seldom(t, 6) {
			g.Name = ""
		}
		task.CPU = plus(task.CPU, g.CPU)
		task.Groups = append(task.Groups, g)
	}
	return task
}

func (w *drawn) drawPolicies(t *rapid.T) *Policies {
	var all []plimsoll.Policy
	names := []string{"a0", "a1", "a2"}
	for _, name := range names {
		a := &plimsoll.Action{Name: name, CoolDown: oneOf(t, time.Second, time.Minute), DisableScheduling: seldom(t, 2)}
		if seldom(t, 4) {
			a.Weight = &plimsoll.WeightAction{Idle: seldom(t, 2), Shares: 2}
		}
		if seldom(t, 2) {
			a.Throttle = &plimsoll.ThrottleAction{
				MinRatio: int32(rapid.IntRange(0, 100).Draw(t, "ratio")),
				Step:     int32(rapid.IntRange(1, 100).Draw(t, "step")),
			}
		}
		if seldom(t, 4) {
			a.Freeze = &plimsoll.FreezeAction{For: 10 * time.Second}
		}
		if seldom(t, 2) {
			a.Evict = &plimsoll.EvictAction{Grace: oneOf(t, 0, 5*time.Second, 15*time.Second), Reclaim: seldom(t, 3)}
		}
		w.actions[name] = a
		all = append(all, plimsoll.Policy{Action: a})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "nodeqos") {
		q := &plimsoll.NodeQOS{Name: fmt.Sprintf("n%d", i)}
		for j := range rapid.IntRange(1, 4).Draw(t, "rules") {
			q.Rules = append(q.Rules, w.drawRule(t, j))
		}
		for j := range q.Rules {
			w.rules[q.Name+"/"+q.Rules[j].Name] = &q.Rules[j]
		}
		all = append(all, plimsoll.Policy{NodeQOS: q})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "taskqos") {
		q := &plimsoll.TaskQOS{
			Name: fmt.Sprintf("t%d", i), Allowed: names[:rapid.IntRange(1, 3).Draw(t, "allowed")], Prefer: seldom(t, 4),
		}
		q.Match = []plimsoll.Requirement{oneOf(t, allOf[0], allOf[0], plimsoll.Requirement{
			Scope: plimsoll.ScopeClass, Values: []string{"best-effort", "burstable"},
		},
			plimsoll.Requirement{Scope: plimsoll.ScopePriority, Not: true, Values: []string{"2", "-1-0"}})}
		if seldom(t, 5) {
			q.Allowed, q.Critical, q.Match = nil, true, []plimsoll.Requirement{
				{Scope: plimsoll.ScopeOwner, Values: []string{"carol"}},
			}
		}
		all = append(all, plimsoll.Policy{TaskQOS: q})
	}
	w.all, w.options = all, Options{Excess: oneOf[int64](t, 0, 0, 100)}
	return Compile(all, w.registry, nil, w.options)
}

func (w *drawn) drawRule(t *rapid.T, j int) plimsoll.Rule {
	metric := oneOf(t, append(w.registry.Names(), "nobody_has_it", CPUTotalUsage, MemoryTotalUsage)...)
	line, release := rapid.IntRange(1, 100).Draw(t, "line"), 0
	if seldom(t, 3) {
		release = rapid.IntRange(1, line).Draw(t, "release")
	}
	text := func(percent int) string {
		switch {
		case percent == 0:
			return ""
		case metric == CPUTotalUsage:
			return fmt.Sprintf("%dm", percent*160)
		case metric == MemoryTotalUsage:
			return fmt.Sprint(percent * (64 << 30) / 100)
		}
		return fmt.Sprint(percent)
	}
	return plimsoll.Rule{
		Name: fmt.Sprintf("r%d", j), Metric: metric, Waterline: text(line), Release: text(release),
		Action:       oneOf(t, "a0", "a1", "a2", "none"),
		TriggerAfter: oneOf[int32](t, 0, 1, 2), RestoreAfter: oneOf[int32](t, 0, 1, 3), Preview: seldom(t, 5),
		Hold: seldom(t, 3),
	}
}

// drawLedger remembers something of some tasks and rules.
func (w *drawn) drawLedger(t *rapid.T) {
	l := w.ledger
	l.sequence = oneOf[uint64](t, 0, 6)
	for i := range w.snapshot.Tasks {
		task := &w.snapshot.Tasks[i]
		if seldom(t, 4) {
			w.drawHold(t, task)
		}
		if seldom(t, 12) {
			l.leaving[task.Key()] = &leaving{
				Task: task.ID, Attempt: task.Attempt, Told: true,
				Deadline: w.now + int64(oneOf(t, -time.Second, time.Second)),
			}
		}
		if seldom(t, 12) {
			l.failures(oneOf(t, Throttle, Evict))[task.Key()] = &failure{
				Task: task.ID, Attempt: task.Attempt, Count: 1,
				Until: w.now + int64(oneOf(t, -time.Second, time.Second)),
			}
		}
	}
	for i := range w.policies.rules {
		if key := w.policies.rules[i].key; seldom(t, 2) {
			l.rules[key] = &ruleState{
				Rule: key, Active: seldom(t, 2), Above: 1, Since: 1, LastAbove: oneOf[int64](t, 0, w.now-1),
				Missing: oneOf(t, 0, w.now-1, w.now-int64(time.Minute)),
				Read:    oneOf(t, 0, w.now-int64(10*time.Second)), Gave: oneOf(t, 0, w.now-int64(10*time.Second)),
			}
		}
	}
}

func (w *drawn) drawHold(t *rapid.T, task *Task) {
	h := &hold{
		Task: task.ID, Attempt: task.Attempt, Rule: "n0/r0", Taken: w.now - int64(oneOf(t, time.Second, time.Minute)),
		Wait: oneOf(t, 0, 10*time.Second), Longest: time.Minute,
		Frozen: oneOf(t, 0, 0, 0, w.now-1, w.now+int64(time.Second)), FrozenUse: Core,
	}
	for _, g := range task.Groups {
		o := original{
			Group: g.Name, Throttle: seldom(t, 2), Quota: oneOf(t, Unlimited, 2*Core, 8*Core), Reweight: seldom(t, 3),
			Shares: 1024,
		}
		if g.Name != "" && (o.Throttle || o.Reweight) {
			h.Groups = append(h.Groups, o)
		}
	}
	if original := oneOf[int64](t, 0, 0, Unlimited, 50_000); original != 0 {
		now := int64(rapid.IntRange(0, 30_000).Draw(t, "limit"))
		h.Limits = []recordedLimit{{Metric: "requests", Original: original, Now: now}}
	}
	w.ledger.held[task.Key()] = h
}

// TestPlanProperties holds plans of random nodes against the invariants of every plan. A failure
// prints the seed that repeats it.
func TestPlanProperties(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		before, ledger := text(t, w.snapshot), encoded(t, w.ledger)
		res := Plan(w.snapshot, w.policies, w.ledger, w.now)
		if text(t, w.snapshot) != before || encoded(t, w.ledger) != ledger {
			t.Fatal("planning has changed the sample or the ledger")
		}
		w.checkRepeats(t, res)
		w.checkSteps(t, res)
		w.checkPairs(t, res)
		w.checkPreview(t, res)
		w.checkRoom(t, res)
		if !w.absurd {
			w.checkMinimal(t, res, throttleRung)
			w.checkMinimal(t, res, evictRung)
			w.checkOrder(t, res, throttleRung)
			w.checkOrder(t, res, evictRung)
		}
		w.checkLedger(t, res)
	})
}

// TestPlansAreBounded: a plan has a bounded number of explanations. It has a thousand rules that
// cannot be satisfied, since every task is left alone for a while.
func TestPlansAreBounded(t *testing.T) {
	s, p, l := busyNode(t, 1000, 1000, true)
	for i := range s.Tasks {
		k := s.Tasks[i].Key()
		l.failed[k] = &failure{Task: k.Task, Attempt: k.Attempt, Until: s.At + 1}
		l.unstopped[k] = l.failed[k]
	}
	res := Plan(s, p, l, s.At)
	if len(res.Steps) > 0 || len(res.Skipped) != MaxSkipped || res.Omitted < 100*MaxSkipped {
		t.Errorf("%d steps, %d explained, %d omitted", len(res.Steps), len(res.Skipped), res.Omitted)
	}
}

func text(t *rapid.T, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func encoded(t *rapid.T, l *Ledger) string {
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// checkRepeats: the same input gives the same plan, for any order of the list of tasks.
func (w *drawn) checkRepeats(t *rapid.T, res *Result) {
	if again := Plan(w.snapshot, w.policies, w.ledger, w.now); !reflect.DeepEqual(res, again) {
		t.Fatalf("another plan of the same:\n%+v\n%+v", res, again)
	}
	other := *w.snapshot
	other.Tasks = rapid.Permutation(w.snapshot.Tasks).Draw(t, "order")
	again := Plan(&other, w.policies, w.ledger, w.now)
	if !reflect.DeepEqual(res.Steps, again.Steps) || !reflect.DeepEqual(res.Rules, again.Rules) {
		t.Fatalf("the order of the list counts:\n%+v\n%+v", res.Steps, again.Steps)
	}
}

func (w *drawn) task(s *Step) *Task {
	return &w.snapshot.Tasks[slices.IndexFunc(w.snapshot.Tasks, func(x Task) bool { return x.Key() == s.Key() })]
}

func (r *Result) rule(key string) *RuleReport {
	i := slices.IndexFunc(r.Rules, func(rep RuleReport) bool { return rep.Rule == key })
	if i < 0 {
		return nil
	}
	return &r.Rules[i]
}

// checkSteps: only tasks that a policy allows are acted on, for rules that fire, and within their
// bounds.
func (w *drawn) checkSteps(t *rapid.T, res *Result) {
	for i := range res.Steps {
		s := &res.Steps[i]
		task := w.task(s)
		if s.Verb.Gives() {
			w.checkGiven(t, s, task)
			continue
		}
		allowed, _ := w.policies.Allowed(task)
		if !slices.Contains(allowed, s.Action) {
			t.Fatalf("nobody allows %+v", s)
		}
		if task.Gone || task.Stopping || w.ledger.leaving[s.Key()] != nil {
			t.Fatalf("it is gone or leaving: %+v", s)
		}
		rep := res.rule(s.Rule)
		if lost := rep.Active && !rep.Known; !rep.Fires && !lost {
			t.Fatalf("no rule fires for %+v", s)
		}
		if w.rules[s.Rule].Preview != s.Preview {
			t.Fatalf("preview and deed are mixed up: %+v", s)
		}
		if s.Verb == Throttle {
			w.checkThrottled(t, s, task)
		}
	}
}

func group(task *Task, name string) *Group {
	return &task.Groups[slices.IndexFunc(task.Groups, func(g Group) bool { return g.Name == name })]
}

// checkThrottled: a quota goes down, and not below the floor or the kernel's minimum.
func (w *drawn) checkThrottled(t *rapid.T, s *Step, task *Task) {
	if s.OwnLimit {
		now, original := limitsOf(w.ledger, s)
		if s.Before != now || !lower(s.After, s.Before) || s.original != original {
			t.Fatalf("a limit of %d, and of %d at first, is not lowered: %+v", now, original, s)
		}
		return
	}
	g := group(task, s.Group)
	if g.Name == "" {
		t.Fatalf("a group without a name is throttled: %+v", s)
	}
	if s.Before != quotaOf(g) || g.limited() && s.After >= g.Quota {
		t.Fatalf("throttling raises: %+v of %+v", s, g)
	}
	floor := max(g.Request, g.Limit*int64(w.actions[s.Action].Throttle.MinRatio)/100, g.leastQuota())
	if s.After < floor || s.After*max(g.Period, 1)/Core < 0 {
		t.Fatalf("below the floor of %d: %+v", floor, s)
	}
}

// limitsOf returns the limit of a metric's own that a task has by the record, and had at first.
func limitsOf(l *Ledger, s *Step) (now, original int64) {
	if x := l.held[s.Key()].limit(s.By()); x != nil {
		return x.Now, x.Original
	}
	return Unlimited, Unlimited
}

// checkGiven: something was taken, and no task gets more than its original. A quota that another
// program has raised stays.
func (w *drawn) checkGiven(t *rapid.T, s *Step, task *Task) {
	if !w.ledger.holds(s.Key()) || task.Gone {
		t.Fatalf("nothing was taken of which this is given back: %+v", s)
	}
	if s.Verb != Restore {
		return
	}
	if s.OwnLimit {
		now, original := limitsOf(w.ledger, s)
		if s.Before != now || lower(s.After, now) || lower(original, s.After) || s.Whole != (s.After == original) {
			t.Fatalf("a limit of %d, and of %d at first, is not raised: %+v", now, original, s)
		}
		return
	}
	most, ok := w.ledger.Original(s.Key(), s.Group)
	g := group(task, s.Group)
	switch {
	case !ok:
		t.Fatalf("its quota was not taken: %+v", s)
	case most > 0 && (s.After <= 0 || s.After > max(most, g.Quota)):
		t.Fatalf("more than the original %d: %+v", most, s)
	case g.limited() && s.After > 0 && s.After < g.Quota:
		if !(s.Whole && s.After == most) {
			t.Fatalf("giving back lowers: %+v", s)
		}
	}
}

// checkPairs: a group gets one step of a kind, and nothing is taken and given back at once. A task
// that has been frozen for as long as it may be is thawed whatever else happens to it.
func (w *drawn) checkPairs(t *rapid.T, res *Result) {
	type one struct {
		key   Key
		verb  Verb
		group string
	}
	seen := map[one]bool{}
	opposite := map[Verb]Verb{Restore: Throttle, Unweight: Reweight, Thaw: Freeze}
	for i := range res.Steps {
		s := &res.Steps[i]
		if k := (one{s.Key(), s.Verb, s.Group}); seen[k] {
			t.Fatalf("twice: %+v", s)
		} else if !s.Preview {
			seen[k] = true
		}
		if s.Verb.Gives() && seen[one{s.Key(), opposite[s.Verb], s.Group}] {
			t.Fatalf("taken and given back at once: %+v", s)
		}
		if (s.Verb == Restore || s.Verb == Unweight) && seen[one{s.Key(), Evict, ""}] {
			t.Fatalf("it is stopped: %+v", s)
		}
	}
}

func sumOf(steps []Step, dimension string, which func(s *Step) bool) (sum int64) {
	for i := range steps {
		for _, a := range steps[i].Release {
			if a.Dimension == dimension && !steps[i].Preview && which(&steps[i]) {
				sum += a.Value
			}
		}
	}
	return sum
}

// wants reports whether a rule asks a rung for anything, and precisely.
func (w *drawn) wants(rep *RuleReport, g *rung) (asks, precisely bool) {
	action, metric := w.actions[rep.Action], w.registry.Find(rep.Metric)
	if action == nil || !g.has(action) || rep.Preview {
		return false, false
	}
	lost := rep.Active && !rep.Known
	if metric == nil || lost || g.able(metric) && !g.quantified(metric) {
		return rep.Fires || lost, false
	}
	return rep.Fires && g.quantified(metric), true
}

// expected is the release that a rule may count on: the use of tasks that were told to stop in
// time.
func (w *drawn) expected(rep *RuleReport) (sum int64) {
	metric := w.registry.Find(rep.Metric)
	for i := range w.snapshot.Tasks {
		t := &w.snapshot.Tasks[i]
		e := w.ledger.leaving[t.Key()]
		if t.Gone || e == nil && !t.Stopping || e != nil && e.Deadline <= w.now {
			continue
		}
		if amount, known := metric.release(t); known {
			sum += amount
		}
	}
	return sum
}

// checkPreview: a previewed rule changes no real step.
func (w *drawn) checkPreview(t *rapid.T, res *Result) {
	var without []plimsoll.Policy
	for _, p := range w.all {
		if p.NodeQOS != nil {
			q := *p.NodeQOS
			q.Rules = slices.DeleteFunc(slices.Clone(q.Rules), func(r plimsoll.Rule) bool { return r.Preview })
			p = plimsoll.Policy{NodeQOS: &q}
		}
		without = append(without, p)
	}
	plain := Plan(w.snapshot, Compile(without, w.registry, nil, w.options), w.ledger, w.now)
	done := slices.DeleteFunc(slices.Clone(res.Steps), func(s Step) bool { return s.Preview })
	if len(done)+len(plain.Steps) > 0 && !reflect.DeepEqual(done, plain.Steps) {
		t.Fatalf("a previewed rule makes a difference:\n%+v\n%+v", done, plain.Steps)
	}
}

// checkMinimal: without the last task of a rung the gap of some rule would have stayed open.
func (w *drawn) checkMinimal(t *rapid.T, res *Result, g *rung) {
	var last Key
	for i := range res.Steps {
		if s := &res.Steps[i]; s.Verb == g.verb && !s.Preview {
			last = s.Key()
		}
	}
	if last.Task == "" {
		return
	}
	for i := range res.Rules {
		rep := &res.Rules[i]
		switch asks, precisely := w.wants(rep, g); {
		case asks && !precisely:
			return // nobody could say how much was enough
		case asks:
			before := sumOf(res.Steps, rep.Dimension, func(s *Step) bool {
				return !s.Verb.Gives() && (s.Verb < g.verb || s.Verb == g.verb && s.Key() != last)
			})
			if rep.Gap-w.expected(rep)-before > 0 {
				return
			}
		}
	}
	t.Fatalf("%v of %v was not needed:\n%+v\n%+v", g.verb, last, res.Steps, res.Rules)
}

// checkOrder: each candidate before the last one taken was taken too, or its skip is explained.
func (w *drawn) checkOrder(t *rapid.T, res *Result, g *rung) {
	taken := map[Key]bool{}
	for i := range res.Steps {
		if s := &res.Steps[i]; s.Verb == g.verb || s.Verb == Evict {
			taken[s.Key()] = true
		}
	}
	for i := range res.Rules {
		rep := &res.Rules[i]
		if asks, precisely := w.wants(rep, g); !asks || !precisely {
			continue
		}
		order := w.policies.Order(w.snapshot.Tasks, rep.Metric)
		end := -1
		for at, j := range order {
			key := w.snapshot.Tasks[j].Key()
			if slices.ContainsFunc(
				res.Steps, func(s Step) bool { return s.Rule == rep.Rule && s.Verb == g.verb && s.Key() == key },
			) {
				end = at
			}
		}
		for _, j := range order[:max(end, 0)] {
			task := &w.snapshot.Tasks[j]
			allowed, _ := w.policies.Allowed(task)
			skipped := slices.ContainsFunc(
				res.Skipped,
				func(s Skip) bool { return s.Task == task.ID && s.Rule == rep.Rule && s.Verb == g.verb && s.Why != 0 },
			)
			if slices.Contains(allowed, rep.Action) && !taken[task.Key()] && !skipped {
				t.Fatalf(
					"%s was passed over by %s without a word:\n%+v\n%+v", task.ID, rep.Rule, res.Steps, res.Skipped,
				)
			}
		}
	}
}

// checkLedger: an encoded ledger is decoded again, before and after the plan was executed, and the
// next plan can be made.
func (w *drawn) checkLedger(t *rapid.T, res *Result) {
	w.ledger.Accept(res, w.snapshot)
	for i := range res.Steps {
		var err error
		if seldom(t, 5) {
			err = errInjected
		}
		w.ledger.Begin(&res.Steps[i], w.now)
		w.ledger.Done(&res.Steps[i], err, w.now)
	}
	data, err := w.ledger.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeLedger(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(w.ledger.rules)) {
		r := w.ledger.rules[key]
		r.Missing, r.Read, r.Gave = 0, 0, 0 // how long a metric is missing, and its readings, are counted anew
	}
	if !reflect.DeepEqual(back.held, w.ledger.held) || !reflect.DeepEqual(back.rules, w.ledger.rules) ||
		!reflect.DeepEqual(back.failed, w.ledger.failed) ||
		!reflect.DeepEqual(back.unstopped, w.ledger.unstopped) {
		t.Fatalf("it reads back as\n%s\nnot\n%s", encoded(t, back), data)
	}
	for _, k := range slices.SortedFunc(maps.Keys(w.ledger.leaving), compareKeys) {
		if e := w.ledger.leaving[k]; e.Told && !reflect.DeepEqual(e, back.leaving[k]) {
			t.Fatalf("%v reads back as %+v, not %+v", k, back.leaving[k], e)
		}
	}
	next := *w.snapshot
	next.Sequence, next.At = next.Sequence+1, w.now+int64(time.Second)
	Plan(&next, w.policies, back, next.At)
}
