package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type jobRunAgainCmd struct {
	jobArg
	Failed bool   `help:"Only the tasks that did not succeed."`
	As     string `help:"Id of the new job; default: ID-again-1, or the next number that is free." placeholder:"ID"`
	Wait   bool   `short:"w" help:"Show the progress until the job has ended. The exit code is 1 unless it completed."`
	formatFlag
}

// Help is the detail of the help text.
func (jobRunAgainCmd) Help() string {
	return example(
		"plimsoll job run-again wordcount --failed",
		"plimsoll job run-again wordcount --as second --wait",
	) +
		"\n\nA new job is made from the specification of one that has ended, also of one in the archive. With\n" +
		"--failed it has a task for each task that did not succeed, with the same PLIMSOLL_TASK_INDEX. The end\n" +
		"of PLIMSOLL_TASK_ID is another one: programs that divide work by it would do the wrong part."
}

// Run submits the new job.
func (cmd *jobRunAgainCmd) Run(ctx context.Context, a *app) error {
	wanted, err := cmd.lifetime()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	before, err := c.FindJob(ctx, wanted.job())
	if err != nil {
		return err
	}
	if s := &before.Status; !s.State.Ended() {
		return plimsoll.Errorf(plimsoll.CodeConflict,
			"job %q has not ended (%s); plimsoll job wait %s waits for its end", s.ID, s.State, s.ID)
	}
	spec, err := cmd.spec(ctx, c, &before.Job)
	if err != nil {
		return err
	}
	if cmd.Failed {
		noteTaskIDs(a, &spec)
	}
	job, err := submitAgain(ctx, c, spec, cmd.As)
	if err != nil {
		return err
	}
	if cmd.Wait {
		return a.waitAndPrint(ctx, c, lifetime{job.Status.ID, job.Status.UID}, cmd.formatFlag)
	}
	return cmd.print(a, viewJob(&job.Status), func(o *output) { o.printf("%s\n", submitted(&job.Status)) })
}

// spec returns the specification of the new job, without an id.
func (cmd *jobRunAgainCmd) spec(
	ctx context.Context, c *client.Client, before *plimsoll.Job,
) (plimsoll.JobSpec, error) {
	spec := before.Spec
	spec.Token, spec.AgainOf = "", uidText(&before.Status)
	spec.Groups = slices.DeleteFunc(slices.Clone(spec.Groups), func(g plimsoll.GroupSpec) bool { return g.Count == 0 })
	if !cmd.Failed {
		return spec, nil
	}
	filter := client.TaskFilter{
		Job: before.Status.ID, JobUID: uidText(&before.Status), Results: failures(),
		States: []plimsoll.TaskState{plimsoll.TaskFinished},
	}
	failed := map[string][]int32{} // indexes of tasks by their group
	for task, err := range c.Tasks(ctx, filter) {
		if err != nil {
			return spec, err
		}
		failed[task.Group] = append(failed[task.Group], task.Index)
	}
	return onlyTasks(spec, failed)
}

// onlyTasks returns a specification with some tasks of each group, which do the same pieces of work
// as before.
func onlyTasks(spec plimsoll.JobSpec, tasks map[string][]int32) (plimsoll.JobSpec, error) {
	var groups []plimsoll.GroupSpec
	for _, g := range spec.Groups {
		if len(tasks[g.Name]) == 0 {
			continue
		}
		if n := len(tasks[g.Name]); n > plimsoll.MaxIndexes {
			return spec, plimsoll.Invalid(
				"--failed",
				"%d tasks of group %s failed, and at most %d can be run again by themselves; leave it out to run all again",
				n,
				g.Name,
				plimsoll.MaxIndexes,
			)
		}
		pieces := make([]int32, len(tasks[g.Name]))
		for i, index := range tasks[g.Name] {
			pieces[i] = g.Piece(index)
		}
		slices.Sort(pieces)
		g.Indexes, g.Count = pieces, int32(len(pieces))
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		return spec, plimsoll.Invalid(
			"--failed",
			"all tasks of %s have succeeded; leave it out to run them again",
			spec.ID,
		)
	}
	spec.Groups = groups
	return spec, nil
}

// noteTaskIDs warns of programs that seem to divide work by the ids of their tasks.
func noteTaskIDs(a *app, spec *plimsoll.JobSpec) {
	for i := range spec.Groups {
		g := &spec.Groups[i]
		said := strings.Join(g.Command, " ")
		if strings.Contains(said, "PLIMSOLL_TASK_ID") && !strings.Contains(said, "PLIMSOLL_TASK_INDEX") {
			a.notes.printf("the command of group %s reads PLIMSOLL_TASK_ID, whose end is another one in the new job; "+
				"the number of its piece of work is in PLIMSOLL_TASK_INDEX\n", g.Name)
		}
	}
}

// maxAgain bounds the numbers that are tried for the id of a job that is run again.
const maxAgain = 1000

var againSuffix = regexp.MustCompile(`-again-[0-9]+$`)

// submitAgain submits a job as a given id. Without one it is the job's own with a number behind it.
func submitAgain(ctx context.Context, c *client.Client, spec plimsoll.JobSpec, id string) (plimsoll.Job, error) {
	if id != "" {
		spec.ID = id
		job, err := c.SubmitJob(ctx, spec)
		return job, withFlagHint(err, "--as names one")
	}
	base := againSuffix.ReplaceAllString(spec.ID, "")
	for n := 1; ; n++ {
		end := fmt.Sprintf("-again-%d", n)
		spec.ID = strings.TrimRight(base[:min(len(base), plimsoll.MaxID-len(end))], "-_.") + end
		job, err := c.SubmitJob(ctx, spec)
		if plimsoll.CodeOf(err) != plimsoll.CodeAlreadyExists || n == maxAgain {
			return job, withFlagHint(err, "--as names one")
		}
	}
}
