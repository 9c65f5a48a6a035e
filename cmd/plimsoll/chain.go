package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/placement"
)

type configChainCmd struct {
	File string `arg:"" optional:"" help:"Placement file; without it the default chain is shown."`
	formatFlag
}

// Help is the detail of the help text.
func (configChainCmd) Help() string {
	return example("plimsoll config chain", "plimsoll config chain examples/placement.yaml")
}

// Run shows the stages of a chain.
func (cmd *configChainCmd) Run(a *app) error {
	p := config.DefaultPlacement()
	if cmd.File != "" {
		name, data, err := a.readFile(cmd.File)
		if err != nil {
			return err
		}
		if p, err = config.ParsePlacement(name, data); err != nil {
			return err
		}
	}
	return cmd.print(a, config.PlacementFile(&p), func(o *output) { chainTable(o, &p) })
}

// chainTable prints a line for each stage, in the order in which nodes pass them. The parts of an
// expression are indented below it.
func chainTable(o *output, p *config.Placement) {
	t := chainRows{p: p, stages: map[string]placement.Stage{}}
	for _, s := range placement.Stages() {
		for _, name := range append([]string{s.Name}, s.Aliases...) {
			t.stages[name] = s
		}
	}
	t.add(p.Expression, "", "")
	columns(o, []string{"#", "STAGE", "IN RFD 60", "ACTION", "READS", "SETTING"}, t.rows)
	if len(p.Settings.OwnerRules) > 0 {
		o.printf("\nnodes of their own:\n")
		for _, pair := range plimsoll.SortedPairs(p.Settings.OwnerRules) {
			o.printf("  %s: %s\n", oneLine(pair[0]), oneLine(pair[1]))
		}
	}
}

// chainRows makes the rows of chainTable.
type chainRows struct {
	p      *config.Placement
	stages map[string]placement.Stage // by all their names
	rows   [][]string
	n      int // stages so far
}

// add adds an expression. word, such as "or", stands before its first line.
func (t *chainRows) add(e placement.Expression, indent, word string) {
	definition, defined := t.p.Define[e.Name]
	switch {
	case defined:
		t.heading(indent + word + e.Name + ":")
		t.add(definition, indent+"  ", "")
	case e.Op == "or":
		if word != "" {
			t.heading(indent + strings.TrimRight(word, " "))
			indent += "  "
		}
		for i, item := range e.List {
			t.add(item, indent, map[bool]string{true: "either ", false: "or "}[i == 0])
		}
	case e.Op == "pipe":
		if word != "" {
			t.heading(indent + strings.TrimRight(word, " "))
			indent += "  "
		}
		for _, item := range e.List {
			t.add(item, indent, "")
		}
	default:
		t.n++
		s := t.stages[e.Name]
		t.rows = append(t.rows, []string{
			strconv.Itoa(t.n), indent + word + s.Name, rfd60(&s), stageKind(&s), stageReads(s.Reads),
			stageSetting(s.Name, &t.p.Settings),
		})
	}
}

func (t *chainRows) heading(text string) {
	t.rows = append(t.rows, []string{" ", text, " ", " ", " ", " "})
}

// rfd60 returns the name of a stage in RFD 60; empty if RFD 60 does not have the stage.
func rfd60(s *placement.Stage) string {
	for _, prefix := range []string{"hard-filter-", "soft-filter-"} {
		if i := slices.IndexFunc(s.Aliases, func(name string) bool { return strings.HasPrefix(name, prefix) }); i >= 0 {
			return s.Aliases[i]
		}
	}
	switch {
	case len(s.Aliases) > 0:
		return s.Aliases[0]
	case slices.Contains(
		[]string{"identity", "score-unreserved-disk", "score-current-platform", "score-next-reboot"}, s.Name,
	):
		return s.Name
	}
	return ""
}

func stageKind(s *placement.Stage) string {
	switch {
	case s.Scores:
		return "orders nodes"
	case s.Gives != placement.ReadsRecord:
		return "finds " + stageReads(s.Gives)
	case s.Name == "identity":
		return "keeps all"
	case s.Batch != nil && s.Name != "calculate-tickets":
		return "compares nodes"
	}
	return "drops nodes"
}

func stageReads(r placement.Reads) string {
	switch {
	case r&placement.ReadsFree != 0:
		return "free resources"
	case r&placement.ReadsInstances != 0:
		return "instances"
	}
	return "the node's record"
}

// stageSetting returns the name and value of the setting that a stage depends on.
func stageSetting(name string, s *placement.Settings) string {
	w := &s.Weights
	weight := func(name string, v float64) string { return fmt.Sprintf("weights.%s: %v", name, v) }
	most := "none"
	if s.MaxInstances > 0 {
		most = strconv.Itoa(s.MaxInstances)
	}
	return map[string]string{
		"headnode":                fmt.Sprintf("headnodes: %t", s.Headnodes),
		"capness":                 fmt.Sprintf("capness: %t", s.Capness),
		"instance-count":          "maxInstances: " + most,
		"sick-servers":            "sickFor: " + config.FormatDuration(time.Duration(s.SickFor)*time.Second),
		"owners-servers":          fmt.Sprintf("owners: %d", len(s.OwnerRules)),
		"large-servers":           fmt.Sprintf("largeServers: %t", s.LargeServers),
		"soft-locality":           fmt.Sprintf("ownerSpread: %t", s.OwnerSpread),
		"score-unreserved-memory": weight("unreservedMemory", w.UnreservedMemory),
		"score-unreserved-disk":   weight("unreservedDisk", w.UnreservedDisk),
		"score-unreserved-custom": weight("unreservedCustom", w.UnreservedCustom),
		"score-stranded-custom":   weight("unreservedCustom", w.UnreservedCustom),
		"score-owner-instances":   weight("ownerInstances", w.OwnerInstances),
		"score-current-platform":  weight("currentPlatform", w.CurrentPlatform),
		"score-next-reboot":       weight("nextReboot", w.NextReboot),
		"score-near":              weight("near", w.Near),
		"score-spread":            weight("spread", w.Spread),
		"score-random":            weight("random", w.Random),
	}[name]
}
