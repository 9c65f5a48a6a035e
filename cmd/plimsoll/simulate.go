package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

type simulateCmd struct {
	Scenario string `help:"File of scenarios, to be compared with their expectations; - reads stdin." placeholder:"FILE" xor:"source"`
	Name     string `help:"Run only the scenario with this name." placeholder:"NAME"`

	Pods        string `help:"Pods of a trace: openb_pod_list_*.csv, or the DLRM trace of 2025." placeholder:"FILE" xor:"source"`
	Synthetic   string `help:"Draw a workload, such as jobs=2000,users=12,span=24h,tasks=50,runtime=20m,failures=0.02; what is left out has these values, and no failures. - takes all of them." placeholder:"SPEC" xor:"source"`
	History     string `help:"Simulate the past of a cluster, from its history: the time up to its newest event, such as 7d or 12h, or from an instant on, such as 2026-11-20." placeholder:"TIME" xor:"source"`
	HistoryFile string `help:"File of the history. Default: that of dev or of a historian, in plimsoll-data here." placeholder:"FILE"`

	Nodes string   `help:"Nodes of a trace: openb_node_list_all_node.csv." placeholder:"FILE"`
	Node  []string `help:"Add nodes, as COUNT:NAME=AMOUNT,…, such as 40:cpu=64,memory=256Gi. Repeat it for other kinds." placeholder:"NODES" sep:"none"`

	Queues    string        `help:"Queue file of the policy; without it all jobs go to root.default, and with --history the queues are those of then." placeholder:"FILE"`
	Compare   string        `help:"Queue file of a second policy, to be shown beside the first." placeholder:"FILE"`
	Placement string        `help:"Placement file: the chain by which nodes are chosen." placeholder:"FILE"`
	Pack      bool          `help:"Let the jobs come one a second and never end: a packing test."`
	Hasten    float64       `help:"Let the jobs come so many times as fast, which raises the load." default:"1" placeholder:"FACTOR"`
	Until     time.Duration `help:"End after so much virtual time; with --history the window is so long." placeholder:"DURATION"`

	HTML string `name:"html" help:"Write a page with plots, in one file that needs nothing else." placeholder:"FILE"`
	Seed uint64 `help:"Seed of all draws. The same seed gives the same output." default:"1"`
	formatFlag
}

// Help is the detail of the help text.
func (simulateCmd) Help() string {
	return "It runs the coordinator's own scheduler in virtual time. No cluster is needed and none is touched.\n\n" +
		"A scenario file is a JSON list of scenarios: each has a queue file, steps, and expectations. " +
		"The command prints the differences, and exits with 1 if there are any. Scenarios that need " +
		"gangs, reservations or preemption, which are not built yet, are counted and not run.\n\n" +
		"A trace or a synthetic workload runs under --queues, and under --compare beside it. A job goes to the leaf that is named " +
		"after its user (openb: after its quality of service; DLRM: after its role). If no leaf is, the placement rules " +
		"of the file decide, and without rules root.default or the leaves in turn. " +
		"The result has the waits, the use and fragmentation over time, and how fair the leaves share. " +
		"How fast the scheduler was is told on stderr, because it differs each time.\n\n" +
		"--history takes what jobs, tasks, failures and nodes there were from the history of a cluster, whose historian " +
		"may go on writing. The first result is the past as it was, beside the waits of then: it shows how well the " +
		"simulation repeats them. The others are with other --queues, more nodes or another --placement.\n\n" +
		example("plimsoll simulate --scenario examples/scenarios.json",
			"plimsoll simulate --synthetic jobs=3000,users=8 --node 40:cpu=64,memory=256Gi",
			"plimsoll simulate --synthetic - --node 30:cpu=64,memory=256Gi --queues now.yaml --compare next.yaml --html page.html",
			"plimsoll simulate --history 7d --history-file events.db --queues next.yaml --node 4:cpu=64,memory=256Gi",
			"plimsoll simulate --nodes openb_node_list_all_node.csv --pods openb_pod_list_default.csv --pack -o json")
}

// Run simulates.
func (cmd *simulateCmd) Run(ctx context.Context, a *app) error {
	if err := cmd.check(); err != nil {
		return err
	}
	if cmd.Scenario != "" {
		return cmd.runScenarios(a)
	}
	configs, err := cmd.policies(a)
	if err != nil {
		return err
	}
	if cmd.History != "" {
		return cmd.runHistory(ctx, a, configs)
	}
	workload, err := cmd.workload()
	if err != nil {
		return err
	}
	return cmd.report(a, configs, func(int) *simulate.Workload { return workload })
}

// report runs a workload under each of some policies, and prints the results.
func (cmd *simulateCmd) report(a *app, configs []simulate.Config, workload func(i int) *simulate.Workload) error {
	var reports []*simulate.Report
	for i := range configs {
		report, timing, err := simulate.Run(&configs[i], workload(i))
		if err != nil {
			return err
		}
		reports = append(reports, report)
		tellTiming(a, report, timing)
	}
	if cmd.HTML != "" {
		if err := os.WriteFile(cmd.HTML, simulate.Page(reports), 0o644); err != nil { //nolint:gosec // for anybody
			return fmt.Errorf("write the page: %w", err)
		}
	}
	return cmd.print(a, reports, func(o *output) { printReports(o, reports) })
}

// check refuses flags that would have no effect.
func (cmd *simulateCmd) check() error {
	if cmd.Scenario == "" && cmd.Name != "" {
		return plimsoll.Invalid("--name", "has no effect without --scenario; leave it out")
	}
	if cmd.History == "" && cmd.HistoryFile != "" {
		return plimsoll.Invalid("--history-file", "has no effect without --history; leave it out, or add --history 7d")
	}
	if cmd.History != "" && (cmd.Pack || cmd.Hasten != 1) {
		return plimsoll.Invalid("--history", "cannot be had with --pack or --hasten; leave those out")
	}
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--nodes", cmd.Nodes != ""},
		{"--node", len(cmd.Node) > 0},
		{"--queues", cmd.Queues != ""},
		{"--compare", cmd.Compare != ""},
		{"--placement", cmd.Placement != ""},
		{"--pack", cmd.Pack},
		{"--hasten", cmd.Hasten != 1},
		{"--until", cmd.Until != 0},
		{"--html", cmd.HTML != ""},
	} {
		if cmd.Scenario != "" && flag.given {
			return plimsoll.Invalid(flag.name, "has no effect with --scenario; leave it out")
		}
	}
	if !(cmd.Hasten >= 0.001 && cmd.Hasten <= 1e6) {
		return plimsoll.Invalid("--hasten", "is %v; give a factor from 0.001 to 1000000", cmd.Hasten)
	}
	if cmd.Until < 0 {
		return plimsoll.Invalid("--until", "is %v; give a duration above 0", cmd.Until)
	}
	return nil
}

// tellTiming tells how fast the scheduler was.
func tellTiming(a *app, r *simulate.Report, t *simulate.Timing) {
	spent := time.Duration(t.Scheduling)
	rate := 0.0
	if spent > 0 {
		rate = float64(t.Decisions) / spent.Seconds()
	}
	a.notes.printf("%s: %d decisions in %s of scheduling, %.0f a second, in %d turns\n",
		r.Policy, t.Decisions, spent.Round(time.Millisecond), rate, t.Turns)
}

// policies returns the configurations to run.
func (cmd *simulateCmd) policies(a *app) ([]simulate.Config, error) {
	base := simulate.Config{
		Name: "default", Queues: plimsoll.DefaultQueues(), Seed: cmd.Seed, Until: int64(cmd.Until),
		Clock: func() int64 { return a.now().UnixNano() },
	}
	if cmd.Placement != "" {
		name, data, err := a.readFile(cmd.Placement)
		if err != nil {
			return nil, err
		}
		file, err := config.ParsePlacement(name, data)
		if err != nil {
			return nil, err
		}
		base.Chain = file.Chain
	}
	list := []simulate.Config{base}
	for i, path := range []string{cmd.Queues, cmd.Compare} {
		if path == "" {
			continue
		}
		name, data, err := a.readFile(path)
		if err != nil {
			return nil, err
		}
		c := base
		if c.Queues, err = config.ParseQueues(name, data); err != nil {
			return nil, err
		}
		c.Name = name
		if i == 0 {
			list[0] = c
		} else {
			list = append(list, c)
		}
	}
	return list, nil
}

// workload returns the workload that the flags name.
func (cmd *simulateCmd) workload() (*simulate.Workload, error) {
	w, err := cmd.jobs()
	if err != nil {
		return nil, err
	}
	if err := cmd.addNodes(w); err != nil {
		return nil, err
	}
	if len(w.Nodes) == 0 {
		return nil, plimsoll.Invalid("--node", "is missing, as there are no nodes; add some, such as --node 40:cpu=64,memory=256Gi")
	}
	if cmd.Pack {
		w.Pack()
	}
	w.Hasten(cmd.Hasten)
	return w, nil
}

// addNodes adds the nodes that the flags name.
func (cmd *simulateCmd) addNodes(w *simulate.Workload) error {
	if cmd.Nodes != "" {
		f, err := openFile(cmd.Nodes)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was only read
		nodes, err := simulate.ReadOpenBNodes(cmd.Nodes, f)
		if err != nil {
			return err
		}
		w.Nodes = append(w.Nodes, nodes...)
	}
	for _, spec := range cmd.Node {
		count, capacity, err := parseNodes(spec)
		if err != nil {
			return err
		}
		w.AddNodes(count, capacity)
	}
	return nil
}

func (cmd *simulateCmd) jobs() (*simulate.Workload, error) {
	switch {
	case cmd.Pods != "":
		f, err := openFile(cmd.Pods)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read
		return simulate.ReadPods(cmd.Pods, f)
	case cmd.Synthetic != "":
		s, err := parseSynthetic(cmd.Synthetic)
		if err != nil {
			return nil, err
		}
		s.Seed = cmd.Seed
		return simulate.Synthesize(s), nil
	}
	return nil, plimsoll.Invalid("--synthetic", "is missing, as there are no jobs; give --scenario, --pods, --history, or --synthetic -")
}

func openFile(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &plimsoll.Error{Code: plimsoll.CodeInvalid, Op: "read " + path, Msg: cause(err)}
	}
	return f, nil
}

// parseNodes reads COUNT:NAME=AMOUNT,….
func parseNodes(spec string) (count int, capacity plimsoll.Resources, err error) {
	number, amounts, ok := strings.Cut(spec, ":")
	if count, err = strconv.Atoi(number); !ok || err != nil || count < 1 || count > 200_000 {
		return 0, nil, plimsoll.Invalid("--node", "%q does not begin with a count from 1 to 200000 and a colon; write 40:cpu=64,memory=256Gi", spec)
	}
	capacity = plimsoll.Resources{}
	for pair := range strings.SplitSeq(amounts, ",") {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return 0, nil, plimsoll.Invalid("--node", "%q has no =; write 40:cpu=64,memory=256Gi", pair)
		}
		if capacity[name], err = plimsoll.ParseQuantity(name, text); err != nil {
			return 0, nil, plimsoll.Invalid("--node", "%s: %v", name, err)
		}
	}
	return count, capacity, nil
}

// parseSynthetic reads NAME=VALUE,….
func parseSynthetic(spec string) (simulate.Synthetic, error) {
	s := simulate.DefaultSynthetic
	if spec == "-" {
		return s, nil
	}
	for pair := range strings.SplitSeq(spec, ",") {
		name, text, _ := strings.Cut(pair, "=")
		var err error
		switch name {
		case "jobs":
			s.Jobs, err = strconv.Atoi(text)
		case "users":
			s.Users, err = strconv.Atoi(text)
		case "tasks":
			s.Tasks, err = strconv.Atoi(text)
		case "span":
			s.Span, err = readDuration(text)
		case "runtime":
			s.Runtime, err = readDuration(text)
		case "failures":
			s.Failures, err = strconv.ParseFloat(text, 64)
		default:
			return s, plimsoll.Invalid(
				"--synthetic", "%q is not known; use jobs, users, span, tasks, runtime and failures", name,
			)
		}
		if err != nil {
			return s, plimsoll.Invalid("--synthetic", "%s is %q, which cannot be read; write for example jobs=2000,span=24h", name, text)
		}
	}
	return s, s.Validate()
}

func sortedNames(m map[string]float64) []string {
	r := plimsoll.Resources{}
	for name := range m {
		r[name] = 0
	}
	return r.Names()
}
