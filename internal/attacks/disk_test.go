package attacks

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// TestFullDisk fills the file system of the store (line A4): submits are refused, and kills and
// reads are not, also after a restart.
func TestFullDisk(t *testing.T) {
	f := makeFleet(t)
	small := f.path("store")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	// otherwise the directory cannot be removed, which is reported
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	f.startAll()
	f.sleepers()
	f.submitOrFail(t, "victim", "sleep 1000", 1)

	fill(t, f.path("store", "fill"), 250<<20)
	refused := func(when string) {
		t.Helper()
		tries := 0
		f.eventually("refuse submits "+when, func() error {
			tries++ // the disk is measured every second
			err := f.submit(t, plimsoll.JobSpec{ID: fmt.Sprintf(
				"tried-%d-%s", tries, strings.ReplaceAll(when, " ", "-"),
			), Owner: "alice", Queue: "root.alice", Groups: []plimsoll.GroupSpec{{
				Name: "main", Count: 1, Command: []string{"true"},
			}}})
			if err == nil || !strings.Contains(err.Error(), "disk") {
				return errTaken{err}
			}
			return nil
		})
	}
	refused("on a full disk")
	f.killAndWait(t, "victim")
	f.stands()

	fill(t, f.path("store", "brim"), 1<<30) // to the last byte
	f.restarts()
	refused("after a start on a full disk")
	if err := os.Remove(f.path("store", "brim")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.path("store", "fill")); err != nil {
		t.Fatal(err)
	}
	f.eventually("take submits again", func() error {
		return f.submit(t, plimsoll.JobSpec{
			ID: "taken", Owner: "alice", Queue: "root.alice", Groups: []plimsoll.GroupSpec{{
				Name: "main", Count: 1, Command: []string{"true"},
			}},
		})
	})
	f.stands()
	f.stillFirstAttempts()
}

type errTaken struct{ err error }

func (e errTaken) Error() string {
	if e.err == nil {
		return "a submit was taken"
	}
	return "refused for another reason: " + e.err.Error()
}

// fill writes a file of the size, or until nothing more can be written.
func fill(t *testing.T, path string, size int) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for range size / len(block) {
		if _, err := file.Write(block); err != nil {
			break // it is full
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
