package pebble

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const killVariable = "PEBBLE_TEST_KILL"

// TestCommitForEver is run by TestKilledProcess in a process of its own.
func TestCommitForEver(t *testing.T) {
	dir, ok := os.LookupEnv(killVariable)
	if !ok {
		t.Skip("runs only inside of TestKilledProcess")
	}
	s := mustOpen(t, Config{Dir: dir})
	first := read(t, s).Revision + 1
	epoch := lead(t, s)
	for r := first; ; r++ {
		mustCommit(t, s, epoch, r)
		fmt.Println(r)
	}
}

// A killed process loses no acknowledged batch. If a file is cut short after that, the store
// notices.
func TestKilledProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 4))
	var acked uint64
	for range 3 {
		acked = commitUntilKilled(t, dir, 20+rng.IntN(50))
		s := mustOpen(t, Config{Dir: dir})
		if got := read(t, s).Revision; got < acked {
			t.Fatalf("revision %d is there, %d was acknowledged", got, acked)
		}
		mustClose(t, s)
	}
	commitUntilKilled(t, dir, 50)
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs in %s: %v", dir, err)
	}
	last := slices.Max(logs)
	if err := os.Truncate(last, 4096); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{Dir: dir})
	wantError(t, err, plimsoll.CodeCorrupt, dir, filepath.Base(last), "damaged or cut short")
}

// commitUntilKilled kills the process of TestCommitForEver after it acknowledged n batches, and
// returns the last of them.
func commitUntilKilled(t *testing.T, dir string, n int) (acked uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCommitForEver$")
	cmd.Env = append(os.Environ(), killVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := 0; i < n && lines.Scan(); i++ {
		if acked, err = strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // the lines printed before its death
		if r, err := strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64); err == nil {
			acked = r
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process ended by itself")
	}
	return acked
}
