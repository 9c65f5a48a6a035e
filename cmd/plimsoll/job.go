package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type jobCmd struct {
	List  jobListCmd  `cmd:"" help:"List jobs."`
	Get   jobGetCmd   `cmd:"" help:"Read one job with its tasks."`
	Kill  jobKillCmd  `cmd:"" help:"Stop all tasks of jobs."`
	Logs  jobLogsCmd  `cmd:"" help:"Print the output of a task, or of all tasks of a job."`
	Fetch jobFetchCmd `cmd:"" help:"Write the outputs of a task, or of all tasks of a job, to a directory."`
	Wait  jobWaitCmd  `cmd:"" help:"Show the progress of a job until it has ended. The exit code is 1 unless it completed."`
	Scale jobScaleCmd `cmd:"" help:"Change the number of tasks of a group."`
}

// Help is the detail of the help text.
func (jobCmd) Help() string {
	return example("plimsoll job list", "plimsoll job get wordcount", "plimsoll job logs -f wordcount")
}

type jobListCmd struct {
	Queue string   `short:"q" help:"Only jobs of this queue." placeholder:"PATH"`
	Owner string   `help:"Only jobs of this owner." placeholder:"NAME"`
	State []string `help:"Only jobs in these states, such as Running." placeholder:"STATE"`

	Result []string `help:"Only jobs with this result: succeeded, failed or killed." placeholder:"RESULT"`
	watchFlag
	formatFlag
}

// Help is the detail of the help text.
func (jobListCmd) Help() string {
	return example("plimsoll job list --queue root.batch --state Running", "plimsoll job list --result killed",
		"plimsoll job list --watch -o json") + watchHelp
}

// Run lists jobs.
func (cmd *jobListCmd) Run(ctx context.Context, a *app) error {
	states, err := parseStates[plimsoll.JobState](cmd.State)
	if err != nil {
		return err
	}
	if err := checkResults(cmd.Result); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	filter := client.JobFilter{Queue: cmd.Queue, Owner: cmd.Owner, States: states}
	if cmd.Watch {
		return cmd.watch(ctx, a, c, filter)
	}
	jobs := []plimsoll.JobStatus{}
	for s, err := range c.Jobs(ctx, filter) {
		if err != nil {
			return err
		}
		if len(cmd.Result) == 0 || slices.Contains(cmd.Result, s.Result().String()) {
			jobs = append(jobs, s)
		}
	}
	views := make([]jobView, len(jobs))
	for i := range jobs {
		views[i] = viewJob(&jobs[i])
	}
	return cmd.print(a, views, func(o *output) {
		rows := make([][]string, len(jobs))
		for i := range jobs {
			rows[i] = jobRow(&jobs[i], relative(a.now()))
		}
		columns(o, jobHeader, rows)
	})
}

var jobHeader = []string{
	"ID", "STATE", "RESULT", "QUEUE", "OWNER", "DONE", "RUNNING", "WAITING", "FAILED", "SUBMITTED",
}

func jobRow(s *plimsoll.JobStatus, when instants) []string {
	n := totals(s)
	return []string{
		s.ID, s.State.String(), s.Result().String(), s.Queue, s.Owner,
		fmt.Sprintf("%d/%d", n.Succeeded+n.Failed, wanted(s)),
		count(n.Running), count(n.Pending), count(n.Failed), when(s.Submitted),
	}
}

// watch lists jobs and prints each change.
func (cmd *jobListCmd) watch(ctx context.Context, a *app, c *client.Client, filter client.JobFilter) error {
	if len(cmd.Result) > 0 {
		return plimsoll.Invalid("--result", "does not go with --watch; give --state instead")
	}
	one := filter
	one.PageSize = 1
	for _, err := range c.Jobs(ctx, one) { // fails for a queue that there is not
		if err != nil {
			return err
		}
		break
	}
	return printChanges(ctx, a, cmd.formatFlag, c.WatchJobs(ctx, filter, client.WatchPoint{}),
		watchedView[plimsoll.JobStatus]{
			header: jobHeader,
			usual:  []string{"wordcount-4nioh4", "Completed", "succeeded", "root.default", "alice", "100/100"},
			row:    func(s *plimsoll.JobStatus) []string { return jobRow(s, clock) },
			json:   func(s *plimsoll.JobStatus) any { return viewJob(s) },
		})
}

// jobResults are the values of plimsoll.JobStatus.Result.
var jobResults = []string{
	plimsoll.ResultSucceeded.String(), plimsoll.ResultFailed.String(), plimsoll.ResultKilled.String(),
}

func checkResults(words []string) error {
	for _, word := range words {
		if !slices.Contains(jobResults, word) {
			return plimsoll.Invalid(
				"--result", "%q is not a result of a job; %s", word, plimsoll.Suggest(word, jobResults),
			)
		}
	}
	return nil
}

// stateEnum is the type of the states of jobs or of tasks.
type stateEnum interface {
	~uint8
	fmt.Stringer
	Known() bool
}

// parseStates reads the names of states. Upper and lower case are the same.
func parseStates[S stateEnum](names []string) ([]S, error) {
	var states []S
	for _, name := range names {
		s := S(1)
		for s.Known() && !strings.EqualFold(s.String(), name) {
			s++
		}
		if !s.Known() {
			return nil, plimsoll.Invalid(
				"--state", "%q is not a state; %s", name, plimsoll.Suggest(name, stateNames[S]()),
			)
		}
		states = append(states, s)
	}
	return states, nil
}

func stateNames[S stateEnum]() []string {
	var names []string
	for s := S(1); s.Known(); s++ {
		names = append(names, s.String())
	}
	return names
}

func count(n int32) string { return fmt.Sprint(n) }

type jobKillCmd struct {
	IDs    []string `arg:"" name:"id" help:"Ids of the jobs."`
	Reason string   `help:"Reason, for people." placeholder:"TEXT"`
}

// Help is the detail of the help text.
func (jobKillCmd) Help() string {
	return example("plimsoll job kill wordcount", `plimsoll job kill wordcount --reason "wrong input"`)
}

// Run kills jobs.
func (cmd *jobKillCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return each(cmd.IDs, func(id string) error {
		s, err := c.KillJob(ctx, id, cmd.Reason)
		if err != nil {
			return fmt.Errorf("kill %s: %w", id, err)
		}
		a.out.printf("%s: %s\n", id, s.State)
		return nil
	})
}

// each calls do with every id, also after failures. It stops when the server is away or the user
// interrupts.
func each(ids []string, do func(id string) error) error {
	var failed []error
	for _, id := range ids {
		err := do(id)
		if err == nil {
			continue
		}
		failed = append(failed, err)
		code := plimsoll.CodeOf(err)
		if canceled(err) || code == plimsoll.CodeUnavailable || code == plimsoll.CodeOutcomeUnknown {
			break
		}
	}
	return errors.Join(failed...)
}

type jobWaitCmd struct {
	ID string `arg:"" help:"Id of the job."`
	formatFlag
}

// Help is the detail of the help text.
func (jobWaitCmd) Help() string { return example("plimsoll job wait wordcount && echo all well") }

// Run waits for a job.
func (cmd *jobWaitCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return a.waitAndPrint(ctx, c, cmd.ID, cmd.formatFlag)
}

type jobScaleCmd struct {
	ID    string `arg:"" help:"Id of the job."`
	Count int32  `arg:"" help:"New number of tasks of the group."`
	Group string `short:"g" help:"Group to change; needed if the job has several." placeholder:"NAME"`
}

// Help is the detail of the help text.
func (jobScaleCmd) Help() string { return example("plimsoll job scale wordcount 40 --group map") }

// Run scales a group.
func (cmd *jobScaleCmd) Run(ctx context.Context, a *app) error {
	if cmd.Count < 0 {
		return plimsoll.Invalid("count", "is %d; give zero or more", cmd.Count)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	s, err := c.ScaleJob(ctx, cmd.ID, cmd.Group, cmd.Count)
	if err != nil {
		return err
	}
	a.out.printf("%s\n", progressLine(&s))
	return nil
}
