package main

import (
	"context"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type nodeCapacityCmd struct {
	formatFlag
	IDs []string `arg:"" optional:"" name:"node" help:"Ids of the nodes; all if none is given."`
}

// Help is the detail of the help text.
func (nodeCapacityCmd) Help() string {
	return example("plimsoll node capacity", "plimsoll node capacity n1 n2 -o json")
}

// Run says what is left on nodes.
func (cmd *nodeCapacityCmd) Run(ctx context.Context, a *app) error {
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
			ID: r.Node, Counted: r.Reason == "", Reason: r.Reason, Tasks: r.Tasks, MaxTasks: bound(r.MaxTasks), Unreserved: r.Unreserved, Whole: amounts(r.Whole), Revision: r.Revision,
		}
	}
	return cmd.print(a, views, func(o *output) { printRooms(o, rooms) })
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
