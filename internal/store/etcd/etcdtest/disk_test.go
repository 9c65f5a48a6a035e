package etcdtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// A call that came while the disk was stalled returns when the disk goes on, each time.
func TestAStalledDiskGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d := newDisk()
		d.stall()
		d.stall()
		cmd := exec.Command("sync", file) // it calls fsync
		if err := d.start(cmd); err != nil {
			t.Fatal(err)
		}
		for d.refused == nil && !sleeps(t, cmd.Process.Pid) {
			runtime.Gosched()
		}
		d.release()
		d.release()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		d.end()
		if d.refused != nil {
			t.Skipf("disks cannot be stalled here: %v", d.refused)
		}
	}
}

// sleeps reports whether a process waits, as it does in a call that the disk holds.
func sleeps(t *testing.T, pid int) bool {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(status), "State:\tS")
}
