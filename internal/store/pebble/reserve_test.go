package pebble

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const hogVariable = "PEBBLE_TEST_HOG"

// TestCommitWithoutDescriptors is run by TestCommitsGoOnWithoutDescriptors in a process of its own.
func TestCommitWithoutDescriptors(t *testing.T) {
	dir, ok := os.LookupEnv(hogVariable)
	if !ok {
		t.Skip("runs only inside of TestCommitsGoOnWithoutDescriptors")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 256, Max: 256}); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, Config{Dir: dir, MemTableBytes: minMemTableBytes})
	epoch := lead(t, s)
	var taken []*os.File
	hog := func() {
		for {
			f, err := os.Open(os.DevNull)
			if errors.Is(err, syscall.EMFILE) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, f)
		}
	}
	for r := uint64(1); r <= 1000; r++ {
		hog()
		mustCommit(t, s, epoch, r)
	}
	if len(taken) < 100 {
		t.Errorf("only %d descriptors were taken", len(taken))
	}
	for _, f := range taken {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	mustCommit(t, s, epoch, 1001)
	mustClose(t, s)
}

// The rest of the process holds every descriptor that it can get, and takes each one that becomes
// free. Logs and tables are made nevertheless.
func TestCommitsGoOnWithoutDescriptors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	cmd := exec.Command(os.Args[0], "-test.run=^TestCommitWithoutDescriptors$")
	cmd.Env = append(os.Environ(), hogVariable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs in %s: %v", dir, err)
	}
	last := strings.TrimSuffix(filepath.Base(logs[len(logs)-1]), ".log")
	if n, err := strconv.Atoi(last); err != nil || n < 20 {
		t.Errorf("only %d files were made, %v: the test proves nothing", n, err)
	}
	s := mustOpen(t, Config{Dir: dir})
	if got := read(t, s).Revision; got != 1001 {
		t.Errorf("revision %d is there, 1001 was acknowledged", got)
	}
	mustClose(t, s)
}

// A descriptor that the rest of the process takes from the store costs the reserve only that one.
// The reserve is refilled when the process has descriptors again, and released with the store.
func TestTheReserveIsFilledAgain(t *testing.T) {
	r := newReserve(nil)
	held := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.mu.files)
	}
	if got := held(); got != reservedFiles {
		t.Errorf("%d descriptors are held back, want %d", got, reservedFiles)
	}
	failures := 2
	_, err := opening(r, func() (int, error) {
		if failures--; failures >= 0 {
			return 0, &os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}
		}
		if got := held(); got != reservedFiles-2 {
			t.Errorf("after two failures %d are held back, want two fewer than %d", got, reservedFiles)
		}
		return 1, nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := held(); got != reservedFiles {
		t.Errorf("%d are held back afterwards, want %d", got, reservedFiles)
	}
	r.close()
	if got := held(); got != 0 {
		t.Errorf("%d are held back after the end", got)
	}
}
