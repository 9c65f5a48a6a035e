package main

import (
	"context"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

type jobGetCmd struct {
	ID   string `arg:"" help:"Id of the job."`
	View bool   `help:"With -o yaml: print the job and its tasks, as -o json does, and not the job file."`
	formatFlag
}

// Help is the detail of the help text.
func (jobGetCmd) Help() string {
	return example(
		"plimsoll job get wordcount", "plimsoll job get wordcount -o yaml > wordcount.yaml",
		"plimsoll job get wordcount -o json | jq '.tasks[] | select(.exitCode != 0)'",
	) +
		"\n\n-o yaml prints the job file, with the defaults that the server has filled in. plimsoll submit takes it again."
}

// Run prints one job.
func (cmd *jobGetCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	job, err := c.Job(ctx, cmd.ID)
	if err != nil {
		return err
	}
	if cmd.Output == "yaml" && !cmd.View {
		return printJobFile(a, &job)
	}
	tasks, err := allTasks(ctx, c, client.TaskFilter{Job: cmd.ID})
	if err != nil {
		return err
	}
	v := viewJob(&job.Status)
	v.Labels = job.Spec.Labels
	for i := range v.Groups {
		v.Groups[i].Resources = groupResources(&job.Spec, v.Groups[i].Name)
	}
	views := viewTasks(tasks, &job.Status)
	v.Tasks = views
	return cmd.print(a, v, func(o *output) { printJob(a, o, &job, tasks, views) })
}

// printJobFile prints the job file of a job. Comments before it say what became of the job.
func printJobFile(a *app, job *plimsoll.Job) error {
	data, err := config.FormatJob(&job.Spec)
	if err != nil {
		return err
	}
	s := &job.Status
	a.out.printf("# %s: %s", s.ID, s.State)
	if at := stamp(s.Submitted); at != nil {
		a.out.printf(", submitted %s", *at)
	}
	if !s.UID.IsZero() {
		a.out.printf(", uid %s", s.UID)
	}
	a.out.printf("\n")
	a.out.records(data)
	return nil
}

func allTasks(ctx context.Context, c *client.Client, filter client.TaskFilter) ([]plimsoll.Task, error) {
	var tasks []plimsoll.Task
	for t, err := range c.Tasks(ctx, filter) {
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// shownTasks is the most tasks of one job that are printed for people.
const shownTasks = 50

func printJob(a *app, o *output, job *plimsoll.Job, tasks []plimsoll.Task, views []taskView) {
	s := &job.Status
	fields(o, [2]string{"id", s.ID}, [2]string{"state", s.State.String()}, [2]string{"result", s.Result().String()},
		[2]string{"reason", jobReason(s)}, [2]string{"queue", s.Queue},
		[2]string{"owner", s.Owner}, [2]string{"submitted", ago(a.now(), s.Submitted)},
		[2]string{"started", ago(a.now(), s.Started)},
		[2]string{"finished", ago(a.now(), s.Finished)})
	o.printf("\n")
	rows := make([][]string, len(s.Groups))
	for i := range s.Groups {
		g := &s.Groups[i]
		resources := groupResources(&job.Spec, g.Name).String()
		rows[i] = []string{
			g.Name, count(g.Count), count(g.Counts.Succeeded), count(g.Counts.Failed), count(g.Counts.Running),
			count(g.Counts.Pending), resources, g.Wait.String(),
		}
	}
	columns(o, []string{"GROUP", "TASKS", "SUCCEEDED", "FAILED", "RUNNING", "WAITING", "EACH", "WHY"}, rows)
	if waitReason(s) != "" {
		o.printf("\nplimsoll explain %s says more\n", s.ID)
	}
	if len(tasks) == 0 {
		return
	}
	o.printf("\n")
	printTasks(a, o, tasks[:min(len(tasks), shownTasks)], views)
	if rest := len(tasks) - shownTasks; rest > 0 {
		o.printf("and %s; see plimsoll task list --job %s\n", plural(rest, "more task"), s.ID)
	}
}

// groupResources returns the resources that each task of a group asks for.
func groupResources(spec *plimsoll.JobSpec, name string) plimsoll.Resources {
	if i := slices.IndexFunc(spec.Groups, func(g plimsoll.GroupSpec) bool { return g.Name == name }); i >= 0 {
		return spec.Groups[i].Resources
	}
	return nil
}
