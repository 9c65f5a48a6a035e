package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/evaluator"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
	"github.com/plimsoll-dev/plimsoll/placement/triton"
)

// maxTried is the most tasks of one trial.
const maxTried = 10_000

type placeCmd struct {
	File      string   `arg:"" optional:"" help:"Job file in YAML or JSON; - reads it from stdin. With --servers also a request in JSON." placeholder:"FILE"`
	Group     string   `help:"Only this group of the job." placeholder:"GROUP"`
	Count     *int32   `help:"Number of tasks of each group to try, instead of the file's; at most 10000." placeholder:"N"`
	Owner     string   `help:"Owner of the job, instead of the one in the file." placeholder:"OWNER"`
	Node      []string `help:"Only these nodes, instead of the file's; * and ? are wildcards." placeholder:"NODE"`
	Servers   string   `help:"Try the job on the servers of this JSON file or URL, without a cluster." placeholder:"FILE"`
	Placement string   `help:"Placement file, for --servers or --evaluators." placeholder:"FILE"`
	Replay    string   `help:"Repeat the decision in a file of plimsoll explain --export." placeholder:"FILE"`
	evaluatorFlags
	TritonDefaults string `help:"JSON file with the defaults of Triton's designation." placeholder:"FILE"`
	formatFlag
}

// Help is the detail of the help text.
func (placeCmd) Help() string {
	return example("plimsoll place job.yaml", "plimsoll place job.yaml --group map --count 100",
		"plimsoll place --servers servers.json job.yaml",
		"plimsoll place job.yaml --evaluators 127.0.0.1:9083,127.0.0.1:9084",
		"plimsoll place --replay decision.json")
}

// Run tries a job, or replays a decision.
func (cmd *placeCmd) Run(ctx context.Context, a *app) error {
	if err := cmd.check(); err != nil {
		return err
	}
	switch {
	case cmd.Replay != "":
		return cmd.replay(a)
	case len(cmd.Evaluators) > 0:
		return cmd.remotely(ctx, a)
	case cmd.Servers != "":
		return cmd.offline(ctx, a)
	}
	spec, err := cmd.job(a)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	t, err := c.PlaceJob(ctx, spec, client.PlaceOptions{Group: cmd.Group, Count: cmd.count()})
	if err != nil {
		return err
	}
	return cmd.print(a, viewTrial(spec.ID, &t), func(o *output) { printTrial(o, &t) })
}

func (cmd *placeCmd) check() error {
	switch {
	case cmd.Replay != "" && (cmd.File != "" || cmd.Servers != "" || cmd.Group != "" || cmd.Count != nil ||
		cmd.Owner != "" || len(cmd.Node) > 0 || cmd.Placement != "" || len(cmd.Evaluators) > 0 ||
		cmd.TritonDefaults != ""):
		return plimsoll.Invalid(
			"--replay", "needs nothing besides its file; leave out the other flags and files",
		)
	case cmd.Replay == "" && cmd.File == "":
		return plimsoll.Invalid("file", "is missing; give a job file, such as: plimsoll place examples/wordcount.yaml")
	case cmd.Servers != "" && len(cmd.Evaluators) > 0:
		return plimsoll.Invalid("--servers", "is known to the evaluators; leave it out, or leave out --evaluators")
	case cmd.Placement != "" && cmd.Servers == "" && len(cmd.Evaluators) == 0:
		return plimsoll.Invalid("--placement",
			"is for --servers and --evaluators; the cluster chooses as its coordinator was told")
	case cmd.TritonDefaults != "" && cmd.Servers == "" && len(cmd.Evaluators) == 0:
		return plimsoll.Invalid("--triton-defaults", "is for --servers and --evaluators")
	case cmd.Count != nil && (*cmd.Count < 1 || *cmd.Count > maxTried):
		return plimsoll.Invalid(
			"--count", "is %d; give a number from 1 to %d, or leave it out to try as many as the file says", *cmd.Count,
			maxTried,
		)
	}
	return nil
}

func (cmd *placeCmd) count() int32 {
	if cmd.Count == nil {
		return 0
	}
	return *cmd.Count
}

// job reads the job file and applies the flags that replace parts of it.
func (cmd *placeCmd) job(a *app) (plimsoll.JobSpec, error) {
	name, data, err := a.readFile(cmd.File)
	if err != nil {
		return plimsoll.JobSpec{}, err
	}
	return cmd.parseJob(name, data)
}

func (cmd *placeCmd) parseJob(name string, data []byte) (plimsoll.JobSpec, error) {
	spec, err := config.ParseJob(name, data)
	if err != nil {
		err = otherKind(
			err, name, data, config.PlacementFileKind, "is a placement file, not a job file; use plimsoll config chain",
		)
		return spec, otherKind(
			err, name, data, config.QueueFileKind, "is a queue file, not a job file; use plimsoll config check",
		)
	}
	if cmd.Owner != "" {
		spec.Owner = cmd.Owner
	} else if spec.Owner == "" {
		spec.Owner = owner()
	}
	var names []string
	for i := range spec.Groups {
		g := &spec.Groups[i]
		if names = append(names, g.Name); len(cmd.Node) > 0 {
			g.Constraints.Nodes = cmd.Node
		}
	}
	if cmd.Group != "" && !slices.Contains(names, cmd.Group) {
		return spec, plimsoll.Invalid(
			"--group", "the job has no group %q; it has %s", cmd.Group, strings.Join(names, ", "),
		)
	}
	return spec, spec.Validate()
}

// offline tries a job or a request on the servers of a file.
func (cmd *placeCmd) offline(ctx context.Context, a *app) error {
	document, err := cmd.document(ctx, a)
	if err != nil {
		return err
	}
	job, names, asks, err := cmd.asks(a)
	if err != nil {
		return err
	}
	chain, err := cmd.chain(a)
	if err != nil {
		return err
	}
	if document.Profile != nil { // the profile's stages compute the room on a server
		return cmd.tryInProcess(ctx, a, document, chain, job, names, asks)
	}
	fleet := placement.NewFleet(placement.NewNames())
	for i := range document.Servers {
		fleet.Add(&document.Servers[i])
	}
	tried, err := placement.NewPlacer(fleet, rand.NewPCG(1, 1)).Try(chain, asks, a.now().Unix(), 0)
	if err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	t := offlineTrial(names, asks, tried)
	return cmd.print(a, viewTrial(job, &t), func(o *output) { printTrial(o, &t) })
}

// tryInProcess tries asks on an evaluator in this process.
func (cmd *placeCmd) tryInProcess(
	ctx context.Context, a *app, document evaluator.Document, chain *placement.Chain, job string, names []string,
	asks []placement.Ask,
) error {
	local, err := document.Evaluator()
	if err != nil {
		return err
	}
	fleet, err := remote.NewFleet([]remote.Part{{Evaluator: local}}, remote.FleetOptions{})
	if err != nil {
		return err
	}
	return cmd.tryOnFleet(ctx, a, fleet, chain, job, names, asks)
}

// document reads the file of servers.
func (cmd *placeCmd) document(ctx context.Context, a *app) (evaluator.Document, error) {
	read := func(where string) (name string, data []byte, err error) {
		data, err = evaluator.Read(ctx, where)
		return where, data, err
	}
	if cmd.Servers == "-" {
		read = a.readFile
	}
	name, data, err := read(cmd.Servers)
	if err != nil {
		return evaluator.Document{}, err
	}
	defaults, err := readDefaults(a, cmd.TritonDefaults)
	if err != nil {
		return evaluator.Document{}, err
	}
	document, err := evaluator.Parse(data, defaults)
	return document, plimsoll.Within(name, err)
}

// chain returns the chain of the placement file. Without that file, Triton's defaults, if they are
// given, set the settings of the default chain.
func (cmd *placeCmd) chain(a *app) (*placement.Chain, error) {
	chosen, err := readPlacement(a, cmd.Placement)
	if err != nil || cmd.TritonDefaults == "" || cmd.Placement != "" {
		return chosen.Chain, err
	}
	defaults, err := readDefaults(a, cmd.TritonDefaults)
	if err != nil {
		return nil, err
	}
	settings, err := triton.Settings(defaults)
	if err != nil {
		return nil, plimsoll.Within(cmd.TritonDefaults, err)
	}
	return placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
}

// asks returns the asks of an offline trial: the groups of a job file, or one request in JSON.
func (cmd *placeCmd) asks(a *app) (job string, names []string, asks []placement.Ask, err error) {
	name, data, err := a.readFile(cmd.File)
	if err != nil {
		return "", nil, nil, err
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(data, &keys) == nil && keys["groups"] == nil {
		return cmd.askRequest(a, name, data, slices.Collect(maps.Keys(keys)))
	}
	spec, err := cmd.parseJob(name, data)
	if err != nil {
		return "", nil, nil, err
	}
	for i := range spec.Groups {
		g := &spec.Groups[i]
		if cmd.Group != "" && g.Name != cmd.Group {
			continue
		}
		ask := placement.Ask{
			Request: placement.Request{
				Owner: spec.Owner, Job: spec.ID, Group: g.Name, Resources: g.Resources, Constraints: g.Constraints,
				Preferences: g.Preferences,
			},
			Labels: spec.Labels, Count: int(g.Count),
		}
		if cmd.Count != nil {
			ask.Count = int(*cmd.Count)
		}
		names, asks = append(names, g.Name), append(asks, ask)
	}
	return spec.ID, names, asks, nil
}

func (cmd *placeCmd) askRequest(
	a *app, name string, data []byte, keys []string,
) (job string, names []string, asks []placement.Ask, err error) {
	if cmd.Group != "" {
		return "", nil, nil, plimsoll.Invalid("--group", "%s is one request and has no groups; leave it out", name)
	}
	var r placement.Request
	if isTritonOrder(keys) {
		r, err = cmd.tritonOrder(a, data)
	} else {
		r, err = fleetjson.ReadRequest(data)
	}
	if err != nil {
		return "", nil, nil, plimsoll.Within(name, err)
	}
	if cmd.Owner != "" {
		r.Owner = cmd.Owner
	}
	if len(cmd.Node) > 0 {
		r.Constraints.Nodes = cmd.Node
	}
	group := r.Group
	if group == "" {
		group = "request"
	}
	ask := placement.Ask{Request: r, Count: 1}
	if cmd.Count != nil {
		ask.Count = int(*cmd.Count)
	}
	return r.Job, []string{group}, []placement.Ask{ask}, nil
}

// offlineTrial converts the result of an offline trial to the client's type.
func offlineTrial(names []string, asks []placement.Ask, tried []placement.Tried) client.Trial {
	var t client.Trial
	for i := range tried {
		g := client.TriedGroup{Name: names[i], Asked: int32(asks[i].Count)}
		for k, p := range tried[i].Placed {
			g.Placed = append(g.Placed, client.PlacedTask{Node: p.Server, Score: p.Score, Free: tried[i].Free(k)})
		}
		if x := tried[i].Why; x != nil {
			g.Refused = offlineRefusal(x, asks[i].Request.Resources)
		}
		t.Groups = append(t.Groups, g)
	}
	return t
}

func offlineSteps(steps []placement.Step) []client.ExplainStep {
	var out []client.ExplainStep
	for i := range steps {
		s := &steps[i]
		step := client.ExplainStep{
			Stage: s.Stage, Kind: client.StageKind(s.Kind) + client.StageClosed, Received: int32(s.Received),
			Remaining: int32(s.Remaining),
			Dropped:   int32(s.Dropped), Refused: int32(s.Refused),
		}
		for _, r := range s.Reasons {
			step.Reasons = append(
				step.Reasons, client.ExplainReason{Reason: r.Text, Nodes: int32(r.Servers), Examples: r.Examples},
			)
		}
		out = append(out, step)
	}
	return out
}

func printTrial(o *output, t *client.Trial) {
	for i := range t.Groups {
		if i > 0 {
			o.printf("\n")
		}
		printGroup(o, &t.Groups[i])
	}
	if t.QueueReason != "" {
		o.printf("\nBut the queue: %s.\n", strings.TrimSuffix(t.QueueReason, "."))
	}
}

func printGroup(o *output, g *client.TriedGroup) {
	n := len(g.Placed)
	fit := "%s: %s of %s fit\n"
	switch {
	case g.Stopped:
		fit = "%s: at least %s of %s fit; that is as far as one question goes\n"
	case n == int(g.Asked) && n == 1:
		fit = "%s: %s of %s fits\n"
	}
	o.printf(fit, g.Name, count(int32(n)), plural(int(g.Asked), "task"))
	if n > 0 {
		o.printf("\n")
		printPlaced(o, g.Placed)
	}
	if r := g.Refused; r != nil {
		next := "No task finds a node"
		if n > 0 {
			next = "The next finds no node"
		}
		o.printf("\n%s: %s\n", next, oneLine(r.Summary))
		printRefusal(o, r.Nodes, r.Steps)
	}
}

// printPlaced prints each node once, in the order of the first task on it, with the room that is
// left there at the end.
func printPlaced(o *output, placed []client.PlacedTask) {
	type total struct{ tasks, last int }
	totals := map[string]*total{}
	var order []string
	for i, p := range placed {
		if totals[p.Node] == nil {
			totals[p.Node] = &total{}
			order = append(order, p.Node)
		}
		totals[p.Node].tasks++
		totals[p.Node].last = i
	}
	names := resourceNames(placed, func(p client.PlacedTask) plimsoll.Resources { return p.Free })
	header := []string{"NODE", "TASKS"}
	for _, name := range names {
		header = append(header, strings.ToUpper(name)+" LEFT")
	}
	rows := make([][]string, len(order))
	for i, node := range order {
		row := []string{node, fmt.Sprint(totals[node].tasks)}
		for _, name := range names {
			row = append(row, amountOf(placed[totals[node].last].Free, name))
		}
		rows[i] = row
	}
	columns(o, header, rows)
}

// replay repeats an exported decision.
func (cmd *placeCmd) replay(a *app) error {
	name, data, err := a.readFile(cmd.Replay)
	if err != nil {
		return err
	}
	d, err := fleetjson.ReadDecision(data)
	if err != nil {
		return plimsoll.Within(name, err)
	}
	r, err := d.Replay(nil)
	if err != nil {
		return plimsoll.Within(name, err)
	}
	same := r.Server == r.Was
	view := replayView{
		Task: r.Name, Was: r.Was, Node: r.Server, Same: same, Score: r.Score, Steps: viewSteps(offlineSteps(r.Steps)),
	}
	err = cmd.print(a, view, func(o *output) {
		switch {
		case same:
			o.printf("%s was placed on %s, and is again, with %s\n", r.Name, r.Was, points(r.Score))
		case r.Server == "":
			o.printf("%s was placed on %s, and now finds no node\n\n", r.Name, r.Was)
			printSteps(o, offlineSteps(r.Steps))
		default:
			o.printf("%s was placed on %s, and would now be on %s, with %s\n", r.Name, r.Was, r.Server, points(r.Score))
		}
	})
	if err == nil && !same {
		return exitError(exitFailed)
	}
	return err
}
