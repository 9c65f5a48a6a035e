package executor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Masks of the files that tasks make. What an attempt with a uid of its own makes is for its groups
// too: its first one is its alone, and that of its directory is for the tasks that have its files.
const (
	taskMask    = 0o022
	ownTaskMask = 0o002
)

// confine takes from this thread, and so from every program that is started on it, what no task
// needs: to gain rights by exec, and, of root's, all that could be had again after it was given up.
// The thread keeps the rights that starting a program as somebody else takes.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid programs to gain rights: %w", err)
	}
	// A kernel without them, or a supervisor that may not, has nothing to lose: no_new_privs holds
	// anyway.
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	for c := range uintptr(64) {
		if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			break // there are no more, or they cannot be dropped
		}
	}
	return nil
}

// ownMask gives this thread a umask of its own. A sandbox may forbid it; then all threads keep the
// process's.
func ownMask() bool { return unix.Unshare(unix.CLONE_FS) == nil }

// closeOnExec marks every descriptor but the three standard ones, also those that this process was
// started with.
func closeOnExec() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil || !errors.Is(
		err, syscall.ENOSYS,
	) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EPERM) {
		return err
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11, or a sandbox that does not know of it
	if err != nil {
		return fmt.Errorf("list the open files: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// newKeyring gives this thread, and so the program that is started on it next, a session keyring of
// its own. The one that a program inherits is its to read, whatever its uid, and here it is that of
// the session from which the agent was started, with the keys of root.
func newKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) // of no name
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		return nil // a kernel without keys, or a sandbox that forbids them to the program too
	}
	if err != nil {
		return fmt.Errorf("make a keyring: %w", err)
	}
	return nil
}
