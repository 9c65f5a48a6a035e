package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// lead opens an archive for writing, and leads it with epoch 1.
func lead(t *testing.T, path string) *sqlite.Writer {
	t.Helper()
	w, err := sqlite.OpenWriter(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, w) })
	if _, err := w.Fence(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return w
}

func read(t *testing.T, path string) *sqlite.Reader {
	t.Helper()
	r := sqlite.OpenReader(path)
	t.Cleanup(func() { closed(t, r) })
	return r
}

// says ends the test unless an error has a code. It also wants texts in it, such as the file and
// the remedy.
func says(t *testing.T, err error, code plimsoll.Code, parts ...string) {
	t.Helper()
	if plimsoll.CodeOf(err) != code || err == nil {
		t.Fatalf("the error is %v, not %v", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// has ends the test unless an archive has exactly the first count benchJobs, with all their tasks.
func has(t *testing.T, r *sqlite.Reader, count, tasks int) {
	t.Helper()
	page, err := r.Jobs(t.Context(), archive.JobQuery{Ascending: true})
	if err != nil || page.More || len(page.Damaged) > 0 || len(page.Items) != count {
		t.Fatalf(
			"there are %d jobs, not %d; more: %v, damaged: %v, %v", len(page.Items), count, page.More, page.Damaged,
			err,
		)
	}
	for i := range page.Items {
		if why := differs(t, r, &page.Items[i], benchJob(i, tasks)); why != "" {
			t.Fatalf("job %d: %s", i, why)
		}
	}
}

// differs compares a job and its tasks with the written one. It returns a difference as text;
// empty: there is none.
func differs(t *testing.T, r *sqlite.Reader, got *archive.Stored, want archive.Job) string {
	t.Helper()
	if got.UID != want.UID || fmt.Sprint(got.Head) != fmt.Sprint(want.Head) || !bytes.Equal(got.Spec, want.Spec) ||
		!bytes.Equal(got.Status, want.Status) {
		return fmt.Sprintf("it is %+v, not %+v", got.Head, want.Head)
	}
	page, err := r.Tasks(t.Context(), archive.TaskQuery{UID: got.UID})
	if err != nil || page.More {
		return fmt.Sprintf("its tasks: %v, more: %v", err, page.More)
	}
	tasks := slices.Collect(want.Records)
	if len(tasks) != len(page.Items) {
		return fmt.Sprintf("it has %d tasks, not %d", len(page.Items), len(tasks))
	}
	for i, task := range tasks {
		if g := page.Items[i]; g.Key != task.Key || g.Result != task.Result || !bytes.Equal(g.Value, task.Value) {
			return fmt.Sprintf("task %d is another", i)
		}
	}
	return ""
}

// On a full disk a Write fails and leaves nothing; what was there stays, can be read and removed;
// and the same Write succeeds when there is room.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	w, r := lead(t, path), read(t, path)
	pages, err := sqlite.Pages(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Disk(w, fmt.Sprint(pages+60)); err != nil {
		t.Fatal(err)
	}
	n := fillUp(t, w)
	has(t, r, n, 20)
	if err := w.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Disk(w, "1000000"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(t.Context(), 1, []archive.Job{benchJob(n, 20)}, nil); err != nil {
		t.Fatal(err)
	}
	has(t, r, n+1, 20)
}

// fillUp writes jobs until the disk is full, and returns how many were acknowledged.
func fillUp(t *testing.T, w *sqlite.Writer) int {
	t.Helper()
	for n := range 10_000 {
		before, err := w.Fence(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(t.Context(), 1, []archive.Job{benchJob(n, 20)}, nil)
		if err == nil {
			continue
		}
		says(t, err, plimsoll.CodeExhausted, "jobs.db", "disk is full")
		if after, err := w.Fence(t.Context(), 1); err != nil || after != before {
			t.Fatalf("the mark goes from %+v to %+v, %v", before, after, err)
		}
		return n
	}
	t.Fatal("the disk does not become full")
	return 0
}

// A real disk that is full, then read-only: it can still be read.
func TestFullAndReadOnlyFileSystem(t *testing.T) {
	directory := t.TempDir()
	if err := syscall.Mount("tmpfs", directory, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(directory, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(directory, "jobs.db")
	w := lead(t, path)
	n := fillUp(t, w)
	r := sqlite.OpenReader(path)
	has(t, r, n, 20)
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	r = read(t, path)
	if err := syscall.Mount("", directory, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	has(t, r, n, 20)
	_, err := sqlite.OpenWriter(t.Context(), path)
	says(t, err, plimsoll.CodeUnavailable, path, "mode of the file")
}

// A writer whose file has become read-only says so, and goes on when that is mended.
func TestFileThatCannotBeOpened(t *testing.T) {
	directory := t.TempDir()
	_, err := sqlite.OpenWriter(t.Context(), filepath.Join(directory, "nothing", "jobs.db"))
	says(t, err, plimsoll.CodeUnavailable, "nothing/jobs.db", "directory")
	if err := os.Mkdir(filepath.Join(directory, "jobs.db"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.OpenWriter(t.Context(), filepath.Join(directory, "jobs.db"))
	says(t, err, plimsoll.CodeUnavailable, "jobs.db")
	_, err = read(t, filepath.Join(directory, "jobs.db")).Mark(t.Context())
	says(t, err, plimsoll.CodeUnavailable, "jobs.db")
}

// A file that is something else is refused, and left as it is.
func TestOtherFiles(t *testing.T) {
	directory := t.TempDir()
	garbage := filepath.Join(directory, "garbage.db")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("not a database. "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.OpenWriter(t.Context(), garbage)
	says(t, err, plimsoll.CodeCorrupt, garbage, "backup")
	_, err = read(t, garbage).Mark(t.Context())
	says(t, err, plimsoll.CodeCorrupt, garbage)

	other := filepath.Join(directory, "other.db")
	w := lead(t, other)
	if err := errors.Join(sqlite.Run(w, "PRAGMA application_id=7"), w.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.OpenWriter(t.Context(), other)
	says(t, err, plimsoll.CodeInvalid, other, "not an archive")

	newer := filepath.Join(directory, "newer.db")
	w = lead(t, newer)
	if err := errors.Join(sqlite.Run(w, "PRAGMA user_version=2"), w.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.OpenWriter(t.Context(), newer)
	says(t, err, plimsoll.CodeUnavailable, newer, "format 2")
}

// A reader whose file is not there says so, and works once it is; also if it is replaced.
func TestReaderOfAFileThatComesLater(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "jobs.db")
	r := read(t, path)
	_, err := r.Job(t.Context(), "job", plimsoll.UID{})
	says(t, err, plimsoll.CodeUnavailable, path, "not there yet")
	for count := 1; count < 4; count++ {
		w := lead(t, path)
		for i := range count {
			if _, err := w.Write(t.Context(), 1, []archive.Job{benchJob(i, 1)}, nil); err != nil {
				t.Fatal(err)
			}
			has(t, r, i+1, 1)
		}
		closed(t, w)
		has(t, r, count, 1)
		for _, name := range []string{"jobs.db", "jobs.db-wal", "jobs.db-shm"} {
			if err := os.Remove(filepath.Join(directory, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		_, err = r.Mark(t.Context())
		says(t, err, plimsoll.CodeUnavailable, path, "not there yet")
	}
}

// A reader tells the mark of a file. It answers nothing from another file in the same place, until
// it is asked for the mark again.
func TestReaderAnswersFromTheFileOfItsMark(t *testing.T) {
	directory := t.TempDir()
	path, moved := filepath.Join(directory, "jobs.db"), filepath.Join(directory, "moved.db")
	w := lead(t, path)
	if _, err := w.Write(t.Context(), 1, []archive.Job{benchJob(0, 1)}, nil); err != nil {
		t.Fatal(err)
	}
	closed(t, w)
	r := read(t, path)
	mark := func(jobs int64) {
		t.Helper()
		if m, err := r.Mark(t.Context()); err != nil || m.Jobs != jobs {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	mark(1)
	has(t, r, 1, 1)
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	closed(t, lead(t, path)) // empty
	for range 2 * 4 {
		_, err := r.Job(t.Context(), "", plimsoll.UID{1})
		says(t, err, plimsoll.CodeStale, path, "another file")
	}
	mark(0)
	has(t, r, 0, 1)
	if _, err := r.Job(t.Context(), "", plimsoll.UID{1}); plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		t.Errorf("%v", err)
	}
	if err := os.Rename(moved, path); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.Count(t.Context(), archive.JobQuery{}, 10)
	says(t, err, plimsoll.CodeStale, path, "another file")
	mark(1)
	has(t, r, 1, 1)
}

// A reader that does not end keeps the log from being emptied. Before it takes the disk, a Write
// says so.
func TestReaderThatDoesNotEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	w, r := lead(t, path), read(t, path)
	sqlite.SmallWriter(w)
	if err := sqlite.Run(w, "PRAGMA busy_timeout=20"); err != nil { // it waits so long for the reader
		t.Fatal(err)
	}
	n := 0
	err := sqlite.Hold(r, func() error {
		for ; n < 1000; n++ {
			if _, err := w.Write(t.Context(), 1, []archive.Job{benchJob(n, 100)}, nil); err != nil {
				says(t, err, plimsoll.CodeExhausted, path+"-wal", "reads the archive")
				return nil
			}
		}
		return errors.New("the log grows without a bound")
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(t.Context(), 1, []archive.Job{benchJob(n, 100)}, nil); err != nil {
		t.Fatalf("behind the reader's end: %v", err)
	}
	has(t, r, n+1, 100)
}

// A process that stands still in the gate keeps the log from being emptied too. A Write does not
// wait for it for ever.
func TestProcessThatHoldsTheGate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	w := lead(t, path)
	sqlite.SmallWriter(w)
	sqlite.HastyGate(w)
	gate, err := os.Open(path + "-gate")
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close() //nolint:errcheck // it was only locked
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = w.Write(t.Context(), 1, []archive.Job{benchJob(n, 100)}, nil)
	}
	says(t, err, plimsoll.CodeExhausted, path+"-wal", "reads the archive")
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(t.Context(), 1, []archive.Job{benchJob(n, 100)}, nil); err != nil {
		t.Fatalf("behind its end: %v", err)
	}
}

// Readers that follow on each other do not keep the log from being emptied.
func TestReadersThatFollowOnEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	w := lead(t, path)
	sqlite.SmallWriter(w)
	var g errgroup.Group
	defer func() {
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}()
	written := make(chan struct{})
	defer close(written)
	for range 8 {
		r := read(t, path)
		g.Go(func() error {
			for {
				select {
				case <-written:
					return nil
				default:
				}
				_, err := r.Jobs(t.Context(), archive.JobQuery{Limit: 10})
				if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeUnavailable { // it took too long
					return err
				}
			}
		})
	}
	for n := range testrun.Count(30, 100, 1_000) {
		if _, err := w.Write(t.Context(), 1, []archive.Job{benchJob(n, 100)}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// If bytes of a file change, each job is as it was written, or is told to be damaged.
func TestDamagedBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 3))
	directory := t.TempDir()
	path := filepath.Join(directory, "jobs.db")
	w := lead(t, path)
	sqlite.SmallWriter(w)
	const count = 150
	for i := range count {
		job := benchJob(i, 1+i%3*150)
		if _, err := w.Write(t.Context(), 1, []archive.Job{job}, nil); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, w)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	rounds := testrun.Count(3, 30, 500)
	for round := range rounds {
		at, bit := rng.IntN(len(good)), byte(1)<<rng.IntN(8)
		data := slices.Clone(good)
		for i := range 1 + rng.IntN(64) { // a byte, or some of a sector
			data[min(at+i, len(data)-1)] ^= bit
		}
		name := filepath.Join(directory, fmt.Sprintf("damaged-%d.db", round))
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if damage(t, name, count) {
			found++
		}
	}
	t.Logf("%d of %d damages are told", found, rounds)
	if found == 0 && !testrun.Quick() {
		t.Error("no damage is noticed")
	}
}

// damage reads a damaged archive and returns whether an answer says so. Jobs that can be read must
// be as they were written.
func damage(t *testing.T, path string, count int) (told bool) {
	t.Helper()
	defer os.Remove(path) //nolint:errcheck // the directory goes anyway
	expected := func(err error) {
		t.Helper()
		switch plimsoll.CodeOf(err) {
		case plimsoll.CodeCorrupt, plimsoll.CodeUnavailable, plimsoll.CodeInvalid:
			told = true
		default:
			t.Errorf("%s: %v", path, err)
		}
	}
	r := sqlite.OpenReader(path)
	defer r.Close() //nolint:errcheck // the file is damaged: an error is no news
	q := archive.JobQuery{Ascending: true}
	seen := 0
	for more := true; more; {
		page, err := r.Jobs(t.Context(), q)
		if err != nil {
			expected(err)
			break
		}
		told = told || len(page.Damaged) > 0
		for i := range page.Items {
			s := &page.Items[i]
			seen++
			n := int((s.UID.Submitted() - benchStart) / 200_000)
			want := benchJob(n, 1+n%3*150)
			if _, err := r.Tasks(t.Context(), archive.TaskQuery{UID: s.UID}); err != nil {
				expected(err)
			} else if why := differs(t, r, s, want); why != "" {
				t.Errorf("%s: job %d: %s", path, n, why)
			}
		}
		q.After, more = page.Next, page.More
	}
	w, err := sqlite.OpenWriter(t.Context(), path)
	if err != nil {
		expected(err)
		return told
	}
	defer w.Close() //nolint:errcheck // as above
	if err := w.Check(t.Context()); err != nil {
		expected(err)
	}
	if seen != count && !told {
		t.Errorf("%s: %d jobs are missing, and nothing says so", path, count-seen)
	}
	return told
}
