package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

type explainCmd struct {
	ID string `arg:"" name:"task" help:"Id of a task; of a job: its first task that waits."`
	formatFlag
}

// Help is the detail of the help text.
func (explainCmd) Help() string { return example("plimsoll explain wordcount.map.3") }

func looksLikeTask(id string) bool {
	_, _, _, ok := wire.SplitTaskID(id)
	return ok
}

type explainView struct {
	Task     taskView          `json:"task"`
	WaitCode string            `json:"waitCode"`
	Summary  string            `json:"summary"`
	Steps    []explainStepView `json:"steps"`
}

type explainStepView struct {
	Stage     string              `json:"stage"`
	Remaining int32               `json:"remaining"`
	Dropped   int32               `json:"dropped"`
	Reasons   []explainReasonView `json:"reasons"`
}

type explainReasonView struct {
	Reason   string   `json:"reason"`
	Nodes    int32    `json:"nodes"`
	Examples []string `json:"examples"`
}

// Run explains a task.
func (cmd *explainCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	id, err := explainable(ctx, c, cmd.ID)
	if err != nil {
		return err
	}
	x, err := c.ExplainTask(ctx, id)
	if err != nil {
		return err
	}
	v := explainView{Task: viewTask(&x.Task, ""), WaitCode: x.WaitCode.String(), Summary: x.Summary, Steps: []explainStepView{}}
	for _, s := range x.Steps {
		step := explainStepView{Stage: s.Stage, Remaining: s.Remaining, Dropped: s.Dropped, Reasons: []explainReasonView{}}
		for _, r := range s.Reasons {
			step.Reasons = append(step.Reasons, explainReasonView(r))
		}
		v.Steps = append(v.Steps, step)
	}
	return cmd.print(a, v, func(o *output) { printExplanation(o, &x) })
}

// explainable turns the id of a job into that of its first task that waits, or of its first task.
func explainable(ctx context.Context, c *client.Client, id string) (string, error) {
	_, isTask, err := findTask(ctx, c, id)
	if err != nil || isTask {
		return id, err
	}
	for _, filter := range []client.TaskFilter{
		{Job: id, States: []plimsoll.TaskState{plimsoll.TaskPending}, PageSize: 1}, {Job: id, PageSize: 1},
	} {
		for t, err := range c.Tasks(ctx, filter) {
			if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
				break
			}
			return t.ID, err
		}
	}
	return "", plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task or job %q with tasks; see plimsoll job list", id)
}

func printExplanation(o *output, x *client.Explanation) {
	o.printf("%s is %s\n%s\n", x.Task.ID, x.Task.State, oneLine(x.Summary))
	if len(x.Steps) == 0 || x.Task.State == plimsoll.TaskFinished { // where it could be placed no longer matters
		return
	}
	o.printf("\n")
	var rows [][]string
	for _, s := range x.Steps {
		row := []string{s.Stage, count(s.Remaining), count(s.Dropped), ""}
		for _, r := range s.Reasons {
			row[3] = fmt.Sprintf("%s: %s", plural(int(r.Nodes), "node"), r.Reason)
			if len(r.Examples) > 0 {
				row[3] += " (" + strings.Join(r.Examples[:min(3, len(r.Examples))], ", ") + ")"
			}
			rows = append(rows, row)
			row = []string{" ", " ", " ", ""}
		}
		if len(s.Reasons) == 0 {
			rows = append(rows, row)
		}
	}
	columns(o, []string{"STAGE", "REMAIN", "DROPPED", "WHY"}, rows)
}
