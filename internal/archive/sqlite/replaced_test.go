package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// Two archives take turns at one path. A reader answers from the one of its last mark, or fails,
// at whatever instant they change places.
func TestReaderOfAFileThatIsReplacedAgainAndAgain(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "jobs.db")
	files := [2]string{filepath.Join(directory, "a.db"), filepath.Join(directory, "b.db")}
	jobOf := map[string]archive.Job{} // by the id of its archive
	for i, file := range files {
		w := lead(t, file)
		job := benchJob(i, 1)
		mark, err := w.Write(t.Context(), 1, []archive.Job{job}, nil)
		if err != nil {
			t.Fatal(err)
		}
		jobOf[mark.ID] = job
		closed(t, w)
	}
	replace := func(with string) error {
		next := path + ".next"
		if err := os.Link(with, next); err != nil {
			return err
		}
		return os.Rename(next, path)
	}
	if err := replace(files[0]); err != nil {
		t.Fatal(err)
	}
	over, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 1; ; i++ {
			select {
			case <-over:
				failed <- nil
				return
			default:
			}
			if err := replace(files[i%2]); err != nil {
				failed <- err
				return
			}
		}
	}()
	answers := 0
	for range testrun.Count(60, 300, 3_000) {
		r := sqlite.OpenReader(path)
		mark, err := r.Mark(t.Context())
		if err == nil {
			job := jobOf[mark.ID]
			_, err = r.Job(t.Context(), job.ID, job.UID)
			if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
				t.Errorf("the archive %s answers from the other one: %v", mark.ID, err)
			}
			if err == nil {
				answers++
			}
		}
		closed(t, r)
	}
	close(over)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	t.Logf("%d answers", answers)
}
