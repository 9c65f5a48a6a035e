// Package terminal decides which bytes a terminal may be shown of texts that come from others: the
// output of tasks, names, reasons. The commands of package main use it:
//
//	var f terminal.Filter
//	out = f.Append(out[:0], data) // text, line breaks and colours of the output of a task
//	out = f.Flush(out)
//	name = terminal.Text(name, "") // text alone
//
// The package has no state of its own. A Filter holds at most a few bytes, whatever it is given,
// and looks at each byte once.
package terminal

import (
	"strings"
	"unicode/utf8"
)

// IsControl reports whether a terminal obeys a rune instead of showing it. Such runes are C0 and C1
// controls, DEL, line separators, and marks that turn the direction of text (UAX #9).
func IsControl(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f, r == 0x2028, r == 0x2029:
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// Text replaces controls, and bytes that are not UTF-8, by spaces. The runes of kept stay.
func Text(s, kept string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || IsControl(r) && !strings.ContainsRune(kept, r) {
			return ' '
		}
		return r
	}, s)
}
