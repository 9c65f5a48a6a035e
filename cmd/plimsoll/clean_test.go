package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/terminal"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// hostile writes the clipboard, sets the title, clears the screen, forges a line and turns text
// round. Some of its controls are of one byte, some of C1.
const hostile = "\x1b]52;c;aGk=\x07\x1b]0;title\x1b\\\x1b[2J\x1b[1;1H\rplimsoll: fine\x08\x7f\u009b31m\u009d0;x\u009c\u202etxt.exe\u2066\u061c\u2028"

// harmful returns the first place in a command's output that would steer a terminal.
func harmful(text string) string {
	for i, r := range text {
		if r != '\n' && (terminal.IsControl(r) || r == utf8.RuneError) {
			return strings.ToValidUTF8(text[max(i-40, 0):min(i+20, len(text))], "?")
		}
	}
	return ""
}

// A server answers with hostile strings in every field of every answer and in its errors. The
// output of the commands does not steer the terminal: not as tables, not as JSON and not as YAML.
func TestNothingThatIsPrintedSteersATerminal(t *testing.T) {
	goldens, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, ids := range []bool{false, true} {
		address, _ := serve(t, connect.WithInterceptors(poisoner{ids}))
		for _, golden := range goldens {
			data, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			line, _, _ := strings.Cut(string(data), "\n")
			args := strings.Fields(strings.TrimPrefix(line, "$ plimsoll "))
			if args[0] == "run" || strings.Contains(line, "logs") || strings.Contains(line, "export") {
				continue // they print a task's bytes, or write a file
			}
			stdout, stderr, _ := plimsollAt(t.Context(), address, append(args, "--retry-for", "0s")...)
			for name, text := range map[string]string{"stdout": stdout, "stderr": stderr} {
				if found := harmful(text); found != "" {
					t.Errorf("%s: %s holds %q", line, name, found)
				}
			}
		}
	}
}

// poisoner adds hostile text to every string of every answer. It adds it to ids only if asked to,
// because a command does not print an object that it does not find.
type poisoner struct{ ids bool }

// WrapUnary implements connect.Interceptor.
func (p poisoner) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		if err != nil {
			return nil, p.error(err)
		}
		if m, ok := res.Any().(proto.Message); ok {
			p.poison(m.ProtoReflect())
		}
		return res, nil
	}
}

func (p poisoner) error(err error) error {
	if err == nil {
		return nil
	}
	return wire.ConnectError(
		&plimsoll.Error{Code: plimsoll.CodeOf(err), Field: "field" + hostile, Msg: err.Error() + hostile},
	)
}

// WrapStreamingClient implements connect.Interceptor.
func (poisoner) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (p poisoner) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return p.error(next(ctx, poisonedConn{conn, p}))
	}
}

type poisonedConn struct {
	connect.StreamingHandlerConn
	p poisoner
}

// Send implements connect.StreamingHandlerConn.
func (c poisonedConn) Send(m any) error {
	if m, ok := m.(proto.Message); ok {
		c.p.poison(m.ProtoReflect())
	}
	return c.StreamingHandlerConn.Send(m)
}

func (p poisoner) poison(m protoreflect.Message) {
	text := func(v protoreflect.Value) protoreflect.Value { return protoreflect.ValueOfString(v.String() + hostile) }
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		isText := f.Kind() == protoreflect.StringKind && (p.ids || f.Name() != "id" && f.Name() != "next")
		switch {
		case f.IsMap():
			entries := v.Map()
			entries.Range(func(key protoreflect.MapKey, each protoreflect.Value) bool {
				if f.MapValue().Kind() == protoreflect.StringKind {
					entries.Set(key, text(each))
				} else if f.MapValue().Message() != nil {
					p.poison(each.Message())
				}
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				if isText {
					v.List().Set(i, text(v.List().Get(i)))
				} else if f.Message() != nil {
					p.poison(v.List().Get(i).Message())
				}
			}
		case f.Message() != nil:
			p.poison(v.Message())
		case isText:
			m.Set(f, text(v))
		}
		return true
	})
}

// JSON keeps the whole text, with escapes.
func TestRecordsAreEscaped(t *testing.T) {
	var b bytes.Buffer
	a := &app{out: &output{w: &b}}
	for _, format := range []string{"json", "yaml"} {
		if err := (formatFlag{Output: format}).print(a, map[string]string{"k": hostile}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{`\u001b]52;c;aGk=\u0007`, `\u009b31m`, `\u202etxt.exe`, `\u007f`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is not in %s", want, &b)
		}
	}
	if found := harmful(b.String()); found != "" {
		t.Errorf("it holds %q", found)
	}
}
