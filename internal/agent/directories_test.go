package agent

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutOverride runs f without root's right to ignore permissions, on a thread that is thrown
// away.
func withoutOverride(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&header, &caps[0])
		if err == nil {
			caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
			err = unix.Capset(&header, &caps[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("capabilities cannot be given up: %v", err)
	}
}

func TestDirectoriesThatNobodyMayWriteAreRemoved(t *testing.T) {
	trash := t.TempDir()
	inner := filepath.Join(trash, "1", "work", "mod")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inner, "go.mod"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(inner, "link")); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]os.FileMode{outside: 0o555, inner: 0o555, filepath.Dir(inner): 0} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	withoutOverride(t, func() {
		if err := emptyDir(t.Context(), trash); err != nil {
			t.Error(err)
		}
	})
	if left, err := os.ReadDir(trash); err != nil || len(left) != 0 {
		t.Errorf("left is %v, %v", left, err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("behind a link the mode has become %v, %v", info, err)
	}
}
