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
	IDs []string `arg:"" name:"id" optional:"" help:"Ids of the jobs. An id that several jobs had needs --uid. They may be left out beside --uid."`
	UID string   `name:"uid" help:"Uid of the only job to delete: an earlier one with the id, say." placeholder:"UID"`
	Yes bool     `short:"y" help:"Do not ask."`
}

// Help is the detail of the help text.
func (jobDeleteCmd) Help() string {
	return example("plimsoll job delete wordcount",
		"plimsoll job list --ended --label team=docs -o name | xargs plimsoll job delete --yes") +
		"\n\nThe records of the job, its tasks and attempts are removed from the active store and the archive, for\n" +
		"good. Only a job that has ended can be deleted. Logs on nodes go by their own bounds."
}

// Run deletes jobs.
func (cmd *jobDeleteCmd) Run(ctx context.Context, a *app) error {
	var uid plimsoll.UID
	ids := cmd.IDs
	if cmd.UID != "" {
		var err error
		if uid, err = plimsoll.ParseUID(cmd.UID); err != nil {
			return plimsoll.Invalid("--uid", "%q is not the uid of a job; job list -o wide has them", cmd.UID)
		}
		if len(ids) > 1 {
			return plimsoll.Invalid("--uid", "is that of one job, and %d ids are given; give one of them", len(ids))
		}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if len(ids) == 0 && cmd.UID == "" {
		return plimsoll.Invalid("id", "is missing; give the ids of jobs, or --uid")
	}
	if len(ids) == 0 {
		job, err := c.FindJob(ctx, client.JobName{UID: cmd.UID})
		if err != nil {
			return err
		}
		ids = []string{job.Status.ID}
	}
	if err := a.confirm(cmd.Yes, "delete "+strings.Join(ids, ", ")+" for good"); err != nil {
		return err
	}
	return each(ids, func(id string) error {
		wanted, err := onlyJob(ctx, c, id, uid)
		if err == nil {
			err = c.DeleteJob(ctx, id, wanted)
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", id, err)
		}
		a.out.printf("%s deleted\n", id)
		return nil
	})
}

// onlyJob returns the uid of the job to delete. Without a uid, the id must be that of one job
// alone: the user may mean any of several.
func onlyJob(ctx context.Context, c *client.Client, id string, uid plimsoll.UID) (plimsoll.UID, error) {
	if !uid.IsZero() {
		return uid, nil
	}
	page, err := c.JobPage(ctx, client.JobFilter{
		IDs: []string{id}, Scope: client.ScopeAll, Sort: client.SortSubmitted, PageSize: 2, Fields: []string{"state"},
	}, "")
	switch {
	case err != nil:
		return uid, err
	case len(page.Jobs) > 1:
		return uid, plimsoll.Errorf(plimsoll.CodeConflict,
			"several jobs had this id, the newest is %s; name one with --uid: job list --all -o wide has them",
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
