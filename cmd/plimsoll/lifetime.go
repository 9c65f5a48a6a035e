package main

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// lifetime is a job or a task as a command line names it: by its id, or by its id and the uid of
// the job. Several jobs may have had the id.
type lifetime struct {
	id  string       // empty: that of the job with the uid
	uid plimsoll.UID // of the job; zero: the newest one with the id
}

// parseLifetime reads an id, or ID~UID, from an argument or a flag called field. uid is the value
// of --uid; empty: it was not given.
func parseLifetime(field, text, uid string) (l lifetime, err error) {
	id, behind, err := plimsoll.SplitLifetimeName(text)
	if marked := id != text; err != nil || marked && (id == "" || behind.IsZero()) {
		return l, plimsoll.Invalid(field, "%.200q is not an id, nor ID~UID; task list and job list --all -o name print these",
			text)
	}
	l = lifetime{id, behind}
	if uid == "" {
		return l, nil
	}
	if l.uid, err = plimsoll.ParseUID(uid); err != nil || l.uid.IsZero() {
		return l, plimsoll.Invalid("--uid", "%.64q is not the uid of a job; job list -o wide has them", uid)
	}
	if !behind.IsZero() && behind != l.uid {
		return l, plimsoll.Invalid("--uid", "is another one than that in %s; leave one of them out", text)
	}
	return l, nil
}

// String returns what names the same lifetime on another command line.
func (l lifetime) String() string { return plimsoll.LifetimeName(l.id, l.uid) }

// job returns the name of the job for a request.
func (l lifetime) job() client.JobName { return client.JobName{ID: l.id, UID: l.uid.Text()} }

// withID returns the lifetime with the id of its job, which is asked for if only the uid is known.
func (l lifetime) withID(ctx context.Context, c *client.Client) (lifetime, error) {
	if l.id != "" {
		return l, nil
	}
	job, err := c.FindJob(ctx, l.job())
	l.id = job.Status.ID
	return l, err
}

// jobArg is embedded in commands that read one job.
type jobArg struct {
	ID  string `arg:"" optional:"" help:"Id of the job, or ID~UID; without a uid the newest job that has the id. It may be left out beside --uid."`
	UID string `name:"uid" help:"Uid of the job: an earlier one with the id, say. job list -o wide has it." placeholder:"UID"`
}

func (j jobArg) lifetime() (lifetime, error) {
	if j.ID == "" && j.UID == "" {
		return lifetime{}, plimsoll.Invalid("id", "is missing; give the id of a job, or --uid")
	}
	return parseLifetime("id", j.ID, j.UID)
}

// jobOrTaskArg is embedded in commands that read the files of tasks.
type jobOrTaskArg struct {
	ID  string `arg:"" optional:"" help:"Id of a job or of a task, or ID~UID with the uid of the job. It may be left out beside --uid."`
	UID string `name:"uid" help:"Uid of the job: an earlier one with the id, say. job list -o wide has it." placeholder:"UID"`
}

func (j jobOrTaskArg) lifetime(ctx context.Context, c *client.Client) (lifetime, error) {
	if j.ID == "" && j.UID == "" {
		return lifetime{}, plimsoll.Invalid("id", "is missing; give the id of a job or of a task, or --uid")
	}
	l, err := parseLifetime("id", j.ID, j.UID)
	if err != nil {
		return l, err
	}
	return l.withID(ctx, c)
}

// jobsArg is embedded in commands that change several jobs.
type jobsArg struct {
	IDs []string `arg:"" name:"id" optional:"" help:"Ids of the jobs, or ID~UID. They may be left out beside --uid."`
	UID string   `name:"uid" help:"Uid of the only job." placeholder:"UID"`
}

func (j *jobsArg) lifetimes(ctx context.Context, c *client.Client) ([]lifetime, error) {
	switch {
	case len(j.IDs) == 0 && j.UID == "":
		return nil, plimsoll.Invalid("id", "is missing; give the ids of jobs, or --uid")
	case len(j.IDs) == 0:
		l, err := parseLifetime("id", "", j.UID)
		if err == nil {
			l, err = l.withID(ctx, c)
		}
		return []lifetime{l}, err
	case len(j.IDs) > 1 && j.UID != "":
		return nil, plimsoll.Invalid("--uid", "is that of one job, and %d ids are given; give one of them", len(j.IDs))
	}
	all := make([]lifetime, len(j.IDs))
	for i, id := range j.IDs {
		var err error
		if all[i], err = parseLifetime("id", id, j.UID); err != nil {
			return nil, err
		}
	}
	return all, nil
}
