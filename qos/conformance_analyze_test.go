package qos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

type analyzerQOS struct {
	Name     string
	Selector map[string]string
	Rules    []analyzerRule
}

type analyzerRule struct {
	Name, Metric, Value, Action, Strategy string
	Avoid, Restore                        int32
}

type analyzerAction struct {
	Name                string
	CoolDown            int64 // seconds
	Evict, Throttle     bool
	Grace               int64 // seconds
	MinRatio, StepRatio int32
}

type analyzerPod struct {
	Name, Namespace, QOS string
	Labels               map[string]string
	Priority             int32
}

func (p *analyzerPod) namespace() string {
	if p.Namespace == "" {
		return "default"
	}
	return p.Namespace
}

func (p *analyzerPod) task() Task {
	return Task{
		ID: p.namespace() + "/" + p.Name, Class: className(p.QOS), Priority: p.Priority, Owner: p.namespace(),
		Labels:   p.Labels,
		CPUKnown: true, MemoryKnown: true,
	}
}

type analyzerTick struct {
	Usage   map[string]float64
	SleepMS int64 // before it
}

type podQOS struct {
	Metadata struct{ Name string }
	Spec     struct {
		AllowedActions []string
		LabelSelector  labelSelector
		ScopeSelector  struct {
			MatchExpressions []struct {
				ScopeName, Operator string
				Values              []string
			}
		}
	}
}

type labelSelector struct {
	MatchLabels      map[string]string
	MatchExpressions []struct {
		Key, Operator string
		Values        []string
	}
}

// pairs returns the labels that must be equal; ok is false if the selector says more than that.
func (s *labelSelector) pairs() (equal map[string]string, ok bool) {
	equal = maps.Clone(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		if e.Operator != "In" || len(e.Values) != 1 {
			return nil, false
		}
		if equal == nil {
			equal = map[string]string{}
		}
		if value, twice := equal[e.Key]; twice && value != e.Values[0] {
			return nil, false
		}
		equal[e.Key] = e.Values[0]
	}
	return equal, true
}

var scopes = map[string]plimsoll.Scope{
	"QOSClass": plimsoll.ScopeClass, "Priority": plimsoll.ScopePriority, "Namespace": plimsoll.ScopeOwner,
}

// taskQOS converts a policy; ok is false if it matches labels by more than equality.
func (q *podQOS) taskQOS(t *testing.T) (out *plimsoll.TaskQOS, ok bool) {
	t.Helper()
	out = &plimsoll.TaskQOS{Name: q.Metadata.Name, Allowed: q.Spec.AllowedActions}
	if out.Labels, ok = q.Spec.LabelSelector.pairs(); !ok {
		return nil, false
	}
	for _, e := range q.Spec.ScopeSelector.MatchExpressions {
		r := plimsoll.Requirement{
			Scope: scopes[e.ScopeName], Not: e.Operator == "NotIn", Values: slices.Clone(e.Values),
		}
		if r.Scope == 0 || e.Operator != "In" && e.Operator != "NotIn" {
			t.Fatalf("%s: nobody knows the scope %q with the operator %q", q.Metadata.Name, e.ScopeName, e.Operator)
		}
		for i, v := range r.Values {
			if r.Scope == plimsoll.ScopeClass {
				r.Values[i] = className(v).String()
			}
		}
		out.Match = append(out.Match, r)
	}
	return out, true
}

// analysis is a sequence of samples.
type analysis struct {
	c        *conformanceCase
	registry *Registry
	policies *Policies
	actions  map[string]analyzerAction
	tasks    []Task
	ledger   *Ledger
	now      int64
}

func newAnalysis(t *testing.T, c *conformanceCase) *analysis {
	t.Helper()
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	a := &analysis{
		c: c, registry: registry, ledger: NewLedger(), now: int64(time.Hour), actions: map[string]analyzerAction{},
	}
	var policies []plimsoll.Policy
	for _, x := range c.Actions {
		a.actions[x.Name] = x
		action := &plimsoll.Action{
			Name: x.Name, CoolDown: time.Duration(x.CoolDown) * time.Second, DisableScheduling: true,
		}
		if x.Throttle {
			action.Throttle = &plimsoll.ThrottleAction{MinRatio: x.MinRatio, Step: x.StepRatio}
		}
		if x.Evict {
			action.Evict = &plimsoll.EvictAction{Grace: time.Duration(x.Grace) * time.Second}
		}
		policies = append(policies, plimsoll.Policy{Action: action})
	}
	for i := range c.PodQOS {
		if q, ok := c.PodQOS[i].taskQOS(t); ok {
			policies = append(policies, plimsoll.Policy{TaskQOS: q})
		} else {
			t.Fatalf("%s: %s", c.PodQOS[i].Metadata.Name, labelExpressions)
		}
	}
	for _, x := range c.NodeQOS {
		q := &plimsoll.NodeQOS{Name: x.Name, Selector: x.Selector}
		for _, r := range x.Rules {
			q.Rules = append(q.Rules, plimsoll.Rule{
				Name: r.Name, Metric: r.Metric, Waterline: waterline(t, r.Metric, r.Value), TriggerAfter: r.Avoid,
				RestoreAfter: r.Restore,
				Action:       r.Action, Preview: r.Strategy == "Preview",
			})
		}
		policies = append(policies, plimsoll.Policy{NodeQOS: q})
	}
	for i := range c.Pods {
		a.tasks = append(a.tasks, c.Pods[i].task())
	}
	a.policies = Compile(policies, registry, c.NodeLabels, Options{})
	return a
}

// tickOutcome is the outcome of a sample, in the words of the cases. Absent fields are empty,
// except for the two maps of parameters.
type tickOutcome struct {
	Notified, DisableScheduling, EnableScheduling bool
	EvictPods, ThrottleDownPods, ThrottleUpPods   []string
	DownMinStep                                   map[string][2]int32
	EvictGrace                                    map[string]int64
	EvictWatermarks                               map[string][]string
	DownWatermarks, UpWatermarks                  map[string][]string
	Events                                        []string
}

func (a *analysis) tick(sequence int, tick *analyzerTick) *tickOutcome {
	a.now += tick.SleepMS * int64(time.Millisecond)
	s := &Snapshot{
		Sequence: uint64(sequence), At: a.now, Cores: 16 * Core, Memory: 16 << 30, Values: map[string]int64{},
		Tasks: a.tasks,
	}
	for _, metric := range slices.Sorted(maps.Keys(tick.Usage)) {
		s.Values[metric] = measured(a.registry, metric, tick.Usage[metric])
	}
	res := Plan(s, a.policies, a.ledger, a.now)
	a.ledger.Accept(res, s)
	out := &tickOutcome{
		Notified: a.policies.Selected(), DisableScheduling: res.Spoke && res.Closed,
		EnableScheduling: res.Spoke && !res.Closed,
		DownMinStep:      map[string][2]int32{}, EvictGrace: map[string]int64{},
		EvictWatermarks: lines(res.Evict), DownWatermarks: lines(res.Down), UpWatermarks: lines(res.Up),
	}
	for i := range res.Rules {
		rep := &res.Rules[i]
		if rep.Fires {
			out.Events = append(
				out.Events, fmt.Sprintf("Warning AvoidanceTriggered %s triggered action %s", rep.Rule, rep.Action),
			)
		}
		if rep.Restored {
			out.Events = append(
				out.Events, fmt.Sprintf("Normal RestoreTriggered %s restored action %s", rep.Rule, rep.Action),
			)
		}
		if !rep.Preview {
			a.pods(rep, out)
		}
	}
	out.ThrottleUpPods = slices.DeleteFunc(
		out.ThrottleUpPods, func(p string) bool { return slices.Contains(out.ThrottleDownPods, p) },
	)
	for _, list := range []*[]string{&out.Events, &out.EvictPods, &out.ThrottleDownPods, &out.ThrottleUpPods} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return out
}

// pods adds the candidates of a rule with their parameters.
func (a *analysis) pods(rep *RuleReport, out *tickOutcome) {
	action := a.actions[rep.Action]
	for i := range a.tasks {
		t := &a.tasks[i]
		if allowed, _ := a.policies.Allowed(t); !slices.Contains(allowed, rep.Action) {
			continue
		}
		if rep.Fires && action.Evict {
			out.EvictPods = append(out.EvictPods, t.ID)
			if g, has := out.EvictGrace[t.ID]; !has || action.Grace < g {
				out.EvictGrace[t.ID] = action.Grace
			}
		}
		if rep.Fires && action.Throttle {
			out.ThrottleDownPods = append(out.ThrottleDownPods, t.ID)
			p := out.DownMinStep[t.ID]
			out.DownMinStep[t.ID] = [2]int32{max(p[0], action.MinRatio), max(p[1], action.StepRatio)}
		}
		if rep.Restored && action.Throttle {
			out.ThrottleUpPods = append(out.ThrottleUpPods, t.ID)
		}
	}
}

func lines(set []Waterline) map[string][]string {
	out := map[string][]string{}
	for _, w := range set {
		out[w.Metric] = append(out[w.Metric], fmt.Sprint(w.Value))
	}
	return out
}

// finest reads the lines of a case in the finest unit of their metric, so that 4k and 4000 are one
// line.
func (a *analysis) finest(t *testing.T, in map[string][]string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, metric := range slices.Sorted(maps.Keys(in)) {
		scale := int64(plimsoll.LineScale)
		if m := a.registry.Find(metric); m != nil {
			scale = m.LineScale()
		}
		for _, text := range in[metric] {
			line, err := plimsoll.ParseLine(waterline(t, metric, text), scale)
			if err != nil {
				t.Fatal(err)
			}
			out[metric] = append(out[metric], fmt.Sprint(line))
		}
	}
	return out
}

func sortedLines(m map[string][]string) map[string][]string {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		slices.Sort(m[key])
		m[key] = slices.Compact(m[key])
	}
	return m
}

func (c *conformanceCase) checkTicks(t *testing.T) (faults []string) {
	if len(c.Ticks) != len(c.ExpectedTicks) {
		t.Fatalf("%d ticks, but %d are expected", len(c.Ticks), len(c.ExpectedTicks))
	}
	a := newAnalysis(t, c)
	for i := range c.Ticks {
		got, want := a.tick(i+1, &c.Ticks[i]), into[tickOutcome](t, c.ExpectedTicks[i])
		for _, f := range got.differ(t, a, &want) {
			faults = append(faults, fmt.Sprintf("tick %d: %s", i+1, f))
		}
	}
	return faults
}

func (got *tickOutcome) differ(t *testing.T, a *analysis, want *tickOutcome) (faults []string) {
	t.Helper()
	add := func(more []string) { faults = append(faults, more...) }
	add(unlike("notified", got.Notified, want.Notified))
	add(unlike("disableScheduling", got.DisableScheduling, want.DisableScheduling))
	add(unlike("enableScheduling", got.EnableScheduling, want.EnableScheduling))
	add(unlike("events", got.Events, sorted(want.Events)))
	add(unlike("evictPods", got.EvictPods, sorted(want.EvictPods)))
	add(unlike("throttleDownPods", got.ThrottleDownPods, sorted(want.ThrottleDownPods)))
	add(unlike("throttleUpPods", got.ThrottleUpPods, sorted(want.ThrottleUpPods)))
	add(unlike("evictWatermarks", sortedLines(got.EvictWatermarks), sortedLines(a.finest(t, want.EvictWatermarks))))
	add(unlike("downWatermarks", sortedLines(got.DownWatermarks), sortedLines(a.finest(t, want.DownWatermarks))))
	add(unlike("upWatermarks", sortedLines(got.UpWatermarks), sortedLines(a.finest(t, want.UpWatermarks))))
	if want.DownMinStep != nil {
		add(unlike("downMinStep", got.DownMinStep, want.DownMinStep))
	}
	if want.EvictGrace != nil {
		add(unlike("evictGrace", got.EvictGrace, want.EvictGrace))
	}
	return faults
}

// contradictsItself reports whether a tick expects a rule to trigger that is not previewed, and the
// node to stay open all the same: the case says in its comment that the rule does not trigger.
func (c *conformanceCase) contradictsItself() bool {
	preview := map[string]bool{}
	for _, q := range c.NodeQOS {
		for _, r := range q.Rules {
			preview[q.Name+"/"+r.Name] = r.Strategy == "Preview"
		}
	}
	return slices.ContainsFunc(c.ExpectedTicks, func(raw json.RawMessage) bool {
		var want tickOutcome
		if err := json.Unmarshal(raw, &want); err != nil || want.DisableScheduling {
			return false
		}
		return slices.ContainsFunc(want.Events, func(e string) bool {
			key, found := strings.CutPrefix(e, "Warning AvoidanceTriggered ")
			key, _, _ = strings.Cut(key, " ")
			return found && !preview[key]
		})
	})
}

// checkMatch holds each policy against each task.
func (c *conformanceCase) checkMatch(t *testing.T) (faults []string) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	expected := into[map[string]map[string]bool](t, c.Expected)
	for i := range c.PodQOS {
		q, ok := c.PodQOS[i].taskQOS(t)
		if !ok {
			c.left = append(c.left, c.PodQOS[i].Metadata.Name)
			continue
		}
		q.Allowed = []string{"act"}
		p := Compile(
			[]plimsoll.Policy{{Action: &plimsoll.Action{Name: "act", CoolDown: 1}}, {TaskQOS: q}}, registry, nil,
			Options{},
		)
		for j := range c.Pods {
			task := c.Pods[j].task()
			allowed, _ := p.Allowed(&task)
			if want, has := expected[c.Pods[j].Name][q.Name]; !has {
				t.Fatalf("nothing is expected of %s and %s", c.Pods[j].Name, q.Name)
			} else if got := len(allowed) > 0; got != want {
				faults = append(
					faults, fmt.Sprintf("%s matches %s: got %v, want %v", q.Name, c.Pods[j].Name, got, want),
				)
			}
		}
	}
	return faults
}
