package main

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

type policyCmd struct {
	Apply  policyApplyCmd  `cmd:"" help:"Create and change the policies of policy files, all of them or none."`
	List   policyListCmd   `cmd:"" help:"List policies."`
	Get    policyGetCmd    `cmd:"" help:"Print a policy as in a policy file."`
	Test   policyTestCmd   `cmd:"" help:"Check policy files, and show their effect on a node."`
	Delete policyDeleteCmd `cmd:"" help:"Delete a policy that no other policy names."`
}

// Help is the detail of the help text.
func (policyCmd) Help() string {
	return example(
		"plimsoll policy apply -f examples/qos.yaml", "plimsoll policy list",
		"plimsoll policy get NodeQOS shared-nodes",
	)
}

type policyApplyCmd struct {
	Files  []string `short:"f" name:"file" required:"" help:"Policy files, with a document for each policy; - reads stdin." placeholder:"FILE" sep:"none"`
	DryRun bool     `help:"Print the changes or the errors, and change nothing."`
	formatFlag
}

// Help is the detail of the help text.
func (policyApplyCmd) Help() string {
	return example(
		"plimsoll policy apply -f examples/qos.yaml", "plimsoll policy apply -f actions.yaml -f nodes.yaml --dry-run",
	)
}

type outcomeView struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Change string `json:"change"`
	DryRun bool   `json:"dryRun"`
}

// Run applies policies.
func (cmd *policyApplyCmd) Run(ctx context.Context, a *app) error {
	policies, places, err := a.readPolicies(cmd.Files)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	outcomes, err := c.ApplyPolicies(ctx, policies, cmd.DryRun)
	if err != nil {
		return places.Locate(err)
	}
	views := make([]outcomeView, len(outcomes))
	for i, o := range outcomes {
		views[i] = outcomeView{o.Policy.Kind.String(), o.Policy.Name, o.Change.String(), cmd.DryRun}
	}
	return cmd.print(a, views, func(o *output) {
		for _, x := range outcomes {
			note := ""
			if cmd.DryRun && x.Change != client.PolicyUnchanged {
				note = " (dry run: nothing was changed)"
			}
			o.printf("%s: %s%s\n", x.Policy, x.Change, note)
		}
	})
}

// readPolicies reads policy files, and returns the place of each policy. A policy that stands twice
// is refused, because the order of the files would decide.
func (a *app) readPolicies(files []string) (all []plimsoll.Policy, places config.Places, err error) {
	places = config.Places{}
	from := map[plimsoll.PolicyRef]string{}
	for _, path := range files {
		name, data, err := a.readFile(path)
		if err != nil {
			return nil, nil, err
		}
		policies, at, err := config.ParsePoliciesAt(name, data)
		if err != nil {
			err = otherKind(
				err, name, data, config.JobFileKind, "is a job file, not a policy file; use plimsoll submit",
			)
			err = otherKind(
				err, name, data, config.QueueFileKind, "is a queue file, not a policy file; use plimsoll config apply",
			)
			return nil, nil, err
		}
		for i := range policies {
			ref := policies[i].Ref()
			if first, twice := from[ref]; twice {
				return nil, nil, plimsoll.Invalid(name, "%s stands in %s too; leave it in one of them", ref, first)
			}
			from[ref] = name
		}
		all = append(all, policies...)
		maps.Copy(places, at)
	}
	return all, places, nil
}

type policyListCmd struct {
	Kind string `help:"Only this kind: ${enum}." enum:"all,NodeQOS,Action,TaskQOS" default:"all"`
	formatFlag
}

// Help is the detail of the help text.
func (policyListCmd) Help() string {
	return example("plimsoll policy list", "plimsoll policy list --kind Action -o yaml")
}

// Run lists policies.
func (cmd *policyListCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	policies, err := c.Policies(ctx, plimsoll.ParsePolicyKind(cmd.Kind))
	if err != nil {
		return err
	}
	if cmd.Output == "yaml" {
		return printPolicies(a, cmd.Output, policies)
	}
	views := make([]any, len(policies))
	for i := range policies {
		views[i] = config.PolicyFile(&policies[i])
	}
	return cmd.print(a, views, func(o *output) {
		rows := make([][]string, len(policies))
		for i := range policies {
			p := &policies[i]
			rows[i] = []string{p.Kind().String(), p.Name(), policySummary(p)}
		}
		columns(o, []string{"KIND", "NAME", "WHAT"}, rows)
	})
}

// policySummary describes a policy in one line.
func policySummary(p *plimsoll.Policy) string {
	switch p.Kind() {
	case plimsoll.PolicyAction:
		return actionSummary(p.Action)
	case plimsoll.PolicyTaskQOS:
		return taskQOSSummary(p.TaskQOS)
	case plimsoll.PolicyNodeQOS:
		return nodeQOSSummary(p.NodeQOS)
	}
	return ""
}

func actionSummary(x *plimsoll.Action) string {
	var rungs []string
	if w := x.Weight; w != nil && w.Idle {
		rungs = append(rungs, "weight idle")
	} else if w != nil {
		rungs = append(rungs, fmt.Sprintf("weight %d", w.Shares))
	}
	if t := x.Throttle; t != nil {
		rungs = append(rungs, fmt.Sprintf("throttle by %d%% down to %d%%", t.Step, t.MinRatio))
	}
	if f := x.Freeze; f != nil {
		rungs = append(rungs, "freeze for "+config.FormatDuration(f.For))
	}
	if x.Evict != nil {
		rungs = append(rungs, "evict")
	}
	text := strings.Join(rungs, ", then ")
	if x.DisableScheduling {
		if text != "" {
			text += "; "
		}
		text += "no new tasks"
	}
	return text
}

func taskQOSSummary(x *plimsoll.TaskQOS) string {
	var parts []string
	for _, pair := range plimsoll.SortedPairs(x.Labels) {
		parts = append(parts, pair[0]+"="+pair[1])
	}
	for i := range x.Match {
		r := &x.Match[i]
		operator := "in"
		if r.Not {
			operator = "not in"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", r.Scope, operator, strings.Join(r.Values, "|")))
	}
	text := strings.Join(parts, ", ") + ": "
	switch {
	case x.Critical:
		return text + "never acted on"
	case len(x.Allowed) == 0:
		text += "no action"
	default:
		text += strings.Join(x.Allowed, ", ")
	}
	if x.Prefer {
		text += ", before others"
	}
	if x.Avoid {
		text += ", after others"
	}
	return text
}

func nodeQOSSummary(x *plimsoll.NodeQOS) string {
	var parts []string
	for i := range x.Rules {
		r := &x.Rules[i]
		text := fmt.Sprintf("%s > %s: %s", r.Metric, r.Waterline, r.Action)
		if r.Preview {
			text += " (preview)"
		}
		parts = append(parts, text)
	}
	where := "every node"
	if len(x.Selector) > 0 {
		where = attributesText(x.Selector)
	}
	return where + ": " + strings.Join(parts, "; ")
}

type policyGetCmd struct {
	Kind   string `arg:"" help:"Kind of the policy: ${enum}." enum:"NodeQOS,Action,TaskQOS"`
	Name   string `arg:"" help:"Name of the policy."`
	Output string `short:"o" help:"How to print: ${enum}." enum:"yaml,json" default:"yaml"`
}

// Help is the detail of the help text.
func (policyGetCmd) Help() string {
	return example("plimsoll policy get NodeQOS shared-nodes", "plimsoll policy get Action shed-batch > action.yaml")
}

// Run prints a policy.
func (cmd *policyGetCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	p, err := c.Policy(ctx, plimsoll.PolicyRef{Kind: plimsoll.ParsePolicyKind(cmd.Kind), Name: cmd.Name})
	if err != nil {
		return err
	}
	if cmd.Output == "json" {
		return formatFlag{Output: "json"}.print(a, config.PolicyFile(&p), func(*output) {})
	}
	return printPolicies(a, cmd.Output, []plimsoll.Policy{p})
}

// printPolicies prints policies as a policy file, or as a list in JSON.
func printPolicies(a *app, format string, policies []plimsoll.Policy) error {
	if format == "yaml" {
		text, err := config.FormatPolicies(policies)
		if err != nil {
			return err
		}
		a.out.records(text)
		return nil
	}
	views := make([]any, len(policies))
	for i := range policies {
		views[i] = config.PolicyFile(&policies[i])
	}
	return formatFlag{Output: format}.print(a, views, func(*output) {})
}

func policiesText(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}

type policyDeleteCmd struct {
	Kind string `arg:"" help:"Kind of the policy: ${enum}." enum:"NodeQOS,Action,TaskQOS"`
	Name string `arg:"" help:"Name of the policy."`
}

// Help is the detail of the help text.
func (policyDeleteCmd) Help() string { return example("plimsoll policy delete NodeQOS shared-nodes") }

// Run deletes a policy.
func (cmd *policyDeleteCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	ref := plimsoll.PolicyRef{Kind: plimsoll.ParsePolicyKind(cmd.Kind), Name: cmd.Name}
	if err := c.DeletePolicy(ctx, ref); err != nil {
		return err
	}
	a.out.printf("%s: deleted\n", ref)
	return nil
}
