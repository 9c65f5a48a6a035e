package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

func openWriter(t *testing.T, path string) *sqlite.Writer {
	t.Helper()
	w, err := sqlite.OpenWriter(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, w) })
	return w
}

func openReader(t *testing.T, path string) *sqlite.Reader {
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

const (
	plainEvents = 20 // of a plainBatch
	plainFolds  = 7  // every so manieth has a fold
)

// plainBatch returns batch n of the histories of these tests. It has the events of one job, and a
// nanosecond of one CPU for each.
func plainBatch(n int) *history.Batch {
	var e ring.Encoder
	rng := rand.New(rand.NewPCG(uint64(n), 0))
	id, first := fmt.Sprintf("job-%06d", n), n*plainEvents
	at := func(i int) int64 { return benchStart + int64(first+i)*1e9 }
	for i := range plainEvents {
		ev := plimsoll.Event{
			Type: plimsoll.EventApp, Change: plimsoll.ChangeSet, Object: id, Time: at(i),
			Message: fmt.Sprintf("message %d %x", i, rng.Uint64()),
		}
		if i == 0 {
			ev.Change = plimsoll.ChangeAdd
		}
		e.Append(&ev)
	}
	b := &history.Batch{
		Instance: "plain", First: uint64(first), Count: plainEvents, From: at(0), To: at(plainEvents - 1),
		Objects: []history.Object{{Kind: history.KindJob, ID: id, Life: int64(n + 1)}},
		Jobs: []history.Job{{
			Life: int64(n + 1), ID: id, Owner: fmt.Sprint("owner", n%5), Queue: "root.a", Submitted: at(0),
			Ended: at(plainEvents - 1), Labels: map[string]string{"n": fmt.Sprint(n)},
		}},
		Rollups: []history.Rollup{{
			Hour: at(0) / 3600e9 * 3600, Group: history.Group{
				Life: int64(n + 1), Owner: fmt.Sprint("owner", n%5), Queue: "root.a",
				Labels: history.EncodeLabels(map[string]string{"n": fmt.Sprint(n)}),
			},
			Sums: history.Sums{
				Used: map[string]history.Amount{plimsoll.CPU: history.AmountOf(1, plainEvents)}, Ended: 1,
			},
		}},
	}
	b.Data = e.Finish(nil)
	if n%plainFolds == plainFolds-1 {
		b.Fold = bytes.Repeat(fmt.Appendf(nil, "%d ", first+plainEvents), 500)
	}
	return b
}

// plainRecords returns the events of batch n.
func plainRecords(n int) (records []history.Record) {
	b := plainBatch(n)
	for ev, err := range ring.Decode(b.Data) {
		if err != nil {
			panic(err)
		}
		records = append(records, history.Record{
			Instance: b.Instance, ID: b.First + uint64(len(records)), Event: ev,
		})
	}
	return records
}

func write(t *testing.T, w *sqlite.Writer, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if err := w.Write(t.Context(), plainBatch(n)); err != nil {
			t.Fatalf("batch %d: %v", n, err)
		}
	}
}

// timeline reads all pages.
func timeline(ctx context.Context, r *sqlite.Reader, q history.TimelineQuery) (all []history.Record, err error) {
	for {
		page, err := r.Timeline(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Rows...)
		if page.Next == (history.Cursor{}) {
			return all, nil
		}
		q.After = page.Next
	}
}

// has ends the test unless a history has all of the first count batches, each once. With trimmed
// some of the oldest events may be missing.
func has(t *testing.T, r *sqlite.Reader, count int, trimmed bool) {
	t.Helper()
	status, err := r.Status(t.Context())
	if err != nil || status.Next != uint64(count*plainEvents) || status.Jobs != uint64(count) {
		t.Fatalf("the status is %+v, %v, and there should be %d batches", status, err, count)
	}
	all, err := timeline(t.Context(), r, history.TimelineQuery{})
	if err != nil || uint64(len(all)) != status.Events || !trimmed && len(all) != count*plainEvents {
		t.Fatalf("there are %d events, %v, and %d batches were written", len(all), err, count)
	}
	var want []history.Record
	for n := count - len(all)/plainEvents; n < count; n++ {
		want = append(want, plainRecords(n)...)
	}
	if !reflect.DeepEqual(all, want) {
		t.Fatal("the events are not as they were written")
	}
	rows, _, err := r.Usage(t.Context(), history.UsageQuery{})
	if err != nil || count > 0 && (len(rows) != 1 || rows[0].Used[plimsoll.CPU].Low != uint64(count*plainEvents) ||
		rows[0].Ended != uint64(count)) {
		t.Fatalf("the usage is %+v, %v, and there should be %d batches", rows, err, count)
	}
}

// On a full disk a Write fails and leaves nothing; what was there stays and can be read; and the
// same Write succeeds when there is room.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.db")
	w, r := openWriter(t, path), openReader(t, path)
	pages, err := sqlite.Pages(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Disk(w, fmt.Sprint(pages+60)); err != nil {
		t.Fatal(err)
	}
	n := fillUp(t, w)
	has(t, r, n, false)
	if err := sqlite.Disk(w, "1000000"); err != nil {
		t.Fatal(err)
	}
	write(t, w, n, n+10)
	has(t, r, n+10, false)
}

// fillUp writes batches until the disk is full, and returns how many were acknowledged.
func fillUp(t *testing.T, w *sqlite.Writer) int {
	t.Helper()
	for n := range 10_000 {
		before, err := w.Position(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = w.Write(t.Context(), plainBatch(n))
		if err == nil {
			continue
		}
		says(t, err, plimsoll.CodeExhausted, "events.db", "disk is full")
		if after, err := w.Position(t.Context()); err != nil || after != before {
			t.Fatalf("the position goes from %+v to %+v, %v", before, after, err)
		}
		return n
	}
	t.Fatal("the disk does not become full")
	return 0
}

// A real disk that is full, then read-only: it can still be read. When it is mended, and the reader
// that was opened meanwhile is closed, writing goes on.
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
	path := filepath.Join(directory, "events.db")
	w := openWriter(t, path)
	n := fillUp(t, w)
	r := sqlite.OpenReader(path)
	has(t, r, n, false)
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	r = openReader(t, path)
	if err := syscall.Mount("", directory, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	has(t, r, n, false)
	_, err := sqlite.OpenWriter(t.Context(), path)
	says(t, err, plimsoll.CodeUnavailable, path, "mode of the file")
	if err := syscall.Mount("", directory, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	closed(t, r)
	w = openWriter(t, path)
	write(t, w, n, n+10)
	has(t, openReader(t, path), n+10, false)
}

// A file that is something else is refused, and left as it is.
func TestOtherFiles(t *testing.T) {
	directory := t.TempDir()
	_, err := sqlite.OpenWriter(t.Context(), filepath.Join(directory, "nothing", "events.db"))
	says(t, err, plimsoll.CodeUnavailable, "nothing/events.db", "directory")
	garbage := filepath.Join(directory, "garbage.db")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("not a database. "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.OpenWriter(t.Context(), garbage)
	says(t, err, plimsoll.CodeCorrupt, garbage, "backup")
	_, err = openReader(t, garbage).Status(t.Context())
	says(t, err, plimsoll.CodeCorrupt, garbage)

	for statement, says := range map[string]func(error){
		"PRAGMA application_id=7": func(err error) { says(t, err, plimsoll.CodeInvalid, "not a history") },
		"PRAGMA user_version=3":   func(err error) { says(t, err, plimsoll.CodeUnavailable, "format 3") },
	} {
		other := filepath.Join(t.TempDir(), "other.db")
		w := openWriter(t, other)
		if err := errors.Join(sqlite.Run(w, statement), w.Close()); err != nil {
			t.Fatal(err)
		}
		_, err = sqlite.OpenWriter(t.Context(), other)
		says(err)
	}
}

// A reader whose file is not there says so, and works once it is; also if it is replaced. A replay
// of the file that was there before ends.
func TestReaderOfAFileThatComesLaterAndIsReplaced(t *testing.T) {
	directory := t.TempDir()
	path, moved := filepath.Join(directory, "events.db"), filepath.Join(directory, "moved.db")
	r := openReader(t, path)
	_, err := r.Status(t.Context())
	says(t, err, plimsoll.CodeUnavailable, path, "not there yet")
	w := openWriter(t, path)
	write(t, w, 0, 3)
	has(t, r, 3, false)
	closed(t, w)
	_, replay, err := r.At(t.Context(), benchStart+3600e9)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	w = openWriter(t, path)
	write(t, w, 0, 5)
	has(t, r, 5, false)
	says(t, replay(func(history.Events) error { return nil }), plimsoll.CodeUnavailable, "replaced", "try again")
}

// A reader that does not end keeps the log from being emptied. Before it takes the disk, a Write
// says so. So does a process that stands still in the gate.
func TestReaderThatDoesNotEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.db")
	w, r := openWriter(t, path), openReader(t, path)
	sqlite.SmallWriter(w)
	if err := sqlite.Run(w, "PRAGMA busy_timeout=20"); err != nil { // it waits so long for the reader
		t.Fatal(err)
	}
	n := 0
	untilFull := func() error {
		for ; n < 1000; n++ {
			if err := w.Write(t.Context(), plainBatch(n)); err != nil {
				says(t, err, plimsoll.CodeExhausted, path+"-wal", "reads the history")
				return nil
			}
		}
		return errors.New("the log grows without a bound")
	}
	if err := sqlite.Hold(r, untilFull); err != nil {
		t.Fatal(err)
	}
	write(t, w, n, n+1)
	n++
	sqlite.HastyGate(w)
	gate, err := os.Open(path + "-gate")
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close() //nolint:errcheck // it was only locked
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if err := untilFull(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	write(t, w, n, n+1)
	has(t, r, n+1, false)
}

// A Write whose caller goes away at any moment leaves no transaction open: the next one works, and
// each batch is there once.
func TestWriteAfterACanceledOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.db")
	w, r := openWriter(t, path), openReader(t, path)
	count := testrun.Count(20, 200, 2000)
	for n := range count {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		err := w.Write(ctx, plainBatch(n))
		if code := plimsoll.CodeOf(err); err != nil && code != plimsoll.CodeCanceled {
			t.Fatalf("the canceled Write: %v", err)
		}
		<-ctx.Done()
		write(t, w, n, n+1)
	}
	has(t, r, count, false)
}

// If bytes of a file change, each answer is right, or says that the file is damaged. A Write to it
// says so too, or works.
func TestDamagedBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 3))
	directory := t.TempDir()
	path := filepath.Join(directory, "events.db")
	w := openWriter(t, path)
	const count = 200
	write(t, w, 0, count)
	closed(t, w)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	rounds := testrun.Count(3, 40, 500)
	for round := range rounds {
		data := slices.Clone(good)
		for range 4 {
			at, bit := rng.IntN(len(good)), byte(1)<<rng.IntN(8)
			for i := range 1 + rng.IntN(64) { // a byte, or some of a sector
				data[min(at+i, len(data)-1)] ^= bit
			}
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

// damage asks a damaged history and returns whether an answer says so.
func damage(t *testing.T, path string, count int) (told bool) {
	t.Helper()
	defer os.Remove(path) //nolint:errcheck // the directory goes anyway
	r := sqlite.OpenReader(path)
	defer r.Close() //nolint:errcheck // the file is damaged: an error is no news
	right := func(what string, err error, right bool) {
		t.Helper()
		expected := []plimsoll.Code{plimsoll.CodeCorrupt, plimsoll.CodeUnavailable, plimsoll.CodeInvalid}
		switch {
		case err == nil && right:
		case err != nil && slices.Contains(expected, plimsoll.CodeOf(err)):
			told = true
		default:
			t.Errorf("%s: %s is wrong, and the error is %v", path, what, err)
		}
	}
	for n := range count {
		b := plainBatch(n)
		object := b.Objects[0]
		rows, err := timeline(t.Context(), r, history.TimelineQuery{Object: object})
		right("a timeline", err, reflect.DeepEqual(rows, plainRecords(n)))
	}
	all, err := timeline(t.Context(), r, history.TimelineQuery{})
	right("the timeline of all", err, len(all) == count*plainEvents)
	for _, by := range [][]history.Dimension{nil, {history.ByOwner}, {history.ByJob}, {history.LabelPrefix + "n"}} {
		rows, _, err := r.Usage(t.Context(), history.UsageQuery{By: by, Limit: history.MaxPage})
		used := uint64(0)
		for i := range rows {
			used += rows[i].Used[plimsoll.CPU].Low
		}
		right("the usage", err, used == uint64(count*plainEvents))
	}
	jobs := 0
	for owner := range 5 {
		page, failed := r.Jobs(t.Context(), history.JobQuery{Owner: fmt.Sprint("owner", owner), Limit: history.MaxPage})
		err = errors.Join(err, failed)
		jobs += len(page.Rows)
	}
	right("the list of jobs", err, jobs == count)
	fold, replay, err := r.At(t.Context(), plainBatch(count-1).To)
	if err == nil && fold != nil {
		next, whole := uint64(0), true
		_, err = fmt.Sscan(string(fold[:8]), &next)
		if err == nil {
			err = replay(func(e history.Events) error {
				whole = whole && e.First == next
				next += e.Count
				return nil
			})
		}
		right("the state at a time", err, whole)
	}
	w, err := sqlite.OpenWriter(t.Context(), path)
	if err != nil {
		right("opening", err, true)
		return told
	}
	defer w.Close() //nolint:errcheck // as above
	right("writing", w.Write(t.Context(), plainBatch(count)), true)
	return told
}

// Folds that are not needed go, and At still leads to each time from a fold before it.
func TestFoldsAreThinnedOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.db")
	w, r := openWriter(t, path), openReader(t, path)
	const count = 700 // 14,000 s with a fold each 140 s
	sqlite.Thin(w, 2000*time.Second, 1400, 1000, 1<<30)
	write(t, w, 0, count)
	farthest := 0
	for n := plainFolds; n < count; n += testrun.Count(10, 1, 1) {
		to := plainBatch(n).To
		fold, replay, err := r.At(t.Context(), to)
		if err != nil || fold == nil {
			t.Fatalf("batch %d: %v", n, err)
		}
		next, events := uint64(0), 0
		if _, err = fmt.Sscan(string(fold[:10]), &next); err != nil {
			t.Fatal(err)
		}
		if err := replay(func(e history.Events) error {
			if e.First != next {
				t.Fatalf("batch %d: the replay goes from %d to %d", n, next, e.First)
			}
			next += e.Count
			events += int(e.Count)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if next != uint64((n+1)*plainEvents) {
			t.Fatalf("batch %d: the replay ends at %d", n, next)
		}
		farthest = max(farthest, events)
	}
	if farthest < 1000 || farthest > 1400+plainFolds*plainEvents {
		t.Errorf("a replay has up to %d events", farthest)
	}
	sqlite.Thin(w, 2000*time.Second, 1400, 5, 1<<30)
	write(t, w, count, count+plainFolds)
	if n, err := sqlite.Folds(w); err != nil || n != 5 {
		t.Errorf("%d folds are kept, %v, and 5 are possible", n, err)
	}
	for more := true; more; {
		var err error
		if more, err = w.Trim(t.Context(), history.Retention{Bytes: 100}, benchStart); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := sqlite.Folds(w); err != nil || n != 1 {
		t.Errorf("%d folds are kept, %v, when there is room for nothing", n, err)
	}
}
