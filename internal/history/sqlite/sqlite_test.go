package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/historytest"
	"github.com/plimsoll-dev/plimsoll/internal/history/sqlite"
)

// An SQLite file is a history. After a crash, a copy of its files at that instant is opened.
func TestHistory(t *testing.T) {
	for name, small := range map[string]bool{"usual sizes": false, "short answers and small steps": true} {
		t.Run(name, func(t *testing.T) { runSuite(t, small) })
	}
}

func runSuite(t *testing.T, small bool) {
	historytest.Run(t, func(t *testing.T) historytest.Harness {
		directory := t.TempDir()
		return historytest.Harness{
			Writer: func() (history.Writer, error) {
				w, err := sqlite.OpenWriter(t.Context(), filepath.Join(directory, "events.db"))
				if err != nil {
					return nil, err
				}
				t.Cleanup(func() { closed(t, w) })
				if small {
					sqlite.SmallWriter(w)
				}
				return w, sqlite.Run(w, "PRAGMA synchronous=OFF") // no case loses the machine's memory
			},
			Reader: func() (history.Reader, error) {
				r := sqlite.OpenReader(filepath.Join(directory, "events.db"))
				t.Cleanup(func() { closed(t, r) })
				if small {
					sqlite.SmallReader(r)
				}
				return r, nil
			},
			Crash: func() error {
				old := directory
				directory = t.TempDir()
				return copyFiles(old, directory)
			},
		}
	})
}

// Each file has a name of its own, which begins with that of the host, also on one host.
func TestEachFileHasANameOfItsOwn(t *testing.T) {
	names := map[string]bool{}
	for i := range 10 {
		w := openWriter(t, filepath.Join(t.TempDir(), fmt.Sprintf("events-%d.db", i)))
		name, err := w.Name(t.Context())
		if err != nil || plimsoll.ValidateID("name", name) != nil || names[name] {
			t.Errorf("file %d is named %q, %v", i, name, err)
		}
		names[name] = true
	}
}

func closed(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// copyFiles copies the history as it is on the disk; the -shm file is memory.
func copyFiles(from, to string) error {
	for _, name := range []string{"events.db", "events.db-wal"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("copy the history: %w", err)
		}
	}
	return nil
}
