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

// Umasks of tasks. An attempt with its own uid makes files for its groups too. Its first group is
// its alone, and the group of its directory is for the tasks that share its files.
const (
	taskMask    = 0o022
	ownTaskMask = 0o002
)

// confine takes rights from this thread, and so from every program started on it. Programs cannot
// gain rights by exec, and root's programs cannot regain capabilities. The thread keeps the rights
// to start a program as another user.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid programs to gain rights: %w", err)
	}
	// An error is harmless: the kernel has none, or the supervisor may not use them. no_new_privs
	// holds anyway.
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	for c := range uintptr(64) {
		if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			break // there are no more, or they cannot be dropped
		}
	}
	return nil
}

// ownMask gives this thread its own umask. In a sandbox that forbids it, all threads keep the
// process's umask.
func ownMask() bool { return unix.Unshare(unix.CLONE_FS) == nil }

// closeOnExec marks every descriptor but the three standard ones, including those inherited at the
// start of this process.
func closeOnExec() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil ||
		!errors.Is(err, syscall.ENOSYS) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EPERM) {
		return err
	}
	// Before Linux 5.11, or in a sandbox without the call.
	entries, err := os.ReadDir("/proc/self/fd")
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

// newKeyring gives this thread, and so the next program on it, its own session keyring. Otherwise
// the program could read the inherited keyring, whatever its uid: that of the agent's session, with
// root's keys.
func newKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) // without a name
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		return nil // the kernel has no keys, or a sandbox forbids them to the program too
	}
	if err != nil {
		return fmt.Errorf("make a keyring: %w", err)
	}
	return nil
}
