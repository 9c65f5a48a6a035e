package main

import (
	"context"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type nodeCmd struct {
	List     nodeListCmd     `cmd:"" help:"List nodes with what is allocated on them."`
	Drain    nodeDrainCmd    `cmd:"" help:"Take nodes out of use: no new tasks, and those that run are placed elsewhere."`
	Cordon   nodeCordonCmd   `cmd:"" help:"Give nodes no new tasks; those that run go on."`
	Uncordon nodeUncordonCmd `cmd:"" help:"Let nodes take tasks again, after cordon or drain."`
	Remove   nodeRemoveCmd   `cmd:"" help:"Forget nodes whose machines are gone. One that is alive or holds tasks is refused."`
}

// Help is the detail of the help text.
func (nodeCmd) Help() string { return example("plimsoll node list", "plimsoll node drain n1") }

type nodeListCmd struct {
	formatFlag
}

// Help is the detail of the help text.
func (nodeListCmd) Help() string { return example("plimsoll node list", "plimsoll node list -o json") }

// Run lists nodes.
func (cmd *nodeListCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	views := make([]nodeView, len(nodes))
	for i := range nodes {
		views[i] = viewNode(&nodes[i])
	}
	return cmd.print(a, views, func(o *output) {
		rows := make([][]string, len(nodes))
		for i := range nodes {
			n := &nodes[i].Node
			rows[i] = []string{
				n.ID, nodeState(n), count(nodes[i].Status.Tasks), used(&nodes[i], plimsoll.CPU), used(&nodes[i], plimsoll.Memory),
				n.Address, ago(a.now(), n.Registered),
			}
		}
		columns(o, []string{"ID", "STATE", "TASKS", "CPU", "MEMORY", "ADDRESS", "REGISTERED"}, rows)
	})
}

func nodeState(n *plimsoll.Node) string {
	state := "ready"
	if !n.Ready {
		state = "not ready"
	}
	if n.Mode != plimsoll.NodeActive {
		state += ", " + n.Mode.String()
	}
	return state
}

// used is "allocated of capacity".
func used(n *client.NodeInfo, resource string) string {
	return people(resource, n.Status.Allocated[resource]) + " of " + people(resource, n.Node.Capacity[resource])
}

// people prints an amount in a few digits.
func people(resource string, amount int64) string {
	if resource != plimsoll.Memory && resource != plimsoll.Disk || amount < 1<<10 {
		return plimsoll.FormatQuantity(resource, amount)
	}
	value, unit := float64(amount), -1
	for value >= 1024 && unit < 5 {
		value, unit = value/1024, unit+1
	}
	if value >= 10 || value == float64(int64(value)) {
		return fmt.Sprintf("%.0f%ci", value, "KMGTPE"[unit])
	}
	return fmt.Sprintf("%.1f%ci", value, "KMGTPE"[unit])
}

type nodeDrainCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the nodes."`
}

// Help is the detail of the help text.
func (nodeDrainCmd) Help() string { return example("plimsoll node drain n1 n2") }

// Run drains nodes.
func (cmd *nodeDrainCmd) Run(ctx context.Context, a *app) error {
	return a.setNodeMode(ctx, cmd.IDs, plimsoll.NodeDraining)
}

type nodeCordonCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the nodes."`
}

// Help is the detail of the help text.
func (nodeCordonCmd) Help() string { return example("plimsoll node cordon n1") }

// Run cordons nodes.
func (cmd *nodeCordonCmd) Run(ctx context.Context, a *app) error {
	return a.setNodeMode(ctx, cmd.IDs, plimsoll.NodeCordoned)
}

type nodeUncordonCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the nodes."`
}

// Help is the detail of the help text.
func (nodeUncordonCmd) Help() string { return example("plimsoll node uncordon n1") }

// Run lets nodes take tasks again.
func (cmd *nodeUncordonCmd) Run(ctx context.Context, a *app) error {
	return a.setNodeMode(ctx, cmd.IDs, plimsoll.NodeActive)
}

func (a *app) setNodeMode(ctx context.Context, ids []string, mode plimsoll.NodeMode) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return each(ids, func(id string) error {
		n, err := c.SetNodeMode(ctx, id, mode)
		if err != nil {
			return err
		}
		a.out.printf("%s: %s\n", id, nodeState(&n))
		return nil
	})
}

type nodeRemoveCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the nodes."`
}

// Help is the detail of the help text.
func (nodeRemoveCmd) Help() string {
	return example("plimsoll node drain n1", "plimsoll node remove n1")
}

// Run removes nodes.
func (cmd *nodeRemoveCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return each(cmd.IDs, func(id string) error {
		if err := c.RemoveNode(ctx, id); err != nil {
			return err
		}
		a.out.printf("%s: removed\n", id)
		return nil
	})
}
