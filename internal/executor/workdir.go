package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeWorkDir makes a working directory below the task's own one, which belongs to the attempt
// already. A path that leads out of it is not made. Existing entries stay as they are.
//
// It descends from descriptor to descriptor and follows no link. It has the supervisor's rights,
// and other tasks of the owner may change the directory meanwhile. At a link or a file it stops
// without error: prepare finds out whether the task can use the directory.
func makeWorkDir(taskDir, name string, id *identity) error {
	if name == "" || !filepath.IsLocal(name) {
		return nil
	}
	dir, err := openDir(unix.AT_FDCWD, taskDir)
	if err != nil {
		return fmt.Errorf("make the working directory: %w", err)
	}
	for part := range strings.SplitSeq(filepath.Clean(name), "/") {
		below, err := makeBelow(dir, part, id)
		if err := errors.Join(err, dir.Close()); err != nil {
			return err
		}
		if below == nil {
			return nil
		}
		dir = below
	}
	return dir.Close()
}

func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// makeBelow makes a directory in another one, and opens it; nil: the name is in use for another
// file.
func makeBelow(dir *os.File, name string, id *identity) (below *os.File, err error) {
	err = unix.Mkdirat(int(dir.Fd()), name, uint32(privateMode))
	made := err == nil
	switch {
	case made, errors.Is(err, syscall.EEXIST):
	case slices.ContainsFunc(resourceErrors, func(s error) bool { return errors.Is(err, s) }):
		return nil, fmt.Errorf("make the working directory: %w", err)
	default:
		return nil, cannotStart("the working directory cannot be made: %s: %v", name, err)
	}
	if below, err = openDir(int(dir.Fd()), name); err != nil {
		return nil, nil //nolint:nilerr,nilnil // a link or a file, or it has just vanished
	}
	if made && id.cred != nil {
		err = giveBelow(dir, below, id)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("give the task its working directory: %w", err), below.Close())
	}
	return below, nil
}

// giveBelow gives a new directory to the attempt, with the group of its parent.
func giveBelow(dir, below *os.File, id *identity) error {
	var in, st unix.Stat_t
	if err := errors.Join(unix.Fstat(int(dir.Fd()), &in), unix.Fstat(int(below.Fd()), &st)); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return nil // another directory has taken its place
	}
	if err := below.Chown(int(id.cred.Uid), int(in.Gid)); err != nil {
		return err
	}
	return below.Chmod(sharedMode)
}
