package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// compile makes the policies ready: each rule fires on the first sample above its line, and none is only previewed.
func (t *trial) compile() *qos.Policies {
	var all []plimsoll.Policy
	t.each(func(p *plimsoll.Policy) bool {
		if p.Kind() != plimsoll.PolicyNodeQOS {
			all = append(all, *p)
			return false
		}
		n := *p.NodeQOS
		n.Rules = nil
		for _, r := range p.NodeQOS.Rules {
			if t.unknown(r.Metric) {
				continue
			}
			r.TriggerAfter, r.RestoreAfter, r.Preview = 1, 1, false
			n.Rules = append(n.Rules, r)
		}
		all = append(all, plimsoll.Policy{NodeQOS: &n})
		return false
	})
	return qos.Compile(all, t.registry, t.attributes, qos.Options{})
}

// run plays one sample after the other, until no rule fires any more or nothing more can be done.
func (t *trial) run() {
	policies := t.compile()
	var last *qos.Result
	pause := false
	for n := 0; ; n++ {
		res := qos.Plan(t.snapshot, policies, t.ledger, t.snapshot.At)
		fires := slices.ContainsFunc(res.Rules, func(r qos.RuleReport) bool { return r.Fires })
		if n == 0 {
			t.see(policies, res)
		}
		last = res
		if n > 0 && !fires || n == t.samples {
			break
		}
		if len(res.Steps) == 0 && n > 0 && pause {
			break // it has waited long enough, too
		}
		if len(res.Steps) > 0 || n == 0 {
			t.view.Samples = append(t.view.Samples, trialSample(res))
		}
		t.pass(res)
		if pause = len(res.Steps) == 0; pause {
			t.snapshot.At += int64(qos.ReclaimTime) // what was reclaimed may still show
		}
		if !fires {
			break
		}
	}
	t.conclude(last)
}

// see notes what the first sample says.
func (t *trial) see(policies *qos.Policies, res *qos.Result) {
	q := &t.first
	q.CPU, q.Memory = t.snapshot.Cores, t.snapshot.Memory
	metric := qos.CPUTotalUsage
	for i := len(res.Rules) - 1; i >= 0; i-- {
		if res.Rules[i].Fires {
			metric = res.Rules[i].Metric
		}
	}
	for i := range res.Rules {
		r := &res.Rules[i]
		l := client.QOSLine{
			Rule: r.Rule, Metric: r.Metric, Waterline: r.Line, Release: r.Target, Usage: r.Usage, Missing: !r.Known, Action: r.Action, Waits: r.Note,
			Scale: plimsoll.LineScale,
		}
		if m := t.registry.Find(r.Metric); m != nil {
			l.Unit, l.Scale = m.Unit, m.LineScale()
		}
		if r.Fires {
			l.Gap, l.Waits = r.Usage-r.Target, "would act"
		}
		q.Lines = append(q.Lines, l)
	}
	for _, i := range policies.Order(t.snapshot.Tasks, metric) {
		q.Tasks = append(q.Tasks, imagined(&t.snapshot.Tasks[i], policies))
	}
	t.view.Lines, t.view.Tasks = viewQOSLines(q.Lines), viewQOSTasks(q.Tasks)
}

// imagined is a task of a snapshot as an agent would tell of it.
func imagined(t *qos.Task, policies *qos.Policies) client.QOSTask {
	out := client.QOSTask{
		Task: t.ID, Attempt: t.Attempt, Class: t.Class, Priority: t.Priority, CPU: t.CPU, CPUKnown: t.CPUKnown, Memory: t.Memory, MemoryKnown: t.MemoryKnown,
		Started: t.Started, Stopping: t.Stopping,
	}
	for i := range t.Groups {
		g := &t.Groups[i]
		out.Quota, out.Shares, out.Idle, out.Frozen = max(g.Quota, 0), g.Shares, g.Idle, g.Frozen
	}
	out.OriginalQuota = out.Quota
	out.Allowed, out.Exempt = policies.Allowed(t)
	if len(out.Allowed) == 0 && out.Exempt == "" {
		out.Exempt = "no TaskQOS allows an action on it"
	}
	return out
}

func trialSample(res *qos.Result) trialSampleView {
	v := trialSampleView{}
	for i := range res.Steps {
		s := &res.Steps[i]
		before, after := s.Change()
		var amounts []string
		for _, x := range s.Release {
			amounts = append(amounts, x.Dimension+" "+qos.FormatAmount(x.Dimension, x.Value))
		}
		v.steps = append(v.steps, client.QOSStep{
			Task: s.Task, Verb: s.Verb.String(), Metric: s.Metric, Rule: s.Rule, Amount: strings.Join(amounts, ", "), Before: before, After: after,
			Reason: s.Reason, Preview: true,
		})
	}
	for _, s := range res.Skipped {
		if s.Verb.Gives() {
			continue // nothing is given back before the line is reached
		}
		v.skipped = append(v.skipped, client.QOSSkip{Task: s.Task, Rule: s.Rule, Verb: s.Verb.String(), Reason: s.Why.String()})
	}
	v.Steps, v.Skipped = viewQOSSteps(v.steps), viewQOSSkips(v.skipped)
	return v
}

// pass does the steps of a plan to the snapshot, and lets a second go by.
func (t *trial) pass(res *qos.Result) {
	s := t.snapshot
	next := imagination{*s}
	next.Tasks, next.Values = slices.Clone(s.Tasks), maps.Clone(s.Values)
	t.ledger.Accept(res, s)
	for i := range s.Tasks {
		if s.Tasks[i].Stopping {
			next.remove(s.Tasks[i].Key()) // by the next sample it is gone
		}
	}
	for i := range res.Steps {
		step := &res.Steps[i]
		t.ledger.Begin(step, s.At)
		next.suffer(step)
		t.ledger.Done(step, nil, s.At)
	}
	next.Sequence, next.At = s.Sequence+1, s.At+int64(time.Second)
	t.snapshot = &next.Snapshot
}

// imagination is a snapshot that goes by what is done, as far as that can be told.
type imagination struct{ qos.Snapshot }

func (s *imagination) find(key qos.Key) int {
	return slices.IndexFunc(s.Tasks, func(t qos.Task) bool { return t.Key() == key })
}

// suffer changes it as a step would.
func (s *imagination) suffer(step *qos.Step) {
	i := s.find(step.Key())
	if i < 0 {
		return
	}
	if step.Verb == qos.Evict {
		s.remove(step.Key())
		return
	}
	t := &s.Tasks[i]
	before := t.CPU
	t.Groups = slices.Clone(t.Groups)
	for j := range t.Groups {
		g := &t.Groups[j]
		if step.Group != g.Name && step.Group != "" {
			continue
		}
		switch step.Verb {
		case qos.Reweight, qos.Unweight:
			g.Shares, g.Idle = step.NewWeight.Shares, step.NewWeight.Idle
		case qos.Throttle, qos.Restore:
			g.Quota = step.After
			if step.After > 0 {
				t.CPU -= max(g.CPU-step.After, 0)
				g.CPU = min(g.CPU, step.After)
			}
		case qos.Freeze:
			t.CPU, g.CPU, g.Frozen = 0, 0, true
		case qos.Thaw:
			g.Frozen = false
		case qos.Reclaim, qos.Evict:
		}
	}
	s.lower(qos.CPUTotalUsage, qos.CPUTotalUtilization, before-t.CPU, s.Cores)
}

// remove takes a task away.
func (s *imagination) remove(key qos.Key) {
	i := s.find(key)
	if i < 0 {
		return
	}
	s.lower(qos.CPUTotalUsage, qos.CPUTotalUtilization, s.Tasks[i].CPU, s.Cores)
	s.lower(qos.MemoryTotalUsage, qos.MemoryTotalUtilization, s.Tasks[i].Memory, s.Memory)
	s.Tasks = slices.Delete(s.Tasks, i, i+1)
}

// lower takes an amount from both forms of what is measured of a resource.
func (s *imagination) lower(usage, utilization string, amount, all int64) {
	if v, ok := s.Values[usage]; ok {
		s.Values[usage] = max(v-amount, 0)
	}
	if v, ok := s.Values[utilization]; ok && all > 0 {
		s.Values[utilization] = max(v-int64(float64(amount)/float64(all)*100*plimsoll.LineScale+0.5), 0)
	}
}

// conclude says where each rule that fired at first has come to.
func (t *trial) conclude(last *qos.Result) {
	for i := range last.Rules {
		r := &last.Rules[i]
		j := slices.IndexFunc(t.first.Lines, func(l client.QOSLine) bool { return l.Rule == r.Rule })
		if j < 0 || t.first.Lines[j].Gap == 0 {
			continue
		}
		l := &t.first.Lines[j]
		m := &qos.Metric{Unit: l.Unit, Scale: l.Scale}
		o := outcomeOfRule{Rule: r.Rule, Before: float64(l.Usage) / float64(l.Scale), After: float64(r.Usage) / float64(l.Scale), Reached: !r.Fires}
		switch {
		case o.Reached:
			o.text = fmt.Sprintf("%s: %s would go from %s to %s; its line is reached", r.Rule, r.Metric, m.Format(l.Usage), m.Format(r.Usage))
		case slices.ContainsFunc(last.Steps, func(s qos.Step) bool { return s.Rule == r.Rule }):
			o.Why = "more is to be done after " + plural(t.samples, "sample") + "; see further with --samples"
		default:
			o.Why = "nobody is left who may be acted on"
		}
		switch metric := t.registry.Find(r.Metric); {
		case o.Reached:
		case metric != nil && metric.Dimension == "":
			o.text = fmt.Sprintf("%s: what %s would come to cannot be told beforehand: %s", r.Rule, r.Metric, o.Why)
		default:
			o.text = fmt.Sprintf("%s: %s would go from %s to %s; its line, %s, is not reached: %s", r.Rule, r.Metric, m.Format(l.Usage), m.Format(r.Usage),
				m.Format(l.Release), o.Why)
		}
		t.view.Outcomes = append(t.view.Outcomes, o)
	}
}
