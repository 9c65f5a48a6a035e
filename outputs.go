package plimsoll

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxOutputs is the largest number of outputs that a group may declare.
const MaxOutputs = 64

// MaxOutputPath is the length of the longest output, in bytes.
const MaxOutputPath = 1024

// ValidateOutputs checks the outputs of a group: relative paths below the task's own directory,
// whose parts may be patterns as in path.Match. A path of a directory stands for everything below
// it.
func ValidateOutputs(field string, outputs []string) error {
	if len(outputs) > MaxOutputs {
		return Invalid(
			field, "has %d entries; at most %d are possible: name a directory, or use patterns such as out/*.csv",
			len(outputs), MaxOutputs,
		)
	}
	for i, output := range outputs {
		if err := validateOutput(fmt.Sprintf("%s[%d]", field, i), output); err != nil {
			return err
		}
	}
	return nil
}

func validateOutput(field, output string) error {
	switch {
	case output == "":
		return Invalid(field, "is empty; give a path below the task's own directory, such as out/*.csv")
	case len(output) > MaxOutputPath:
		return Invalid(field, "is %d bytes long; at most %d are possible", len(output), MaxOutputPath)
	case strings.HasPrefix(output, "/"):
		return Invalid(
			field, "%.60q begins at the root; outputs are below the task's own directory: give a relative path", output,
		)
	case !PlainName(output):
		return Invalid(field, "%.60q holds a control character, or is no UTF-8; give a path of plain characters", output)
	}
	for part := range strings.SplitSeq(output, "/") {
		switch part {
		case "..":
			return Invalid(
				field, "%.60q leads upwards; outputs are below the task's own directory: leave out the ..", output,
			)
		case "", ".":
			return Invalid(field, "%.60q has a part that is empty or a dot; leave that part out", output)
		}
		if _, err := path.Match(part, ""); err != nil {
			return Invalid(field, `%.60q is no pattern; use * ? and [a-z], and a \ before one that is meant itself`, output)
		}
	}
	return nil
}

// PlainName reports whether a name or path is UTF-8 without control and format characters, so that
// a terminal shows it as it is.
func PlainName(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	})
}
