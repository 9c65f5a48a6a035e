package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// tailOf returns a tail of one stream, and the directory of its file.
func tailOf(t *testing.T) (tl *tail, dir string, read func() (string, error)) {
	t.Helper()
	dir = t.TempDir()
	tl = &tail{streams: []tailed{{name: executor.Stdout}}}
	t.Cleanup(tl.close)
	return tl, dir, func() (string, error) {
		var text strings.Builder
		err := tl.copy(&tl.streams[0], dir, func(p piece) error {
			text.Write(p.data)
			return nil
		})
		return text.String(), err
	}
}

// A task may put a FIFO in the place of its log. A reader gets an error at once, and no thread
// waits for a writer.
func TestLogOfAFIFOIsRefused(t *testing.T) {
	_, dir, read := tailOf(t)
	if err := unix.Mkfifo(filepath.Join(dir, executor.Stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); plimsoll.CodeOf(err) != plimsoll.CodeConflict ||
		!strings.Contains(err.Error(), "stdout is no log") {
		t.Errorf("read: %v", err)
	}
}

// A log of 4 TB with a few words between holes is read as these words, at once.
func TestHolesOfALogAreSkipped(t *testing.T) {
	tl, dir, read := tailOf(t)
	f, err := os.Create(filepath.Join(dir, executor.Stdout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // no written data matters
	const tera = 1 << 40
	write := func(text string, at int64) {
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	write("first ", 1<<40)
	write("second ", 2*tera)
	if err := f.Truncate(4 * tera); err != nil {
		t.Skipf("the file system has no files of 4 TB: %v", err)
	}
	words := func(text string) string {
		return strings.Join(strings.Fields(strings.ReplaceAll(text, "\x00", "")), " ")
	}
	got, err := read()
	if err != nil || words(got) != "first second" || len(got) > 4*4096 {
		t.Fatalf("%d bytes were read, %q, %v", len(got), words(got), err)
	}
	tl.follow = true
	write("third", 4*tera)
	if got, err := read(); err != nil || words(got) != "third" {
		t.Errorf("what was written later is %q, %v", got, err)
	}
	if got, err := read(); err != nil || got != "" {
		t.Errorf("then came %q, %v", got, err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	write("anew", 0)
	if got, err := read(); err != nil || got != "anew" {
		t.Errorf("after it was cut to nothing it is %q, %v", got, err)
	}
}

// A log is read from the first line on that may be new enough, with the times of its parts.
func TestLogSinceAnInstantWithTimes(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, executor.Stdout), []byte("one\ntwo\nthree\nfour\n"))
	var data []byte
	for _, span := range [][3]int64{{10, 20, 5}, {20, 30, 14}} { // a line break is not where a span ends
		for _, n := range span {
			data = append(data, byte(n), 0, 0, 0, 0, 0, 0, 0)
		}
	}
	write(t, filepath.Join(dir, "stdout.times"), data)
	info, err := os.Stat(filepath.Join(dir, executor.Stdout))
	if err != nil {
		t.Fatal(err)
	}
	last := info.ModTime().UnixNano()
	for since, want := range map[int64]string{
		0:        fmt.Sprintf(`10-20"one\nt" 20-30"wo\nthree\n" 30-%d"four\n"`, last),
		20:       fmt.Sprintf(`10-20"one\nt" 20-30"wo\nthree\n" 30-%d"four\n"`, last),
		21:       fmt.Sprintf(`10-20"t" 20-30"wo\nthree\n" 30-%d"four\n"`, last), // the line that goes on then
		31:       fmt.Sprintf(`30-%d"four\n"`, last),
		last + 1: "",
	} {
		again := &tail{since: since, timed: true, streams: []tailed{{name: executor.Stdout}}}
		var pieces []string
		err := again.copy(&again.streams[0], dir, func(p piece) error {
			pieces = append(pieces, fmt.Sprintf("%d-%d%q", p.span.After, p.span.At, p.data))
			return nil
		})
		if got := strings.Join(pieces, " "); err != nil || got != want {
			t.Errorf("since %d: %s, %v, want %s", since, got, err, want)
		}
		again.close()
	}
}

// A log is read on from the place behind the last piece, whatever is said of its end. If it has
// become shorter than that, it is another one, and is read from its beginning.
func TestLogGoesOnFromAPlace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, executor.Stdout)
	read := func(from int64) (text string, next int64) {
		t.Helper()
		again := &tail{follow: true, lines: 1, streams: []tailed{{name: executor.Stdout, from: from}}}
		defer again.close()
		if err := again.copy(&again.streams[0], dir, func(p piece) error {
			text, next = text+string(p.data), p.next
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return text, next
	}
	write(t, file, []byte("one\ntwo\n"))
	if text, next := read(0); text != "two\n" || next != 8 {
		t.Errorf("the last line is %q up to %d", text, next)
	}
	write(t, file, []byte("one\ntwo\nthree\nfour\n"))
	if text, next := read(8); text != "three\nfour\n" || next != 19 {
		t.Errorf("behind it come %q up to %d", text, next)
	}
	if text, _ := read(19); text != "" {
		t.Errorf("behind all comes %q", text)
	}
	write(t, file, []byte("anew\n"))
	if text, next := read(19); text != "anew\n" || next != 5 {
		t.Errorf("after it was cut to nothing come %q up to %d", text, next)
	}
}
