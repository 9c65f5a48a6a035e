// Package rehearsal simulates QoS policies on a copy of a node, and reports their actions there.
//
//	snapshot, ledger := rehearsal.FromAgent(&report)
//	result, err := rehearsal.Run(&rehearsal.Config{
//		Registry: registry, Policies: policies, Samples: 20,
//		Node: rehearsal.Node{Attributes: attributes, Snapshot: snapshot, Ledger: ledger},
//	})
//
// Run first checks the policies as a server would, and notes valid parts that are probably
// mistakes. With a snapshot it then plans as the node's agent does (package qos). It applies the
// steps to a copy of the snapshot, advances the copy by a second, and plans again. It ends when no
// rule fires, when nothing more can be done, or after the given number of samples.
//
// Every rule fires on the first sample above its line, whatever its triggerAfter, and a rule with
// preview acts. A lower weight is taken to release nothing, a lower quota the use above it, and an
// eviction the whole use of the task.
//
// The package applies nothing to real tasks, starts nothing and uses no network; its time is that
// of the snapshot. A sample costs one qos.Plan and a copy of the tasks. Nodes and steps have the
// types with which package client describes those of an agent. Its caller is plimsoll policy test.
package rehearsal

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Config holds the policies and the node of a rehearsal. Run changes only the ledger.
type Config struct {
	Registry *qos.Registry     // metrics that rules may name
	Policies []plimsoll.Policy // the rehearsed policies
	Others   []plimsoll.Policy // other policies of the server; nil: it was not asked
	Node     Node
	Samples  int // largest number of samples after the first
}

// Node is the node on which policies are rehearsed.
type Node struct {
	Attributes map[string]string // attributes that NodeQOS select by
	Announced  []string          // metrics that the node's agent defines
	Snapshot   *qos.Snapshot     // nil: the policies are only checked
	Ledger     *qos.Ledger       // resources taken from tasks before; nil: none
}

// Result is the outcome of a rehearsal.
type Result struct {
	Notes    []string       // valid parts that are probably mistakes
	First    client.NodeQOS // lines and tasks in the first sample
	Samples  []Sample       // samples with steps, and the first one in any case
	Outcomes []Outcome      // results of the rules that fired in the first sample
}

// Sample holds the steps that one sample led to, and the skipped tasks.
type Sample struct {
	Steps   []client.QOSStep
	Skipped []client.QOSSkip
}

// Outcome is the final value of a rule's metric. Before, After and Release are in 1/Scale of Unit.
type Outcome struct {
	Rule    string // nodeqos/rule
	Metric  string
	Unit    string
	Scale   int64
	Before  int64
	After   int64
	Release int64
	Told    bool // releases of the metric are known beforehand
	Reached bool // the release line
	More    bool // not reached, and another sample would bring further steps
}

// Run rehearses policies. The error names every wrong policy and field.
func Run(c *Config) (*Result, error) {
	x := &rehearsal{Config: *c, snapshot: c.Node.Snapshot, ledger: c.Node.Ledger, out: &Result{}}
	if x.ledger == nil {
		x.ledger = qos.NewLedger()
	}
	if err := x.check(); err != nil {
		return nil, err
	}
	if x.snapshot != nil {
		x.simulate()
	}
	return x.out, nil
}

// rehearsal is the state of one Run.
type rehearsal struct {
	Config
	snapshot *qos.Snapshot // the projected snapshot of the current sample
	ledger   *qos.Ledger
	out      *Result
}

// compile prepares the policies: each rule fires on the first sample above its line, and none is
// only previewed.
func (x *rehearsal) compile() *qos.Policies {
	var all []plimsoll.Policy
	x.each(func(p *plimsoll.Policy) bool {
		if p.Kind() != plimsoll.PolicyNodeQOS {
			all = append(all, *p)
			return false
		}
		n := *p.NodeQOS
		n.Rules = nil
		for _, r := range p.NodeQOS.Rules {
			if x.unknown(r.Metric) {
				continue
			}
			r.TriggerAfter, r.RestoreAfter, r.Preview = 1, 1, false
			n.Rules = append(n.Rules, r)
		}
		all = append(all, plimsoll.Policy{NodeQOS: &n})
		return false
	})
	return qos.Compile(all, x.Registry, x.Node.Attributes, qos.Options{})
}

// simulate plans one sample after the other, until no rule fires any more or nothing more can be
// done.
func (x *rehearsal) simulate() {
	policies := x.compile()
	var last *qos.Result
	pause := false
	for n := 0; ; n++ {
		res := qos.Plan(x.snapshot, policies, x.ledger, x.snapshot.At)
		fires := slices.ContainsFunc(res.Rules, func(r qos.RuleReport) bool { return r.Fires })
		if n == 0 {
			x.recordFirst(policies, res)
		}
		last = res
		if n > 0 && !fires || n == x.Samples {
			break
		}
		if len(res.Steps) == 0 && n > 0 && pause {
			break // waiting has not helped either
		}
		if len(res.Steps) > 0 || n == 0 {
			x.out.Samples = append(x.out.Samples, sampleOf(res))
		}
		x.advance(res)
		if pause = len(res.Steps) == 0; pause {
			x.snapshot.At += int64(qos.ReclaimTime) // reclaimed memory may still show
		}
		if !fires {
			break
		}
	}
	x.recordOutcomes(last)
}

// recordFirst records the lines and tasks of the first sample.
func (x *rehearsal) recordFirst(policies *qos.Policies, res *qos.Result) {
	q := &x.out.First
	q.CPU, q.Memory = x.snapshot.Cores, x.snapshot.Memory
	metric := qos.CPUTotalUsage
	for i := len(res.Rules) - 1; i >= 0; i-- {
		if res.Rules[i].Fires {
			metric = res.Rules[i].Metric
		}
	}
	for i := range res.Rules {
		r := &res.Rules[i]
		l := client.QOSLine{
			Rule: r.Rule, Metric: r.Metric, Waterline: r.Line, Release: r.Target, Usage: r.Usage, Missing: !r.Known,
			Action: r.Action, Waits: r.Note,
			Scale: plimsoll.LineScale,
		}
		if m := x.Registry.Find(r.Metric); m != nil {
			l.Unit, l.Scale = m.Unit, m.LineScale()
		}
		if r.Fires {
			l.Gap, l.Waits = r.Usage-r.Target, "would act"
		}
		q.Lines = append(q.Lines, l)
	}
	for _, i := range policies.Order(x.snapshot.Tasks, metric) {
		q.Tasks = append(q.Tasks, projectedTask(&x.snapshot.Tasks[i], policies))
	}
}

// projectedTask returns a task of a snapshot in the form of an agent's report.
func projectedTask(t *qos.Task, policies *qos.Policies) client.QOSTask {
	out := client.QOSTask{
		Task: t.ID, Attempt: t.Attempt, Class: t.Class, Priority: t.Priority, CPU: t.CPU, CPUKnown: t.CPUKnown,
		Memory: t.Memory, MemoryKnown: t.MemoryKnown,
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

func sampleOf(res *qos.Result) Sample {
	var out Sample
	for i := range res.Steps {
		s := &res.Steps[i]
		before, after := s.Change()
		var amounts []string
		for _, a := range s.Release {
			amounts = append(amounts, a.Dimension+" "+qos.FormatAmount(a.Dimension, a.Value))
		}
		out.Steps = append(out.Steps, client.QOSStep{
			Task: s.Task, Verb: s.Verb.String(), Metric: s.Metric, Rule: s.Rule, Amount: strings.Join(amounts, ", "),
			Before: before, After: after,
			Reason: s.Reason, Preview: true,
		})
	}
	for _, s := range res.Skipped {
		if s.Verb.Gives() {
			continue // nothing is given back before the line is reached
		}
		out.Skipped = append(
			out.Skipped, client.QOSSkip{Task: s.Task, Rule: s.Rule, Verb: s.Verb.String(), Reason: s.Why.String()},
		)
	}
	return out
}

// recordOutcomes records the final metric of each rule that fired in the first sample.
func (x *rehearsal) recordOutcomes(last *qos.Result) {
	for i := range last.Rules {
		r := &last.Rules[i]
		j := slices.IndexFunc(x.out.First.Lines, func(l client.QOSLine) bool { return l.Rule == r.Rule })
		if j < 0 || x.out.First.Lines[j].Gap == 0 {
			continue
		}
		l, metric := &x.out.First.Lines[j], x.Registry.Find(r.Metric)
		x.out.Outcomes = append(x.out.Outcomes, Outcome{
			Rule: r.Rule, Metric: r.Metric, Unit: l.Unit, Scale: l.Scale, Before: l.Usage, After: r.Usage,
			Release: l.Release,
			Told:    metric == nil || metric.Dimension != "", Reached: !r.Fires,
			More: r.Fires && slices.ContainsFunc(last.Steps, func(s qos.Step) bool { return s.Rule == r.Rule }),
		})
	}
}
