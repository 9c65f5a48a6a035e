package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

type jobGetCmd struct {
	jobArg
	Attempts bool `help:"Print each attempt of the tasks too."`
	View     bool `help:"With -o yaml: print the job and its tasks, as -o json does, and not the job file."`
	nameFormatFlag
}

// Help is the detail of the help text.
func (jobGetCmd) Help() string {
	return example(
		"plimsoll job get wordcount", "plimsoll job get wordcount -o yaml > wordcount.yaml",
		"plimsoll job get wordcount --attempts",
		"plimsoll job get wordcount -o json | jq '.tasks[] | select(.exitCode != 0)'",
	) +
		"\n\n-o yaml prints the job file, with the defaults that the server has filled in. plimsoll submit takes it\n" +
		"again. The table has the tasks that failed first, and 50 tasks at most."
}

// Run prints one job.
func (cmd *jobGetCmd) Run(ctx context.Context, a *app) error {
	wanted, err := cmd.lifetime()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	job, err := c.FindJob(ctx, wanted.job())
	if err != nil {
		return err
	}
	if cmd.Output == "yaml" && !cmd.View {
		return printJobFile(a, &job.Job)
	}
	wanted.id = job.Status.ID
	if cmd.Output == "name" {
		a.out.printf("%s\n", wanted)
		return nil
	}
	filter, most := client.TaskFilter{Job: job.Status.ID, JobUID: job.Status.UID.Text()}, 0
	if cmd.Output == "table" {
		filter.Sort, most = client.TaskSortFailedFirst, shownTasks
	}
	listed, err := readTasks(ctx, c, filter, most)
	if err != nil {
		return err
	}
	tasks, more := listed.tasks, listed.more
	v := viewJob(&job.Status)
	v.Labels, v.AgainOf, v.Archived = job.Spec.Labels, job.Spec.AgainOf, job.Archived
	for i := range v.Groups {
		v.Groups[i].Resources = groupResources(&job.Spec, v.Groups[i].Name)
	}
	views := viewTasks(tasks, &job.Status)
	for i := range views {
		views[i].JobUID = job.Status.UID.Text()
	}
	if cmd.Attempts {
		if err := readAttempts(ctx, c, tasks, views, filter.JobUID); err != nil {
			return err
		}
	}
	v.Tasks = views
	return cmd.print(a, v, func(o *output) {
		printJob(a, o, &job)
		if len(tasks) == 0 {
			return
		}
		o.printf("\n")
		printTasks(a, o, tasks, views)
		if rest := max(more.total-int64(len(tasks)), 1); more.more {
			o.printf("and %s; see plimsoll task list --job %s\n", plural(int(rest), "more task"), wanted)
		}
		if cmd.Attempts {
			o.printf("\n")
			printAttempts(a, o, views)
		}
	})
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
	if uid := s.UID.Text(); uid != "" {
		a.out.printf(", uid %s", uid)
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

// printJob prints a job and its groups.
func printJob(a *app, o *output, job *client.FoundJob) {
	archived := ""
	if job.Archived {
		archived = "yes"
	}
	s := &job.Status
	fields(o, [2]string{"id", s.ID}, [2]string{"state", s.State.String()}, [2]string{"result", s.Result().String()},
		[2]string{"reason", jobReason(s)}, [2]string{"queue", s.Queue},
		[2]string{"owner", s.Owner}, [2]string{"submitted", ago(a.now(), s.Submitted)},
		[2]string{"started", ago(a.now(), s.Started)},
		[2]string{"finished", ago(a.now(), s.Finished)}, [2]string{"states", stateLog(s)},
		[2]string{"uid", s.UID.Text()},
		[2]string{"again of", job.Spec.AgainOf}, [2]string{"archived", archived})
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
}

// stateLog returns the states of a job in their order, each with the time that passed since the
// first one that is known: "New, Accepted +0s, Running +2s, Completed +1m3s".
func stateLog(s *plimsoll.JobStatus) string {
	var b strings.Builder
	for i, step := range s.History {
		if i > 0 {
			fmt.Fprintf(&b, ", %s +%s", step.State, span(time.Duration(step.At-s.History[0].At)))
		} else {
			b.WriteString(step.State.String())
		}
	}
	return b.String()
}

// groupResources returns the resources that each task of a group asks for.
func groupResources(spec *plimsoll.JobSpec, name string) plimsoll.Resources {
	if i := slices.IndexFunc(spec.Groups, func(g plimsoll.GroupSpec) bool { return g.Name == name }); i >= 0 {
		return spec.Groups[i].Resources
	}
	return nil
}
