package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// filtered returns the text that a terminal is shown of a task's bytes, which come in parts.
func filtered(text string, part int) string {
	var f terminalFilter
	var out []byte
	for data := []byte(text); len(data) > 0; {
		n := min(part, len(data))
		out = f.append(out, data[:n])
		data = data[n:]
	}
	return string(f.flush(out))
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

// A pipe or a file gets the bytes of a task unchanged, also those that a terminal is not shown.
func TestPipeGetsTheBytesUnchanged(t *testing.T) {
	all := []byte(hostile + "\x9b31m\xff\xfe\x00end without a line break")
	for i := range 256 {
		all = append(all, byte(i))
	}
	for name, terminal := range map[string]bool{"pipe": false, "terminal": true} {
		var b bytes.Buffer
		w := taskWriter{to: &output{w: &b, terminal: terminal}}
		for _, c := range all {
			w.write([]byte{c})
		}
		w.flush()
		if same := bytes.Equal(b.Bytes(), all); same == terminal {
			t.Errorf("to a %s the bytes are the same: %t", name, same)
		}
	}
	var b bytes.Buffer
	w := taskWriter{prefix: "j.g.0", to: &output{w: &b}}
	w.write([]byte("\x1b[31mone\r\ntwo\xff"))
	w.flush()
	if want := "j.g.0 | \x1b[31mone\r\nj.g.0 | two\xff\n"; b.String() != want {
		t.Errorf("with the task before each line it is %q, want %q", &b, want)
	}
}

// With a prefix, a line cannot overwrite the prefix, and its colours end with the line.
func TestLinesOfSeveralTasksKeepTheirBeginning(t *testing.T) {
	var b bytes.Buffer
	w := taskWriter{prefix: "j.g.0", to: &output{w: &b, terminal: true}}
	w.write([]byte("\x1b[31mred\rj.g.1 | forged\nplain\n\x1b[32m"))
	w.flush()
	if want := "j.g.0 | \x1b[31mred j.g.1 | forged\x1b[0m\nj.g.0 | plain\nj.g.0 | \x1b[32m\x1b[0m\n"; b.String() != want {
		t.Errorf("shown is %q, want %q", &b, want)
	}
}

var color = regexp.MustCompile("\x1b\\[[0-9:;]*m")

// For any bytes, cut anywhere, a terminal gets whole colours and text. Text stays text.
func FuzzTerminal(f *testing.F) {
	for _, seed := range []string{
		hostile, "text\n", "\x1b[31mred\x1b[0m", "\x1b]\x1b\x1b\\\x1b[\x18\xe4\xb8", "\x1b[1\x1b[2m\u009b3m",
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
			if steers(r) && r != '\n' && r != '\t' && r != '\r' {
				t.Fatalf("%q holds %q", got, r)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is no UTF-8", got)
		}
		if shown(text, "\n\t\r") == text && got != text {
			t.Fatalf("text %q is shown as %q", text, got)
		}
		if again := filtered(got, 3); again != got {
			t.Fatalf("%q is shown as %q", got, again)
		}
	})
}

// job logs and run ask which of their two outputs is a terminal.
func TestLogsAreFilteredForTheTerminalOnly(t *testing.T) {
	address, _ := serve(t, connect.WithInterceptors(loud{}))
	for _, c := range []struct {
		stdout, stderr bool // is a terminal
	}{{false, false}, {true, false}, {false, true}} {
		var out, notes bytes.Buffer
		code := execute(t.Context(), process{
			args: []string{"--server", address, "job", "logs", "wordcount.map.1"}, stdin: strings.NewReader(""),
			stdout: &out, stderr: &notes,
			terminal: c.stdout, live: c.stderr, now: func() time.Time { return testNow },
		})
		if code != 0 || strings.Contains(out.String(), hostile) == c.stdout || strings.Contains(
			notes.String(), hostile,
		) == c.stderr {
			t.Errorf("%+v: exit code %d, stdout %q, stderr %q", c, code, &out, &notes)
		}
	}
}

// loud makes tasks write hostile text.
type loud struct{ poisoner }

// WrapStreamingHandler implements connect.Interceptor.
func (loud) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error { return next(ctx, loudConn{conn}) }
}

// WrapUnary implements connect.Interceptor.
func (loud) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

type loudConn struct{ connect.StreamingHandlerConn }

// Send implements connect.StreamingHandlerConn.
func (c loudConn) Send(m any) error {
	if m, ok := m.(*pb.ReadLogsResponse); ok {
		m.Data = append(m.Data, hostile...)
	}
	return c.StreamingHandlerConn.Send(m)
}
