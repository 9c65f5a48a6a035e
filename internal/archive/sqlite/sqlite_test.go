package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/archivetest"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
)

// An SQLite file is an archive. After a crash, a copy of its files at that instant is opened.
func TestArchive(t *testing.T) {
	for name, small := range map[string]bool{"usual sizes": false, "small blocks, short answers": true} {
		t.Run(name, func(t *testing.T) { runSuite(t, small) })
	}
}

func runSuite(t *testing.T, small bool) {
	archivetest.Run(t, func(t *testing.T) archivetest.Harness {
		directory := t.TempDir()
		return archivetest.Harness{
			Partial: small,
			Writer: func() (archive.Writer, error) {
				w, err := sqlite.OpenWriter(t.Context(), filepath.Join(directory, "jobs.db"))
				if err != nil {
					return nil, err
				}
				t.Cleanup(func() { closed(t, w) })
				if small {
					sqlite.SmallWriter(w)
				}
				return w, nil
			},
			Reader: func() (archive.Reader, error) {
				r := sqlite.OpenReader(filepath.Join(directory, "jobs.db"))
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

func closed(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// copyFiles copies the archive as it is on the disk; the -shm file is memory.
func copyFiles(from, to string) error {
	for _, name := range []string{"jobs.db", "jobs.db-wal"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("copy the archive: %w", err)
		}
	}
	return nil
}
