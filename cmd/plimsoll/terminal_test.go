package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

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
		if code != 0 || strings.Contains(out.String(), hostile) == c.stdout ||
			strings.Contains(notes.String(), hostile) == c.stderr {
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
