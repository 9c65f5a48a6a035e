package main

import (
	"context"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// explainWaiting explains what the tasks of a queue or of a job wait for. It reports false for a
// task, and for a job of which nothing waits. A job can have an id like the path of a queue that is
// not there.
func (cmd *explainCmd) explainWaiting(
	ctx context.Context, a *app, c *client.Client, wanted lifetime,
) (done bool, err error) {
	var noQueue error
	if isQueuePath(wanted.id) && wanted.uid.IsZero() {
		w, err := c.ExplainQueue(ctx, wanted.id)
		if err == nil {
			return true, cmd.printWaiting(a, &w, wanted.id, " of "+plural(int(w.Jobs), "job"))
		}
		if noQueue = err; plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			return true, err
		}
	}
	if err := inStore(ctx, c, wanted); err != nil {
		return true, err
	}
	if _, isTask, err := findTask(ctx, c, wanted); err != nil || isTask {
		return false, err
	}
	w, err := c.ExplainJob(ctx, wanted.id)
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeNotFound, plimsoll.CodeUnimplemented: // it has ended, or the leader is older
		if noQueue == nil {
			return false, nil
		}
		_, err := c.FindJob(ctx, client.JobName{ID: wanted.id, Fields: []string{"status.uid"}})
		if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
			err = noQueue
		}
		return err != nil, err
	}
	if err != nil || w.Tasks == 0 {
		return false, err
	}
	return true, cmd.printWaiting(a, &w, wanted.id, "")
}

func isQueuePath(id string) bool {
	return id == plimsoll.RootQueue || strings.HasPrefix(id, plimsoll.RootQueue+".")
}

// printWaiting prints what the tasks of a queue or a job wait for. Of a queue, jobs says how many
// jobs they are of.
func (cmd *explainCmd) printWaiting(a *app, w *client.Waiting, what, jobs string) error {
	return cmd.print(a, viewWaiting(w), func(o *output) {
		if w.Tasks == 0 {
			o.printf("nothing waits in %s\n", what)
			return
		}
		verb := "wait"
		if w.Tasks == 1 {
			verb = "waits"
		}
		o.printf("%s: %s%s %s\n", what, plural(int(w.Tasks), "task"), jobs, verb)
		for i := range w.Causes {
			printWaitingCause(o, &w.Causes[i], a.now())
		}
		if w.More > 0 {
			o.printf("\nand %s\n", plural(int(w.More), "more cause"))
		}
	})
}

func printWaitingCause(o *output, c *client.WaitingCause, now time.Time) {
	each := ""
	if len(c.Each) > 0 {
		each = " of " + c.Each.String() + " each"
		if c.Tasks == 1 {
			each = " of " + c.Each.String()
		}
	}
	o.printf("\n%s%s, the first since %s: %s\n", plural(int(c.Tasks), "task"), each,
		strings.TrimSuffix(ago(now, c.Since), " ago"), c.Code)
	o.printf("  why: %s\n", oneLine(c.Summary))
	for i, way := range c.Unblock {
		word := "needs: "
		if i > 0 {
			word = "or:    "
		}
		o.printf("  %s%s\n", word, oneLine(way))
	}
	groups := strings.Join(c.Groups[:min(3, len(c.Groups))], ", ")
	if len(c.Groups) > 3 {
		groups += ", …"
	}
	o.printf("  of:    %s\n", oneLine(groups))
}

type waitingView struct {
	Queue    string             `json:"queue"`
	Tasks    int64              `json:"tasks"`
	Jobs     int64              `json:"jobs"`
	Causes   []waitingCauseView `json:"causes"`
	More     int32              `json:"more,omitempty"`
	Queues   []queueTurnView    `json:"queues,omitempty"`
	Revision uint64             `json:"revision"`
}

type waitingCauseView struct {
	Code     string             `json:"waitCode"`
	Queue    string             `json:"waitQueue,omitempty"`
	Resource string             `json:"waitResource,omitempty"`
	Each     plimsoll.Resources `json:"each,omitempty"`
	Tasks    int64              `json:"tasks"`
	Jobs     int64              `json:"jobs"`
	Groups   []string           `json:"groups"`
	Since    *string            `json:"since"`
	Summary  string             `json:"summary"`
	Unblock  []string           `json:"unblock"`
}

type queueTurnView struct {
	Queue  string  `json:"queue"`
	Share  float64 `json:"share"`
	Next   int32   `json:"next"`
	Reason string  `json:"reason,omitempty"`
}

func viewWaiting(w *client.Waiting) waitingView {
	v := waitingView{
		Queue: w.Queue, Tasks: w.Tasks, Jobs: w.Jobs, Causes: make([]waitingCauseView, len(w.Causes)), More: w.More,
		Revision: w.Revision,
	}
	for i := range w.Causes {
		c := &w.Causes[i]
		v.Causes[i] = waitingCauseView{
			Code: c.Code.String(), Queue: c.Queue, Resource: c.Resource, Each: c.Each, Tasks: c.Tasks, Jobs: c.Jobs,
			Groups: c.Groups, Since: stamp(c.Since), Summary: c.Summary, Unblock: c.Unblock,
		}
	}
	for _, q := range w.Queues {
		v.Queues = append(v.Queues, queueTurnView(q))
	}
	return v
}
