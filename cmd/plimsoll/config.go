package main

import (
	"context"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/placement"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Check a job, queue, placement or policy file without sending it anywhere."`
	Print configPrintCmd `cmd:"" help:"Print the server's configuration of the queues, or a file as Plimsoll reads it."`
	Chain configChainCmd `cmd:"" help:"Show the stages that choose a node: those of a placement file, or the default ones."`
	Apply configApplyCmd `cmd:"" help:"Replace the configuration of the queues by that of a queue file."`
}

// Help is the detail of the help text.
func (configCmd) Help() string {
	return example("plimsoll config check examples/wordcount.yaml", "plimsoll config print > queues.yaml")
}

// file is the content of a configuration file: one of its fields is set.
type file struct {
	job       *plimsoll.JobSpec
	queues    *plimsoll.QueueConfig
	placement *config.Placement
	policies  []plimsoll.Policy
	notes     []config.Problem // on queues
}

func (a *app) parseFile(path string) (file, error) {
	name, data, err := a.readFile(path)
	if err != nil {
		return file{}, err
	}
	kind, err := config.Detect(name, data)
	if err != nil {
		return file{}, err
	}
	switch kind {
	case config.JobFileKind:
		spec, err := config.ParseJob(name, data)
		return file{job: &spec}, err
	case config.PlacementFileKind:
		p, err := config.ParsePlacement(name, data)
		return file{placement: &p}, err
	case config.PolicyFileKind:
		policies, err := config.ParsePolicies(name, data)
		return file{policies: policies}, err
	}
	root, notes, err := config.ReadQueues(name, data)
	return file{queues: &root, notes: notes}, err
}

// otherKind replaces the problems of a file by one error if the file is of another kind.
func otherKind(problems error, name string, data []byte, other config.FileKind, message string) error {
	if kind, err := config.Detect(name, data); err != nil || kind != other {
		return problems
	}
	return plimsoll.Invalid(name, "%s", message)
}

type configCheckCmd struct {
	Files []string `arg:"" name:"file" help:"Job, queue, placement or policy files; their keys tell the kinds apart."`
}

// Help is the detail of the help text.
func (configCheckCmd) Help() string {
	return example(
		"plimsoll config check examples/wordcount.yaml examples/queues.yaml",
		"plimsoll config check examples/placement.yaml",
	)
}

// Run checks files.
func (cmd *configCheckCmd) Run(a *app) error {
	failed := false
	for _, path := range cmd.Files {
		f, err := a.parseFile(path)
		switch {
		case err != nil:
			report(a, err)
			failed = true
		case f.job != nil:
			if err := checkWhere(path, f.job); err != nil {
				report(a, err)
				failed = true
				continue
			}
			tasks := 0
			for i := range f.job.Groups {
				tasks += int(f.job.Groups[i].Count)
			}
			queue := f.job.Queue
			if queue == "" {
				queue = "the queue that the rules give"
			}
			a.out.printf("%s: job %s for %s: %s in %s\n", path, f.job.ID, queue,
				plural(tasks, "task"), plural(len(f.job.Groups), "group"))
		case f.placement != nil:
			a.out.printf("%s: chain of %s\n", path, plural(len(f.placement.Chain.Stages()), "stage"))
		case f.policies != nil:
			a.out.printf("%s: %s\n", path, policiesText(len(f.policies)))
		default:
			a.out.printf("%s: %s\n", path, plural(countQueues(f.queues), "queue"))
			for _, n := range f.notes {
				a.out.printf("%s\n", n.In(path))
			}
		}
	}
	if failed {
		return exitError(exitUsage)
	}
	return nil
}

// checkWhere reports the first expression of a job that a submit would refuse.
func checkWhere(path string, job *plimsoll.JobSpec) error {
	for i := range job.Groups {
		where := job.Groups[i].Constraints.Where
		if where == "" {
			continue
		}
		if _, err := placement.CompileRule(where); err != nil {
			return plimsoll.Invalid(fmt.Sprintf("%s: groups[%d].constraints.where", path, i), "%s", err)
		}
	}
	return nil
}

func countQueues(q *plimsoll.QueueConfig) int {
	n := 1
	for i := range q.Queues {
		n += countQueues(&q.Queues[i])
	}
	return n
}

type configPrintCmd struct {
	File   string `arg:"" optional:"" help:"Job, queue, placement or policy file. Without one the queues of the server are printed."`
	Output string `short:"o" help:"How to print: ${enum}." enum:"yaml,json" default:"yaml"`
}

// Help is the detail of the help text.
func (configPrintCmd) Help() string {
	return example("plimsoll config print", "plimsoll config print examples/wordcount.yaml")
}

// Run prints a configuration.
func (cmd *configPrintCmd) Run(ctx context.Context, a *app) error {
	var v any
	if cmd.File != "" {
		f, err := a.parseFile(cmd.File)
		if err != nil {
			return err
		}
		switch {
		case f.job != nil:
			v = config.JobFile(f.job)
		case f.placement != nil:
			v = config.PlacementFile(f.placement)
		case f.policies != nil:
			return printPolicies(a, cmd.Output, f.policies)
		default:
			v = config.QueueFile(f.queues)
		}
	} else {
		c, err := a.client()
		if err != nil {
			return err
		}
		root, err := c.QueueConfig(ctx)
		if err != nil {
			return err
		}
		v = config.QueueFile(&root)
	}
	return formatFlag{Output: cmd.Output}.print(a, v, func(*output) {})
}

type configApplyCmd struct {
	File   string `arg:"" help:"Queue file; - reads it from stdin."`
	DryRun bool   `help:"Let the server check the file, and print what it would change; change nothing."`
	formatFlag
}

// Help is the detail of the help text.
func (configApplyCmd) Help() string {
	return example("plimsoll config apply examples/queues.yaml", "plimsoll config apply examples/queues.yaml --dry-run")
}

// Run replaces the configuration of the queues.
func (cmd *configApplyCmd) Run(ctx context.Context, a *app) error {
	name, data, err := a.readFile(cmd.File)
	if err != nil {
		return err
	}
	root, notes, err := config.ReadQueues(name, data)
	if err != nil {
		err = otherKind(
			err, name, data, config.PlacementFileKind,
			"is a placement file, not a queue file; start the coordinator with --placement",
		)
		return otherKind(err, name, data, config.JobFileKind, "is a job file, not a queue file; use plimsoll submit")
	}
	for _, n := range notes {
		a.notes.printf("%s\n", n.In(name))
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if cmd.DryRun {
		return cmd.compare(ctx, a, c, &root)
	}
	if err := c.SetQueueConfig(ctx, root); err != nil {
		return err
	}
	n := countQueues(&root)
	return cmd.print(a, map[string]int{"queues": n}, func(o *output) {
		o.printf("%s configured\n", plural(n, "queue"))
	})
}

// compare lets the server check the queues, and prints what they would change.
func (cmd *configApplyCmd) compare(ctx context.Context, a *app, c *client.Client, root *plimsoll.QueueConfig) error {
	if err := c.CheckQueueConfig(ctx, *root); err != nil {
		return err
	}
	live, err := c.QueueConfig(ctx)
	if err != nil {
		return err
	}
	changes, err := config.DiffQueues(&live, root)
	if err != nil {
		return err
	}
	if changes == nil {
		changes = []config.QueueChange{}
	}
	return cmd.print(a, changes, func(o *output) {
		for _, c := range changes {
			o.printf("%s\n", c)
		}
		o.printf("%s; nothing was changed (dry run)\n", plural(len(changes), "difference"))
	})
}
