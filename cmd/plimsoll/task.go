package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type taskCmd struct {
	List     taskListCmd     `cmd:"" help:"List tasks, such as those that failed."`
	Attempts taskAttemptsCmd `cmd:"" help:"Show each attempt of a task and how it ended."`
}

// Help is the detail of the help text.
func (taskCmd) Help() string {
	return example("plimsoll task list --job wordcount", "plimsoll task attempts wordcount.map.3")
}

type taskListCmd struct {
	Job    string   `short:"j" help:"Only tasks of this job."                                                                       placeholder:"ID"`
	UID    string   `          help:"Only tasks of the job with this uid: an earlier one with the id, say."                         placeholder:"UID"          name:"uid"`
	Node   string   `short:"n" help:"Only tasks that are on this node now."                                                         placeholder:"ID"`
	Owner  string   `          help:"Only tasks of this owner's jobs."                                                              placeholder:"NAME"`
	Queue  string   `short:"q" help:"Only tasks of this queue's jobs."                                                              placeholder:"PATH"`
	Label  []string `short:"l" help:"Only tasks of jobs with this label; several must all be there."                                placeholder:"NAME[=VALUE]"`
	State  []string `          help:"Only tasks in these states, such as Pending."                                                  placeholder:"STATE"`
	Failed bool     `          help:"Only tasks whose last attempt ended with another result than succeeded, also killed. Some may be tried again."`
	Result []string `          help:"Only tasks whose last attempt ended so: succeeded, failed, out-of-memory …"                    placeholder:"RESULT"`

	ExitCode []int32 `help:"Only tasks whose last attempt ended with this exit code."                         placeholder:"CODE"`
	scopeFlags
	Limit *int32 `help:"Most tasks to print; 0 prints all. Default: 50 on a terminal, and otherwise all." placeholder:"N"`
	watchFlag
	listFormatFlag
}

// Help is the detail of the help text.
func (taskListCmd) Help() string {
	return example("plimsoll task list --job wordcount --failed", "plimsoll task list --node n1 -o json",
		"plimsoll task list --result out-of-memory --since 1d", "plimsoll task list --job wordcount --watch") +
		"\n\n" + scopeHelp + " --job finds the tasks of its job wherever it is.\n\n--since 1d lists the tasks whose last " +
		"attempt ended in the last day. It looks only at jobs that have ended; with --all, also at those that go on." +
		"\n\n--failed lists the tasks whose last attempt ended with any other result than succeeded: killed, evicted " +
		"and lost too.\n\nIn JSON and YAML, reason says why a Pending task waits, and is otherwise the same as result. message has " +
		"the details of how the last attempt ended, if there are any." + watchHelp
}

// failures are the results of attempts that did not succeed.
func failures() []plimsoll.TaskResult {
	return slices.DeleteFunc(taskResults(), func(r plimsoll.TaskResult) bool { return r == plimsoll.ResultSucceeded })
}

func (cmd *taskListCmd) filter(a *app) (filter client.TaskFilter, err error) {
	filter = client.TaskFilter{
		Job: cmd.Job, JobUID: cmd.UID, Node: cmd.Node, Owner: cmd.Owner, Queue: cmd.Queue, Labels: cmd.Label,
		ExitCodes: cmd.ExitCode,
	}
	if filter.States, err = parseStates[plimsoll.TaskState](cmd.State); err != nil {
		return filter, err
	}
	if filter.Results, err = parseResults(cmd.Result, taskResults(), "a task"); err != nil {
		return filter, err
	}
	if cmd.Failed {
		if len(cmd.Result) > 0 {
			return filter, plimsoll.Invalid("--failed", "cannot be used beside --result; leave one of them out")
		}
		filter.Results = failures()
		if len(filter.States) == 0 { // a task on a node may have the result that its stop is to have
			filter.States = []plimsoll.TaskState{plimsoll.TaskPending, plimsoll.TaskFinished}
		}
	}
	if filter.Scope, err = cmd.scope(); err != nil {
		return filter, err
	}
	since, err := cmd.since(a.now())
	if err == nil && !since.IsZero() {
		filter.Since = since.UnixNano()
		if !cmd.Ended {
			filter.Scope = client.ScopeAll // attempts have ended in jobs that go on, too
		}
	}
	return filter, err
}

// Run lists tasks.
func (cmd *taskListCmd) Run(ctx context.Context, a *app) error {
	filter, err := cmd.filter(a)
	if err != nil {
		return err
	}
	most, err := cmd.most(a, cmd.Limit)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var job plimsoll.JobStatus // without a job, the reasons of waiting tasks are left out
	if cmd.Job != "" || cmd.UID != "" {
		found, err := c.FindJob(ctx, client.JobName{ID: cmd.Job, UID: cmd.UID})
		if err != nil {
			return err
		}
		job = found.Status
		filter.JobUID = uidText(&job)
	}
	if cmd.Watch {
		return cmd.watch(ctx, a, c, filter)
	}
	if filter.Job == "" && filter.JobUID != "" {
		filter.Job = job.ID
	}
	tasks, more, err := readTasks(ctx, c, filter, most)
	if err != nil {
		return err
	}
	views := viewTasks(tasks, &job)
	header, row := taskHeader, taskRow
	if cmd.wide() {
		header, row = taskWideHeader, taskWideRow
	}
	if err := cmd.print(a, views, list{
		header: header, count: len(tasks),
		name: func(i int) string { return tasks[i].ID },
		row:  func(i int) []string { return row(&tasks[i], &views[i], a.now(), relative(a.now())) },
	}); err != nil {
		return err
	}
	if cmd.Failed && len(tasks) == 0 {
		a.notes.printf("%s\n", cmd.noneFailed(&filter))
	}
	return more.tell(a, len(tasks), "task", "--limit 0 lists all, and --failed, --state and --job choose")
}

// noneFailed is the note for an empty list of failed tasks.
func (cmd *taskListCmd) noneFailed(filter *client.TaskFilter) string {
	narrowed := cmd.Node+cmd.Owner+cmd.Queue+cmd.Since != "" || len(cmd.State)+len(cmd.Label)+len(cmd.ExitCode) > 0
	active := filter.Job == "" && filter.Scope <= client.ScopeActive
	switch {
	case narrowed && active:
		return "no task that the flags choose has failed in an active job; --all looks into the archive too"
	case narrowed:
		return "no task that the flags choose has failed"
	case active:
		return "no task of an active job has failed; --all looks into the archive too"
	case filter.Job == "":
		return "no task has failed"
	}
	return noneFailed(filter.Job)
}

// readTasks reads tasks up to a number; 0: all.
func readTasks(
	ctx context.Context, c *client.Client, filter client.TaskFilter, most int,
) ([]plimsoll.Task, remainder, error) {
	return limited(most, func(size int32, next string) ([]plimsoll.Task, listPage, error) {
		filter.PageSize, filter.Count = size, most > 0 && next == ""
		page, err := c.TaskPage(ctx, filter, next)
		return page.Tasks, listPage{page.Next, page.Total, page.TotalAtLeast, page.Damaged}, err
	})
}

// printTasks prints a table. Invariant: views[i] shows tasks[i].
func printTasks(a *app, o *output, tasks []plimsoll.Task, views []taskView) {
	rows := make([][]string, len(tasks))
	for i := range tasks {
		rows[i] = taskRow(&tasks[i], &views[i], a.now(), relative(a.now()))
	}
	columns(o, taskHeader, rows)
}

var taskHeader = []string{"ID", "STATE", "RESULT", "EXIT", "NODE", "ATTEMPT", "STARTED", "TOOK", "REASON"}

func taskRow(t *plimsoll.Task, v *taskView, now time.Time, when instants) []string {
	reason := t.Message
	if reason == v.Result {
		reason = ""
	}
	if t.State == plimsoll.TaskPending && v.Reason != v.Result { // it is the reason why it waits
		before := ""
		if reason != "" {
			before = fmt.Sprintf(" (attempt %d: %s)", t.Attempt, reason)
		}
		reason = v.Reason + before
	}
	return []string{
		v.ID, v.State, v.Result, exitText(v.ExitCode), v.Node, count(v.Attempt), when(t.Started), took(now, t), reason,
	}
}

func exitText(code *int32) string {
	if code == nil {
		return ""
	}
	return fmt.Sprint(*code)
}

var taskWideHeader = append(slices.Clip(taskHeader), "FAILURES", "CREATED", "FINISHED")

func taskWideRow(t *plimsoll.Task, v *taskView, now time.Time, when instants) []string {
	return append(taskRow(t, v, now, when), count(v.Failures), when(t.Created), when(t.Finished))
}

// watch lists tasks and prints each change. The reasons of waiting tasks are left out: they are not
// part of a task, and change without it.
func (cmd *taskListCmd) watch(ctx context.Context, a *app, c *client.Client, filter client.TaskFilter) error {
	if cmd.Ended || cmd.All || cmd.Since != "" || cmd.Limit != nil || cmd.Owner != "" || cmd.Queue != "" ||
		len(cmd.Label) > 0 {
		return plimsoll.Invalid("--watch", "shows active tasks by --job, --node, --state, --result and --exit-code; "+
			"leave the other criteria out")
	}
	format, err := cmd.watched()
	if err != nil {
		return err
	}
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
	return printChanges(ctx, a, format, c.WatchTasks(ctx, filter, client.WatchPoint{}),
		watchedView[plimsoll.Task]{
			header: taskHeader,
			usual: []string{
				"wordcount-4nioh4.map.10",
				"Starting",
				"succeeded",
				"0",
				"node-1",
				"",
				"15:04:05",
				"4m58s",
			},
			row:  func(t *plimsoll.Task) []string { return taskRow(t, view(t), a.now(), clock) },
			json: func(t *plimsoll.Task) any { return view(t) },
		})
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
