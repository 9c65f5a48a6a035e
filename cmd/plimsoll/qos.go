package main

import (
	"context"
)

type qosCmd struct {
	Preview qosPreviewCmd `cmd:"" help:"Show the plan of a node's QoS agent for its last sample, including rules in preview."`
}

// Help is the detail of the help text.
func (qosCmd) Help() string { return example("plimsoll qos preview n1") }

type qosPreviewCmd struct {
	Node string `arg:"" help:"Id of the node."`
	formatFlag
}

// Help is the detail of the help text.
func (qosPreviewCmd) Help() string {
	return "plimsoll policy test shows the effect of policies that are not applied.\n\n" +
		example("plimsoll qos preview n1", "plimsoll qos preview n1 -o json | jq .plan")
}

// Run shows the plan of a node's last sample.
func (cmd *qosPreviewCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	q, err := oneSample(ctx, c, cmd.Node)
	if err != nil {
		return err
	}
	return cmd.print(a, viewQOS(&q), func(o *output) {
		p := a.page()
		p.printNode(&q, a.now())
		p.gap()
		p.printLines(&q, a.now())
		p.gap()
		p.printPlan(&q)
		o.paint(p.text(0))
	})
}
