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

	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const (
	childVariable = "PLIMSOLL_HISTORY_CHILD" // path of the history that a child process writes
	keepBytes     = 400 << 10                // that the child's Trim leaves
)

// TestMain runs the tests, or the child process of TestKilledWriter, which is the same binary.
func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		fmt.Fprintln(os.Stderr, writeForEver(context.Background(), path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver writes batches behind those that are there, now and then one of them twice, and
// removes the oldest events. It prints the number of batches that are acknowledged.
func writeForEver(ctx context.Context, path string) error {
	w, err := sqlite.OpenWriter(ctx, path)
	if err != nil {
		return err
	}
	sqlite.SmallWriter(w)
	at, err := w.Position(ctx)
	for n := int(at.Next / plainEvents); err == nil; n++ {
		if n%3 == 0 && n > 0 {
			err = w.Write(ctx, plainBatch(n-1))
		}
		if err == nil {
			err = w.Write(ctx, plainBatch(n))
		}
		if err != nil {
			break
		}
		fmt.Println(n + 1)
		if n%10 == 0 {
			_, err = w.Trim(ctx, history.Retention{Bytes: keepBytes}, benchStart)
		}
	}
	return err
}

// A writer that is killed at any instant leaves each acknowledged Write whole and once, and of any
// other all or nothing. The next one goes on. A reader beside it sees what is acknowledged.
func TestKilledWriter(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 4))
	path := filepath.Join(t.TempDir(), "events.db")
	r := openReader(t, path)
	acknowledged := 0
	for range testrun.Count(2, 12, 300) {
		acknowledged = max(acknowledged, runAndKill(t, path, 1+rng.IntN(60), r))
		acknowledged = survived(t, path, r, acknowledged)
	}
	t.Logf("%d batches were written", acknowledged)
}

// runAndKill runs a child until it has acknowledged so many Writes, and kills it while it goes on.
// It returns the number of batches that are acknowledged.
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
		status, err := r.Status(t.Context())
		if err != nil || status.Next < uint64(acknowledged*plainEvents) {
			t.Errorf("%d batches are acknowledged to another process: %+v, %v", acknowledged, status.Position, err)
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

// survived checks a history after a kill: the acknowledged batches are there, and perhaps the next
// one. It returns how many batches were ever written.
func survived(t *testing.T, path string, r *sqlite.Reader, acknowledged int) int {
	t.Helper()
	status, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := int(status.Next) / plainEvents
	if count < acknowledged || count > acknowledged+2 {
		t.Fatalf("%d batches are acknowledged, and %d are there", acknowledged, count)
	}
	has(t, r, count, true)
	w := openWriter(t, path)
	defer closed(t, w)
	fold, behind, replay, err := w.Resume(t.Context())
	if err != nil || count >= plainFolds && fold == nil {
		t.Fatalf("resume behind %d batches: %v", count, err)
	}
	next := behind.Next
	err = replay(func(e history.Events) error {
		if e.First != next {
			return fmt.Errorf("the replay goes from %d to %d", next, e.First)
		}
		next += e.Count
		return nil
	})
	if err != nil || next != status.Next {
		t.Fatalf("the replay ends at %d of %d, %v", next, status.Next, err)
	}
	return count
}
