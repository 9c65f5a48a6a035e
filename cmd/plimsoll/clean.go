package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// steers reports whether a terminal obeys a rune instead of showing it. Such runes are C0 and C1
// controls, DEL, line separators, and marks that turn the direction of text (UAX #9).
func steers(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f, r == 0x2028, r == 0x2029:
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// shown replaces runes that steer a terminal, and bytes that are not UTF-8, by spaces. The runes of
// kept stay.
func shown(s string, kept string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || steers(r) && !strings.ContainsRune(kept, r) {
			return ' '
		}
		return r
	}, s)
}

// oneLine keeps foreign text from breaking a table or steering the terminal.
func oneLine(s string) string { return shown(s, "") }

// lines is oneLine for text of several lines.
func lines(s string) string { return shown(s, "\n\t") }

// escaped replaces runes that steer a terminal by their \u escapes, in JSON or in YAML of
// config.FormatYAML. Such runes stand only in quotes there, so the escape has the same meaning.
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
