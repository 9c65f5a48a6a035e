package main

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// followedTasks is the most tasks that are followed at once.
const followedTasks = 100

type jobLogsCmd struct {
	ID      string `arg:"" help:"Id of a job or of a task."`
	Follow  bool   `short:"f" help:"Keep printing new output until the job has ended."`
	Stream  string `help:"Only stdout or stderr." enum:"stdout,stderr,both" default:"both"`
	Tail    int64  `help:"Print only this number of last lines of each stream of each task; 0: all." placeholder:"LINES"`
	Attempt int32  `help:"Attempt of a task to read; default: the last one." placeholder:"N"`
}

// Help is the detail of the help text.
func (jobLogsCmd) Help() string {
	return example("plimsoll job logs wordcount", "plimsoll job logs -f --tail 20 wordcount",
		"plimsoll job logs wordcount.map.3 --stream stderr")
}

// Run prints logs. A task's stdout goes to stdout and its stderr to stderr.
func (cmd *jobLogsCmd) Run(ctx context.Context, a *app) error {
	if cmd.Tail < 0 || cmd.Attempt < 0 {
		return plimsoll.Invalid("--tail and --attempt", "give zero or more")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	l := logs{a: a, c: c, options: client.LogOptions{Follow: cmd.Follow, TailLines: cmd.Tail, Attempt: cmd.Attempt}}
	if cmd.Stream != "both" {
		l.options.Stream = cmd.Stream
	}
	task, isTask, err := findTask(ctx, c, cmd.ID)
	switch {
	case err != nil:
		return err
	case isTask && task.Attempt == 0:
		a.notes.printf("%s has not started: plimsoll explain %s says why\n", task.ID, task.ID)
		return nil
	case isTask:
		return l.task(ctx, task.ID, cmd.Attempt, false)
	case cmd.Attempt > 0:
		return plimsoll.Invalid("--attempt", "needs the id of a task, and %s is a job", cmd.ID)
	case cmd.Follow:
		_, err := l.followJob(ctx, cmd.ID)
		return err
	}
	return l.job(ctx, cmd.ID)
}

// findTask reads a task. ok is false if no task has the id: an id of a job may look like that of a
// task.
func findTask(ctx context.Context, c *client.Client, id string) (task plimsoll.Task, ok bool, err error) {
	if !looksLikeTask(id) {
		return task, false, nil
	}
	task, err = c.Task(ctx, id)
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		return task, false, nil
	}
	return task, err == nil, err
}

// logs prints the output of tasks.
type logs struct {
	a       *app
	c       *client.Client
	options client.LogOptions
}

// job prints the logs of all tasks of a job that have started, one after the other.
func (l *logs) job(ctx context.Context, id string) error {
	tasks, err := allTasks(ctx, l.c, client.TaskFilter{Job: id})
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		_, err := l.c.Job(ctx, id) // a job that does not exist is an error
		return err
	}
	for i := range tasks {
		if t := &tasks[i]; t.Attempt > 0 {
			if err := l.task(ctx, t.ID, 0, len(tasks) > 1); err != nil {
				l.a.notes.printf("plimsoll: no more of %s: %s\n", t.ID, l.a.explainError(err))
			}
		}
	}
	return nil
}

// followJob follows every attempt of every task of a job until the job has ended, and returns the
// job's last status.
func (l *logs) followJob(ctx context.Context, id string) (plimsoll.JobStatus, error) {
	var last plimsoll.JobStatus
	followed := map[string]int32{} // task → last attempt that is followed
	within, stop := context.WithCancel(ctx)
	defer stop()
	readers, within := errgroup.WithContext(within)
	why := ""
	for status, err := range l.c.WatchJob(within, id) {
		if err != nil {
			stop()
			return last, errorOf(readers.Wait(), err)
		}
		last = status
		if reason := waitReason(&status); reason != why && reason != "" {
			l.a.notes.printf("waiting: %s\n", oneLine(reason))
			why = reason
		}
		if wanted(&status) > followedTasks {
			stop()
			if err := readers.Wait(); err != nil && plimsoll.CodeOf(err) != plimsoll.CodeCanceled {
				return last, err
			}
			return last, plimsoll.Invalid("id", "%s has %d tasks; at most %d are followed at once: give the id of a task",
				id, wanted(&status), followedTasks)
		}
		if err := l.followNew(within, readers, &status, followed); err != nil {
			stop()
			return last, errorOf(readers.Wait(), err)
		}
		l.options.TailLines = 0 // later attempts are printed from their beginning
	}
	return last, readers.Wait()
}

// errorOf prefers the error of a reader, which may have ended the watch. A reader that was only
// cancelled does not count.
func errorOf(reader, watch error) error {
	if reader != nil && plimsoll.CodeOf(reader) != plimsoll.CodeCanceled {
		return reader
	}
	return watch
}

// followNew starts a reader for every started attempt that has none yet.
func (l *logs) followNew(
	ctx context.Context, readers *errgroup.Group, job *plimsoll.JobStatus, followed map[string]int32,
) error {
	several, reader := wanted(job) > 1, *l
	tasks, err := allTasks(ctx, l.c, client.TaskFilter{Job: job.ID})
	if err != nil {
		return err
	}
	for i := range tasks {
		t := &tasks[i]
		begun := t.Attempt
		if t.State == plimsoll.TaskBound || t.State == plimsoll.TaskStarting {
			begun-- // this attempt has no log yet
		}
		for attempt := followed[t.ID] + 1; attempt <= begun; attempt++ {
			followed[t.ID] = attempt
			readers.Go(func() error {
				err := reader.task(ctx, t.ID, attempt, several)
				if plimsoll.CodeOf(err) == plimsoll.CodeCanceled {
					return err
				}
				// the attempt never started, or its node is gone
				if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
					l.a.notes.printf("plimsoll: no more of %s: %s\n", t.ID, l.a.explainError(err))
				}
				return nil
			})
		}
	}
	return nil
}

// task prints the log of one attempt; 0 is the last one that has started. With several tasks each
// line begins with the task.
func (l *logs) task(ctx context.Context, id string, attempt int32, several bool) error {
	options := l.options
	options.Attempt = attempt
	out, errOut := taskWriter{to: l.a.out}, taskWriter{to: l.a.notes}
	if several {
		out.prefix, errOut.prefix = id, id
	}
	defer out.flush()
	defer errOut.flush()
	for chunk, err := range l.c.Logs(ctx, id, options) {
		if err != nil {
			return err
		}
		w := &out
		if chunk.Stream == "stderr" {
			w = &errOut
		}
		w.write(chunk.Data)
	}
	return nil
}
