package plimsoll_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/lint"
)

// TestArchitecture compares the packages of this module with the deps block of ARCHITECTURE.md.
// Package lint defines the rules, and tests that it finds violations.
func TestArchitecture(t *testing.T) {
	markdown, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := lint.Parse(string(markdown), "plimsoll")
	if err != nil {
		t.Fatalf("ARCHITECTURE.md: %v", err)
	}
	_, packages, err := lint.List(".")
	if err != nil {
		t.Fatal(err)
	}
	found := page.Check(packages)
	exists := make(map[string]bool, len(packages))
	for _, pkg := range packages {
		exists[pkg.Path] = true
	}
	for _, path := range page.Pure() {
		if !exists[path] {
			continue // Check has reported it
		}
		src, err := lint.TypeCheck(".", "./"+path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, f := range lint.CheckPure(src) {
			f.Where = path + "/" + f.Where
			found = append(found, f)
		}
	}
	sleeps, err := lint.CheckSleeps(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	servers, err := lint.CheckServers(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	handlers, err := lint.CheckHandlers(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	found = append(found, append(append(sleeps, servers...), handlers...)...)
	lint.Sort(found)
	for _, f := range found {
		t.Error(f)
	}
}

// TestVoice checks comments and pages for the rules of style that a program can see.
func TestVoice(t *testing.T) {
	found, err := lint.CheckVoice(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	lint.Sort(found)
	for _, f := range found {
		t.Error(f)
	}
}

// TestEveryLineOfTheThreatModelHasItsTest compares docs/security.md with the tests that it names.
func TestEveryLineOfTheThreatModelHasItsTest(t *testing.T) {
	const page = "docs/security.md"
	markdown, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found, err := lint.CheckThreats(os.DirFS("."), page, string(markdown))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// TestDesignsNameWhatExists compares the pages on designs with the code and the tests that they
// name.
func TestDesignsNameWhatExists(t *testing.T) {
	pages, err := filepath.Glob("*/DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := filepath.Glob("internal/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, inner...), designPage, yunikornPage)
	if len(pages) < 5 {
		t.Fatalf("too few pages: %v", pages)
	}
	found, err := lint.CheckNames(os.DirFS("."), pages)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// yunikornPage says how Plimsoll differs from YuniKorn.
const yunikornPage = "docs/yunikorn.md"

// TestEveryDefectOfYuniKornHasATest that shows that Plimsoll does not have it.
func TestEveryDefectOfYuniKornHasATest(t *testing.T) {
	markdown, err := os.ReadFile(yunikornPage)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(markdown), "| defect of YuniKorn | test |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	row, rows := regexp.MustCompile("^\\| .+ \\| `Test[A-Za-z]+` \\|$"), 0
	for line := range strings.Lines(table) {
		if rows++; !row.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Errorf("%s: a row has a defect and a test: %s", yunikornPage, line)
		}
	}
	if rows < 12 {
		t.Errorf("%s: the table of defects has %d rows, want 12 at least", yunikornPage, rows)
	}
}

// designPage has the tables of the event design.
const designPage = "DESIGN.md"

// TestEverySentence of the event design has code and a test, or the reason for which it has none.
func TestEverySentence(t *testing.T) {
	markdown, err := os.ReadFile(designPage)
	if err != nil {
		t.Fatal(err)
	}
	const heads = "| sentence | code | test, or why not |"
	reasons := regexp.MustCompile(`^\*(?:replaced|rejected|later|background)\*`)
	test := regexp.MustCompile("`(?:Test|Fuzz|Benchmark)[A-Za-z]+`")
	rows, inTable := 0, false
	seen := map[string]bool{}
	for i, line := range strings.Split(string(markdown), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		switch {
		case line == heads:
			inTable = true
			continue
		case !strings.HasPrefix(line, "|"):
			inTable = false
			continue
		case !inTable || strings.HasPrefix(line, "|--"):
			continue
		case len(cells) != 3 || strings.TrimSpace(cells[0]) == "":
			t.Errorf("%s:%d: a row has a sentence, code, and a test or a reason", designPage, i+1)
			continue
		}
		rows++
		sentence, code, why := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		if seen[sentence] {
			t.Errorf("%s:%d: %q is there twice", designPage, i+1, sentence)
		}
		seen[sentence] = true
		if code == "–" && !reasons.MatchString(why) {
			t.Errorf("%s:%d: without code there is a reason: replaced, rejected, later or background", designPage, i+1)
		}
		if code != "–" && !test.MatchString(why) && len(strings.Fields(why)) < 6 {
			t.Errorf("%s:%d: code has a test, or a reason", designPage, i+1)
		}
	}
	if rows < 90 {
		t.Errorf("there are %d sentences; the design has more", rows)
	}
}
