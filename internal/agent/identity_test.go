package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

func TestEachStartRaisesTheIncarnation(t *testing.T) {
	dir := t.TempDir()
	now := time.UnixMilli(1_800_000_000_000)
	first, err := beginIncarnation(dir, "n1", now)
	if err != nil {
		t.Fatal(err)
	}
	if want := (identity{"n1", 1_800_000_000_001}); first != want {
		t.Errorf("first start: %+v, want %+v", first, want)
	}
	// The clock has no effect any more, and the id is remembered.
	second, err := beginIncarnation(dir, "", time.UnixMilli(1))
	if err != nil {
		t.Fatal(err)
	}
	if want := (identity{"n1", first.Incarnation + 1}); second != want {
		t.Errorf("second start: %+v, want %+v", second, want)
	}
}

func TestBeginRefuses(t *testing.T) {
	tests := []struct {
		name, content, node string
		code                plimsoll.Code
	}{
		{"a damaged file", `{"node":"n1","inc`, "n1", plimsoll.CodeCorrupt},
		{"an empty file", ``, "n1", plimsoll.CodeCorrupt},
		{"a file without an incarnation", `{"node":"n1"}`, "n1", plimsoll.CodeCorrupt},
		{"another node's directory", `{"node":"n2","incarnation":4}`, "n1", plimsoll.CodeInvalid},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, identityFile)
			write(t, path, []byte(test.content))
			if _, err := beginIncarnation(dir, test.node, time.Now()); plimsoll.CodeOf(err) != test.code {
				t.Errorf("error %v, want code %s", err, test.code)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != test.content {
				t.Errorf("the file was changed to %q (%v)", data, err)
			}
		})
	}
}

func TestOneAgentADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agent")
	unlock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(dir); plimsoll.CodeOf(err) != plimsoll.CodeAlreadyRunning {
		t.Errorf("a second agent: %v, want %s", err, plimsoll.CodeAlreadyRunning)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	unlock, err = lockDir(dir)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}
