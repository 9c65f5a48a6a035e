package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const secret = "the content of a file outside"

// taskFiles is a task's own directory, with a secret file beside it.
func taskFiles(t *testing.T, files ...string) (dir, outside string) {
	t.Helper()
	top := t.TempDir()
	outside = filepath.Join(top, "secret")
	dir = filepath.Join(top, "work")
	putFile(t, outside, secret)
	for _, file := range files {
		putFile(t, filepath.Join(dir, file), "content of "+file)
	}
	return dir, outside
}

func putFile(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// found lists the paths of the outputs, and the refused entries with their reasons.
func found(t *testing.T, dir string, outputs ...string) (paths, refused []string) {
	t.Helper()
	o, err := FindOutputs(t.Context(), dir, outputs, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range o.Files {
		paths = append(paths, f.Path)
	}
	for _, r := range o.Refusals {
		refused = append(refused, r.Path+" "+r.Reason)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	return paths, refused
}

func TestWhichFilesAreOutputs(t *testing.T) {
	dir, _ := taskFiles(t, "a.csv", "b.csv", "b.txt", "out/1/x", "out/2/x", "out/2/y", "out/z", ".hidden", "odd*name")
	for _, c := range []struct{ outputs, want string }{
		{"a.csv", "a.csv"},
		{"*.csv", "a.csv b.csv"},
		{"out", "out/1/x out/2/x out/2/y out/z"},
		{"out/*/x", "out/1/x out/2/x"},
		{"out/[2-9]", "out/2/x out/2/y"},
		{"out/2 out/2/y *.csv a.csv", "a.csv b.csv out/2/x out/2/y"}, // each once
		{"*", ".hidden a.csv b.csv b.txt odd*name out/1/x out/2/x out/2/y out/z"},
		{`odd\*name`, "odd*name"},
		{"nothing a.csv/below out/z/x", ""},
		{"", ""},
	} {
		got, refused := found(t, dir, strings.Fields(c.outputs)...)
		if strings.Join(got, " ") != c.want || refused != nil {
			t.Errorf("%s: %q, refused %q, want %s", c.outputs, got, refused, c.want)
		}
	}
	for _, bad := range []string{"/etc/shadow", "../secret", "out/../../secret"} {
		if _, err := FindOutputs(t.Context(), dir, []string{bad}, 1); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A task can put anything where its outputs should be.
func TestOutputsThatAreNoFilesAreRefused(t *testing.T) {
	dir, outside := taskFiles(t, "out/good")
	at := func(name string) string { return filepath.Join(dir, "out", name) }
	err := errors.Join(
		os.Symlink(outside, at("link")), os.Symlink(filepath.Dir(outside), at("linked")),
		os.Symlink(filepath.Dir(outside), filepath.Join(dir, "elsewhere")), unix.Mkfifo(at("fifo"), 0o644),
		unix.Mknod(at("socket"), unix.S_IFSOCK|0o644, 0),
		os.WriteFile(at("two\nlines"), nil, 0o644), os.WriteFile(at("\x1b[31mred"), nil, 0o644),
		os.WriteFile(at("\xff"), nil, 0o644), os.Mkdir(at("dir\r"), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	got, refused := found(t, dir, "out", "elsewhere/secret", "out/linked/secret")
	if diff := cmp.Diff([]string{"out/good"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	text := strings.Join(refused, "\n")
	for _, want := range []string{
		"out/link is a symbolic link", "out/linked is a symbolic link", "out/fifo is no regular file",
		"elsewhere is a symbolic link", "out/socket is no regular file", `"out/two\nlines" has a control character`,
		`"out/\x1b[31mred" has a control character`, `"out/\xff" has a control character`,
		`"out/dir\r" has a control character`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not refused:\n%s", want, text)
		}
	}
	if len(refused) != 9 || !plimsoll.PlainName(strings.Join(refused, "")) {
		t.Errorf("refused are %d entries:\n%s", len(refused), text)
	}
}

// The agent may be root. A file that the task's user may not read is refused, although it is in the
// task's directory, as by a hard link.
func TestOutputsAreThoseThatTheTasksUserMayRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	const user, group, other = 612345, 612346, 612347
	dir, outside := taskFiles(t, "own", "ofGroup", "ofOthers", "private", "closed/x", "open/x")
	err := errors.Join(
		os.Chmod(outside, 0o600), os.Link(outside, filepath.Join(dir, "hard")), os.Chown(dir, user, group),
		os.Chown(filepath.Join(dir, "own"), user, user), os.Chmod(filepath.Join(dir, "own"), 0o600),
		os.Chown(filepath.Join(dir, "ofGroup"), other, group), os.Chmod(filepath.Join(dir, "ofGroup"), 0o640),
		os.Chown(filepath.Join(dir, "ofOthers"), other, other),
		os.Chown(filepath.Join(dir, "private"), other, group), os.Chmod(filepath.Join(dir, "private"), 0o600),
		os.Chmod(filepath.Join(dir, "closed"), 0o711),
	)
	if err != nil {
		t.Fatal(err)
	}
	got, refused := found(t, dir, "*")
	if diff := cmp.Diff([]string{"ofGroup", "ofOthers", "open/x", "own"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if text := strings.Join(refused, "\n"); len(refused) != 3 || !strings.Contains(text, "hard may not be read") ||
		!strings.Contains(text, "private may not be read") || !strings.Contains(text, "closed may not be entered") {
		t.Errorf("refused:\n%s", text)
	}
}

func TestOutputsAreBounded(t *testing.T) {
	exhausted := func(t *testing.T, dir string, most int64, want string, outputs ...string) {
		t.Helper()
		_, err := FindOutputs(t.Context(), dir, outputs, most)
		if plimsoll.CodeOf(err) != plimsoll.CodeExhausted || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	t.Run("bytes", func(t *testing.T) { // a hole counts: it would fill the disk of the receiver
		dir, _ := taskFiles(t, "small")
		if err := os.Truncate(filepath.Join(dir, "small"), 1<<40); err != nil {
			t.Skipf("the file system has no files of 1 TB: %v", err)
		}
		exhausted(t, dir, 1<<30, "small are more than 1Gi", "small")
	})
	t.Run("files", func(t *testing.T) {
		dir, _ := taskFiles(t)
		many(t, dir, MaxOutputFiles+1, "f")
		exhausted(t, dir, 1<<30, "more than 10000 files", "f*")
	})
	t.Run("paths", func(t *testing.T) {
		dir, _ := taskFiles(t)
		many(t, dir, MaxOutputPathBytes/200+10, strings.Repeat("n", 200))
		exhausted(t, dir, 1<<30, "1048576 bytes", "*")
	})
	t.Run("refusals", func(t *testing.T) {
		dir, _ := taskFiles(t)
		many(t, dir, 100, "\x01")
		o, err := FindOutputs(t.Context(), dir, []string{"*"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil || o.Refused != 100 || len(o.Refusals) != MaxRefusals {
			t.Errorf("%d refused, %d of them named, %v", o.Refused, len(o.Refusals), err)
		}
	})
	t.Run("depth", func(t *testing.T) {
		dir, _ := taskFiles(t, strings.Repeat("d/", maxOutputDepth+3)+"f")
		if got, refused := found(t, dir, "d"); got != nil || len(refused) != 1 {
			t.Errorf("found %q, refused %q", got, refused)
		}
	})
}

// A directory that waits to be listed takes no more memory than is counted, however many outputs
// are declared.
func TestWaitingDirectoriesTakeWhatIsCounted(t *testing.T) {
	const dirs = 3000
	dir, _ := taskFiles(t)
	for i := range dirs {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("d%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	o := &Outputs{root: root, most: 1}
	for i := range plimsoll.MaxOutputs {
		o.patterns = append(o.patterns, []string{"*", strconv.Itoa(i)})
	}
	before := liveBytes()
	waiting, err := o.list(t.Context(), "")
	if err := errors.Join(err, o.Close()); err != nil || len(waiting) != dirs {
		t.Fatalf("%d directories wait, %v", len(waiting), err)
	}
	// The allocator rounds up, and the slice has room to grow.
	if took := liveBytes() - before; took > 3*int64(o.pathBytes) {
		t.Errorf("%d waiting directories take %d bytes, and %d are counted", dirs, took, o.pathBytes)
	}
	runtime.KeepAlive(waiting)
}

// liveBytes returns the bytes of the objects that are reachable.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The bytes of a directory are given back once it is listed. An output that is declared twice is
// looked for once.
func TestListedDirectoriesCountNoMore(t *testing.T) {
	dir, _ := taskFiles(t, "a/1/x", "a/2/x", "b/1/x", "b/y")
	o, err := FindOutputs(t.Context(), dir, []string{"*/*/x", "*/*/x", "b", "b"}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, f := range o.Files {
		want += len(f.Path)
	}
	if err := o.Close(); err != nil || len(o.Files) != 4 || o.pathBytes != want || len(o.patterns) != 2 {
		t.Errorf("%v: %d bytes are counted, want %d; %d patterns; %v", o.Files, o.pathBytes, want, len(o.patterns), err)
	}
}

// many makes empty files.
func many(t *testing.T, dir string, files int, prefix string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s%d", prefix, i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A task of the same owner may exchange files and directories for links while they are read.
func TestOutputsThatAreExchangedLeadNowhere(t *testing.T) {
	dir, outside := taskFiles(t, "out/secret")
	own := filepath.Join(dir, "out")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = os.Rename(own, own+".real")
			_ = os.Symlink(filepath.Dir(outside), own)
			_ = os.Remove(own)
			_ = os.Rename(own+".real", own)
			_ = os.Rename(own+"/secret", own+"/real")
			_ = os.Symlink(outside, own+"/secret")
			_ = os.Remove(own + "/secret")
			_ = unix.Mkfifo(own+"/secret", 0o600)
			_ = os.Remove(own + "/secret")
			_ = os.Rename(own+"/real", own+"/secret")
		}
	}()
	read := 0
	for range testrun.Count(500, 1500, 50000) {
		o, err := FindOutputs(t.Context(), dir, []string{"out/secret"}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for i := range o.Files {
			f, err := o.Open(&o.Files[i])
			if err != nil {
				continue
			}
			text, err := io.ReadAll(f)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if string(text) == secret {
				t.Fatal("a file outside of the task's own directory was read")
			}
			read++
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-ended
	t.Logf("the file was read %d times", read)
}
