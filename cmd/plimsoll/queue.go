package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
	return example("plimsoll queue list", "plimsoll queue list -o json", "plimsoll queue list --watch") + `

SHARE is the largest part of what a queue has a claim to that it uses: of its guarantee, else of its
maximum, else of all nodes. With fairness.halflife it counts half of what the queue uses now and
half of PAST, what it used before on average. NEXT says which of the queues beside each other is next, or why a queue
with waiting tasks is not. The leader is asked for both.` + watchHelp
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
	turns := queueTurns(ctx, a, c)
	views := make([]queueView, len(queues))
	for i := range queues {
		views[i] = viewQueue(&queues[i])
		if t, ok := turns[queues[i].Path]; ok {
			views[i].Share, views[i].Next, views[i].Reason = &t.Share, &t.Next, nullIfEmpty(t.Reason)
		}
	}
	return cmd.print(a, views, func(o *output) {
		havePast := slices.ContainsFunc(queues, func(q plimsoll.QueueStatus) bool { return q.Past != nil })
		rows := make([][]string, len(queues))
		for i := range queues {
			share, next := "", ""
			if t, ok := turns[queues[i].Path]; ok {
				share, next = fmt.Sprintf("%.0f %%", 100*t.Share), oneLine(t.Reason)
			}
			rows[i] = append(queueRow(&queues[i]), listed(queues[i].Pending))
			if havePast {
				rows[i] = append(rows[i], listedPast(queues[i].Past))
			}
			rows[i] = append(rows[i], share, next)
		}
		header := append(queueHeader[:len(queueHeader):len(queueHeader)], "PENDING")
		if havePast {
			header = append(header, "PAST")
		}
		columns(o, append(header, "SHARE", "NEXT"), rows)
	})
}

// maxTurnsWait bounds the wait for the turns of queues, which only the leader knows. The list
// itself does not need the leader.
const maxTurnsWait = 5 * time.Second

// queueTurns returns the turns of all queues, by path. If the leader does not tell them, it says so
// on stderr and returns none.
func queueTurns(ctx context.Context, a *app, c *client.Client) map[string]client.QueueTurn {
	ctx, cancel := context.WithTimeout(ctx, maxTurnsWait)
	defer cancel()
	list, err := c.QueueTurns(ctx, plimsoll.RootQueue)
	if err != nil {
		a.notes.printf("the shares and the turns of the queues are not known: %s\n", oneLine(err.Error()))
		return nil
	}
	turns := make(map[string]client.QueueTurn, len(list))
	for _, t := range list {
		turns[t.Queue] = t
	}
	return turns
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

// listedPast formats the past use of a queue for a table. Less than the smallest amount is left
// out, but of a resource that is counted there may be a part of one.
func listedPast(past map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(past)) {
		switch amount := int64(past[name]); {
		case plimsoll.StandardResource(name) && amount > 0:
			parts = append(parts, name+" "+humanAmount(name, amount))
		case !plimsoll.StandardResource(name) && past[name] >= 0.05:
			parts = append(parts, fmt.Sprintf("%s %.1f", name, past[name]))
		}
	}
	return strings.Join(parts, ", ")
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
