package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
)

// A file of a program that did not count early attempts has no such column. It is read as it is,
// and the next Writer counts them.
func TestFileWithoutTheColumnOfEarlyAttempts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	w := lead(t, path)
	attempts := func(i int) archive.Attempts {
		j := benchJob(i, 1)
		return archive.Attempts{UID: j.UID, TaskKey: "tâsk", First: 1, Value: make([]byte, 20_000)}
	}
	jobs := []archive.Job{benchJob(0, 1), benchJob(1, 1)}
	early := []archive.Attempts{attempts(0), attempts(1), attempts(100), attempts(200)}
	if _, err := w.Write(t.Context(), 1, jobs, early); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Run(w, "ALTER TABLE state DROP COLUMN early"); err != nil {
		t.Fatal(err)
	}
	closed(t, w)
	r := read(t, path)
	before, err := r.Mark(t.Context())
	if err != nil || before.Jobs != 2 {
		t.Fatalf("the mark is %+v, %v", before, err)
	}
	for _, x := range []struct{ less, removed int64 }{{0, 0}, {1, 1}} {
		w = lead(t, path)
		own := before.Bytes - 2*(20_000+int64(len("tâsk"))+40) // without those of jobs 100 and 200
		n, more, err := w.Trim(t.Context(), 1, archive.Retention{Bytes: own - x.less}, benchStart, 10)
		if int64(n) != x.removed || more || err != nil {
			t.Errorf("with %d bytes for the jobs less %d, a Trim removes %d; more: %v, %v", own, x.less, n, more, err)
		}
		closed(t, w)
	}
	if mark, err := r.Mark(t.Context()); err != nil || mark.Jobs != 1 {
		t.Errorf("the mark is %+v, %v", mark, err)
	}
}
