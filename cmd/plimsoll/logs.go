package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// followedTasks is the most tasks that are followed at once.
const followedTasks = 100

type jobLogsCmd struct {
	jobOrTaskArg
	Follow bool   `short:"f" help:"Keep printing new output until the job has ended."`
	Stream string `help:"Only stdout or stderr." enum:"stdout,stderr,both" default:"both"`
	Tail   int64  `help:"Print only this number of last lines of each stream of each task; 0: all." placeholder:"LINES"`
	sinceFlag
	Timestamps  bool  `help:"Begin each line with its time. Nodes note times once a second, and more coarsely for the older part of a long log."`
	Failed      bool  `help:"Only tasks whose last attempt has ended and did not succeed."`
	Attempt     int32 `help:"Attempt of a task to read; default: the last one." placeholder:"N"`
	AllAttempts bool  `help:"All attempts, and not the last ones alone."`
}

// Help is the detail of the help text.
func (jobLogsCmd) Help() string {
	return example("plimsoll job logs wordcount", "plimsoll job logs -f --tail 20 wordcount",
		"plimsoll job logs wordcount --failed --since 10m --timestamps",
		"plimsoll job logs wordcount.map.3 --stream stderr") + `

A task's stdout goes to stdout, and its stderr to stderr. The output of one task is printed as it is.
If several are read, each line begins with its task, as in "wordcount.map.3 | ". With several attempts
of a task it also has the attempt, as in "wordcount.map.3/2 | ".`
}

func (cmd *jobLogsCmd) validate() error {
	switch {
	case cmd.Tail < 0 || cmd.Attempt < 0:
		return plimsoll.Invalid("--tail and --attempt", "give zero or more")
	case cmd.AllAttempts && cmd.Attempt > 0:
		return plimsoll.Invalid("--all-attempts", "cannot be used beside --attempt; leave one of them out")
	case cmd.Follow && (cmd.Failed || cmd.AllAttempts):
		return plimsoll.Invalid(
			"--follow", "cannot be used beside --failed and --all-attempts, which read what has been written; leave it out",
		)
	}
	return nil
}

// Run prints logs. A task's stdout goes to stdout and its stderr to stderr.
func (cmd *jobLogsCmd) Run(ctx context.Context, a *app) error {
	if err := cmd.validate(); err != nil {
		return err
	}
	since, err := cmd.age(a.now())
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	wanted, err := cmd.lifetime(ctx, c)
	if err != nil {
		return err
	}
	l := logs{a: a, c: c, failed: cmd.Failed, allAttempts: cmd.AllAttempts, options: client.LogOptions{
		JobUID: wanted.uid.Text(),
		Follow: cmd.Follow, TailLines: cmd.Tail, Attempt: cmd.Attempt, Since: since, Timestamps: cmd.Timestamps,
	}}
	if cmd.Stream != "both" {
		l.options.Stream = cmd.Stream
	}
	defer l.times.tell(a.notes)
	task, isTask, err := findTask(ctx, c, wanted)
	switch {
	case err != nil:
		return err
	case isTask && cmd.Follow:
		if task, err = l.awaitStart(ctx, task); err != nil {
			return err
		}
		tellUnstarted(a, []plimsoll.Task{task})
		if neverStarted(&task) {
			return nil
		}
		return l.task(ctx, task.ID, cmd.Attempt, "")
	case isTask && task.Attempt == 0 && task.State != plimsoll.TaskFinished:
		a.notes.printf("%s has not started: plimsoll explain %s says why\n", task.ID, task.ID)
		return nil
	case isTask && cmd.Failed && !unsuccessful(&task):
		a.notes.printf("%s\n", notFailed(task.ID))
		return nil
	case isTask && neverStarted(&task) && task.Attempt == 0:
		tellUnstarted(a, []plimsoll.Task{task})
		return nil
	case isTask && cmd.AllAttempts:
		return l.attempts(ctx, []plimsoll.Task{task})
	case isTask:
		tellUnstarted(a, []plimsoll.Task{task})
		return l.task(ctx, task.ID, cmd.Attempt, "")
	case cmd.Attempt > 0:
		return plimsoll.Invalid("--attempt", "needs the id of a task, and %s is a job", wanted)
	case cmd.Follow:
		return withoutTask(ctx, c, wanted, l.followToTheEnd(ctx, wanted))
	}
	return withoutTask(ctx, c, wanted, l.job(ctx, wanted))
}

// startPause is the time between two looks at a task that has not started.
const startPause = time.Second

// awaitStart waits until a task has started, or has ended without. It says what the task waits for.
func (l *logs) awaitStart(ctx context.Context, task plimsoll.Task) (plimsoll.Task, error) {
	waits := func() bool {
		onItsWay := task.State == plimsoll.TaskBound || task.State == plimsoll.TaskStarting
		return task.State != plimsoll.TaskFinished && (task.Attempt == 0 || task.Attempt == 1 && onItsWay)
	}
	if waits() {
		l.a.notes.printf("waiting: %s has not started; plimsoll explain %s says why\n", task.ID, task.ID)
	}
	for waits() {
		timer := time.NewTimer(startPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return task, plimsoll.Errorf(plimsoll.CodeCanceled, "%s had not started", task.ID)
		case <-timer.C:
		}
		found, err := l.c.FindTask(ctx, client.TaskName{ID: task.ID, JobUID: l.options.JobUID})
		if err != nil {
			return task, err
		}
		task = found.Task
	}
	return task, nil
}

// withoutTask returns the error about an id that is of no job: one that looks like the id of a task
// may be of a task that its job does not have.
func withoutTask(ctx context.Context, c *client.Client, l lifetime, err error) error {
	id, group, index, isTask := wire.SplitTaskID(l.id)
	if plimsoll.CodeOf(err) != plimsoll.CodeNotFound || !isTask {
		return err
	}
	job, failed := c.FindJob(ctx, client.JobName{ID: id, UID: l.uid.Text()})
	if failed != nil {
		return err // there is no such job either, or it cannot be asked for
	}
	var groups []string
	for i := range job.Status.Groups {
		g := &job.Status.Groups[i]
		if g.Name == group {
			return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task %d in group %s of job %s, which has %s",
				index, group, id, plural(int(g.Count), "task"))
		}
		groups = append(groups, g.Name)
	}
	return plimsoll.Errorf(plimsoll.CodeNotFound, "there is no group %q in job %s; it has %s", group, id,
		strings.Join(groups[:min(len(groups), maxNamedTasks)], ", "))
}

// followToTheEnd follows a job, and then says which of its tasks never started.
func (l *logs) followToTheEnd(ctx context.Context, job lifetime) error {
	status, err := l.followJob(ctx, job)
	if err != nil {
		return err
	}
	tasks, err := allTasks(ctx, l.c, client.TaskFilter{Job: status.ID, JobUID: status.UID.Text()})
	if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeNotFound { // the job may have been deleted
		return err
	}
	tellUnstarted(l.a, tasks)
	return nil
}

// tellUnstarted says which tasks have ended without being started, so that they wrote nothing.
func tellUnstarted(a *app, tasks []plimsoll.Task) {
	var unstarted namedTasks
	for i := range tasks {
		if neverStarted(&tasks[i]) {
			unstarted.addUnstarted(&tasks[i])
		}
	}
	unstarted.tell(a, "never started")
}

// noneFailed is the note of --failed for a job of which it chooses no task. That is no error.
func noneFailed(job string) string { return "no task of " + job + " has failed" }

// notFailed is noneFailed for a task.
func notFailed(task string) string { return task + " has not failed" }

// unsuccessful reports whether the last attempt of a task has ended and did not succeed.
func unsuccessful(t *plimsoll.Task) bool {
	over := t.State == plimsoll.TaskFinished || t.State == plimsoll.TaskPending
	return over && t.Attempt > 0 && t.Result != plimsoll.ResultNone && t.Result != plimsoll.ResultSucceeded
}

// findTask reads a task. ok is false if no task has the id: an id of a job may look like that of a
// task.
func findTask(ctx context.Context, c *client.Client, l lifetime) (task plimsoll.Task, ok bool, err error) {
	if !looksLikeTask(l.id) {
		return task, false, nil
	}
	found, err := c.FindTask(ctx, client.TaskName{ID: l.id, JobUID: l.uid.Text()})
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		return task, false, nil
	}
	return found.Task, err == nil, err
}

// logs prints the output of tasks.
type logs struct {
	a           *app
	c           *client.Client
	options     client.LogOptions
	failed      bool // only tasks whose last attempt did not succeed
	allAttempts bool
	times       logTimes
}

// job prints the logs of the chosen tasks of a job, one after the other.
func (l *logs) job(ctx context.Context, job lifetime) error {
	tasks, err := allTasks(ctx, l.c, client.TaskFilter{Job: job.id, JobUID: job.uid.Text()})
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		// a job that does not exist is an error
		_, err := l.c.FindJob(ctx, job.job())
		return err
	}
	if l.failed {
		tasks = slices.DeleteFunc(tasks, func(t plimsoll.Task) bool { return !unsuccessful(&t) })
		if len(tasks) == 0 {
			l.a.notes.printf("%s\n", noneFailed(job.id))
		}
	}
	tellUnstarted(l.a, tasks)
	return l.attempts(ctx, tasks)
}

// attempts prints the logs of the last attempts of tasks, or of all their attempts.
func (l *logs) attempts(ctx context.Context, tasks []plimsoll.Task) error {
	lost, owners := unread{what: "logs"}, "tasks"
	if l.allAttempts {
		owners = "attempts"
	}
	if err := l.inTurn(ctx, l.chosen(tasks), &lost); err != nil {
		return err
	}
	lost.tell(l.a, owners)
	return nil
}

// chosen returns the logs of the last attempts of tasks, or of all their attempts.
func (l *logs) chosen(tasks []plimsoll.Task) (list []taskLog) {
	several := len(tasks) > 1
	for i := range tasks {
		t := &tasks[i]
		first := t.Attempt
		if l.allAttempts {
			first = 1
		}
		for attempt := max(first, 1); attempt <= t.Attempt; attempt++ {
			read, prefix := attempt, ""
			if attempt == t.Attempt {
				read = 0 // the last one that has begun
			}
			switch {
			case l.allAttempts && (several || t.Attempt > 1):
				prefix = fmt.Sprintf("%s/%d", t.ID, attempt)
			case several:
				prefix = t.ID
			}
			list = append(list, taskLog{t.ID, read, prefix})
		}
	}
	return list
}

// followJob follows every attempt of every task of a job until the job has ended, and returns the
// job's last status.
func (l *logs) followJob(ctx context.Context, job lifetime) (plimsoll.JobStatus, error) {
	var last plimsoll.JobStatus
	followed := map[string]int32{} // task → last attempt that is followed
	within, stop := context.WithCancel(ctx)
	defer stop()
	readers, within := errgroup.WithContext(within)
	why := ""
	for status, err := range l.c.WatchLifetime(within, job.id, job.uid) {
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
				job.id, wanted(&status), followedTasks)
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
	several := wanted(job) > 1
	tasks, err := allTasks(ctx, l.c, client.TaskFilter{Job: job.ID, JobUID: l.options.JobUID})
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
			prefix := ""
			if several {
				prefix = t.ID
			}
			options := l.options
			readers.Go(func() error {
				err := l.read(ctx, t.ID, attempt, prefix, options)
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

// task prints the log of one attempt; 0 is the last one that has started.
func (l *logs) task(ctx context.Context, id string, attempt int32, prefix string) error {
	return l.read(ctx, id, attempt, prefix, l.options)
}

// read is task with options of its own.
func (l *logs) read(ctx context.Context, id string, attempt int32, prefix string, options client.LogOptions) error {
	options.Attempt = attempt
	p := l.printer(prefix)
	defer p.flush()
	begun := false
	for chunk, err := range l.c.Logs(ctx, id, options) {
		if err != nil && begun {
			return &brokenLog{err}
		}
		if err != nil {
			return err
		}
		begun = true
		p.print(&chunk)
	}
	return nil
}

// logPrinter prints the log of one attempt.
type logPrinter struct {
	out, err taskWriter
	times    *logTimes
}

func (l *logs) printer(prefix string) *logPrinter {
	timed := l.options.Timestamps
	return &logPrinter{
		out:   taskWriter{prefix: prefix, to: l.a.out, timed: timed},
		err:   taskWriter{prefix: prefix, to: l.a.notes, timed: timed},
		times: &l.times,
	}
}

func (p *logPrinter) print(chunk *client.LogChunk) {
	p.times.note(chunk)
	w := &p.out
	if chunk.Stream == "stderr" {
		w = &p.err
	}
	w.at = chunk.Time
	w.write(chunk.Data)
}

func (p *logPrinter) flush() {
	p.out.flush()
	p.err.flush()
}
