package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type jobListCmd struct {
	Queue  string   `short:"q" help:"Only jobs of this queue."                                                        placeholder:"PATH"`
	Owner  string   `          help:"Only jobs of this owner."                                                        placeholder:"NAME"`
	Label  []string `short:"l" help:"Only jobs with this label; several must all be there."                           placeholder:"NAME[=VALUE]"`
	State  []string `          help:"Only jobs in these states, such as Running."                                     placeholder:"STATE"`
	Result []string `          help:"Only jobs with this result: succeeded, failed or killed."                        placeholder:"RESULT"`
	Failed bool     `          help:"Only jobs that have ended and did not succeed: those that failed or were killed."`
	scopeFlags
	Sort  string    `          help:"Order: ${enum}. The newest are first, and ids rise."                                                        enum:"submitted,finished,id" default:"submitted"`
	Limit listLimit `          help:"Most jobs to print; 0 prints all. Default: 50 on a terminal, and otherwise all." placeholder:"N"`
	watchFlag
	listFormatFlag
}

// scopeFlags are embedded in commands that list objects of the active store and the archive.
type scopeFlags struct {
	Ended bool `help:"Only of jobs that have ended, with those in the archive."`
	All   bool `help:"Of all jobs, with those in the archive."`
	sinceFlag
}

// scopeHelp is the part of the help texts that tells what the flags choose from.
const scopeHelp = "The list covers the jobs that go on and those that ended in the last five minutes. " +
	"(Without an archive it is 72 hours.) --ended takes the jobs that have ended, however long ago, and --all takes " +
	"both."

// scope returns the scope of the flags.
func (f *scopeFlags) scope() (client.Scope, error) {
	switch {
	case f.Ended && f.All:
		return 0, plimsoll.Invalid("--ended", "cannot be used beside --all; leave one of them out")
	case f.All:
		return client.ScopeAll, nil
	case f.Ended, f.Since != "":
		return client.ScopeEnded, nil
	}
	return client.ScopeActive, nil
}

// Help is the detail of the help text.
func (jobListCmd) Help() string {
	return example(
		"plimsoll job list --queue root.batch --state Running",
		"plimsoll job list --since 7d --result failed",
		"plimsoll job list --label team=docs -o name",
		"plimsoll job list --watch -o json",
	) +
		"\n\n" + scopeHelp + " --since 7d lists the jobs that ended in the last seven days.\n\nSeveral jobs may have " +
		"had an id: with these flags -o name prints ID~UID, which other commands take for an id." + watchHelp
}

// nameIn returns the name of a job or a task in a list of a scope: the id if only one job can have
// it there, and else ID~UID.
func nameIn(scope client.Scope, id string, uid plimsoll.UID) string {
	if scope <= client.ScopeActive {
		return id
	}
	return plimsoll.LifetimeName(id, uid)
}

// jobSorts are the values of --sort.
var jobSorts = map[string]client.JobSort{
	"submitted": client.SortSubmitted, "finished": client.SortFinished, "id": client.SortID,
}

func (cmd *jobListCmd) filter(a *app) (filter client.JobFilter, err error) {
	filter = client.JobFilter{
		Queue: cmd.Queue, Owner: cmd.Owner, Labels: cmd.Label, Sort: jobSorts[cmd.Sort], Ascending: cmd.Sort == "id",
	}
	if filter.States, err = parseStates[plimsoll.JobState](cmd.State); err != nil {
		return filter, err
	}
	if filter.Results, err = parseResults(cmd.Result, jobResults, "a job"); err != nil {
		return filter, err
	}
	if cmd.Failed {
		if len(cmd.Result) > 0 {
			return filter, plimsoll.Invalid("--failed", "cannot be used beside --result; leave one of them out")
		}
		filter.Results = []plimsoll.TaskResult{plimsoll.ResultFailed, plimsoll.ResultKilled}
	}
	if filter.Scope, err = cmd.scope(); err != nil {
		return filter, err
	}
	if ends := filter.Scope == client.ScopeEnded || len(filter.Results) > 0; ends && len(filter.States) > 0 &&
		!slices.ContainsFunc(filter.States, plimsoll.JobState.Ended) {
		return filter, plimsoll.Invalid("--state",
			"%s is no state of a job that has ended, and --ended, --since, --result and --failed choose such jobs; leave it out",
			filter.States[0])
	}
	since, err := cmd.since(a.now())
	if err == nil && !since.IsZero() {
		filter.Since = since.UnixNano()
	}
	return filter, err
}

// Run lists jobs.
func (cmd *jobListCmd) Run(ctx context.Context, a *app) error {
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
	if cmd.Watch {
		return cmd.watch(ctx, a, c, filter)
	}
	jobs, more, err := limited(most, func(size int32, next string) ([]plimsoll.JobStatus, listPage, error) {
		filter.PageSize, filter.Count = size, most > 0 && next == ""
		page, err := c.JobPage(ctx, filter, next)
		return page.Jobs, listPage{page.Next, page.Total, page.TotalAtLeast, page.Damaged}, err
	})
	if err != nil {
		return err
	}
	views := make([]jobView, len(jobs))
	for i := range jobs {
		views[i] = viewJob(&jobs[i])
	}
	header, row := jobHeader, jobRow
	if cmd.wide() {
		header, row = jobWideHeader, jobWideRow
	}
	if err := cmd.print(a, views, list{
		header: header, count: len(jobs),
		name: func(i int) string { return nameIn(filter.Scope, jobs[i].ID, jobs[i].UID) },
		row:  func(i int) []string { return row(&jobs[i], relative(a.now())) },
	}); err != nil {
		return err
	}
	if len(jobs) == 0 && filter.Scope <= client.ScopeActive && len(filter.Results) > 0 {
		a.notes.printf("no active job has ended so; --all looks into the archive too\n")
	}
	return more.tell(a, len(jobs), "job", "--limit 0 lists all, and --state, --result, --label and --since choose")
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

var jobWideHeader = append(slices.Clip(jobHeader), "STARTED", "FINISHED", "UID", "REASON")

func jobWideRow(s *plimsoll.JobStatus, when instants) []string {
	return append(jobRow(s, when), when(s.Started), when(s.Finished), s.UID.Text(), jobReason(s))
}

// watch lists jobs and prints each change.
func (cmd *jobListCmd) watch(ctx context.Context, a *app, c *client.Client, filter client.JobFilter) error {
	if cmd.Ended || cmd.All || cmd.Since != "" || cmd.Limit.given {
		return plimsoll.Invalid("--watch", "shows the active jobs: leave out --ended, --all, --since and --limit")
	}
	format, err := cmd.watched()
	if err != nil {
		return err
	}
	one := filter
	one.PageSize = 1
	for _, err := range c.Jobs(ctx, one) { // fails for a queue that there is not
		if err != nil {
			return err
		}
		break
	}
	return printChanges(ctx, a, format, c.WatchJobs(ctx, filter, client.WatchPoint{}),
		watchedView[plimsoll.JobStatus]{
			header: jobHeader,
			usual:  []string{"wordcount-4nioh4", "Completed", "succeeded", "root.default", "alice", "100/100"},
			row:    func(s *plimsoll.JobStatus) []string { return jobRow(s, clock) },
			json:   func(s *plimsoll.JobStatus) any { return viewJob(s) },
		})
}

// jobResults are the values of plimsoll.JobStatus.Result.
var jobResults = []plimsoll.TaskResult{plimsoll.ResultSucceeded, plimsoll.ResultFailed, plimsoll.ResultKilled}

// taskResults are all results of tasks.
func taskResults() (all []plimsoll.TaskResult) {
	for r := plimsoll.ResultSucceeded; r.Known(); r++ {
		all = append(all, r)
	}
	return all
}

// parseResults reads the words of results. A dash stands for a space, as in out-of-memory.
func parseResults(
	words []string, possible []plimsoll.TaskResult, of string,
) (results []plimsoll.TaskResult, err error) {
	names := make([]string, len(possible))
	for i, r := range possible {
		names[i] = resultWord(r)
	}
	for _, word := range words {
		i := slices.IndexFunc(names, func(name string) bool { return name == dashed(word) })
		if i < 0 {
			return nil, plimsoll.Invalid(
				"--result", "%q is not a result of %s; %s", word, of, plimsoll.Suggest(word, names),
			)
		}
		results = append(results, possible[i])
	}
	return results, nil
}
