package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// A directory takes its own blocks and those of everything below it. Links lead nowhere.
func TestDiskUsage(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	block := make([]byte, 64<<10)
	if err := errors.Join(
		os.WriteFile(filepath.Join(outside, "large"), make([]byte, 1<<20), 0o600),
		os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755),
		os.WriteFile(filepath.Join(dir, "one"), block, 0o600),
		os.WriteFile(filepath.Join(dir, "a", "b", "two"), block, 0o600),
		os.Symlink(outside, filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		os.Truncate(filepath.Join(dir, "one"), 1<<30), // a hole takes nothing
	); err != nil {
		t.Fatal(err)
	}
	if got := diskUsage(t.Context(), dir); got < 128<<10 || got > 256<<10 {
		t.Errorf("the usage is %d bytes", got)
	}
	if got := diskUsage(t.Context(), filepath.Join(dir, "nothing")); got != 0 {
		t.Errorf("what is not there takes %d bytes", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := diskUsage(ended, dir); got != 0 {
		t.Errorf("an agent that stops measures %d bytes", got)
	}
}

// A task that makes directories as deep as it can takes no more descriptors than are bounded.
func TestDiskUsageIsBoundedInDepth(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, strings.Repeat("d/", maxUsageDepth))
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	before := diskUsage(t.Context(), dir)
	block := make([]byte, 1<<20)
	if err := os.WriteFile(filepath.Join(at, "deep"), block, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := diskUsage(t.Context(), dir); got != before {
		t.Errorf("below %d directories %d bytes are measured", maxUsageDepth, got-before)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(at), "measured"), block, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := diskUsage(t.Context(), dir); got < before+1<<20 {
		t.Errorf("of 1 MiB above them %d bytes are measured", got-before)
	}
}

// weighed is a context that notes the most live memory, at some of the times when it is asked for
// its end.
type weighed struct {
	context.Context //nolint:containedctx // it is one itself

	asked int
	most  int64
}

func (w *weighed) Err() error {
	if w.asked++; w.asked%2000 == 1000 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.most = max(w.most, int64(m.HeapAlloc))
	}
	return w.Context.Err()
}

// A task may leave any number of files in a directory.
func TestDiskUsageTakesLittleMemoryWithManyFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 10_000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0100d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w := &weighed{Context: t.Context()}
	diskUsage(w, dir)
	if took := w.most - int64(m.HeapAlloc); w.most == 0 || took > 512<<10 {
		t.Errorf("measuring 10,000 files takes %d bytes of memory", took)
	}
}

// The own directory of a task is shared by its attempts. It may be large, and is measured once in a
// sweep, also if many of them have ended.
func TestASweepMeasuresATasksOwnDirectoryOnce(t *testing.T) {
	b := newBook(t)
	b.hold()
	b.list()
	k := newKeeper(b.ledger, LogBounds{1 << 30, time.Hour, time.Hour}, 100)
	measured := map[string]int{}
	k.usage = func(_ context.Context, dir string) int64 {
		below, err := filepath.Rel(b.root, dir)
		if err != nil {
			t.Error(err)
		}
		measured[below]++
		return 1 << 20
	}
	for attempt := range int32(3) {
		b.keep(attemptKey{"j.g.0", attempt + 1}, 1)
	}
	b.keep(attemptKey{"j.g.1", 1}, 1)
	b.end(
		endedAt("j.g.0", 1, 1, failed), endedAt("j.g.0", 2, 2, failed), endedAt("j.g.0", 3, 3, failed),
		endedAt("j.g.1", 1, 4, failed),
	)
	b.sweep(k, 5, "j.g.0/1", "j.g.0/2", "j.g.0/3", "j.g.1/1")
	want := map[string]int{
		"j.g.0/work": 1, "j.g.0/1": 1, "j.g.0/2": 1, "j.g.0/3": 1, "j.g.1/work": 1, "j.g.1/1": 1,
	}
	if diff := cmp.Diff(want, measured); diff != "" {
		t.Errorf("directories that were measured (-want +got):\n%s", diff)
	}
	if k.bytes != 6<<20 {
		t.Errorf("%d bytes are kept", k.bytes)
	}
}
