package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func TestOutputsOverTheNetwork(t *testing.T) {
	w := newWorld(t)
	logs := runWithLogs(t, w)
	read := func(task string, outputs ...string) (string, error) {
		stream, err := logs.ReadTaskOutputs(
			w.ctx, connect.NewRequest(&pb.ReadTaskOutputsRequest{Task: task, Outputs: outputs}),
		)
		if err != nil {
			return "", wire.FromConnectError(err)
		}
		var text strings.Builder
		for stream.Receive() {
			switch p := stream.Msg().GetPart().(type) {
			case *pb.ReadTaskOutputsResponse_Summary:
				s := p.Summary
				fmt.Fprintf(&text, "%d files, %d bytes, %d refused", s.GetFiles(), s.GetBytes(), s.GetRefused())
			case *pb.ReadTaskOutputsResponse_File:
				fmt.Fprintf(&text, "; %s %d %t:", p.File.GetPath(), p.File.GetSize(), p.File.GetExecutable())
			case *pb.ReadTaskOutputsResponse_Data:
				text.Write(p.Data)
			}
		}
		return text.String(), errors.Join(wire.FromConnectError(stream.Err()), stream.Close())
	}
	if _, err := read("j.g.0", "*"); plimsoll.CodeOf(err) != plimsoll.CodeConflict {
		t.Errorf("while it runs: %v", err)
	}
	work := filepath.Join(w.config().Dir, "tasks", "j.g.0", workDir)
	write(t, filepath.Join(work, "out", "a"), []byte("text"))
	write(t, filepath.Join(work, "tool"), []byte("#!"))
	if err := errors.Join(
		os.Chmod(filepath.Join(work, "tool"), 0o755), os.Symlink("/etc/passwd", filepath.Join(work, "out", "link")),
	); err != nil {
		t.Fatal(err)
	}
	w.super.change(func() {
		a := *w.super.attempts[attemptKey{"j.g.0", 1}]
		a.State, a.Result = plimsoll.TaskFinished, plimsoll.ResultSucceeded
		w.super.put(a)
	})
	w.awaitEnd("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	want := "2 files, 6 bytes, 1 refused; out/a 4 false:text; tool 2 true:#!"
	if got, err := read("j.g.0", "out", "tool"); err != nil || got != want {
		t.Errorf("read %q, %v, want %q", got, err, want)
	}
	for _, c := range []struct {
		task, output string
		code         plimsoll.Code
	}{
		{"j.g.1", "*", plimsoll.CodeNotFound},
		{"j.g.0", "../1/stdout", plimsoll.CodeInvalid},
		{"j.g.0", "/etc/passwd", plimsoll.CodeInvalid},
		{"../j.g.0", "*", plimsoll.CodeInvalid},
	} {
		if _, err := read(c.task, c.output); plimsoll.CodeOf(err) != c.code {
			t.Errorf("%s of %s: %v, want %s", c.output, c.task, err, c.code)
		}
	}
}

// A file that has changed since it was found is sent with fewer bytes than were announced, and
// never with more.
func TestOutputsThatChangeWhileTheyAreSent(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"grows", "shrinks", "vanishes"} {
		write(t, filepath.Join(dir, name), []byte("12345"))
	}
	found, err := executor.FindOutputs(t.Context(), dir, []string{"*"}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close() //nolint:errcheck // nothing was written to it
	write(t, filepath.Join(dir, "grows"), []byte("1234567890"))
	if err := errors.Join(
		os.Truncate(filepath.Join(dir, "shrinks"), 2), os.Remove(filepath.Join(dir, "vanishes")),
	); err != nil {
		t.Fatal(err)
	}
	sent := map[string]string{}
	for i := range found.Files {
		f := &found.Files[i]
		err := sendOutput(t.Context(), found, f, make([]byte, 3), func(m *pb.ReadTaskOutputsResponse) error {
			sent[f.Path] += string(m.GetData())
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	if sent["grows"] != "12345" || sent["shrinks"] != "12" || sent["vanishes"] != "" || len(sent) != 3 {
		t.Errorf("sent was %q", sent)
	}
}
