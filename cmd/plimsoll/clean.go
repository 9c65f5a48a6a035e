package main

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/internal/terminal"
)

// oneLine keeps foreign text from breaking a table or steering the terminal.
func oneLine(s string) string { return terminal.Text(s, "") }

// lines is oneLine for text of several lines.
func lines(s string) string { return terminal.Text(s, "\n\t") }

// escaped replaces runes that steer a terminal by their \u escapes, in JSON or in YAML of
// config.FormatYAML. Such runes stand only in quotes there, so the escape has the same meaning.
func escaped(data []byte) []byte {
	if !bytes.ContainsFunc(data, needsEscape) {
		return data
	}
	out := make([]byte, 0, len(data)+64)
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if needsEscape(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, data[:n]...)
		}
		data = data[n:]
	}
	return out
}

func needsEscape(r rune) bool { return terminal.IsControl(r) && r != '\n' || r == utf8.RuneError }
