package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// queueCase is a queue file with the verdict of YuniKorn's loader on it.
type queueCase struct {
	Name, Area, YAML string
	Accept           bool
}

// readQueueCases reads the cases from the folder that QUEUE_CONFORMANCE names.
func readQueueCases(t *testing.T) []queueCase {
	t.Helper()
	folder := os.Getenv("QUEUE_CONFORMANCE")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "shared", "conformance", "queues")
	}
	path := filepath.Join(folder, "config-cases.json")
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		t.Skipf("there are no cases in %s; name their folder in QUEUE_CONFORMANCE", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	var cases []queueCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

var differenceRow = regexp.MustCompile("(?m)^\\| `([^`]*)` \\| (here|there) \\|")

// differences reads the table of DESIGN.md: the cases whose verdict differs, and whether it is
// accepted here or there.
func differences(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, row := range differenceRow.FindAllStringSubmatch(string(data), -1) {
		out[row[1]] = row[2]
	}
	return out
}

// TestVerdictsAreYuniKorns: each queue file is taken or refused as YuniKorn does, or the table in
// DESIGN.md says why not.
func TestVerdictsAreYuniKorns(t *testing.T) {
	cases, differ := readQueueCases(t), differences(t)
	if len(cases) == 0 {
		t.Fatal("there are no cases")
	}
	met := map[string]bool{}
	for _, c := range cases {
		_, err := config.ParseQueues("q.yaml", []byte(c.YAML))
		accepted := map[bool]string{true: "here", false: "there"}
		switch where := differ[c.Name]; {
		case where == "" && (err == nil) != c.Accept:
			t.Errorf("%s: is accepted only %s; see DESIGN.md: %v\n%s", c.Name, accepted[err == nil], err,
				strings.TrimSpace(c.YAML))
		case where != "" && (err == nil) == c.Accept:
			t.Errorf("%s: there is no difference; take it out of DESIGN.md", c.Name)
		case where != "" && where != accepted[err == nil]:
			t.Errorf("%s: is accepted only %s; DESIGN.md says %s", c.Name, accepted[err == nil], where)
		}
		met[c.Name] = true
	}
	for name := range differ {
		if !met[name] {
			t.Errorf("%s of DESIGN.md is no case", name)
		}
	}
	t.Logf("%d files, %d differences", len(cases), len(differ))
}
