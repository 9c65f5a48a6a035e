package main

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type taskAttemptsCmd struct {
	ID  string `arg:"" optional:"" help:"Id of the task, or ID~UID with the uid of its job."`
	UID string `name:"uid" help:"Uid of the task's job: an earlier one with the id, say." placeholder:"UID"`
	formatFlag
}

// Help is the detail of the help text.
func (taskAttemptsCmd) Help() string {
	return example("plimsoll task attempts wordcount.map.3", "plimsoll task attempts wordcount.map.3 -o json") +
		"\n\nAll attempts of a task are kept if the coordinator has an archive. Without an archive, the last 17 are.\n" +
		"plimsoll job logs TASK --attempt N prints what an attempt wrote."
}

// Run prints the attempts of a task.
func (cmd *taskAttemptsCmd) Run(ctx context.Context, a *app) error {
	if cmd.ID == "" {
		return plimsoll.Invalid("id", "is missing; give the id of the task, also beside --uid, which is that of its job")
	}
	task, err := parseLifetime("id", cmd.ID, cmd.UID)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	attempts, err := allAttempts(ctx, c, task.id, task.uid.Text())
	if err != nil {
		return err
	}
	v := taskView{ID: task.id, Attempts: viewAttempts(attempts)}
	return cmd.print(a, v.Attempts, func(o *output) { printAttempts(a, o, []taskView{v}) })
}

func allAttempts(ctx context.Context, c *client.Client, task, uid string) (attempts []plimsoll.Attempt, err error) {
	for attempt, err := range c.Attempts(ctx, task, uid) {
		if err != nil {
			return nil, err
		}
		attempts = append(attempts, attempt)
	}
	return attempts, nil
}

// readAttempts adds the attempts of tasks to their views. Most stand in the records of the tasks;
// the server is asked for those of tasks with more.
func readAttempts(ctx context.Context, c *client.Client, tasks []plimsoll.Task, views []taskView, uid string) error {
	for i := range tasks {
		attempts := tasks[i].AllAttempts()
		if len(attempts) > 0 && attempts[0].Number > 1 {
			var err error
			if attempts, err = allAttempts(ctx, c, tasks[i].ID, uid); err != nil {
				return err
			}
		}
		views[i].Attempts = viewAttempts(attempts)
	}
	return nil
}

// printAttempts prints a table of the attempts of tasks.
func printAttempts(a *app, o *output, views []taskView) {
	var rows [][]string
	for i := range views {
		for _, v := range views[i].Attempts {
			ran := ""
			switch {
			case v.from.Started == 0:
			case v.from.Finished == 0:
				ran = span(a.now().Sub(time.Unix(0, v.from.Started)))
			default:
				ran = span(time.Duration(v.from.Finished - v.from.Started))
			}
			message := v.Message
			if message == v.Result {
				message = ""
			}
			rows = append(rows, []string{
				views[i].ID, count(v.Number), v.Result, exitText(v.ExitCode), v.Node, ago(a.now(), v.from.Bound),
				ago(a.now(), v.from.Started), ran, message,
			})
		}
	}
	columns(o, []string{"TASK", "ATTEMPT", "RESULT", "EXIT", "NODE", "BOUND", "STARTED", "TOOK", "REASON"}, rows)
	for i := range views {
		if gone := forgotten(views[i].Attempts); gone > 0 {
			o.printf("%s: %s not kept\n", views[i].ID, earlier(gone))
		}
	}
}

// forgotten returns the number of attempts that are missing before the last one. A cell without an
// archive keeps the last attempts of a task. One with an archive drops some while that takes none.
func forgotten(attempts []attemptView) int {
	if len(attempts) == 0 {
		return 0
	}
	return int(attempts[len(attempts)-1].Number) - len(attempts)
}

func earlier(gone int) string {
	if gone == 1 {
		return "1 earlier attempt is"
	}
	return plural(gone, "earlier attempt") + " are"
}
