package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// runGroup is the name of the only group of a job that run submits.
const runGroup = "main"

type runCmd struct {
	ID         string            `help:"Id of the job; default: the program's name and a random suffix." placeholder:"ID"`
	Queue      string            `short:"q" help:"Queue of the job. Without it the placement rules of the queues decide; without rules it is root.default."`
	Owner      string            `help:"Owner of the job; default: you." placeholder:"NAME"`
	Group      []string          `help:"Group of users that the owner is in, for the limits and access lists of queues; may be given several times." name:"owner-group" placeholder:"NAME"`
	Tag        map[string]string `mapsep:"none" help:"Tags of the job, by which placement rules may choose the queue." placeholder:"NAME=VALUE"`
	Priority   int32             `help:"Priority of the job: in its queue higher ones go first." placeholder:"NUMBER"`
	CPU        string            `name:"cpu" help:"CPU that the task asks for, such as 500m or 2." placeholder:"AMOUNT"`
	Memory     string            `help:"Memory that the task asks for, such as 64Mi." placeholder:"AMOUNT"`
	Resource   map[string]string `help:"More resources that the task asks for." placeholder:"NAME=AMOUNT"`
	Env        map[string]string `short:"e" mapsep:"none" help:"Environment variables." placeholder:"NAME=VALUE"`
	WorkDir    string            `name:"workdir" help:"Working directory; default: a new one." placeholder:"DIR"`
	User       string            `short:"u" help:"User to run as." placeholder:"USER"`
	MaxRuntime time.Duration     `help:"Stop the task after this time." placeholder:"DURATION"`
	Command    []string          `arg:"" passthrough:"" help:"The program and its arguments, after --."`
}

// Help is the detail of the help text.
func (runCmd) Help() string {
	return example(
		"plimsoll run -- echo hello", "plimsoll run --cpu 500m --memory 64Mi -e NAME=world -- sh -c 'echo hello $NAME'",
	) +
		"\n\nCtrl-C kills the job. The program runs on a node and reads an empty standard input: that of this\n" +
		"command is not passed on."
}

// Run submits the job, follows it and exits with the exit code of its task.
func (cmd *runCmd) Run(ctx context.Context, a *app) error {
	spec, err := cmd.spec()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	input := inputNote{a: a}
	input.look()
	// An interrupt kills the job. Its output is printed until it has ended.
	within, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	job, err := c.SubmitJob(within, spec)
	if err != nil {
		return withFlagHint(err, "--id names one, and without it a new one is made")
	}
	id := job.Status.ID
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		a.notes.printf("plimsoll: interrupted; killing %s\n", id)
		if _, err := c.KillJob(within, id, "interrupted by the user"); err != nil {
			a.notes.printf("plimsoll: kill %s: %s\n", id, a.explainError(err))
			giveUp()
		}
	})
	l := logs{a: a, c: c, options: client.LogOptions{Follow: true}}
	status, err := l.followJob(within, lifetime{id: id})
	if !stop() {
		<-killed
		return exitError(exitInterrupted)
	}
	if err != nil {
		return err
	}
	input.look() // input that came while the program ran
	return a.exitAs(within, c, &status)
}

// exitAs returns the exit code of the job's only task as an error. It prints a result that the code
// does not show.
func (a *app) exitAs(ctx context.Context, c *client.Client, status *plimsoll.JobStatus) error {
	task, err := c.Task(ctx, plimsoll.TaskID(status.ID, runGroup, 0))
	if err != nil {
		return err
	}
	// a code above that is a signal
	byItself := task.Result == plimsoll.ResultFailed && task.ExitCode >= 1 && task.ExitCode <= 128 ||
		task.Result == plimsoll.ResultSucceeded
	if !byItself || task.Message != "" && task.Message != fmt.Sprintf("exit code %d", task.ExitCode) {
		a.notes.printf("plimsoll: %s: %s\n", task.ID, oneLine(reason(&task, status)))
	}
	if code := exitCodeOfTask(&task); code != exitOK {
		return exitError(code)
	}
	return nil
}

// reason describes the end of a task.
func reason(task *plimsoll.Task, status *plimsoll.JobStatus) string {
	text := task.Result.String()
	for _, more := range []string{task.Message, status.Reason} {
		switch {
		case text == "":
			text = more
		case more != "" && more != text:
			return text + ": " + more
		}
	}
	if text == "" {
		return "the job is " + status.State.String()
	}
	return text
}

func (cmd *runCmd) spec() (plimsoll.JobSpec, error) {
	command := cmd.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return plimsoll.JobSpec{}, plimsoll.Invalid(
			"command", "is missing; write for example plimsoll run -- echo hello",
		)
	}
	resources := plimsoll.Resources{}
	for _, r := range []struct{ flag, name, text string }{
		{"cpu", plimsoll.CPU, cmd.CPU}, {"memory", plimsoll.Memory, cmd.Memory},
	} {
		if err := addAmount(resources, "--"+r.flag, r.name, r.text); err != nil {
			return plimsoll.JobSpec{}, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cmd.Resource)) {
		if err := addAmount(resources, "--resource "+name, name, cmd.Resource[name]); err != nil {
			return plimsoll.JobSpec{}, err
		}
	}
	spec := plimsoll.JobSpec{
		ID: cmd.ID, Owner: cmd.Owner, OwnerGroups: cmd.Group, Queue: cmd.Queue, Tags: cmd.Tag,
		Groups: []plimsoll.GroupSpec{{
			Name: runGroup, Count: 1, Command: command, Env: cmd.Env, WorkDir: cmd.WorkDir, User: cmd.User,
			Resources: resources, MaxRuntime: cmd.MaxRuntime, Priority: cmd.Priority,
		}},
	}
	if spec.ID == "" {
		spec.ID = jobIDFor(command[0])
	}
	if spec.Owner == "" {
		spec.Owner = owner()
	}
	return spec, spec.Validate()
}

func addAmount(r plimsoll.Resources, flag, name, text string) error {
	if text == "" {
		return nil
	}
	n, err := plimsoll.ParseQuantity(name, text)
	if err != nil {
		return plimsoll.Invalid(flag, "%s", err)
	}
	r[name] = n
	return nil
}
