package simulate_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// scenarios reads the file of scenarios from the folder that QUEUE_CONFORMANCE names.
func scenarios(t *testing.T) []simulate.Scenario {
	folder := os.Getenv("QUEUE_CONFORMANCE")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "shared", "conformance", "queues")
	}
	path := filepath.Join(folder, "scenarios.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skip("there are no scenarios in " + folder + "; name their folder with QUEUE_CONFORMANCE")
	}
	return scenariosOf(t, path)
}

func scenariosOf(t *testing.T, path string) []simulate.Scenario {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := simulate.ParseScenarios(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("the file has no scenarios")
	}
	return list
}

// TestScenariosAgree compares all scenarios with their expectations. Those of disagreeing must
// differ: one that agrees is to leave the list.
func TestScenariosAgree(t *testing.T) {
	found := map[string]bool{}
	list, seed := scenarios(t), testrun.Seed(t)
	for i := range list {
		s := &list[i]
		if s.NotYet() != "" {
			continue
		}
		found[s.Name] = true
		t.Run(s.Name, func(t *testing.T) {
			differences, err := simulate.RunScenario(s, config.ParseQueues, seed)
			if err != nil {
				t.Fatal(err)
			}
			why, known := disagreeing[s.Name]
			switch {
			case s.Better != "":
			case known && len(differences) == 0:
				t.Errorf("it agrees; remove it from the list of those that do not (%s)", why)
			case known:
			default:
				for _, d := range differences {
					t.Errorf("step %d: %s: want %s, got %s", d.Step, d.What, d.Want, d.Got)
				}
			}
		})
	}
	for name := range disagreeing {
		if !found[name] {
			t.Errorf("disagreeing[%q]: there is no such scenario", name)
		}
	}
}

// TestExamplesAgree runs the scenarios of the examples, each twice: they agree, and a seed has one
// outcome.
func TestExamplesAgree(t *testing.T) {
	list := scenariosOf(t, filepath.Join("..", "..", "examples", "scenarios.json"))
	seed := testrun.Seed(t)
	for i := range list {
		for range 2 {
			differences, err := simulate.RunScenario(&list[i], config.ParseQueues, seed)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range differences {
				t.Errorf("%s: step %d: %s: want %s, got %s", list[i].Name, d.Step, d.What, d.Want, d.Got)
			}
		}
	}
}

// TestDifferencesAreFound changes each expectation of the examples, and expects a difference.
func TestDifferencesAreFound(t *testing.T) {
	one := func(n int32) *int32 { return &n }
	for name, change := range map[string]func(e *simulate.Expectation){
		"running": func(e *simulate.Expectation) { e.Jobs["site"] = simulate.JobExpectation{Running: one(5)} },
		"waiting": func(e *simulate.Expectation) { e.Jobs["site"] = simulate.JobExpectation{Waiting: one(5)} },
		"state":   func(e *simulate.Expectation) { e.Jobs["site"] = simulate.JobExpectation{State: "Accepted"} },
		"queue":   func(e *simulate.Expectation) { e.Jobs["site"] = simulate.JobExpectation{Queue: "root.batch"} },
		"reject":  func(e *simulate.Expectation) { e.Jobs["site"] = simulate.JobExpectation{Rejected: true} },
		"group": func(e *simulate.Expectation) {
			e.Jobs["site"] = simulate.JobExpectation{ByGroup: map[string]int32{"w": 1}}
		},
		"queues": func(e *simulate.Expectation) { e.Queues = map[string]string{"root": "static"} },
		"sorted": func(e *simulate.Expectation) { e.NodesSorted = []int64{1, 2} },
		"node": func(e *simulate.Expectation) {
			e.Nodes = map[string]map[string]string{"n1": {"cpu": "1"}}
		},
	} {
		s := scenariosOf(t, filepath.Join("..", "..", "examples", "scenarios.json"))[0]
		change(s.Steps[len(s.Steps)-1].Expect)
		differences, err := simulate.RunScenario(&s, config.ParseQueues, 1)
		if err != nil || len(differences) != 1 {
			t.Errorf("%s: differences %v, error %v; want one difference", name, differences, err)
		}
	}
}

// TestScenariosAreReadStrictly gives wrong files.
func TestScenariosAreReadStrictly(t *testing.T) {
	for _, text := range []string{`{}`, `[{"name":""}]`, `[{"name":"a"},{"name":"a"}]`, `[{"name":"a","x":1}]`} {
		if _, err := simulate.ParseScenarios([]byte(text)); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: error %v, want an invalid value", text, err)
		}
	}
}
