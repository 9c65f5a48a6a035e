package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

type jobCmd struct {
	List  jobListCmd  `cmd:"" help:"List jobs, the newest first."`
	Get   jobGetCmd   `cmd:"" help:"Read one job with its tasks, or print its job file."`
	Kill  jobKillCmd  `cmd:"" help:"Stop all tasks of jobs."`
	Logs  jobLogsCmd  `cmd:"" help:"Print the output of a task, or of all tasks of a job."`
	Fetch jobFetchCmd `cmd:"" help:"Write the outputs of a task, or of all tasks of a job, to a directory."`
	Wait  jobWaitCmd  `cmd:"" help:"Show the progress of a job until it has ended. The exit code is 1 unless it completed."`
	Scale jobScaleCmd `cmd:"" help:"Change the number of tasks of a group."`

	RunAgain jobRunAgainCmd `cmd:"" help:"Submit a job that has ended as a new one, or its failed tasks alone."`
	Delete   jobDeleteCmd   `cmd:"" help:"Remove jobs that have ended, also from the archive."`
}

// Help is the detail of the help text.
func (jobCmd) Help() string {
	return example("plimsoll job list", "plimsoll job get wordcount", "plimsoll job logs -f wordcount",
		"plimsoll job run-again wordcount --failed")
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
	jobsArg
	Reason string `help:"Reason, for people." placeholder:"TEXT"`
}

// Help is the detail of the help text.
func (jobKillCmd) Help() string {
	return example("plimsoll job kill wordcount", `plimsoll job kill wordcount --reason "wrong input"`) +
		"\n\nID~UID and --uid are refused if another job has the id by now."
}

// Run kills jobs.
func (cmd *jobKillCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	jobs, err := cmd.lifetimes(ctx, c)
	if err != nil {
		return err
	}
	return each(jobs, func(job lifetime) error {
		s, err := c.KillLifetime(ctx, job.id, job.uid, cmd.Reason)
		if err != nil {
			return fmt.Errorf("kill %s: %w", job, err)
		}
		a.out.printf("%s: %s\n", job, s.State)
		return nil
	})
}

// each calls do with every object, also after failures. It stops when the server is away or the
// user interrupts.
func each[T any](objects []T, do func(T) error) error {
	var failed []error
	for _, object := range objects {
		err := do(object)
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
	jobArg
	formatFlag
}

// Help is the detail of the help text.
func (jobWaitCmd) Help() string { return example("plimsoll job wait wordcount && echo all well") }

// Run waits for a job.
func (cmd *jobWaitCmd) Run(ctx context.Context, a *app) error {
	job, err := cmd.lifetime()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	return a.waitAndPrint(ctx, c, job, cmd.formatFlag)
}

type jobScaleCmd struct {
	ID    string `arg:"" help:"Id of the job, or ID~UID."`
	Count int32  `arg:"" help:"New number of tasks of the group."`
	UID   string `name:"uid" help:"Uid of the job that is meant." placeholder:"UID"`
	Group string `short:"g" help:"Group to change; needed if the job has several." placeholder:"NAME"`
}

// Help is the detail of the help text.
func (jobScaleCmd) Help() string {
	return example("plimsoll job scale wordcount 40 --group map") +
		"\n\nID~UID and --uid are refused if another job has the id by now."
}

// Run scales a group.
func (cmd *jobScaleCmd) Run(ctx context.Context, a *app) error {
	if cmd.Count < 0 {
		return plimsoll.Invalid("count", "is %d; give zero or more", cmd.Count)
	}
	job, err := parseLifetime("id", cmd.ID, cmd.UID)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	s, err := c.ScaleLifetime(ctx, job.id, job.uid, cmd.Group, cmd.Count)
	if err != nil {
		return err
	}
	a.out.printf("%s\n", progressLine(&s))
	return nil
}
