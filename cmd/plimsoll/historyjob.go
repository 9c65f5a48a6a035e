package main

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type historyJobCmd struct {
	ID    string `arg:"" help:"Id of the job, or ID~UID; without a uid the newest job that had the id."`
	UID   string `name:"uid" help:"Uid of the job: an earlier one with the id, say. history jobs --id ID has it." placeholder:"UID"`
	Tasks int    `help:"Most tasks in the picture; 0 shows all." default:"20" placeholder:"N"`
	spanFlags
}

// Help is the detail of the help text.
func (historyJobCmd) Help() string {
	return "In the picture, ░ is a time in which a task waits, █ one on a node, and × the end of an attempt that is " +
		"not the last.\n\n" +
		example("plimsoll history job wordcount", "plimsoll history job wordcount --since 1h -o json")
}

// Run tells what became of a job.
func (cmd *historyJobCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	of, err := parseLifetime("job", cmd.ID, cmd.UID)
	if err != nil {
		return err
	}
	if of.id == "" {
		return plimsoll.Invalid("job", "is missing; write ID or ID~UID")
	}
	if cmd.Count > maxTimeline || cmd.Tasks < 0 {
		return plimsoll.Invalid("--tasks", "and -n are numbers from 0 to %d", maxTimeline)
	}
	job, err := findHistoryJob(ctx, c, of)
	if err != nil {
		return err
	}
	filter, err := cmd.filter(a, client.TimelineFilter{Job: of.id, Life: job.Life})
	if err != nil {
		return err
	}
	events, err := readTimeline(ctx, c, filter)
	if err != nil {
		return err
	}
	return cmd.tell(a, events, func(p *page) {
		describeHistoryJob(p, &job)
		if chart := newChart(events); len(chart.rows) > 0 {
			p.gap()
			chart.draw(p, a.now(), cmd.Tasks)
		}
	})
}

// findHistoryJob finds a life of an id: the one with the uid, or the newest.
func findHistoryJob(ctx context.Context, c *client.Client, of lifetime) (client.HistoryJob, error) {
	for j, err := range c.HistoryJobs(ctx, client.HistoryJobFilter{ID: of.id}) {
		if err != nil || of.uid.IsZero() || j.UID == of.uid {
			return j, err
		}
	}
	return client.HistoryJob{}, plimsoll.Errorf(plimsoll.CodeNotFound,
		"the history has no job %q; plimsoll history status says since when it knows", of)
}

// describeHistoryJob writes what is known about a job.
func describeHistoryJob(p *page, j *client.HistoryJob) {
	name := j.ID
	if !j.UID.IsZero() {
		name = plimsoll.LifetimeName(j.ID, j.UID)
	}
	p.line(cell{"job ", plain}, cell{name, strong})
	text := "submitted " + eventTime(j.Submitted)
	if j.Owner != "" {
		text += " by " + j.Owner
	}
	if j.Queue != "" {
		text += " to " + j.Queue
	}
	p.line(cell{text, plain})
	state := j.State.String()
	if j.State == 0 {
		state = "its state is not known"
	}
	if j.Ended != 0 {
		state += fmt.Sprintf(" at %s, after %s", eventTime(j.Ended), span(time.Duration(j.Ended-j.Submitted)))
	}
	p.line(cell{state, plain})
}

type historyJobsCmd struct {
	Queue string   `short:"q" help:"Only jobs of this queue." placeholder:"PATH"`
	Owner string   `help:"Only jobs of this owner." placeholder:"NAME"`
	Label []string `short:"l" help:"Only jobs with this label; several must all be there." placeholder:"NAME=VALUE"`
	ID    string   `help:"Only jobs with this id." placeholder:"ID"`
	sinceFlag
	untilFlag
	Limit int `help:"Most jobs to print; 0 prints all." default:"50" placeholder:"N"`
	formatFlag
}

// Help is the detail of the help text.
func (historyJobsCmd) Help() string {
	return "--since and --until choose the jobs that were there between the two.\n\n" +
		example("plimsoll history jobs --since 7d --owner ann", "plimsoll history jobs --id wordcount -o json")
}

// filter returns the filter of the flags.
func (cmd *historyJobsCmd) filter(a *app) (client.HistoryJobFilter, error) {
	filter := client.HistoryJobFilter{ID: cmd.ID, Owner: cmd.Owner, Queue: cmd.Queue, Labels: cmd.Label}
	since, err := cmd.since(a.now())
	if err != nil {
		return filter, err
	}
	until, err := cmd.until(a.now())
	filter.Since, filter.Until = unixNano(since), unixNano(until)
	return filter, err
}

// Run lists jobs.
func (cmd *historyJobsCmd) Run(ctx context.Context, a *app) error {
	if cmd.Limit < 0 {
		return plimsoll.Invalid("--limit", "is negative; give a number above zero, or 0 for all")
	}
	filter, err := cmd.filter(a)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var jobs []client.HistoryJob
	more := false
	for j, err := range c.HistoryJobs(ctx, filter) {
		if err != nil {
			return err
		}
		if more = cmd.Limit > 0 && len(jobs) == cmd.Limit; more {
			break
		}
		jobs = append(jobs, j)
	}
	views := make([]historyJobView, len(jobs))
	for i := range jobs {
		views[i] = viewHistoryJob(&jobs[i])
	}
	err = cmd.print(a, views, func(o *output) {
		rows := make([][]string, len(jobs))
		for i := range jobs {
			j := &jobs[i]
			took := ""
			if j.Ended != 0 {
				took = span(time.Duration(j.Ended - j.Submitted))
			}
			rows[i] = []string{j.ID, j.State.String(), j.Owner, j.Queue, eventTime(j.Submitted), took}
			if cmd.ID != "" {
				rows[i] = append(rows[i], j.UID.Text())
			}
		}
		header := []string{"ID", "STATE", "OWNER", "QUEUE", "SUBMITTED", "TOOK"}
		if cmd.ID != "" {
			header = append(header, "UID") // the jobs differ by nothing else
		}
		columns(o, header, rows)
	})
	if more {
		a.notes.printf("There are more jobs; --limit 0 prints all.\n")
	}
	return err
}

type historyJobView struct {
	Life      int64             `json:"life"`
	ID        string            `json:"id"`
	UID       *string           `json:"uid"`   // null: it is not known
	Owner     *string           `json:"owner"` // null: it is not known
	Queue     string            `json:"queue"`
	Labels    map[string]string `json:"labels"`
	State     string            `json:"state"`
	Submitted *string           `json:"submitted"`
	Ended     *string           `json:"ended"`
}

func viewHistoryJob(j *client.HistoryJob) historyJobView {
	return historyJobView{
		Life: j.Life, ID: j.ID, UID: nullIfEmpty(j.UID.Text()), Owner: nullIfEmpty(j.Owner), Queue: j.Queue,
		Labels: entries(j.Labels), State: j.State.String(), Submitted: stamp(j.Submitted), Ended: stamp(j.Ended),
	}
}
