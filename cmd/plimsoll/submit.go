package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

type submitCmd struct {
	File    string   `arg:"" help:"Job file in YAML or JSON; - reads it from stdin." placeholder:"FILE"`
	ID      string   `help:"Id of the job, instead of the one in the file." placeholder:"ID"`
	Owner   string   `help:"Owner of the job, instead of the one in the file; default: you." placeholder:"NAME"`
	Group   []string `help:"Group of users that the owner is in, for the limits and access lists of queues; may be given several times. It replaces those in the file." name:"owner-group" placeholder:"NAME"`
	Unique  bool     `help:"Add a short random suffix to the id, so that the same file can be submitted again."`
	Replace bool     `help:"Take the id of an earlier job that has ended. That job stays in the archive, under its uid."`
	Strict  bool     `help:"Refuse the job if a group asks for a resource that no node has, rather than warn."`
	Wait    bool     `short:"w" help:"Show the progress until the job has ended. The exit code is 1 unless it completed."`
	formatFlag
}

// Help is the detail of the help text.
func (submitCmd) Help() string {
	return example("plimsoll submit examples/wordcount.yaml", "plimsoll submit examples/wordcount.yaml --unique --wait",
		"plimsoll submit examples/wordcount.yaml -o json | jq -r .id")
}

// Run submits the job.
func (cmd *submitCmd) Run(ctx context.Context, a *app) error {
	name, data, err := a.readFile(cmd.File)
	if err != nil {
		return err
	}
	spec, err := config.ParseJob(name, data)
	if err != nil {
		err = otherKind(
			err, name, data, config.PlacementFileKind,
			"is a placement file, not a job file; start the coordinator with --placement",
		)
		return otherKind(
			err, name, data, config.QueueFileKind, "is a queue file, not a job file; use plimsoll config apply",
		)
	}
	if cmd.Owner != "" {
		spec.Owner = cmd.Owner
	}
	if len(cmd.Group) > 0 {
		spec.OwnerGroups = cmd.Group
	}
	if spec.Owner == "" {
		spec.Owner = owner()
	}
	if cmd.ID != "" {
		spec.ID = cmd.ID
	}
	if cmd.Unique {
		spec.ID += "-" + suffix()
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if err := a.checkResources(ctx, c, &spec, cmd.Strict); err != nil {
		return err
	}
	submit := c.SubmitJob
	if cmd.Replace {
		submit = c.ReplaceJob
	}
	job, err := submit(ctx, spec)
	if err != nil {
		return withFlagHint(err, "--id names one, --unique adds a suffix to it, and --replace takes that of a job that has ended")
	}
	noteDefaults(a, &spec, &job.Spec)
	if !cmd.Wait {
		return cmd.print(a, viewJob(&job.Status), func(o *output) {
			o.printf("%s\n", submitted(&job.Status))
		})
	}
	return a.waitAndPrint(ctx, c, lifetime{job.Status.ID, job.Status.UID}, cmd.formatFlag)
}

// submitted describes a job that was just submitted.
func submitted(s *plimsoll.JobStatus) string {
	return fmt.Sprintf("%s submitted to %s: %s", s.ID, s.Queue, plural(int(wanted(s)), "task"))
}

// noteDefaults prints the resources that the server has given to groups that ask for none.
func noteDefaults(a *app, asked, got *plimsoll.JobSpec) {
	for i := range got.Groups {
		g := &got.Groups[i]
		if i < len(asked.Groups) && len(asked.Groups[i].Resources) == 0 && len(g.Resources) > 0 {
			a.notes.printf(
				"group %s asks for no resources, so each of its tasks gets %s; with class: best-effort it would get none\n",
				g.Name, g.Resources,
			)
		}
	}
}

// withFlagHint puts the flags that help in the place of the remedy that the error of an id that is
// taken has for programs.
func withFlagHint(err error, flags string) error {
	if plimsoll.CodeOf(err) != plimsoll.CodeAlreadyExists {
		return err
	}
	text, _, _ := strings.Cut(err.Error(), ";")
	return plimsoll.Errorf(plimsoll.CodeAlreadyExists, "%s; choose another id: %s", text, flags)
}

// suffix returns six random letters and digits.
func suffix() string { return strings.ToLower(rand.Text()[:6]) }

// jobIDFor makes an id for a job that runs a program.
func jobIDFor(program string) string {
	program = program[strings.LastIndexByte(program, '/')+1:]
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, program)
	id := strings.Trim(clean[:min(len(clean), 40)], "-_") + "-" + suffix()
	if plimsoll.ValidateID("job", id) != nil {
		return "run-" + suffix()
	}
	return id
}
