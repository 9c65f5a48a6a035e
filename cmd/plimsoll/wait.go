package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// progressLine describes the progress of a job.
func progressLine(s *plimsoll.JobStatus) string {
	c := totals(s)
	line := fmt.Sprintf("%s: %s, %d of %d done", s.ID, s.State, c.Succeeded+c.Failed, wanted(s))
	for _, part := range []struct {
		n    int32
		word string
	}{
		{c.Failed, "failed"},
		{c.Running, "running"},
		{c.Bound + c.Starting, "starting"},
		{c.Stopping, "stopping"},
		{c.Pending, "waiting"},
	} {
		if part.n > 0 {
			line += fmt.Sprintf(", %d %s", part.n, part.word)
		}
	}
	if why := waitReason(s); why != "" {
		line += " (" + oneLine(why) + ")"
	}
	return line
}

// waitReason returns why the first waiting group waits, if it waits for more than its turn.
func waitReason(s *plimsoll.JobStatus) string {
	for i := range s.Groups {
		if g := &s.Groups[i]; g.Counts.Pending > 0 && g.Wait.Code > plimsoll.WaitTurn {
			return g.Wait.String()
		}
	}
	return ""
}

// wait follows a job until it has ended.
func (a *app) wait(ctx context.Context, c *client.Client, job lifetime) (plimsoll.JobStatus, error) {
	p := progress{a: a}
	defer p.end()
	defer p.follow()()
	var last plimsoll.JobStatus
	for status, err := range c.WatchLifetime(ctx, job.id, job.uid) {
		if err != nil {
			return last, err
		}
		last = status
		p.show(&status)
	}
	return last, nil
}

// waitAndPrint follows a job, prints its result, and fails unless it completed.
func (a *app) waitAndPrint(ctx context.Context, c *client.Client, job lifetime, format formatFlag) error {
	status, err := a.wait(ctx, c, job)
	if err != nil {
		return err
	}
	if err := format.print(a, viewJob(&status), func(o *output) { o.printf("%s\n", verdict(&status)) }); err != nil {
		return err
	}
	if status.State != plimsoll.JobCompleted {
		return exitError(exitFailed)
	}
	return nil
}

// verdict describes the result of a job in a sentence.
func verdict(s *plimsoll.JobStatus) string {
	parts := []string{fmt.Sprintf("%s: %s", s.ID, s.State)}
	if s.Finished > s.Submitted {
		parts[0] += " in " + span(time.Duration(s.Finished-s.Submitted))
	}
	c := totals(s)
	if c.Succeeded > 0 || c.Failed == 0 {
		parts = append(parts, plural(int(c.Succeeded), "task")+" succeeded")
	}
	if c.Failed > 0 {
		parts = append(parts, plural(int(c.Failed), "task")+" failed")
	}
	text := strings.Join(parts, ", ")
	if why := jobReason(s); why != "" {
		text += ": " + oneLine(why)
	}
	return text
}

// jobReason returns why a job did not succeed. A kill is named as such, because the reason that a
// user gave for it may not mention it.
func jobReason(s *plimsoll.JobStatus) string {
	if killed := plimsoll.ResultKilled.String(); s.Killed && s.Reason != "" && s.Reason != killed {
		return killed + ": " + s.Reason
	}
	return s.Reason
}
