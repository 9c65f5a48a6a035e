package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// steers reports whether a rune does something to a terminal, or to the order in which text is
// shown, instead of being shown: C0 and C1 controls, DEL, separators of lines, and what turns the
// direction of text (UAX #9).
func steers(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f, r == 0x2028, r == 0x2029:
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// shown replaces what steers, and what is no UTF-8, by spaces. Runes that are kept stay.
func shown(s string, kept string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || steers(r) && !strings.ContainsRune(kept, r) {
			return ' '
		}
		return r
	}, s)
}

// oneLine keeps text that somebody else wrote from breaking a table or steering the terminal.
func oneLine(s string) string { return shown(s, "") }

// lines is oneLine for text of several lines.
func lines(s string) string { return shown(s, "\n\t") }

// escaped returns JSON, or YAML that config.FormatYAML has made, in which nothing steers a
// terminal. What steers stands in quotes there, so that it can be written as \u and its number.
func escaped(data []byte) []byte {
	if !bytes.ContainsFunc(data, func(r rune) bool { return steers(r) && r != '\n' || r == utf8.RuneError }) {
		return data
	}
	out := make([]byte, 0, len(data)+64)
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if steers(r) && r != '\n' || r == utf8.RuneError {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, data[:n]...)
		}
		data = data[n:]
	}
	return out
}
