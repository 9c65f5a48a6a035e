package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

type explainCmd struct {
	ID     string `arg:"" name:"task-job-or-queue" help:"Id of a task or a job, or the path of a queue; or ID~UID with the uid of the job."`
	Node   string `help:"Show each filter's verdict on this node." placeholder:"NODE"`
	Export string `help:"Write the decision that placed the task to this file, for plimsoll place --replay." placeholder:"FILE"`
	formatFlag
}

// Help is the detail of the help text.
func (explainCmd) Help() string {
	return example(
		"plimsoll explain wordcount.map.3", "plimsoll explain wordcount.map.3 --node n1",
		"plimsoll explain wordcount.map.3 --export decision.json", "plimsoll explain wordcount",
		"plimsoll explain root.batch",
	) +
		"\n\nOf a task it says why it waits, or why it is on its node. Of a job and of a queue it groups the waiting\n" +
		"tasks by what they wait for, and says what would let them be placed. With --node or --export, and\n" +
		"when nothing waits, a job stands for its first task."
}

func looksLikeTask(id string) bool {
	_, _, _, ok := wire.SplitTaskID(id)
	return ok
}

// Run explains a task.
func (cmd *explainCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	wanted, err := parseLifetime("task", cmd.ID, "")
	if err != nil {
		return err
	}
	if cmd.Node == "" && cmd.Export == "" {
		if done, err := cmd.explainWaiting(ctx, a, c, wanted); done || err != nil {
			return err
		}
	}
	id, err := explainable(ctx, c, wanted)
	if err != nil {
		return err
	}
	x, err := c.ExplainTask(ctx, id, client.ExplainOptions{Node: cmd.Node, Export: cmd.Export != ""})
	if err != nil {
		return err
	}
	if cmd.Export != "" {
		if err := exportDecision(&x, cmd.Export); err != nil {
			return err
		}
		a.notes.printf(
			"the decision is in %s; decide it again with: plimsoll place --replay %s\n", cmd.Export, cmd.Export,
		)
	}
	return cmd.print(a, viewExplanation(&x), func(o *output) {
		switch {
		case cmd.Export != "":
		case cmd.Node != "":
			printVerdicts(o, &x, cmd.Node)
		default:
			printExplanation(o, &x, a.now())
		}
	})
}

// exportDecision writes the decision that placed a task to a file.
func exportDecision(x *client.Explanation, path string) error {
	if x.Decision == nil {
		if x.Kept == 0 {
			return plimsoll.Errorf(
				plimsoll.CodeNotFound, "the job of %s has ended and is in the archive, which keeps no decisions", x.Task.ID,
			)
		}
		if x.Task.Node == "" {
			return plimsoll.Errorf(
				plimsoll.CodeNotFound,
				"%s is on no node, so there is no decision to export; export one of a task that runs", x.Task.ID,
			)
		}
		return plimsoll.Errorf(
			plimsoll.CodeNotFound, "how %s came to node %s is not known any more: %s", x.Task.ID, x.Task.Node,
			keptDecisions(x),
		)
	}
	if err := os.WriteFile(path, x.Decision.Export, 0o644); err != nil { //nolint:gosec // meant to be shared
		return fmt.Errorf("write %s: %s", path, cause(err))
	}
	return nil
}

func keptDecisions(x *client.Explanation) string {
	return fmt.Sprintf("the last %d decisions since the leader started are kept, and it is not among them", x.Kept)
}

// explainable returns the id of a task. For the id of a job that is its first waiting task, or else
// its first task.
func explainable(ctx context.Context, c *client.Client, l lifetime) (string, error) {
	if err := inStore(ctx, c, l); err != nil {
		return "", err
	}
	id := l.id
	_, isTask, err := findTask(ctx, c, l)
	if err != nil || isTask {
		return id, err
	}
	for _, filter := range []client.TaskFilter{
		{Job: id, JobUID: l.uid.Text(), States: []plimsoll.TaskState{plimsoll.TaskPending}, PageSize: 1},
		{Job: id, JobUID: l.uid.Text(), PageSize: 1},
	} {
		for t, err := range c.Tasks(ctx, filter) {
			if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
				break
			}
			return t.ID, err
		}
	}
	return "", withoutTask(ctx, c, l, plimsoll.Errorf(
		plimsoll.CodeNotFound, "there is no task or job %q with tasks; see plimsoll job list", id,
	))
}

// inStore fails if a job that is named by its uid is in the archive, and another one has its id
// now: tasks are explained by their ids.
func inStore(ctx context.Context, c *client.Client, l lifetime) error {
	if l.uid.IsZero() {
		return nil
	}
	job, err := c.FindJob(ctx, client.JobName{UID: l.uid.Text(), Fields: []string{"status.uid"}})
	if err != nil || !job.Archived {
		return err
	}
	id := l.id
	if name, _, _, isTask := wire.SplitTaskID(id); isTask {
		id = name
	}
	now, err := c.FindJob(ctx, client.JobName{ID: id, Fields: []string{"status.uid"}})
	if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		return err
	}
	if err != nil || now.Status.UID != l.uid {
		return plimsoll.Errorf(plimsoll.CodeConflict,
			"the job of %s is in the archive, where no decisions are kept; plimsoll job get --uid %s shows how it ended",
			l, l.uid)
	}
	return nil
}

func printExplanation(o *output, x *client.Explanation, now time.Time) {
	when := ""
	if x.Task.State == plimsoll.TaskFinished && x.Task.Finished > 0 {
		when = "; it ended " + ago(now, x.Task.Finished)
	}
	o.printf("%s is %s%s\n%s\n", x.Task.ID, x.Task.State, when, oneLine(x.Summary))
	if x.Task.State != plimsoll.TaskFinished {
		for i := range x.Spreads {
			o.printf("%s\n", spreadLine(&x.Spreads[i]))
		}
	}
	switch {
	case x.Task.State == plimsoll.TaskPending && len(x.Steps) > 0: // its last decision does not say why it waits
		o.printf("\n")
		printRefusal(o, x.Nodes, x.Steps)
	case x.Decision != nil:
		o.printf("\n")
		printDecision(o, x.Decision, now)
	case x.Task.State == plimsoll.TaskFinished: // its place no longer matters
	case x.Task.State.OnNode():
		o.printf("\nHow it came there is not known any more: %s.\n", keptDecisions(x))
	}
}

// spreadLine describes the values that a hard spread compares, and some of those that it leaves
// out.
func spreadLine(c *client.SpreadCount) string {
	text := oneLine(c.Summary)
	if n := int(c.Values - c.Counted); n > 0 && len(c.Uncounted) > 0 {
		named := c.Uncounted[:min(3, len(c.Uncounted))]
		text += " (" + oneLine(strings.Join(named, ", "))
		if n > len(named) {
			text += ", …"
		}
		text += ")"
	}
	return text
}

// printRefusal prints the stages that drop or refuse nodes.
func printRefusal(o *output, n client.NodeCounts, steps []client.ExplainStep) {
	if len(steps) == 0 {
		return // the chain has not run
	}
	if n.Total > 0 {
		parts := []string{count(n.Open) + " open", count(n.Eligible) + " for it"}
		if n.Eligible > 0 {
			parts = append(parts, count(n.FitEmpty)+" large enough", count(n.Fit)+" with room now")
		}
		o.printf("%s: %s\n\n", plural(int(n.Total), "node"), strings.Join(parts, ", "))
	}
	printSteps(o, steps)
}

func printSteps(o *output, steps []client.ExplainStep) {
	var rows [][]string
	idle := 0
	for _, s := range steps {
		if s.Dropped == 0 && s.Refused == 0 {
			idle++
			continue
		}
		row := []string{
			s.Stage, s.Kind.String(), count(s.Received), count(s.Remaining), count(s.Dropped),
			count(max(s.Refused, s.Dropped)), "",
		}
		for _, r := range s.Reasons {
			row[6] = nodesBecause(&r)
			rows = append(rows, row)
			row = []string{" ", " ", " ", " ", " ", " ", ""}
		}
		switch {
		case len(s.Reasons) > 0:
		case s.Dropped == 0:
			row[6] = "would refuse " + plural(int(s.Refused), "node") + " that other stages have dropped"
			fallthrough
		default:
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 {
		columns(o, []string{"STAGE", "KIND", "CAME", "LEFT", "DROPPED", "REFUSES", "WHY"}, rows)
	}
	switch {
	case idle > 0 && len(rows) > 0:
		o.printf("%s left out none.\n", plural(idle, "other stage"))
	case idle > 0:
		o.printf("%s left out no node.\n", plural(idle, "stage"))
	}
}

func nodesBecause(r *client.ExplainReason) string {
	text := fmt.Sprintf("%s: %s", plural(int(r.Nodes), "node"), r.Reason)
	if n := len(r.Examples); n > 0 {
		named := slices.Sorted(slices.Values(r.Examples))[:min(3, n)]
		text += " (" + strings.Join(named, ", ")
		if int(r.Nodes) > len(named) {
			text += ", …"
		}
		text += ")"
	}
	return text
}

// shownCandidates is the number of nodes that are printed of a decision.
const shownCandidates = 6

// printDecision prints why a task was placed on its node.
func printDecision(o *output, d *client.Decision, now time.Time) {
	kept := 0
	for kept < len(d.Candidates) && d.Candidates[kept].Kept {
		kept++
	}
	batches := ""
	if d.Batches > 1 {
		batches = fmt.Sprintf(", the last of %d batches", d.Batches)
	}
	how := "the only one left of " + plural(int(d.Looked), "node") + " looked at"
	if kept > 1 {
		how = fmt.Sprintf("the best of %d left of %s looked at", kept, plural(int(d.Looked), "node"))
	}
	o.printf("Chosen %s: %s with %s, %s%s.\n\n", ago(now, d.Time), d.Node, points(d.Score), how, batches)
	var rows [][]string
	for _, s := range d.Steps {
		if s.Dropped > 0 {
			rows = append(
				rows, []string{s.Stage, s.Kind.String(), count(s.Received), count(s.Remaining), count(s.Dropped)},
			)
		}
	}
	if len(rows) > 0 {
		columns(o, []string{"STAGE", "KIND", "CAME", "LEFT", "DROPPED"}, rows)
		o.printf("\n")
	}
	names := resourceNames(d.Candidates[:kept], func(c client.Candidate) plimsoll.Resources { return c.Free })
	header := []string{"NODE", "SCORE", "TASKS"}
	for _, name := range names {
		header = append(header, "FREE "+strings.ToUpper(name))
	}
	rows = nil
	for _, c := range d.Candidates[:min(kept, shownCandidates)] {
		row := []string{c.Node, score(c.Score), count(c.Tasks)}
		for _, name := range names {
			row = append(row, amountOf(c.Free, name))
		}
		if c.Node == d.Node {
			row[0] += " ←"
		}
		rows = append(rows, row)
	}
	columns(o, header, rows)
	if more := kept - len(rows); more > 0 {
		o.printf("and %d more with lower scores\n", more)
	}
}

func score(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }

func points(n float64) string { return "a score of " + score(n) }

// resourceNames returns the names of the resources that at least one of a list has. cpu, memory and
// disk come first.
func resourceNames[T any](list []T, of func(T) plimsoll.Resources) []string {
	seen := plimsoll.Resources{}
	for _, item := range list {
		for name := range of(item) {
			seen[name] = 1
		}
	}
	var names []string
	for _, name := range []string{plimsoll.CPU, plimsoll.Memory, plimsoll.Disk} {
		if seen[name] > 0 {
			names = append(names, name)
			delete(seen, name)
		}
	}
	return append(names, slices.Sorted(maps.Keys(seen))...)
}

// amountOf returns the amount of a resource as text; empty if there is none.
func amountOf(r plimsoll.Resources, name string) string {
	n, ok := r[name]
	switch {
	case !ok:
		return ""
	case n < 0:
		return "-" + humanAmount(name, -n)
	}
	return humanAmount(name, n)
}

func printVerdicts(o *output, x *client.Explanation, node string) {
	refused := 0
	var rows [][]string
	for _, v := range x.Verdicts {
		verdict := "keeps it"
		if v.Reason != "" {
			refused++
			verdict = "refuses it: " + v.Reason
		}
		rows = append(rows, []string{v.Stage, v.Kind.String(), verdict})
	}
	what := x.Task.ID
	if x.Task.State.OnNode() {
		what = "another task like " + what
	}
	switch {
	case x.WaitCode == plimsoll.WaitNoResource && x.Task.State == plimsoll.TaskPending:
		o.printf("%s cannot take %s: %s\n\n", node, what, oneLine(x.Summary))
	case refused == 0:
		o.printf("%s could take %s\n\n", node, what)
	case refused == 1:
		o.printf("%s cannot take %s: 1 of %d filters refuses it\n\n", node, what, len(rows))
	default:
		o.printf("%s cannot take %s: %d of %d filters refuse it\n\n", node, what, refused, len(rows))
	}
	columns(o, []string{"FILTER", "KIND", "VERDICT"}, rows)
}
