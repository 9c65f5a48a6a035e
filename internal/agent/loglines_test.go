package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// written makes the log of a tail.
func written(t *testing.T, dir, text string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, executor.Stdout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // no written data matters
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

// numbered returns lines with their numbers, each of so many bytes at least.
func numbered(from, to, bytes int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "%d%s\n", i, strings.Repeat("x", bytes))
	}
	return b.String()
}

func TestTailOfALogCountsLines(t *testing.T) {
	long := strings.Repeat("y", 3*logChunk)
	for _, test := range []struct {
		name, text string
		lines      int64
		want       string
	}{
		{"the last line", "a\nb\nc\n", 1, "c\n"},
		{"a line that has not ended is a line", "a\nb\nc", 1, "c"},
		{"two lines, the last of which has not ended", "a\nb\nc", 2, "b\nc"},
		{"empty lines are lines", "a\n\n\n", 2, "\n\n"},
		{"as many lines as there are", "a\nb\n", 2, "a\nb\n"},
		{"more lines than there are", "a\nb\n", 1 << 60, "a\nb\n"},
		{"all lines", "a\nb\n", 0, "a\nb\n"},
		{"an empty log", "", 3, ""},
		{"lines over several buffers", numbered(1, 5000, 100), 3000, numbered(2001, 5000, 100)},
		{"a line that is longer than the buffer", "a\n" + long + "\nb\n", 2, long + "\nb\n"},
		{"a line break at the edge of the buffer", "a\n" + long[:logChunk-1] + "\n", 1, long[:logChunk-1] + "\n"},
		{"a line break just before the buffer", "a\n" + long[:logChunk] + "\n", 1, long[:logChunk] + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tl, dir, read := tailOf(t)
			tl.lines = test.lines
			written(t, dir, test.text)
			if got, err := read(); err != nil || got != test.want {
				t.Errorf(
					"%d bytes were read, %.40q (%v), want %d, %.40q", len(got), got, err, len(test.want), test.want,
				)
			}
		})
	}
}

// With follow, the last lines come first and then all new output.
func TestTailOfALogThatIsFollowed(t *testing.T) {
	tl, dir, read := tailOf(t)
	tl.lines, tl.follow = 2, true
	f := written(t, dir, "a\nb\nc\nd")
	if got, err := read(); err != nil || got != "c\nd" {
		t.Errorf("first came %q, %v", got, err)
	}
	if _, err := f.WriteString("e\nf\ng\nh\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := read(); err != nil || got != "e\nf\ng\nh\n" {
		t.Errorf("then came %q, %v", got, err)
	}
}

// The last lines of a log are found without holding any in memory, however long they are. A hole
// takes no time.
func TestTailOfALogKeepsNothingInMemory(t *testing.T) {
	_, dir, _ := tailOf(t)
	const line = 20 << 20
	f := written(t, dir, "a\n"+strings.Repeat("y", line)+"\n")
	buffer := make([]byte, logChunk)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, err := lastLines(f, line+3, 1, buffer)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; begin != 2 || err != nil || allocated > line/4 {
		t.Errorf("the last line begins at %d, found with %d bytes of memory (%v)", begin, allocated, err)
	}
	const tera = 1 << 40
	for at, text := range map[int64]string{tera: "b\n", 3 * tera: "c\nd\n"} {
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Skipf("the file system has no files of 3 TB: %v", err)
		}
	}
	for lines, want := range map[int64]int64{1: 3*tera + 2, 2: tera + 2, 3: line + 3, 4: 2} {
		begin, err := lastLines(f, 3*tera+4, lines, buffer)
		if err != nil || begin != want {
			t.Errorf("the last %d lines begin at %d, want %d (%v)", lines, begin, want, err)
		}
	}
}
