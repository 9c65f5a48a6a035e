package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
)

// A count that has to read the rows of jobs has a bound on them. It ends there, as a lower bound,
// and so before its time is over. Counts of entries of lists, or of a few ids, are exact.
func TestCountsThatReadRowsAreBounded(t *testing.T) {
	const jobs = 80 // more rows than the small sizes allow for one answer
	path := filepath.Join(t.TempDir(), "jobs.db")
	w, r := lead(t, path), read(t, path)
	sqlite.SmallReader(r)
	var some []archive.Job
	for i := range jobs {
		j := benchJob(i, 1)
		j.ID, j.Queue = "again", "root.a"
		some = append(some, j)
	}
	if _, err := w.Write(t.Context(), 1, some, nil); err != nil {
		t.Fatal(err)
	}
	counts := func(what string, q archive.JobQuery, wantExact bool) {
		t.Helper()
		n, exact, err := r.Count(t.Context(), q, 1000)
		if err != nil || exact != wantExact || exact && n != jobs || n < 1 || n > jobs {
			t.Errorf("%s: %d jobs, exact: %v, %v", what, n, exact, err)
		}
	}
	last := some[jobs-1].UID.Revision()
	counts("all", archive.JobQuery{}, true)
	counts("a queue with a list", archive.JobQuery{Queue: "root.a"}, true)
	counts("an id", archive.JobQuery{IDs: []string{"again"}}, true)
	counts("up to a revision", archive.JobQuery{UpTo: last}, true)
	counts("a queue without a list", archive.JobQuery{Queue: "root"}, false)
	if _, err := w.Accept(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	counts("up to a revision, after Accept", archive.JobQuery{UpTo: last}, false)
}
