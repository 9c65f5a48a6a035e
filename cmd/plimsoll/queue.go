package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type queueCmd struct {
	List queueListCmd `cmd:"" help:"List queues with their use."`
}

// Help is the detail of the help text.
func (queueCmd) Help() string { return example("plimsoll queue list") }

type queueListCmd struct {
	watchFlag
	formatFlag
}

// Help is the detail of the help text.
func (queueListCmd) Help() string {
	return example("plimsoll queue list", "plimsoll queue list -o json", "plimsoll queue list --watch") + watchHelp
}

// Run lists queues.
func (cmd *queueListCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if cmd.Watch {
		return printChanges(ctx, a, cmd.formatFlag, c.WatchQueues(ctx, client.WatchPoint{}),
			watchedView[plimsoll.QueueStatus]{
				header: queueHeader,
				usual:  []string{"root.default", "parent", "", "", "", "cpu 12, memory 512Mi", "cpu 12, memory 512Mi"},
				row:    queueRow,
				json:   func(q *plimsoll.QueueStatus) any { return viewQueue(q) },
			})
	}
	queues, err := c.Queues(ctx)
	if err != nil {
		return err
	}
	views := make([]queueView, len(queues))
	for i := range queues {
		views[i] = viewQueue(&queues[i])
	}
	return cmd.print(a, views, func(o *output) {
		rows := make([][]string, len(queues))
		for i := range queues {
			rows[i] = queueRow(&queues[i])
		}
		columns(o, queueHeader, rows)
	})
}

var queueHeader = []string{"QUEUE", "KIND", "JOBS", "RUNNING", "WAITING", "ALLOCATED", "GUARANTEED", "MAX"}

func queueRow(q *plimsoll.QueueStatus) []string {
	kind := "parent"
	if q.Leaf {
		kind = "leaf"
	}
	if q.Draining {
		kind += ", draining"
	}
	return []string{
		q.Path, kind, count(q.Jobs), count(q.Running), count(q.Waiting), listed(q.Allocated),
		listed(q.Guaranteed), queueMax(q),
	}
}

// queueMax formats the bounds of a queue: the amounts, and the number of tasks if that is bounded.
func queueMax(q *plimsoll.QueueStatus) string {
	text := listed(q.Max)
	if q.MaxTasks == 0 {
		return text
	}
	if text != "" {
		text += ", "
	}
	return text + fmt.Sprintf("tasks %s (has %s)", count(q.MaxTasks), strconv.FormatInt(q.Tasks, 10))
}

// listed formats amounts for a table. No amounts are an empty cell.
func listed(r plimsoll.Resources) string {
	text := ""
	for _, name := range r.Names() {
		if text != "" {
			text += ", "
		}
		text += name + " " + humanAmount(name, r[name])
	}
	return text
}
