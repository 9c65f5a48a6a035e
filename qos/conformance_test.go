package qos

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// deviation is an intended difference from the cases. It is identified by the subject of a case,
// not by its id. DESIGN.md has the same table.
type deviation struct {
	name    string
	applies func(c *conformanceCase) bool
}

var deviations = []deviation{
	{"no http probe", (*conformanceCase).usesProbe},
	{"a step of zero", (*conformanceCase).stepsByZero},
	{"zero is the default", (*conformanceCase).leavesThresholdOut},
	{"contradiction", (*conformanceCase).contradictsItself},
	{"nothing to gain", (*conformanceCase).stopsTheIdle},
	{"unlimited at the machine's size", (*conformanceCase).capsAboveMachine},
	{labelExpressions, (*conformanceCase).selectsByExpression},
	{"labels are any text", (*conformanceCase).selectsOddly},
	{"memory throttles nobody", (*conformanceCase).throttlesForMemory},
	{"below the lines that are known", (*conformanceCase).restoresBlindly},
}

// labelExpressions is a deviation that in a case of matching concerns single policies: those that
// match labels by more than equality are left out.
const labelExpressions = "label expressions"

// conformanceCase is a case of any of the files. Unknown fields are errors: a case must not pass
// because half of it was not read.
type conformanceCase struct {
	ID, Description, Basis, Comment string

	Input  *actInput                    // evict, throttle, restore, sorting
	Accept []map[string]json.RawMessage // outcomes; the first is preferred

	NodeLabels    map[string]string // analyzer
	NodeQOS       []analyzerQOS
	Actions       []analyzerAction
	PodQOS        []podQOS // analyzer, match
	Pods          []analyzerPod
	Ticks         []analyzerTick
	ExpectedTicks []json.RawMessage

	Kind     string // validation
	Object   json.RawMessage
	Expected json.RawMessage // match, validation

	left []string // names of policies that were left out, with the deviation
}

// tally counts the results of the cases.
type tally struct {
	ran, deviates, later int
	shown                []string // names of deviations that a case showed
}

// TestConformance holds the package against cases of our own design whose expectations come from
// running the original, or by hand where it contradicts its design: those of the folder that
// QOS_CONFORMANCE names, and some in testdata. The adapter renames fields and converts units. Of
// several acceptable outcomes the first is preferred.
func TestConformance(t *testing.T) {
	t.Run("own", func(t *testing.T) {
		n := conform(t, filepath.Join("testdata", "conformance"))
		if n.later > 0 {
			t.Errorf("%d cases met an outcome that is not the first; our own must meet the first", n.later)
		}
		for _, d := range deviations {
			if !slices.Contains(n.shown, d.name) {
				t.Errorf("no case of our own shows the deviation %q", d.name)
			}
		}
	})
	folder := os.Getenv("QOS_CONFORMANCE")
	if folder == "" {
		folder = filepath.Join("..", "..", "shared", "conformance", "qos")
	}
	t.Run("shared", func(t *testing.T) {
		if _, err := os.Stat(folder); err != nil {
			t.Skipf("there are no shared cases here: %s; QOS_CONFORMANCE names the folder that has them", err)
		}
		conform(t, folder)
	})
}

func conform(t *testing.T, folder string) (n tally) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		kind := strings.TrimSuffix(filepath.Base(name), ".json")
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var raw []json.RawMessage
		if err := json.Unmarshal(data, &raw); err != nil {
			t.Fatalf("%s: %s", name, err)
		}
		for i := range raw {
			n.run(t, kind, raw[i])
		}
	}
	t.Logf(
		"%d cases ran, %d of them deviate on purpose, %d met an acceptable outcome that is not the first", n.ran,
		n.deviates, n.later,
	)
	if n.ran == 0 {
		t.Errorf("%s holds no case", folder)
	}
	return n
}

func (n *tally) run(t *testing.T, kind string, raw json.RawMessage) {
	var named struct{ ID string }
	if err := json.Unmarshal(raw, &named); err != nil {
		t.Fatal(err)
	}
	n.ran++
	t.Run(named.ID, func(t *testing.T) {
		c := &conformanceCase{}
		decode := json.NewDecoder(bytes.NewReader(raw))
		decode.DisallowUnknownFields()
		if err := decode.Decode(c); err != nil {
			t.Fatalf("the case has something that the adapter does not know: %s", err)
		}
		outcomes := c.check(t, kind)
		met := slices.IndexFunc(outcomes, func(faults []string) bool { return len(faults) == 0 })
		why := c.deviation()
		switch {
		case met == 0 && len(c.left) > 0:
			n.deviates++
			t.Logf("left out, since they deviate on purpose (%s): %s", labelExpressions, strings.Join(c.left, ", "))
		case met == 0:
		case why != "":
			n.deviates++
			n.shown = append(n.shown, why)
			t.Logf("deviates on purpose (%s): %s", why, strings.Join(outcomes[0], "; "))
		case met > 0:
			n.later++
			t.Logf("met outcome %d, not the first: %s", met+1, strings.Join(outcomes[0], "; "))
		default:
			t.Errorf("%s\n%s", c.Description, strings.Join(outcomes[0], "\n"))
		}
	})
}

// deviation returns the name of the first deviation that applies.
func (c *conformanceCase) deviation() string {
	for _, d := range deviations {
		if d.applies(c) {
			return d.name
		}
	}
	return ""
}

// check runs a case and says, for each acceptable outcome, where it differs.
func (c *conformanceCase) check(t *testing.T, kind string) [][]string {
	switch kind {
	case "evict", "throttle", "restore":
		return c.checkAct(t, kind)
	case "sorting":
		return c.checkSort(t)
	case "analyzer":
		return [][]string{c.checkTicks(t)}
	case "podqos-match":
		return [][]string{c.checkMatch(t)}
	case "validation":
		return [][]string{c.checkValid(t)}
	}
	t.Fatalf("%s.json: nobody knows how to run such cases", kind)
	return nil
}

// into decodes a part of a case.
func into[T any](t *testing.T, raw json.RawMessage) (out T) {
	t.Helper()
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%s: %s", raw, err)
	}
	return out
}

// TestDeviationsAreListed holds the names of the deviations against DESIGN.md, which gives the
// reasons.
func TestDeviationsAreListed(t *testing.T) {
	page, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deviations {
		if !bytes.Contains(page, []byte("| "+d.name+" |")) {
			t.Errorf("DESIGN.md does not give the reason for the deviation %q", d.name)
		}
	}
}
