package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type jobDeleteCmd struct {
	jobsArg
	Yes bool `short:"y" help:"Do not ask."`
}

// Help is the detail of the help text.
func (jobDeleteCmd) Help() string {
	return example("plimsoll job delete wordcount",
		"plimsoll job list --ended --label team=docs -o name | xargs plimsoll job delete --yes") +
		"\n\nThe records of the job, its tasks and attempts are removed from the active store and the archive, for\n" +
		"good. Only a job that has ended can be deleted. Logs on nodes go by their own bounds. An id that several\n" +
		"jobs had is refused: name one of them as ID~UID, or with --uid."
}

// Run deletes jobs.
func (cmd *jobDeleteCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	jobs, err := cmd.lifetimes(ctx, c)
	if err != nil {
		return err
	}
	names := make([]string, len(jobs))
	for i := range jobs {
		names[i] = jobs[i].String()
	}
	if err := a.confirm(cmd.Yes, "delete "+strings.Join(names, ", ")+" for good"); err != nil {
		return err
	}
	return each(jobs, func(job lifetime) error {
		uid, err := onlyJob(ctx, c, job)
		if err == nil {
			err = c.DeleteJob(ctx, job.id, uid)
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", job, err)
		}
		a.out.printf("%s deleted\n", job)
		return nil
	})
}

// onlyJob returns the uid of the job to delete. Without a uid, the id must be that of one job
// alone: the user may mean any of several.
func onlyJob(ctx context.Context, c *client.Client, job lifetime) (plimsoll.UID, error) {
	uid := job.uid
	if !uid.IsZero() {
		return uid, nil
	}
	page, err := c.JobPage(ctx, client.JobFilter{
		IDs: []string{job.id}, Scope: client.ScopeAll, Sort: client.SortSubmitted, PageSize: 2,
		Fields: []string{"state"},
	}, "")
	switch {
	case err != nil:
		return uid, err
	case len(page.Jobs) > 1:
		return uid, plimsoll.Errorf(plimsoll.CodeConflict,
			"several jobs had this id, the newest is %s; name one as ID~UID or with --uid: job list --all -o wide has them",
			page.Jobs[0].UID)
	case len(page.Jobs) == 1:
		return page.Jobs[0].UID, nil
	}
	return uid, nil // the answer to the deletion says that there is none
}

// maxAnswer bounds the bytes of an answer to confirm.
const maxAnswer = 64

// confirm asks on a terminal whether to do something that cannot be undone. Elsewhere yes must have
// been given.
func (a *app) confirm(yes bool, what string) error {
	if yes {
		return nil
	}
	if !a.live {
		return plimsoll.Invalid("--yes", "is missing: it confirms to %s, which cannot be undone", what)
	}
	a.notes.printf("%s? [y/N] ", oneLine(what))
	answer, err := bufio.NewReader(io.LimitReader(a.in, maxAnswer)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	if err != nil { // the input has ended, without a line that ends the question
		a.notes.printf("\n")
	}
	return plimsoll.Invalid("--yes", "was neither given nor answered, so nothing was done")
}
