package terminal

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// filtered returns the text that a terminal is shown of a task's bytes, which come in parts.
func filtered(text string, part int) string {
	var f Filter
	var out []byte
	for data := []byte(text); len(data) > 0; {
		n := min(part, len(data))
		out = f.Append(out, data[:n])
		data = data[n:]
	}
	return string(f.Flush(out))
}

// A terminal is shown the text and the colours of a task and nothing else, however the bytes are
// cut.
func TestTerminalGetsColoursOnly(t *testing.T) {
	const bom = "\u00e9\u4e16\U0001f600"
	for text, want := range map[string]string{
		"plain\ttext\r\n": "plain\ttext\r\n",
		bom + " text":     bom + " text",
		"\x1b[31mred\x1b[0m, \x1b[1;38;5;9mbold\x1b[m, \x1b[4:3mcurly\x1b[0m": "" +
			"\x1b[31mred\x1b[0m, \x1b[1;38;5;9mbold\x1b[m, \x1b[4:3mcurly\x1b[0m",
		"\x1b[31mred\n":                                "\x1b[31mred\n\x1b[0m",
		"a\x1b]52;c;aGVsbG8=\x07b":                     "ab",                   // the clipboard
		"a\x1b]0;title\x1b\\b\x1b]0;title\u009cc":      "abc",                  // the title
		"a\x1b[2J\x1b[H\x1b[10;10Hb\x1b[?1049hc":       "abc",                  // the screen
		"a\x1b[6nb\x1b[cc\x1bZd\x05e":                  "abcde",                // what the terminal answers
		"a\x1bP+q544e\x1b\\b\x1b_x\x1b\\c\x1b^x\x1b\\": "abc",                  // DCS, APC, PM
		"a\x1bXx\x1b\\b\x1b(0c\x1b#8d\x1bce\x1b7f":     "abcdef",               // SOS, character sets, reset
		"a\x1b[>4;2mb\x1b[?25hc\x1b[1$rd\x1b[ qe":      "abcde",                // private ones, also with m
		"a\u009b2Jb\u009b31mc\u009d0;x\u009cd\u0085e":  "ab\x1b[31mcde\x1b[0m", // C1
		"a\x9b2Jb\x85c":                                "a\ufffd2Jb\ufffdc",    // C1 as bytes, which are no UTF-8
		"a\x00\x07\x08\x0b\x0c\x0e\x7fb":               "ab",                   // C0
		"user\u202etxt.exe\u2066\u200f":                "usertxt.exe",          // directions
		"a\x1b]0;never ends\nb":                        "a\nb",
		"a\x1b[31\nb\x1b[3" + bom:                      "a\nb" + bom,
		"a\x1b\x1b[31mb\x1b]x\x1b[32mc":                "a\x1b[31mb\x1b[32mc\x1b[0m",
		"a\x1b[" + strings.Repeat("1;", 200) + "mb":    "ab",
		"cut \xe4\xb8":                                 "cut \ufffd",
		"cut \x1b[3":                                   "cut ",
	} {
		for part := 1; part <= len(text); part++ {
			if got := filtered(text, part); got != want {
				t.Errorf("%q in parts of %d is shown as %q, want %q", text, part, got, want)
				break
			}
		}
	}
}

var color = regexp.MustCompile("\x1b\\[[0-9:;]*m")

// For any bytes, cut anywhere, a terminal gets whole colours and text. Text stays text.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		"\x1b]52;c;aGk=\x07\x1b[2J\r\x08\x7f\u009b31m\u009d0;x\u009c\u202etxt.exe\u2066\u2028", "text\n", "\x1b[31mred\x1b[0m", "\x1b]\x1b\x1b\\\x1b[\x18\xe4\xb8", "\x1b[1\x1b[2m\u009b3m",
	} {
		f.Add(seed, 1)
	}
	f.Fuzz(func(t *testing.T, text string, part int) {
		got := filtered(text, max(part, 1))
		if whole := filtered(text, len(text)+1); got != whole {
			t.Fatalf("in parts of %d it is %q, whole %q", part, got, whole)
		}
		bare := color.ReplaceAllString(got, "")
		for _, r := range bare {
			if IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
				t.Fatalf("%q holds %q", got, r)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is no UTF-8", got)
		}
		if Text(text, "\n\t\r") == text && got != text {
			t.Fatalf("text %q is shown as %q", text, got)
		}
		if again := filtered(got, 3); again != got {
			t.Fatalf("%q is shown as %q", got, again)
		}
	})
}
