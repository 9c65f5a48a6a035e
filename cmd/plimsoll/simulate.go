package main

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
)

type simulateCmd struct {
	Scenario string `help:"File of scenarios, to be compared with what they expect; - reads stdin." placeholder:"FILE"`
	Name     string `help:"Run only the scenario with this name." placeholder:"NAME"`
	Seed     uint64 `help:"Seed of all that is drawn. The same seed gives the same output." default:"1"`
	formatFlag
}

// Help is the detail of the help text.
func (simulateCmd) Help() string {
	return "It runs the coordinator's own scheduler in virtual time. No cluster is needed and none is touched.\n\n" +
		"A scenario file is a JSON list of scenarios: each has a queue file, steps, and what it expects after them. " +
		"The command prints what differs, and exits with 1 if anything does. Scenarios that need what is not " +
		"built yet (gangs, reservations, preemption) are counted and not run.\n\n" +
		example("plimsoll simulate --scenario examples/scenarios.json",
			"plimsoll simulate --scenario examples/scenarios.json --name two-leaves-share -o json")
}

// Run simulates.
func (cmd *simulateCmd) Run(_ context.Context, a *app) error {
	if cmd.Scenario == "" {
		return plimsoll.Invalid("--scenario", "is missing; name a file of scenarios, such as examples/scenarios.json")
	}
	return cmd.runScenarios(a)
}
