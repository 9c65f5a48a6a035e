// Package rehearsal plays QoS policies on an imagined node, and tells what they would do there.
//
//	snapshot, ledger := rehearsal.FromAgent(&report)
//	result, err := rehearsal.Run(&rehearsal.Config{
//		Registry: registry, Policies: policies, Samples: 20,
//		Node: rehearsal.Node{Attributes: attributes, Snapshot: snapshot, Ledger: ledger},
//	})
//
// Run first checks the policies as a server would, and notes what is valid and may still not be
// meant. With a snapshot it then plans as the node's agent does (package qos), does the steps to a
// copy of the snapshot, lets a second go by and plans again. It ends when no rule fires, when
// nothing more can be done, or when the samples are over.
//
// Every rule counts as having been above its line for as long as its triggerAfter says, and one
// that is only previewed as one that acts. A lower weight is taken to release nothing, a lower
// quota what was above it, and an eviction all that the task used.
//
// The package applies nothing, starts nothing and asks nobody: the time is that of the snapshot. A
// sample costs one qos.Plan and a copy of the tasks. Nodes and steps are told in the types with
// which package client tells what an agent does. Its caller is plimsoll policy test.
package rehearsal

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Config is what is rehearsed, and where. Run changes nothing of it but the ledger.
type Config struct {
	Registry *qos.Registry     // of the metrics that rules may name
	Policies []plimsoll.Policy // that are rehearsed
	Others   []plimsoll.Policy // that the server has beside them; nil: it was not asked
	Node     Node
	Samples  int // that are played at most after the first
}

// Node is where policies are rehearsed.
type Node struct {
	Attributes map[string]string // that NodeQOS select by
	Announced  []string          // metrics that the node's agent defines
	Snapshot   *qos.Snapshot     // nil: the policies are only checked
	Ledger     *qos.Ledger       // what was taken from tasks before; nil: nothing
}

// Result is what a rehearsal found out.
type Result struct {
	Notes    []string       // what is valid and may still not be meant
	First    client.NodeQOS // the lines and the tasks as the first sample has them
	Samples  []Sample       // in which something was done; the first one in any case
	Outcomes []Outcome      // of the rules that fired at first
}

// Sample is what one sample led to.
type Sample struct {
	Steps   []client.QOSStep
	Skipped []client.QOSSkip
}

// Outcome is where the metric of a rule came to. Before, After and Release are in 1/Scale of Unit.
type Outcome struct {
	Rule    string // nodeqos/rule
	Metric  string
	Unit    string
	Scale   int64
	Before  int64
	After   int64
	Release int64
	Told    bool // what releases the metric can be told beforehand
	Reached bool // the release line
	More    bool // it is not reached, and another sample would do more
}

// Run rehearses policies. The error names every policy and field that is wrong.
func Run(c *Config) (*Result, error) {
	x := &rehearsal{Config: *c, snapshot: c.Node.Snapshot, ledger: c.Node.Ledger, out: &Result{}}
	if x.ledger == nil {
		x.ledger = qos.NewLedger()
	}
	if err := x.check(); err != nil {
		return nil, err
	}
	if x.snapshot != nil {
		x.play()
	}
	return x.out, nil
}

// rehearsal is one run.
type rehearsal struct {
	Config
	snapshot *qos.Snapshot // as it is now
	ledger   *qos.Ledger
	out      *Result
}

// compile makes the policies ready: each rule fires on the first sample above its line, and none is
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

// play plays one sample after the other, until no rule fires any more or nothing more can be done.
func (x *rehearsal) play() {
	policies := x.compile()
	var last *qos.Result
	pause := false
	for n := 0; ; n++ {
		res := qos.Plan(x.snapshot, policies, x.ledger, x.snapshot.At)
		fires := slices.ContainsFunc(res.Rules, func(r qos.RuleReport) bool { return r.Fires })
		if n == 0 {
			x.see(policies, res)
		}
		last = res
		if n > 0 && !fires || n == x.Samples {
			break
		}
		if len(res.Steps) == 0 && n > 0 && pause {
			break // it has waited long enough, too
		}
		if len(res.Steps) > 0 || n == 0 {
			x.out.Samples = append(x.out.Samples, sampleOf(res))
		}
		x.pass(res)
		if pause = len(res.Steps) == 0; pause {
			x.snapshot.At += int64(qos.ReclaimTime) // what was reclaimed may still show
		}
		if !fires {
			break
		}
	}
	x.conclude(last)
}

// see notes what the first sample says.
func (x *rehearsal) see(policies *qos.Policies, res *qos.Result) {
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
		q.Tasks = append(q.Tasks, imagined(&x.snapshot.Tasks[i], policies))
	}
}

// imagined is a task of a snapshot as an agent would tell of it.
func imagined(t *qos.Task, policies *qos.Policies) client.QOSTask {
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

// conclude says where each rule that fired at first has come to.
func (x *rehearsal) conclude(last *qos.Result) {
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
