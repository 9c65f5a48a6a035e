// Package lint keeps the rules of this repository that no compiler and no public linter knows: who
// may import whom, and what a pure package must not do.
//
// Parse reads the ```deps block of ARCHITECTURE.md; Page.Check holds it against the packages that
// go list finds; CheckPure looks into the type-checked files of one pure package for goroutines,
// clocks, global randomness and decisions that depend on the order of a map; CheckSleeps finds
// tests that sleep; CheckHandlers finds services without bounds on what they decode. Everything is
// a function of its input, apart from List and TypeCheck, which run the go command and read files.
// Apart from CheckSleeps it does not look at test files, nor at files that are left out on this
// operating system.
//
// Cost: List is one run of go list; TypeCheck compiles what a package imports, unless the build
// cache has it.
//
// The idea is that of tailscale's deps tests and Go's own go/build deps_test: the page that people
// read is the rule, so it cannot go stale. Its only caller is TestArchitecture in the root.
package lint

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is one violation of a rule.
type Finding struct {
	Where string // a package, or file:line
	What  string // what is wrong and what to do about it
}

// String prints the finding on one line.
func (f Finding) String() string { return f.Where + ": " + f.What }

func finding(where, format string, args ...any) Finding {
	return Finding{Where: where, What: fmt.Sprintf(format, args...)}
}

// Sort orders findings by place and text.
func Sort(findings []Finding) {
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.What, b.What))
	})
}
