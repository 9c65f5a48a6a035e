package sim

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tables of DESIGN.md name tests that exist, and have a line for each failure case and mutant.
func TestNamedTestsExist(t *testing.T) {
	design, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, filepath.Join("..", ".."))
	name := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	cases, mutants, part := 0, 0, ""
	for line := range strings.Lines(string(design)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			part = strings.TrimSpace(heading)
		}
		named := name.FindAllStringSubmatch(line, -1)
		if len(named) > 0 && part == "The failure cases" && strings.HasPrefix(line, "| ") {
			cases++
		}
		if len(named) > 0 && part == "Faults that must be found" && strings.HasPrefix(line, "| ") {
			mutants++
		}
		for _, n := range named {
			if !tests[n[1]] {
				t.Errorf("DESIGN.md names %s, which does not exist", n[1])
			}
		}
	}
	ways := fmt.Sprintf("A history has %d failovers: each of the %d ways", 2*len(failovers), len(failovers))
	if !strings.Contains(string(design), ways) {
		t.Errorf("DESIGN.md does not say %q; bring its numbers of failovers up to date", ways)
	}
	if cases != 14 || mutants != 9 {
		t.Errorf("the tables have tests for %d failure cases and %d mutants, want 14 and 9", cases, mutants)
	}
}

// testsOf returns the names of all tests of the module.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	tests, declaration := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, found := range declaration.FindAllSubmatch(source, -1) {
				tests[string(found[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tests
}
