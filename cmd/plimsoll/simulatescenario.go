package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// Outcomes of a scenario.
const (
	scenarioAgrees = "agrees"
	scenarioDiffs  = "differs"
	scenarioBetter = "not binding" // it differs from an outcome that is known to be weak
	scenarioNotYet = "not yet"
)

// scenariosView is the result of a file of scenarios.
type scenariosView struct {
	Agree      int            `json:"agree"`
	Differ     int            `json:"differ"`
	NotBinding int            `json:"notBinding"`
	NotYet     map[string]int `json:"notYet"` // by area
	Seed       uint64         `json:"seed"`
	Scenarios  []scenarioView `json:"scenarios"`
}

type scenarioView struct {
	Name        string                `json:"name"`
	Area        string                `json:"area"`
	Shows       string                `json:"shows"`
	Outcome     string                `json:"outcome"`
	Better      string                `json:"better,omitempty"` // why the expectation is not binding
	Differences []simulate.Difference `json:"differences"`
}

// runScenarios runs the scenarios of a file and prints what differs.
func (cmd *simulateCmd) runScenarios(a *app) error {
	name, data, err := a.readFile(cmd.Scenario)
	if err != nil {
		return err
	}
	list, err := simulate.ParseScenarios(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	view := scenariosView{NotYet: map[string]int{}, Seed: cmd.Seed, Scenarios: []scenarioView{}}
	var names []string
	for i := range list {
		s := &list[i]
		if names = append(names, s.Name); cmd.Name != "" && s.Name != cmd.Name {
			continue
		}
		if err := view.add(s, cmd.Seed); err != nil {
			return err
		}
	}
	if cmd.Name != "" && len(view.Scenarios) == 0 {
		text := ""
		if near := plimsoll.Nearest(cmd.Name, names); near != "" {
			text = fmt.Sprintf("; did you mean %q?", near)
		}
		return plimsoll.Invalid("--name", "%q is not a scenario of %s%s", cmd.Name, name, text)
	}
	if err := cmd.print(a, view, view.table); err != nil {
		return err
	}
	if view.Differ > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// add runs a scenario.
func (v *scenariosView) add(s *simulate.Scenario, seed uint64) error {
	sv := scenarioView{
		Name: s.Name, Area: s.Area, Shows: s.Shows, Better: s.Better, Outcome: scenarioAgrees,
		Differences: []simulate.Difference{},
	}
	if area := s.NotYet(); area != "" {
		sv.Outcome = scenarioNotYet
		v.NotYet[area]++
		v.Scenarios = append(v.Scenarios, sv)
		return nil
	}
	differences, err := simulate.RunScenario(s, config.ParseQueues, seed)
	if err != nil {
		return err
	}
	sv.Differences = append(sv.Differences, differences...)
	switch {
	case len(differences) == 0:
		v.Agree++
	case s.Better != "" && !slices.ContainsFunc(differences, unplayed):
		sv.Outcome = scenarioBetter
		v.NotBinding++
	default:
		sv.Outcome = scenarioDiffs
		v.Differ++
	}
	v.Scenarios = append(v.Scenarios, sv)
	return nil
}

func unplayed(d simulate.Difference) bool { return d.Unplayed }

// table prints the differences for people.
func (v *scenariosView) table(o *output) {
	for i := range v.Scenarios {
		s := &v.Scenarios[i]
		if len(s.Differences) == 0 {
			continue
		}
		o.printf("%s (%s): %s\n", oneLine(s.Name), oneLine(s.Area), oneLine(s.Shows))
		if s.Better != "" {
			o.printf("  not binding: %s\n", oneLine(s.Better))
		}
		for _, d := range s.Differences {
			step := ""
			if d.Step > 0 {
				step = fmt.Sprintf("step %d: ", d.Step)
			}
			o.printf("  %s%s: want %s, got %s\n", step, oneLine(d.What), oneLine(d.Want), oneLine(d.Got))
		}
		o.printf("\n")
	}
	o.printf("%d agree, %d differ", v.Agree, v.Differ)
	if v.NotBinding > 0 {
		o.printf(", %d differ from what is not binding", v.NotBinding)
	}
	if len(v.NotYet) > 0 {
		total, parts := 0, []string{}
		for _, area := range slices.Sorted(maps.Keys(v.NotYet)) {
			total += v.NotYet[area]
			parts = append(parts, fmt.Sprintf("%s %d", area, v.NotYet[area]))
		}
		o.printf(", %d not yet (%s)", total, strings.Join(parts, ", "))
	}
	o.printf("\n")
}
