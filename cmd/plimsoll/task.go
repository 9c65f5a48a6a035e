package main

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type taskCmd struct {
	List taskListCmd `cmd:"" help:"List tasks."`
}

// Help is the detail of the help text.
func (taskCmd) Help() string { return example("plimsoll task list --job wordcount") }

type taskListCmd struct {
	Job   string   `short:"j" help:"Only tasks of this job." placeholder:"ID"`
	Node  string   `short:"n" help:"Only tasks that are on this node now." placeholder:"ID"`
	State []string `help:"Only tasks in these states, such as Pending." placeholder:"STATE"`
	watchFlag
	formatFlag
}

// Help is the detail of the help text.
func (taskListCmd) Help() string {
	return example("plimsoll task list --job wordcount --state Running", "plimsoll task list --node n1 -o json",
		"plimsoll task list --job wordcount --watch") + watchHelp
}

// Run lists tasks.
func (cmd *taskListCmd) Run(ctx context.Context, a *app) error {
	states, err := parseStates[plimsoll.TaskState](cmd.State)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var job plimsoll.JobStatus // without a job, the reasons of waiting tasks are left out
	if cmd.Job != "" {
		j, err := c.Job(ctx, cmd.Job)
		if err != nil {
			return err
		}
		job = j.Status
	}
	filter := client.TaskFilter{Job: cmd.Job, Node: cmd.Node, States: states}
	if cmd.Watch {
		return cmd.watch(ctx, a, c, filter)
	}
	tasks, err := allTasks(ctx, c, filter)
	if err != nil {
		return err
	}
	views := viewTasks(tasks, &job)
	return cmd.print(a, views, func(o *output) { printTasks(a, o, tasks, views) })
}

// printTasks prints a table. Invariant: views[i] shows tasks[i].
func printTasks(a *app, o *output, tasks []plimsoll.Task, views []taskView) {
	rows := make([][]string, len(tasks))
	for i := range tasks {
		rows[i] = taskRow(&tasks[i], &views[i], a.now(), relative(a.now()))
	}
	columns(o, taskHeader, rows)
}

var taskHeader = []string{"ID", "STATE", "NODE", "EXIT", "ATTEMPT", "STARTED", "TOOK", "REASON"}

func taskRow(t *plimsoll.Task, v *taskView, now time.Time, when instants) []string {
	exit, reason := "", v.Reason
	if v.ExitCode != nil {
		exit = fmt.Sprint(*v.ExitCode)
	}
	switch ended := howItEnded(t); {
	// the reason why it waits, and the result of the attempt before
	case t.State == plimsoll.TaskPending && ended != "" && reason != t.Result.String():
		reason += fmt.Sprintf(" (attempt %d %s)", t.Attempt, ended)
	case ended != "":
		reason = ended
	}
	return []string{
		v.ID, v.State, v.Node, exit, count(v.Attempt), when(t.Started), took(now, t), reason,
	}
}

// watch lists tasks and prints each change. The reasons of waiting tasks are left out: they are not
// part of a task, and change without it.
func (cmd *taskListCmd) watch(ctx context.Context, a *app, c *client.Client, filter client.TaskFilter) error {
	one := filter
	one.PageSize = 1
	for _, err := range c.Tasks(ctx, one) { // fails for a node that there is not
		if err != nil {
			return err
		}
		break
	}
	view := func(t *plimsoll.Task) *taskView {
		return &viewTasks([]plimsoll.Task{*t}, &plimsoll.JobStatus{})[0]
	}
	return printChanges(ctx, a, cmd.formatFlag, c.WatchTasks(ctx, filter, client.WatchPoint{}),
		watchedView[plimsoll.Task]{
			header: taskHeader,
			usual:  []string{"wordcount-4nioh4.map.10", "Starting", "node-1", "", "", "15:04:05", "4m58s"},
			row:    func(t *plimsoll.Task) []string { return taskRow(t, view(t), a.now(), clock) },
			json:   func(t *plimsoll.Task) any { return view(t) },
		})
}

// howItEnded describes the end of the last attempt that has ended.
func howItEnded(t *plimsoll.Task) string {
	result := t.Result.String()
	if t.Message == "" || t.Message == result {
		return result
	}
	if result == "" {
		return t.Message
	}
	return result + ": " + t.Message
}

// took returns how long the current attempt has run.
func took(now time.Time, t *plimsoll.Task) string {
	switch {
	case t.Started == 0:
		return ""
	case t.Finished > 0:
		return span(time.Duration(t.Finished - t.Started))
	}
	return span(now.Sub(time.Unix(0, t.Started)))
}
