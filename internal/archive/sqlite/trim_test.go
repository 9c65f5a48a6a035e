package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
)

// A Trim is one transaction, and the Writes wait for it. So it removes no more jobs when those that
// it has chosen reach a number of bytes. One job always goes.
func TestTrimIsBoundedInBytes(t *testing.T) {
	const jobs = 12
	for _, test := range []struct {
		name      string
		perTrim   int64 // jobs that fit into the bound
		wantSteps []int
	}{
		{"less than a job", 0, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{"some jobs", 5, []int{5, 5, 2}},
		{"all jobs", jobs + 1, []int{jobs}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := lead(t, filepath.Join(t.TempDir(), "jobs.db"))
			var mark archive.Mark
			for i := range jobs {
				j := benchJob(i, 300)
				attempts := archive.Attempts{UID: j.UID, TaskKey: "task", First: 1, Value: make([]byte, 50_000)}
				var err error
				if mark, err = w.Write(t.Context(), 1, []archive.Job{j}, []archive.Attempts{attempts}); err != nil {
					t.Fatal(err)
				}
			}
			keep := archive.Retention{Age: 1, FailedAge: 1}
			sqlite.SmallTrim(w, max(1, test.perTrim*mark.Bytes/jobs-1000), 1000) // jobs differ by some bytes
			for i, want := range test.wantSteps {
				last := i == len(test.wantSteps)-1
				n, more, err := w.Trim(t.Context(), 1, keep, benchStart+int64(time.Hour), 100)
				if n != want || more == last || err != nil {
					t.Fatalf("Trim %d removes %d jobs, not %d; more: %v, %v", i, n, want, more, err)
				}
			}
			mark, err := w.Fence(t.Context(), 1)
			if err != nil || mark.Jobs != 0 || mark.Bytes != 0 {
				t.Errorf("the mark is %+v, %v", mark, err)
			}
		})
	}
}

// Trim says that there is more to do as long as there are more deleted uids than are remembered.
// Otherwise they could be deleted faster than they are forgotten.
func TestDeletedUIDsAreBounded(t *testing.T) {
	w := lead(t, filepath.Join(t.TempDir(), "jobs.db"))
	sqlite.SmallTrim(w, 1<<20, 22)
	var uids []plimsoll.UID
	for i := range 45 {
		uids = append(uids, benchJob(i, 1).UID)
	}
	if err := w.Delete(t.Context(), 1, uids, benchStart); err != nil {
		t.Fatal(err)
	}
	trims := func(name string, now int64, left []int64) {
		t.Helper()
		for i, want := range left {
			_, more, err := w.Trim(t.Context(), 1, archive.Retention{}, now, 10)
			if err != nil || more != (i < len(left)-1) {
				t.Fatalf("%s: Trim %d says more: %v, %v", name, i, more, err)
			}
			if n, err := sqlite.Deleted(w); err != nil || n != want {
				t.Fatalf("%s: %d uids are left behind Trim %d, not %d; %v", name, n, i, want, err)
			}
		}
	}
	trims("too many", benchStart, []int64{35, 25, 22})
	trims("too old", benchStart+int64(archive.DeletedAge)+1, []int64{12, 2, 0})
}
