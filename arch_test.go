package plimsoll_test

import (
	"os"
	"path/filepath"
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
	pages = append(pages, inner...)
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
