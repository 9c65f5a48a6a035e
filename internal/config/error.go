package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// maxProblems is the number of problems of one file that are printed.
const maxProblems = 20

// Problem is one fault of a file.
type Problem struct {
	Line  int    // from 1; 0 for the file as a whole
	Field string // such as groups[0].command; may be empty
	Msg   string // the fault, and how to correct it
}

// Error holds the problems of a file, ordered by line. It is never empty.
type Error struct {
	Name     string // name of the file, as the caller gave it
	Problems []Problem
}

// Error prints a line for each problem: "file:line: field: message".
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i == maxProblems {
			fmt.Fprintf(&b, "\n%s: and %d more", e.Name, len(e.Problems)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.In(e.Name))
	}
	return b.String()
}

// In returns the fault with its place in a file: "file:line: field: message".
func (p Problem) In(file string) string {
	if p.Line > 0 {
		file = fmt.Sprintf("%s:%d", file, p.Line)
	}
	if p.Field != "" {
		return file + ": " + p.Field + ": " + p.Msg
	}
	return file + ": " + p.Msg
}

// Unwrap returns the first problem as a plimsoll.Error, so that the error has a code.
func (e *Error) Unwrap() error {
	return plimsoll.Invalid(e.Problems[0].Field, "%s", e.Problems[0].Msg)
}

// newError sorts the problems by line. Problems of one line keep their order.
func newError(name string, problems []Problem) *Error {
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	return &Error{Name: name, Problems: problems}
}
