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
	Failed bool   `help:"Only the tasks that did not succeed, also those that were killed."`
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
		"of PLIMSOLL_TASK_ID is another one: programs that divide work by it would do the wrong part. If no\n" +
		"task has failed, nothing is submitted, and the exit code is 1."
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
	if plimsoll.CodeOf(err) == plimsoll.CodeAlreadyExists {
		return cmd.taken(&before.Status)
	}
	if err != nil {
		return err
	}
	if cmd.Wait {
		return a.waitAndPrint(ctx, c, lifetime{job.Status.ID, job.Status.UID}, cmd.formatFlag)
	}
	return cmd.print(a, viewJob(&job.Status), func(o *output) { o.printf("%s\n", submitted(&job.Status)) })
}

// taken returns the error for an id that another job has, or had before it went to the archive.
func (cmd *jobRunAgainCmd) taken(before *plimsoll.JobStatus) error {
	var text string
	switch cmd.As {
	case "":
		text = fmt.Sprintf("the first %d ids that it tries are taken; name another one with it", maxAgain)
	case before.ID:
		source := before.ID
		if cmd.UID != "" {
			source = "--uid " + cmd.UID
		}
		text = fmt.Sprintf("%q is the id of the job that is run again; leave it out, and the new job is %s or the next "+
			"number that is free; plimsoll job get %s -o yaml | plimsoll submit --replace - runs all of the job "+
			"under its own id", before.ID, againID(before.ID, 1), source)
	default:
		text = fmt.Sprintf("a job with the id %q exists, perhaps in the archive; choose another id, or leave it out", cmd.As)
	}
	return &plimsoll.Error{Code: plimsoll.CodeAlreadyExists, Field: "--as", Msg: text}
}

// spec returns the specification of the new job, without an id.
func (cmd *jobRunAgainCmd) spec(
	ctx context.Context, c *client.Client, before *plimsoll.Job,
) (plimsoll.JobSpec, error) {
	spec := before.Spec
	spec.Token, spec.AgainOf = "", before.Status.UID.Text()
	spec.Groups = slices.DeleteFunc(slices.Clone(spec.Groups), func(g plimsoll.GroupSpec) bool { return g.Count == 0 })
	if !cmd.Failed {
		return spec, nil
	}
	filter := client.TaskFilter{
		Job: before.Status.ID, JobUID: before.Status.UID.Text(), Results: failures(),
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
		return spec, &plimsoll.Error{Code: plimsoll.CodeConflict, Field: "--failed", Msg: fmt.Sprintf(
			"no task of %s has failed, so nothing is run again; leave it out to run all of its tasks again", spec.ID)}
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

// againID returns the id of a job that is run again for the n-th time.
func againID(id string, n int) string {
	base, end := againSuffix.ReplaceAllString(id, ""), fmt.Sprintf("-again-%d", n)
	return strings.TrimRight(base[:min(len(base), plimsoll.MaxID-len(end))], "-_.") + end
}

// submitAgain submits a job as a given id. Without one it is the job's own with a number behind it.
func submitAgain(ctx context.Context, c *client.Client, spec plimsoll.JobSpec, id string) (plimsoll.Job, error) {
	if id != "" {
		spec.ID = id
		return c.SubmitJob(ctx, spec)
	}
	before := spec.ID
	for n := 1; ; n++ {
		spec.ID = againID(before, n)
		job, err := c.SubmitJob(ctx, spec)
		if plimsoll.CodeOf(err) != plimsoll.CodeAlreadyExists || n == maxAgain {
			return job, err
		}
	}
}
