package simulate_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
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
// differ: one that agrees is to leave the list. Those of better must have the better outcome.
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
			var got []string
			for _, d := range differences {
				got = append(got, fmt.Sprintf("%s: want %s, got %s", d.What, d.Want, d.Got))
			}
			wanted, held := better[s.Name]
			switch {
			case held && !slices.Equal(got, wanted):
				t.Errorf("the better outcome differs by %q, this one by %q: %s", wanted, got, s.Better)
			case s.Better != "":
			case known && len(differences) == 0:
				t.Errorf("it agrees; remove it from the list of those that do not (%s)", why)
			case known:
			default:
				for i, d := range differences {
					t.Errorf("step %d: %s", d.Step, got[i])
				}
			}
		})
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(disagreeing)), slices.Collect(maps.Keys(better))) {
		if !found[name] {
			t.Errorf("%q is no scenario", name)
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
		"gone":    func(e *simulate.Expectation) { e.Jobs["site"] = simulate.JobExpectation{Gone: true} },
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
	for _, text := range []string{
		`{}`, `[{"name":""}]`, `[{"name":"a"},{"name":"a"}]`, `[{"name":"a","x":1}]`, `[{"name":"a"}] []`,
		`[{"name":"a","steps":[{}]}]`, `[{"name":"a","steps":[{"settle":true,"wait":"1s"}]}]`,
		`[{"name":"a","steps":[{"wait":"1"}]}]`, `[{"name":"a","steps":[{"wait":"-1s"}]}]`,
		`[{"name":"a","steps":[{"wait":"2000000h"}]}]`, `[{"name":"a","steps":[{"add":{"at":1e10}}]}]`,
		`[{"name":"a","steps":[{"submit":{"tasks":[{"at":-1e10}]}}]}]`,
		`null`, `[]`, `[{"name":"a","name":"b"}]`, `[{"name":"a","Name":"b"}]`,
		`[{"name":"a","steps":[{"expect":{"jobs":{"j":{},"j":{}}}}]}]`,
		`[{"name":"a","steps":[{"node":{"id":"n","count":-1}}]}]`, `[{"name":"a","steps":[{"node":{"count":100001}}]}]`,
		`[{"name":"a","steps":[{"resize":{"id":"n","count":2}}]}]`, `[{"name":"a","steps":[{"finish":{"job":"j"}}]}]`,
	} {
		if _, err := simulate.ParseScenarios([]byte(text)); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: error %v, want an invalid value", text, err)
		}
	}
}

// TestScenariosSayWhichStepCannotBePlayed plays steps that name what is not there, and goes on with
// no later step.
func TestScenariosSayWhichStepCannotBePlayed(t *testing.T) {
	const node = `{"node":{"id":"n","capacity":{"cpu":"1"}}},`
	for step, want := range map[string]string{
		`{"resize":{"id":"x","capacity":{"cpu":"1"}}}`:               `there is no node "x" at this step`,
		`{"external":{"node":"x","id":"e","resources":{"cpu":"1"}}}`: `there is no node "x" at this step`,
		`{"cordon":"x"}`:   `there is no node "x" at this step`,
		`{"uncordon":"x"}`: `there is no node "x" at this step`,
		`{"remove":"x"}`:   `there is no node "x"`,
		`{"kill":"x"}`:     `there is no job "x"`,
		`{"expect":{"jobs":{"x":{"gone":true}}}}`:                                `names "x", and no step submits it`,
		`{"expect":{"together":{"jobs":["x"]}}}`:                                 `names "x", and no step submits it`,
		`{"node":{"id":"n","capacity":{"cpu":"1"}}}`:                             `n has joined already`,
		`{"node":{"id":"m","capacity":{"cpu":"x"}}}`:                             `capacity.cpu`,
		`{"submit":{"job":"j","tasks":[{"group":"g","resources":{"cpu":"x"}}]}}`: `resources.cpu`,
	} {
		list, err := simulate.ParseScenarios([]byte(`[{"name":"a","queues":"partitions: [{name: default, queues: ` +
			`[{name: root}]}]","steps":[` + node + step + `,{"expect":{"nodes":{"n":{"cpu":"1"}}}}]}]`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := simulate.RunScenario(&list[0], config.ParseQueues, 1)
		if err != nil || len(got) != 1 || got[0].Step != 2 || !strings.Contains(got[0].Got, want) {
			t.Errorf("%s: differences %v, error %v; want %q at step 2", step, got, err, want)
		}
	}
}

// TestThePageOfScenariosHasEveryField compares docs/reference/scenario-file.md with the types.
func TestThePageOfScenariosHasEveryField(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "scenario-file.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[simulate.Scenario](), reflect.TypeFor[simulate.Step](), reflect.TypeFor[simulate.NodeStep](),
		reflect.TypeFor[simulate.SubmitStep](), reflect.TypeFor[simulate.TasksStep](),
		reflect.TypeFor[simulate.FinishStep](), reflect.TypeFor[simulate.ExternalStep](),
		reflect.TypeFor[simulate.ReloadStep](), reflect.TypeFor[simulate.Expectation](),
		reflect.TypeFor[simulate.JobExpectation](),
	} {
		for i := range of.NumField() {
			name := of.Field(i).Name
			if name = strings.ToLower(name[:1]) + name[1:]; name == "iD" {
				name = "id"
			}
			if !regexp.MustCompile("`([^`]*[^`a-zA-Z])?" + name + "\\b[^`]*`").Match(page) {
				t.Errorf("the page does not name %s of a %s", name, of.Name())
			}
		}
	}
}
