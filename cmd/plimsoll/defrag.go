package main

import (
	"context"
	"errors"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// maxMoves is the most moves of one plan.
const maxMoves = 1000

type defragCmd struct {
	Plan  bool   `help:"Plan moves and print them, without moving anything. Required, because the command can only plan."`
	Limit int32  `help:"Most moves of the plan, from 1 to 1000." default:"20" placeholder:"N"`
	For   string `help:"Make room for one task of this job file instead of emptying nodes. Name the group if the job has several." placeholder:"FILE[:GROUP]"`
	formatFlag
}

// Help is the detail of the help text.
func (defragCmd) Help() string {
	return example(
		"plimsoll defrag --plan", "plimsoll defrag --plan --limit 5", "plimsoll defrag --plan --for job.yaml:map",
	)
}

type planView struct {
	Moves   []moveView `json:"moves"`
	Emptied []string   `json:"emptied"`
	Room    *string    `json:"room"`
	Refusal string     `json:"refusal"`
	Kept    []keptView `json:"kept"`
	More    int32      `json:"more"`
	Stopped bool       `json:"stopped"`

	Revision uint64 `json:"revision"`
}

type moveView struct {
	Task string `json:"task"`
	From string `json:"from"`
	To   string `json:"to"`
}

type keptView struct {
	Node   string `json:"node"`
	Task   string `json:"task"`
	Reason string `json:"reason"`
}

// Run plans moves.
func (cmd *defragCmd) Run(ctx context.Context, a *app) error {
	switch {
	case !cmd.Plan:
		return plimsoll.Invalid(
			"--plan",
			"is missing: defrag only plans, and moves nothing; to move tasks off a node, drain it: plimsoll node drain NODE",
		)
	case cmd.Limit < 1 || cmd.Limit > maxMoves:
		return plimsoll.Invalid("--limit", "is %d; give a number from 1 to %d", cmd.Limit, maxMoves)
	}
	options := client.PlanOptions{Limit: cmd.Limit}
	if cmd.For != "" {
		place := placeCmd{File: cmd.For}
		if file, group, ok := cutLast(cmd.For); ok {
			place.File, place.Group = file, group
		}
		spec, err := place.job(a)
		if e := (*plimsoll.Error)(nil); errors.As(err, &e) && e.Field == "--group" {
			err = plimsoll.Invalid("--for", "%s", e.Msg)
		}
		if err != nil {
			return err
		}
		options.For, options.Group = &spec, place.Group
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	p, err := c.PlanMoves(ctx, options)
	if err != nil {
		return err
	}
	err = cmd.print(a, viewPlan(&p), func(o *output) { printPlan(o, &p, cmd.For != "") })
	if err == nil && cmd.For != "" && p.Room == "" {
		return exitError(exitFailed)
	}
	return err
}

// cutLast splits FILE:GROUP.
func cutLast(text string) (file, group string, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i <= 0 || i == len(text)-1 || strings.ContainsAny(text[i:], `/\`) {
		return "", "", false
	}
	return text[:i], text[i+1:], true
}

func viewPlan(p *client.MovePlan) planView {
	v := planView{
		Moves: []moveView{}, Emptied: append([]string{}, p.Emptied...), Refusal: p.Refusal, Kept: []keptView{},
		More: p.More, Stopped: p.Stopped,
		Revision: p.Revision,
	}
	if p.Room != "" {
		v.Room = &p.Room
	}
	for _, m := range p.Moves {
		v.Moves = append(v.Moves, moveView(m))
	}
	for _, k := range p.Kept {
		v.Kept = append(v.Kept, keptView(k))
	}
	return v
}

func printPlan(o *output, p *client.MovePlan, room bool) {
	moves := plural(len(p.Moves), "move")
	switch {
	case room && p.Room == "":
		o.printf("No plan makes room: %s\n", oneLine(p.Refusal))
	case room && len(p.Moves) == 0:
		o.printf("%s has room as it is\n", p.Room)
	case room:
		o.printf("%s would make room on %s\n", moves, p.Room)
	case len(p.Emptied) == 0:
		o.printf("No node can be emptied\n")
	default:
		o.printf("%s would empty %s: %s\n", moves, plural(len(p.Emptied), "node"), strings.Join(p.Emptied, ", "))
	}
	if p.Stopped {
		o.printf("That is as far as one question goes; more may be possible.\n")
	}
	if len(p.Moves) > 0 {
		o.printf("\n")
		rows := make([][]string, len(p.Moves))
		for i, m := range p.Moves {
			rows[i] = []string{m.Task, m.From, m.To}
		}
		columns(o, []string{"TASK", "FROM", "TO"}, rows)
	}
	if len(p.Kept) > 0 {
		o.printf("\n")
		rows := make([][]string, len(p.Kept))
		for i, k := range p.Kept {
			rows[i] = []string{k.Node, k.Task, k.Reason}
		}
		columns(o, []string{"STAYS AS IT IS", "TASK", "BECAUSE"}, rows)
		if p.More > 0 {
			o.printf("and %s more\n", plural(int(p.More), "node"))
		}
	}
	if len(p.Moves) > 0 {
		o.printf(
			"\nNothing was moved. plimsoll node drain NODE stops the tasks of a node, and they are placed again where there is room.\n",
		)
	}
}
