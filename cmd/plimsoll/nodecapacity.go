package main

import (
	"context"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/placement"
)

type nodeCapacityCmd struct {
	formatFlag
	evaluatorFlags
	IDs []string `arg:"" optional:"" name:"node" help:"Ids of the nodes; all if none is given."`
}

// Help is the detail of the help text.
func (nodeCapacityCmd) Help() string {
	return example("plimsoll node capacity", "plimsoll node capacity n1 n2 -o json",
		"plimsoll node capacity --evaluators 127.0.0.1:9083,127.0.0.1:9084")
}

// Run prints the room that is left on nodes.
func (cmd *nodeCapacityCmd) Run(ctx context.Context, a *app) error {
	if len(cmd.Evaluators) > 0 {
		return cmd.remotely(ctx, a)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	rooms, err := c.NodeCapacity(ctx, cmd.IDs...)
	if err != nil {
		return err
	}
	views := make([]roomView, len(rooms))
	for i, r := range rooms {
		views[i] = roomView{
			ID: r.Node, Counted: r.Reason == "", Reason: r.Reason, Tasks: r.Tasks, MaxTasks: bound(r.MaxTasks),
			Unreserved: r.Unreserved, Whole: amounts(r.Whole), Revision: r.Revision,
		}
	}
	return cmd.print(a, views, func(o *output) { printRooms(o, rooms) })
}

// remotely prints the room on the servers of evaluators: three numbers for each.
func (cmd *nodeCapacityCmd) remotely(ctx context.Context, a *app) error {
	fleet, done, err := cmd.fleet(a)
	defer done()
	if err != nil {
		return err
	}
	servers, err := fleet.List(ctx, placement.Query{Nodes: cmd.IDs})
	if err != nil {
		return remoteError(err)
	}
	ids := make([]string, len(servers))
	for i := range servers {
		ids[i] = servers[i].ID
	}
	for _, id := range cmd.IDs {
		if !slices.Contains(ids, id) {
			return plimsoll.Errorf(plimsoll.CodeNotFound, "no evaluator that answers has a server %q", id)
		}
	}
	left := fleet.Capacities(ctx, ids, nil, a.now().Unix())
	views := make([]leftView, len(ids))
	for i, id := range ids {
		c := left[id]
		views[i] = leftView{ID: id, Counted: c.Uncounted == "", Reason: c.Uncounted, Unreserved: c.Resources()}
	}
	warnFailed(a, fleet)
	return cmd.print(a, views, func(o *output) { printLeft(o, views) })
}

// leftView is the room on a server of an evaluator. Unreserved is null if the server is not
// counted.
type leftView struct {
	ID         string             `json:"id"`
	Counted    bool               `json:"counted"`
	Reason     string             `json:"reason"`
	Unreserved plimsoll.Resources `json:"unreserved"`
}

func printLeft(o *output, views []leftView) {
	names := []string{plimsoll.CPU, plimsoll.Memory, plimsoll.Disk}
	rows := make([][]string, len(views))
	for i := range views {
		row := []string{views[i].ID}
		for _, name := range names {
			row = append(row, amountOf(views[i].Unreserved, name))
		}
		rows[i] = append(row, views[i].Reason)
	}
	columns(o, []string{"NODE", "CPU", "MEMORY", "DISK", "NOT COUNTED BECAUSE"}, rows)
}

func printRooms(o *output, rooms []client.NodeRoom) {
	names := resourceNames(rooms, func(r client.NodeRoom) plimsoll.Resources { return r.Whole })
	header := []string{"NODE", "TASKS"}
	for _, name := range names {
		header = append(header, strings.ToUpper(name))
	}
	rows := make([][]string, len(rooms))
	left := false
	for i, r := range rooms {
		row := []string{r.Node, countOf(r.Tasks, r.MaxTasks)}
		for _, name := range names {
			cell := ""
			if whole := amountOf(r.Whole, name); whole != "" && r.Unreserved != nil {
				cell = amountOf(r.Unreserved, name) + " of " + whole
			}
			row = append(row, cell)
		}
		left = left || r.Reason != ""
		rows[i] = append(row, r.Reason)
	}
	if header = append(header, "NOT COUNTED BECAUSE"); !left {
		header = header[:len(header)-1]
		for i := range rows {
			rows[i] = rows[i][:len(header)]
		}
	}
	columns(o, header, rows)
}
