package engine_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// row is a row of the table of events in the design of package state.
type row struct {
	name     string // type, change and detail
	code     string // what tells it; empty: nothing
	scenario string // file with it; without code: when it will be told, or why never
}

func designedRows(t *testing.T) (rows []row) {
	design, err := os.ReadFile("../state/DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(design), "\n| row | action | code | scenario |\n|---|---|---|---|\n")
	if !found {
		t.Fatal("there is no table of events")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			t.Fatalf("a row has other columns: %s", line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(strings.Fields(cells[0])) != 3 || cells[1] == "" {
			t.Errorf("%q is no type, change and detail with an action", line)
		}
		rows = append(rows, row{cells[0], cells[2], cells[3]})
	}
	return rows
}

// printedEvent matches an event in the output of a scenario.
var printedEvent = regexp.MustCompile(`(?m)^(?:APP|NODE|QUEUE|REQUEST|USERGROUP) (?:NONE|SET|ADD|REMOVE) [A-Z_]+`)

// scenarioEvents returns the rows that each scenario has, by its name.
func scenarioEvents(t *testing.T) map[string]map[string]bool {
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string]bool{}
		for _, name := range printedEvent.FindAllString(string(text), -1) {
			rows[name] = true
		}
		seen[filepath.Base(file)] = rows
	}
	return seen
}

// TestDesignListsTheEvents holds the table of events against the details of the vocabulary and the
// scenarios. Each detail has a row, each row that is told is in its scenario, and no other is in
// any.
func TestDesignListsTheEvents(t *testing.T) {
	rows, seen := designedRows(t), scenarioEvents(t)
	told, details := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		if _, twice := told[r.name]; twice {
			t.Errorf("%s is there twice", r.name)
		}
		told[r.name] = r.code != ""
		details[strings.Fields(r.name)[2]] = true
		if r.code != "" {
			if !seen[r.scenario][r.name] {
				t.Errorf("%s is not in the scenario %q", r.name, r.scenario)
			}
			continue
		}
		if when, why, _ := strings.Cut(r.scenario, ": "); when != "later" && when != "never" || why == "" {
			t.Errorf("%s is not told; say \"later: …\" or \"never: …\", not %q", r.name, r.scenario)
		}
	}
	for d := range plimsoll.ChangeDetail(1000) {
		if d.Known() && !details[d.String()] {
			t.Errorf("no row has %s (%d)", d, d)
		}
	}
	for _, scenario := range slices.Sorted(maps.Keys(seen)) {
		for name := range seen[scenario] {
			if !told[name] {
				t.Errorf("the scenario %s has %s, which is not told by the table", scenario, name)
			}
		}
	}
}
