package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const (
	childVariable = "PLIMSOLL_ARCHIVE_CHILD" // path of the archive that a child process writes
	roundJobs     = 5                        // jobs of a Write of the child
	keepJobs      = 400                      // that the child's Trim leaves
)

// TestMain runs the tests, or the child process of TestKilledWriter, which is the same binary.
func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		fmt.Fprintln(os.Stderr, writeForEver(context.Background(), path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// killJob has many tasks now and then, so that a kill also hits a job that is written in parts.
func killJob(i int) archive.Job {
	tasks := 1 + i%3
	if i%17 == 0 {
		tasks = 900
	}
	j := benchJob(i, tasks)
	j.State, j.Result, j.Failed = plimsoll.JobCompleted, plimsoll.ResultSucceeded, 0
	j.Finished = j.UID.Submitted() + 1 // so that Trim takes the first
	j.Records = records(j.ID, tasks, -1)
	return j
}

// writeForEver writes rounds of jobs behind those that are there, removes the oldest, and prints
// the number of jobs that are acknowledged.
func writeForEver(ctx context.Context, path string) error {
	w, err := sqlite.OpenWriter(ctx, path)
	if err != nil {
		return err
	}
	sqlite.SmallWriter(w)
	mark, err := w.Fence(ctx, 1)
	for n := int(mark.Sequence) * roundJobs; err == nil; n += roundJobs {
		var jobs []archive.Job
		for i := range roundJobs {
			jobs = append(jobs, killJob(n+i))
		}
		if _, err = w.Write(ctx, 1, jobs, nil); err != nil {
			break
		}
		fmt.Println(n + roundJobs)
		if n%(10*roundJobs) == 0 {
			_, _, err = w.Trim(ctx, 1, archive.Retention{Jobs: keepJobs}, benchStart, 100)
		}
	}
	return err
}

// A writer that is killed at any instant leaves each acknowledged Write whole, and of any other all
// or nothing. The next one writes on. A reader beside it sees what is acknowledged.
func TestKilledWriter(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 4))
	path := filepath.Join(t.TempDir(), "jobs.db")
	r := read(t, path)
	acknowledged := 0
	for range testrun.Count(2, 12, 300) {
		acknowledged = max(acknowledged, runAndKill(t, path, 1+rng.IntN(40), r))
		acknowledged = survived(t, path, r, acknowledged)
	}
	t.Logf("%d jobs were written", acknowledged)
}

// runAndKill runs a child until it has acknowledged so many Writes, and kills it while it goes on.
// It returns the number of jobs that are acknowledged.
func runAndKill(t *testing.T, path string, writes int, r *sqlite.Reader) (acknowledged int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // the test's own binary
	child.Env = append(os.Environ(), childVariable+"="+path)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for range writes {
		if !lines.Scan() {
			break
		}
		if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
			t.Error(err)
		}
		if _, err := r.Job(t.Context(), killJob(acknowledged-1).ID, killJob(acknowledged-1).UID); err != nil {
			t.Errorf("job %d is acknowledged to another process: %v", acknowledged-1, err)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // acknowledged before the kill
		if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
			t.Error(err)
		}
	}
	var killed *exec.ExitError
	if err := child.Wait(); !errors.As(err, &killed) || killed.Exited() {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return acknowledged
}

// survived checks an archive after a kill: the acknowledged jobs are there, and perhaps those of
// the next Writes. It returns how many jobs were ever written.
func survived(t *testing.T, path string, r *sqlite.Reader, acknowledged int) int {
	t.Helper()
	var stored []archive.Stored
	q := archive.JobQuery{Ascending: true}
	for more := true; more; {
		page, err := r.Jobs(t.Context(), q)
		if err != nil || len(page.Damaged) > 0 {
			t.Fatal(err, page.Damaged)
		}
		stored = append(stored, page.Items...)
		q.After, more = page.Next, page.More
	}
	mark, err := r.Mark(t.Context())
	if err != nil || mark.Jobs != int64(len(stored)) {
		t.Fatalf("the mark is %+v, and there are %d jobs, %v", mark, len(stored), err)
	}
	end := int(mark.Sequence) * roundJobs
	if end < acknowledged || end > acknowledged+2*roundJobs || len(stored) < min(end, keepJobs) {
		t.Fatalf("%d jobs are acknowledged, and %d of %d are there", acknowledged, len(stored), end)
	}
	tasks := int64(0)
	for i := range stored {
		tasks += int64(stored[i].Tasks)
	}
	if tasks != mark.Tasks {
		t.Fatalf("the mark is %+v, and there are %d tasks", mark, tasks)
	}
	for i := range stored { // in one piece, to the end
		n := end - len(stored) + i
		if why := differs(t, r, &stored[i], killJob(n)); why != "" {
			t.Fatalf("job %d: %s", n, why)
		}
	}
	w := lead(t, path)
	if err := errors.Join(w.Check(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	return end
}
