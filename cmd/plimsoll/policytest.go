package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/nodeqos"
	"github.com/plimsoll-dev/plimsoll/qos"
)

type policyTestCmd struct {
	Files    []string `short:"f" name:"file" required:"" help:"Policy files; - reads stdin." placeholder:"FILE" sep:"none"`
	Node     string   `help:"Show what they would do on this node now. Actions and TaskQOS of the server count as well." placeholder:"NODE" xor:"where"`
	Snapshot string   `help:"Show what they would do on the node of this snapshot file." placeholder:"FILE" xor:"where"`
	Metrics  string   `help:"Metric file of the node's agent, for rules on metrics that are not built in." placeholder:"FILE"`
	Samples  int      `help:"Go on for so many samples at most, if each is not enough." default:"20"`
	formatFlag
}

// Help is the detail of the help text.
func (policyTestCmd) Help() string {
	return "Nothing is applied, and nothing is done on any node. Every rule counts as having been above its line for as long as its triggerAfter says, and one that is " +
		"only previewed as one that acts. From one sample to the next, a lower weight is taken to release nothing, and a lower quota what was above it.\n\n" +
		example("plimsoll policy test -f examples/qos.yaml", "plimsoll policy test -f examples/qos.yaml --node n1",
			"plimsoll policy test -f examples/qos.yaml --snapshot examples/qos-snapshot.yaml")
}

// Run tests policies.
func (cmd *policyTestCmd) Run(ctx context.Context, a *app) error {
	if cmd.Samples < 1 || cmd.Samples > maxTrialSamples {
		return plimsoll.Invalid("--samples", "is %d; give 1 to %d", cmd.Samples, maxTrialSamples)
	}
	registry, err := cmd.registry()
	if err != nil {
		return err
	}
	policies, err := a.readPolicies(cmd.Files)
	if err != nil {
		return err
	}
	t := &trial{registry: registry, policies: policies, view: policyTrialView{Policies: len(policies), Notes: []string{}}, samples: cmd.Samples}
	switch {
	case cmd.Node != "":
		err = t.fromNode(ctx, a, cmd.Node)
	case cmd.Snapshot != "":
		err = t.fromFile(a, cmd.Snapshot)
	}
	if err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	if t.snapshot != nil {
		t.run()
	}
	return cmd.print(a, &t.view, func(o *output) { o.printf("%s", t.picture(a)) })
}

const maxTrialSamples = 1000

// registry returns the built-in metrics and those of the metric file.
func (cmd *policyTestCmd) registry() (*qos.Registry, error) {
	if cmd.Metrics == "" {
		return qos.NewRegistry()
	}
	metrics, err := nodeqos.LoadMetrics(cmd.Metrics)
	if err != nil {
		return nil, err
	}
	return qos.NewRegistry(nodeqos.Definitions(metrics)...)
}

// unknown reports whether a metric is one that the node's agent has and nobody here knows.
func (t *trial) unknown(metric string) bool {
	return t.registry.Find(metric) == nil && slices.Contains(t.announced, metric)
}

// trial is a test of policies.
type trial struct {
	registry *qos.Registry
	policies []plimsoll.Policy // of the files
	others   []plimsoll.Policy // of the server, which the files do not replace
	samples  int

	server     bool   // others were read
	where      string // for people: which node it is
	attributes map[string]string
	announced  []string      // metrics that the node's agent defines
	snapshot   *qos.Snapshot // nil: they are only checked
	ledger     *qos.Ledger
	first      client.NodeQOS // what the first sample says

	view policyTrialView
}

// policyTrialView is what a trial found out.
type policyTrialView struct {
	Policies int               `json:"policies"`
	Notes    []string          `json:"notes"` // what is valid and may still not be meant
	Lines    []qosLineView     `json:"lines,omitempty"`
	Tasks    []qosTaskView     `json:"tasks,omitempty"`
	Samples  []trialSampleView `json:"samples,omitempty"`
	Outcomes []outcomeOfRule   `json:"outcomes,omitempty"`
}

// trialSampleView is what one sample leads to.
type trialSampleView struct {
	Steps   []qosStepView `json:"steps"`
	Skipped []qosSkipView `json:"skipped"`

	steps   []client.QOSStep
	skipped []client.QOSSkip
}

// outcomeOfRule is where a rule's metric comes to; in the metric's unit.
type outcomeOfRule struct {
	Rule    string  `json:"rule"`
	Before  float64 `json:"before"`
	After   float64 `json:"after"`
	Reached bool    `json:"reached"` // its release line
	Why     string  `json:"why"`     // if it is not reached
	text    string
}

// fromNode takes what a node's agent sees, and the policies of the server.
func (t *trial) fromNode(ctx context.Context, a *app, id string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n client.NodeInfo) bool { return n.Node.ID == id })
	if i < 0 {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no node %q; plimsoll node list shows those that there are", id)
	}
	t.attributes, t.announced = nodes[i].Node.Attributes, nodes[i].Node.Facts.Metrics
	all, err := c.Policies(ctx, 0)
	if err != nil {
		return err
	}
	t.server = true
	for _, p := range all {
		mine := slices.ContainsFunc(t.policies, func(o plimsoll.Policy) bool { return o.Ref() == p.Ref() })
		if !mine && p.Kind() != plimsoll.PolicyNodeQOS {
			t.others = append(t.others, p)
		}
	}
	q, err := oneSample(ctx, c, id)
	if err != nil {
		return err
	}
	t.where = fmt.Sprintf("%s with what was measured %s", id, ago(a.now(), q.At))
	t.snapshot, t.ledger = imagine(&q)
	return nil
}

// imagine makes of what an agent tells what it plans with, and of what it has taken a ledger.
func imagine(q *client.NodeQOS) (*qos.Snapshot, *qos.Ledger) {
	s := &qos.Snapshot{
		Sequence: q.Sequence, At: q.At, Cores: q.CPU, Memory: q.Memory, Values: q.Values, ExtCPU: q.Extended[plimsoll.ExtCPU] * nanosPerMilli,
		ExtMemory: q.Extended[plimsoll.ExtMemory], Tasks: make([]qos.Task, len(q.Tasks)),
	}
	l := qos.NewLedger()
	for i := range q.Tasks {
		t := &q.Tasks[i]
		g := qos.Group{
			Name: "task", CPU: t.CPU, Quota: t.Quota, Limit: t.Limit, Request: t.Request, Ext: t.ExtCPU, Shares: t.Shares, Idle: t.Idle, Frozen: t.Frozen,
		}
		s.Tasks[i] = qos.Task{
			ID: t.Task, Attempt: t.Attempt, Class: t.Class, Priority: t.Priority, Owner: t.Owner, Queue: t.Queue, Labels: t.Labels, Started: t.Started,
			CPU: t.CPU, CPUKnown: t.CPUKnown, Memory: t.Memory, MemoryKnown: t.MemoryKnown, ExtCPU: t.ExtCPU, ExtMemory: t.ExtMemory,
			CPUPressure: t.CPUPressure, MemoryPressure: t.MemoryPressure, PressureKnown: t.PressureKnown, OwnQuota: t.OwnQuota, Stopping: t.Stopping,
			Values: t.Values, Groups: []qos.Group{g},
		}
		if t.Rung != "" && t.Rung != qos.Evict.String() {
			quota, shares := t.OriginalQuota, max(t.OriginalShares, t.Shares)
			if quota == 0 {
				quota = qos.Unlimited
			}
			l.Adopt(s.Tasks[i].Key(), &g, quota, shares)
		}
	}
	return s, l
}

// fromFile takes the node of a snapshot file.
func (t *trial) fromFile(a *app, path string) error {
	name, data, err := a.readFile(path)
	if err != nil {
		return err
	}
	s, err := config.ParseQOSSnapshot(name, data, t.registry, a.now())
	if err != nil {
		return err
	}
	t.where, t.attributes, t.snapshot, t.ledger = "the node of "+name, s.Attributes, &s.Snapshot, qos.NewLedger()
	return nil
}

// check reports every reference that leads nowhere and every rule that is impossible, and notes what may not be meant.
func (t *trial) check() error {
	var problems []error
	rules := 0
	wrong := func(p *plimsoll.Policy, err error) { problems = append(problems, plimsoll.InPolicy(p.Ref(), err)) }
	for i := range t.policies {
		p := &t.policies[i]
		if strings.HasPrefix(p.Name(), qos.ReservedPrefix) {
			wrong(p, plimsoll.Invalid("name", "%q begins as the names of built-in policies do; choose another", p.Name()))
		}
		switch p.Kind() {
		case plimsoll.PolicyTaskQOS:
			for j, name := range p.TaskQOS.Allowed {
				if t.action(name) == nil {
					wrong(p, plimsoll.Invalid(fmt.Sprintf("allowed[%d]", j), "%s", t.noAction(name)))
				}
			}
		case plimsoll.PolicyNodeQOS:
			rules += len(p.NodeQOS.Rules)
			for j := range p.NodeQOS.Rules {
				if err := t.checkRule(p, j); err != nil {
					wrong(p, err)
				}
			}
			if t.snapshot != nil && !p.NodeQOS.Selects(t.attributes) {
				t.note("%s does not select this node", p.Ref())
			}
		case plimsoll.PolicyAction:
			if !t.used(p.Action.Name) {
				t.note("%s is named by no rule of these files", p.Ref())
			}
		}
	}
	if rules > plimsoll.MaxRulesTotal {
		problems = append(problems, plimsoll.Errorf(plimsoll.CodeExhausted, "all NodeQOS together have %d rules; at most %d are possible", rules, plimsoll.MaxRulesTotal))
	}
	return errors.Join(problems...)
}

func (t *trial) note(format string, args ...any) {
	t.view.Notes = append(t.view.Notes, fmt.Sprintf(format, args...))
}

func (t *trial) checkRule(p *plimsoll.Policy, i int) error {
	r, field := &p.NodeQOS.Rules[i], fmt.Sprintf("rules[%d]", i)
	action := t.action(r.Action)
	if action == nil {
		return plimsoll.Invalid(field+".action", "%s", t.noAction(r.Action))
	}
	if t.unknown(r.Metric) {
		t.note("%s, rule %s: %s is defined on the node, and the rule is left out; give the agent's file with --metrics", p.Ref(), r.Name, r.Metric)
		return nil
	}
	if err := t.registry.CheckRule(r); err != nil {
		var e *plimsoll.Error
		if errors.As(err, &e) {
			return plimsoll.Invalid(field+"."+e.Field, "%s", e.Msg)
		}
		return err
	}
	m := t.registry.Find(r.Metric)
	acts := action.Weight != nil || action.Throttle != nil || action.Freeze != nil || action.Evict != nil
	switch {
	case acts && !t.allowed(r.Action):
		t.note("%s, rule %s: no TaskQOS allows %s, so no task is acted on", p.Ref(), r.Name, r.Action)
	case action.Evict == nil && !m.Throttleable && acts:
		t.note("%s, rule %s: %s is not lowered by throttling; only evict in %s would help", p.Ref(), r.Name, r.Metric, r.Action)
	}
	if t.snapshot != nil && m.Most != nil && p.NodeQOS.Selects(t.attributes) {
		most := m.Most(&qos.View{Snapshot: t.snapshot})
		if line, err := plimsoll.ParseLine(r.Waterline, m.LineScale()); err == nil && line >= most && most > 0 {
			t.note("%s, rule %s: the line, %s, is never crossed on this node: %s is at most %s", p.Ref(), r.Name, m.Format(line), r.Metric, m.Format(most))
		}
	}
	return nil
}

func (t *trial) noAction(name string) string {
	where := "these files"
	if t.server {
		where += " or on the server"
	}
	return fmt.Sprintf("there is no Action %q in %s", name, where)
}

// each calls do with all policies until it returns true.
func (t *trial) each(do func(p *plimsoll.Policy) bool) bool {
	for _, list := range [][]plimsoll.Policy{t.policies, t.others} {
		for i := range list {
			if do(&list[i]) {
				return true
			}
		}
	}
	return false
}

func (t *trial) action(name string) (found *plimsoll.Action) {
	t.each(func(p *plimsoll.Policy) bool {
		if p.Kind() == plimsoll.PolicyAction && p.Action.Name == name {
			found = p.Action
		}
		return found != nil
	})
	return found
}

func (t *trial) allowed(action string) bool {
	return t.each(func(p *plimsoll.Policy) bool {
		return p.Kind() == plimsoll.PolicyTaskQOS && slices.Contains(p.TaskQOS.Allowed, action)
	})
}

func (t *trial) used(action string) bool {
	return t.each(func(p *plimsoll.Policy) bool {
		return p.Kind() == plimsoll.PolicyNodeQOS && slices.ContainsFunc(p.NodeQOS.Rules, func(r plimsoll.Rule) bool { return r.Action == action })
	})
}

// picture lays a trial out for people.
func (t *trial) picture(a *app) string {
	p := a.page()
	verb := "are"
	if len(t.policies) == 1 {
		verb = "is"
	}
	p.line(cell{text: policiesText(len(t.policies)) + " " + verb + " valid"})
	for _, note := range t.view.Notes {
		p.line(cell{"note: ", notice}, cell{text: note})
	}
	if t.snapshot == nil {
		return p.text(0)
	}
	p.gap()
	p.line(cell{text: "on " + t.where + ", if every rule had been above its line for long enough:"})
	p.gap()
	if len(t.first.Lines) == 0 {
		p.line(cell{text: "no rule of these files is for this node"})
		return p.text(0)
	}
	p.printLines(&t.first, a.now())
	p.gap()
	p.printQOSTasks(&t.first, 0)
	for i := range t.view.Samples {
		s := &t.view.Samples[i]
		p.gap()
		title := "at once"
		if i > 0 {
			title = "then, if that is not enough"
		}
		p.line(cell{title, strong})
		if len(s.steps) > 0 {
			p.printSteps(s.steps)
		} else {
			p.line(cell{text: "nothing"})
		}
		if len(s.skipped) > 0 {
			p.printSkips(s.skipped)
		}
	}
	if len(t.view.Outcomes) > 0 {
		p.gap()
	}
	for i := range t.view.Outcomes {
		p.line(cell{text: t.view.Outcomes[i].text})
	}
	return p.text(0)
}
