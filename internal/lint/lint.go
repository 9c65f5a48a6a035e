// Package lint checks the rules of this repository that no compiler and no public linter knows.
// Examples are the permitted imports and the limits of a pure package.
//
// Each check has a function:
//
//   - Parse reads the ```deps block of ARCHITECTURE.md, and Page.Check compares it with the packages
//     that go list finds.
//   - CheckPure searches the type-checked files of one pure package for goroutines, clocks, global
//     randomness and decisions that depend on the order of a map.
//   - CheckSleeps finds tests that sleep.
//   - CheckHandlers finds services that decode messages without bounds.
//   - CheckServers finds programs that serve HTTP without internal/transport.
//   - CheckThreats finds lines of the threat model without a test.
//   - CheckVoice finds comments and pages that break the rules of style.
//
// A test calls them and reports the findings:
//
//	found, err := lint.CheckVoice(os.DirFS("."))
//	for _, f := range found {
//		t.Error(f)
//	}
//
// Everything is a function of its input, except for List and TypeCheck, which run the go command
// and read files. Files that are left out on this operating system are not checked.
//
// Cost: List is one run of go list. TypeCheck compiles the imports of a package, unless the build
// cache has them.
//
// The idea is that of tailscale's deps tests and Go's own go/build deps_test: the page that people
// read is the rule, so it cannot become outdated. Its only caller is TestArchitecture, with its
// neighbours, in the root.
package lint

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is one violation of a rule.
type Finding struct {
	Where string // a package, or file:line
	What  string // the fault and how to mend it
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
