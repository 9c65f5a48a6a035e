package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/metricfile"
	"github.com/plimsoll-dev/plimsoll/internal/rehearsal"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

type policyTestCmd struct {
	Files    []string `short:"f" name:"file" required:"" help:"Policy files; - reads stdin." placeholder:"FILE" sep:"none"`
	Node     string   `help:"Show the effect on this node now. Actions and TaskQOS of the server count as well." placeholder:"NODE" xor:"where"`
	Snapshot string   `help:"Show the effect on the node of this snapshot file." placeholder:"FILE" xor:"where"`
	Metrics  string   `help:"Metric file of the node's agent, for rules on metrics that are not built in." placeholder:"FILE"`
	Samples  int      `help:"Number of samples to go on for, if one is not enough." default:"20"`
	formatFlag
}

// Help is the detail of the help text.
func (policyTestCmd) Help() string {
	return "The policies are not applied, and no node acts. Every rule counts as triggered, as if its metric had been above its line for triggerAfter samples. " +
		"A rule in preview counts as one that acts. From one sample to the next, a lower weight releases nothing, and a lower quota releases the use above it.\n\n" +
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
	policies, places, err := a.readPolicies(cmd.Files)
	if err != nil {
		return err
	}
	t := &policyTest{config: rehearsal.Config{Registry: registry, Policies: policies, Samples: cmd.Samples}}
	switch {
	case cmd.Node != "":
		err = t.fromNode(ctx, a, cmd.Node)
	case cmd.Snapshot != "":
		err = t.fromFile(a, cmd.Snapshot)
	}
	if err != nil {
		return err
	}
	if t.result, err = rehearsal.Run(&t.config); err != nil {
		return places.Locate(err)
	}
	return cmd.print(a, t.view(), func(o *output) { o.paint(t.picture(a)) })
}

const maxTrialSamples = 1000

// registry returns the built-in metrics and those of the metric file.
func (cmd *policyTestCmd) registry() (*qos.Registry, error) {
	if cmd.Metrics == "" {
		return qos.NewRegistry()
	}
	metrics, err := metricfile.Load(cmd.Metrics)
	if err != nil {
		return nil, err
	}
	return nodeqos.NewRegistry(metrics)
}

// policyTest is a test of policies.
type policyTest struct {
	config rehearsal.Config
	where  string // name of the node, for people
	result *rehearsal.Result
}

// policyTestView is the result of a test of policies.
type policyTestView struct {
	Policies int              `json:"policies"`
	Notes    []string         `json:"notes"` // valid settings that may be a mistake
	Lines    []qosLineView    `json:"lines,omitempty"`
	Tasks    []qosTaskView    `json:"tasks,omitempty"`
	Samples  []testSampleView `json:"samples,omitempty"`
	Outcomes []outcomeOfRule  `json:"outcomes,omitempty"`
}

// testSampleView is the plan for one sample.
type testSampleView struct {
	Steps   []qosStepView `json:"steps"`
	Skipped []qosSkipView `json:"skipped"`
}

// outcomeOfRule is the expected change of a rule's metric, in the metric's unit.
type outcomeOfRule struct {
	Rule    string  `json:"rule"`
	Before  float64 `json:"before"`
	After   float64 `json:"after"`
	Reached bool    `json:"reached"` // After reaches the release line
	Why     string  `json:"why"`     // why the release line is not reached; empty: it is
}

// view returns the result for scripts.
func (t *policyTest) view() policyTestView {
	r := t.result
	v := policyTestView{
		Policies: len(t.config.Policies), Notes: append([]string{}, r.Notes...), Lines: viewQOSLines(r.First.Lines),
		Tasks: viewQOSTasks(r.First.Tasks),
	}
	for i := range r.Samples {
		v.Samples = append(
			v.Samples,
			testSampleView{Steps: viewQOSSteps(r.Samples[i].Steps), Skipped: viewQOSSkips(r.Samples[i].Skipped)},
		)
	}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		v.Outcomes = append(v.Outcomes, outcomeOfRule{
			Rule: o.Rule, Before: float64(o.Before) / float64(o.Scale), After: float64(o.After) / float64(o.Scale),
			Reached: o.Reached, Why: t.why(o),
		})
	}
	return v
}

// why returns why a release line is not reached.
func (t *policyTest) why(o *rehearsal.Outcome) string {
	switch {
	case o.Reached:
		return ""
	case o.More:
		return "more is to be done after " + plural(t.config.Samples, "sample") + "; see further with --samples"
	}
	return "no task is left that an action may choose"
}

// describe describes the outcome of a rule for people.
func (t *policyTest) describe(o *rehearsal.Outcome) string {
	m := &qos.Metric{Unit: o.Unit, Scale: o.Scale}
	switch {
	case o.Reached:
		return fmt.Sprintf(
			"%s: %s would go from %s to %s; its line is reached", o.Rule, o.Metric, m.Format(o.Before),
			m.Format(o.After),
		)
	case !o.Told:
		return fmt.Sprintf("%s: the effect on %s is not known beforehand: %s", o.Rule, o.Metric, t.why(o))
	}
	return fmt.Sprintf("%s: %s would go from %s to %s; its line, %s, is not reached: %s", o.Rule, o.Metric, m.Format(
		o.Before,
	), m.Format(o.After),
		m.Format(o.Release), t.why(o))
}

// fromNode takes the snapshot of a node's agent, and the policies of the server.
func (t *policyTest) fromNode(ctx context.Context, a *app, id string) error {
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
		return plimsoll.Errorf(
			plimsoll.CodeNotFound, "there is no node %q; plimsoll node list shows those that there are", id,
		)
	}
	at := &t.config.Node
	at.Attributes, at.Announced = nodes[i].Node.Attributes, nodes[i].Node.Facts.Metrics
	all, err := c.Policies(ctx, 0)
	if err != nil {
		return err
	}
	t.config.Others = []plimsoll.Policy{}
	for _, p := range all {
		mine := slices.ContainsFunc(t.config.Policies, func(o plimsoll.Policy) bool { return o.Ref() == p.Ref() })
		if !mine && p.Kind() != plimsoll.PolicyNodeQOS {
			t.config.Others = append(t.config.Others, p)
		}
	}
	q, err := oneSample(ctx, c, id)
	if err != nil {
		return err
	}
	t.where = fmt.Sprintf("%s with its sample of %s", id, ago(a.now(), q.At))
	at.Snapshot, at.Ledger = rehearsal.FromAgent(&q)
	return nil
}

// fromFile takes the node from a snapshot file.
func (t *policyTest) fromFile(a *app, path string) error {
	name, data, err := a.readFile(path)
	if err != nil {
		return err
	}
	s, err := config.ParseQOSSnapshot(name, data, t.config.Registry, a.now())
	if err != nil {
		return err
	}
	t.where, t.config.Node = "the node of "+name, rehearsal.Node{Attributes: s.Attributes, Snapshot: &s.Snapshot}
	return nil
}

// picture lays out a test for people.
func (t *policyTest) picture(a *app) string {
	p := a.page()
	verb := "are"
	if len(t.config.Policies) == 1 {
		verb = "is"
	}
	p.line(cell{text: policiesText(len(t.config.Policies)) + " " + verb + " valid"})
	for _, note := range t.result.Notes {
		p.line(cell{"note: ", notice}, cell{text: note})
	}
	if t.config.Node.Snapshot == nil {
		return p.text(0)
	}
	p.gap()
	p.line(cell{text: "on " + t.where + ", if every rule had been above its line for long enough:"})
	p.gap()
	if len(t.result.First.Lines) == 0 {
		p.line(cell{text: "no rule of these files is for this node"})
		return p.text(0)
	}
	p.printLines(&t.result.First, a.now())
	p.gap()
	p.printQOSTasks(&t.result.First, 0)
	for i := range t.result.Samples {
		s := &t.result.Samples[i]
		p.gap()
		title := "at once"
		if i > 0 {
			title = "then, if that is not enough"
		}
		p.line(cell{title, strong})
		if len(s.Steps) > 0 {
			p.printSteps(s.Steps)
		} else {
			p.line(cell{text: "nothing"})
		}
		if len(s.Skipped) > 0 {
			p.printSkips(s.Skipped)
		}
	}
	if len(t.result.Outcomes) > 0 {
		p.gap()
	}
	for i := range t.result.Outcomes {
		p.line(cell{text: t.describe(&t.result.Outcomes[i])})
	}
	return p.text(0)
}
