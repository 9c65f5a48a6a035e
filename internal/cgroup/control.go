package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// Errors of a group, to be matched with errors.Is. A refused value is a plimsoll.Error instead.
var (
	// ErrGone says that the group was removed. The error is final: a later group of the same name
	// is a different group.
	ErrGone error = &plimsoll.Error{Code: plimsoll.CodeNotFound, Msg: "the control group is gone"}
	// ErrUnsupported says that the machine has no controller for the request, or that its kernel
	// has no such file.
	ErrUnsupported error = &plimsoll.Error{
		Code: plimsoll.CodeUnimplemented, Msg: "this machine's control groups cannot do that",
	}
	// ErrBusy says that an earlier call for the same group is still under way.
	ErrBusy error = &plimsoll.Error{
		Code: plimsoll.CodeConflict, Msg: "an earlier call for this control group is still under way",
	}
)

// Control changes a running group: processor quota, weight and burst, freezing, memory.
//
// Control keeps the group's directories open, so it never reaches a later group of the same name.
// Once the group is removed, every call answers ErrGone. A change costs an open, a write and a
// close. Files are not kept open: a machine has a thousand groups with a dozen files each, and few
// are ever written. Reader is the type for reading counters every second.
//
// Control is safe for concurrent use. Of two simultaneous changes of one setting, one remains.
type Control struct {
	name  string
	h     *Hierarchy
	files struct {
		sync.RWMutex
		dirs []int // one for each of h.mounts; -1: not needed
		open bool
	}
	reclaim reclaimSlot
}

// Control opens the group, which must exist. Close releases the descriptors.
func (g *Group) Control() (*Control, error) {
	c := &Control{name: g.name, h: g.s.h}
	c.files.open = true
	c.files.dirs = make([]int, len(g.dirs))
	for i := range c.files.dirs {
		c.files.dirs[i] = -1
	}
	for i, dir := range g.dirs {
		m := &g.s.h.mounts[i]
		if !m.v2 && !m.has(cpuController) && !m.has(memoryController) && !m.has(freezerController) {
			continue
		}
		fd, err := openDir(dir)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the control group %s: %w", g.name, err), c.Close())
		}
		c.files.dirs[i] = fd
	}
	return c, nil
}

func openDir(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return -1, gone(err)
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}

// Close releases the descriptors and ends a call of Reclaim that is under way. Later calls answer
// fs.ErrClosed.
func (c *Control) Close() error {
	c.reclaim.stop()
	c.files.Lock()
	defer c.files.Unlock()
	c.files.open = false
	var errs []error
	for i, fd := range c.files.dirs {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
			c.files.dirs[i] = -1
		}
	}
	return errors.Join(errs...)
}

// Name returns the group's name in its subtree.
func (c *Control) Name() string { return c.name }

// mountFor returns the mount of a controller, or ErrUnsupported.
func (c *Control) mountFor(controller string) (mount int, v2 bool, err error) {
	i := c.h.mountOf(controller)
	if i < 0 {
		return -1, false, fmt.Errorf(
			"%w: %s at %s has no controller for %s", ErrUnsupported, c.h.version, c.h.root, controller,
		)
	}
	return i, c.h.mounts[i].v2, nil
}

func gone(err error) error { return fmt.Errorf("%w: %w", ErrGone, err) }

// open opens a file of the group in a mount.
func (c *Control) open(mount int, file string, flags int) (int, error) {
	c.files.RLock()
	defer c.files.RUnlock()
	if !c.files.open {
		return -1, fmt.Errorf("the control group %s: %w", c.name, fs.ErrClosed)
	}
	dir := c.files.dirs[mount]
	for {
		fd, err := unix.Openat(dir, file, flags|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENODEV):
			return -1, gone(err)
		case errors.Is(err, unix.ENOENT):
			// Either the group is gone, or it never had the file.
			if unix.Faccessat(dir, "cgroup.procs", unix.F_OK, 0) != nil {
				return -1, gone(err)
			}
			return -1, fmt.Errorf(
				"%w: there is no file %s in it; the kernel is too old, or the controller is not on", ErrUnsupported,
				file,
			)
		}
		return -1, &fs.PathError{Op: "open", Path: file, Err: err}
	}
}

// read returns the content of a file, which may be empty. A file longer than buf is cut.
func (c *Control) read(mount int, file string, buf []byte) ([]byte, error) {
	fd, err := c.open(mount, file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	n, err := pread(fd, buf)
	return buf[:n], errors.Join(kernelError(file, err), unix.Close(fd))
}

// readNumber reads a file that holds one number.
func (c *Control) readNumber(mount int, file string) (int64, error) {
	var buf [64]byte
	data, err := c.read(mount, file, buf[:])
	if err != nil {
		return 0, err
	}
	n, ok := ParseNumber(data)
	if !ok {
		return 0, fmt.Errorf("%s says %q, which is no number", file, data)
	}
	return n, nil
}

// write writes a file of the group. The error is the kernel's own, ErrGone or ErrUnsupported.
func (c *Control) write(mount int, file, value string) error {
	fd, err := c.open(mount, file, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	for {
		if _, err = unix.Write(fd, []byte(value)); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return errors.Join(kernelError(file, err), unix.Close(fd))
}

// pread reads from the start of the file; n is 0 after an error.
func pread(fd int, buf []byte) (n int, err error) {
	for {
		n, err = unix.Pread(fd, buf, 0)
		if err == nil {
			return n, nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

func kernelError(file string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENODEV):
		return gone(err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: %s: %w", ErrUnsupported, file, err)
	}
	return &fs.PathError{Op: "use", Path: file, Err: err}
}

// refused explains why the kernel refused a value, and names the values that it accepts.
func (c *Control) refused(err error, setting, value, accepted string) error {
	op := fmt.Sprintf("set the %s of the control group %s", setting, c.name)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		return &plimsoll.Error{Code: plimsoll.CodeInvalid, Op: op, Field: setting, Msg: fmt.Sprintf(
			"the kernel refuses %s; %s", value, accepted,
		), Err: err}
	case errors.Is(err, unix.EBUSY):
		return &plimsoll.Error{Code: plimsoll.CodeConflict, Op: op, Field: setting, Msg: fmt.Sprintf(
			"the kernel is busy and refuses %s; %s", value, accepted,
		), Err: err}
	}
	return fmt.Errorf("%s to %s: %w", op, value, err)
}
