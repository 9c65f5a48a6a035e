package cgroup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// Resource is a resource that tasks can wait for.
type Resource string

// Resources whose pressure the kernel measures.
const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
	IO     Resource = "io"
)

// Pressure is the kernel's pressure stall information: the time lost waiting for a resource. A
// group that its own quota throttles reports pressure too, and so does its machine.
type Pressure struct {
	Some Stall // at least one task waits
	Full Stall // every task that wants to run waits; always zero for the machine's cpu
}

// Stall is lost time.
type Stall struct {
	Avg10       int64 // share of the last ten seconds, in hundredths of a percent
	TotalMicros int64 // since the start
}

// Kind says which of the two stalls a trigger counts.
type Kind string

// Kinds of stall.
const (
	Some Kind = "some"
	Full Kind = "full"
)

// pressureFileOf checks the resource and returns the name of its file.
func pressureFileOf(res Resource) (string, error) {
	switch res {
	case CPU, Memory, IO:
		return string(res) + ".pressure", nil
	}
	return "", plimsoll.Invalid("resource", "there is no pressure of %q; it is cpu, memory or io", string(res))
}

// Pressure reads the group's own pressure. It needs a v2 hierarchy; one beside v1 is enough.
func (c *Control) Pressure(res Resource) (Pressure, error) {
	p, err := c.pressure(res)
	if err != nil {
		return p, fmt.Errorf("read the %s pressure of %s: %w", res, c.name, err)
	}
	return p, nil
}

func (c *Control) pressure(res Resource) (Pressure, error) {
	m, file, err := c.pressureFile(res)
	if err != nil {
		return Pressure{}, err
	}
	var buf [256]byte
	data, err := c.read(m, file, buf[:])
	if err != nil {
		return Pressure{}, err
	}
	p, ok := ParsePressure(data)
	if !ok {
		return Pressure{}, fmt.Errorf("%s says %q", file, data)
	}
	return p, nil
}

func (c *Control) pressureFile(res Resource) (mount int, file string, err error) {
	if file, err = pressureFileOf(res); err != nil {
		return -1, "", err
	}
	if mount = c.h.unified(); mount < 0 {
		return -1, "", fmt.Errorf(
			"%w: %s at %s has no pressure of groups, which needs cgroup v2", ErrUnsupported, c.h.version, c.h.root,
		)
	}
	return mount, file, nil
}

// MachinePressure reads the pressure of the machine. proc is the mount point, "/proc" if empty.
func MachinePressure(proc string, res Resource) (Pressure, error) {
	fd, err := openMachinePressure(proc, res, unix.O_RDONLY)
	if err != nil {
		return Pressure{}, err
	}
	var buf [256]byte
	n, err := pread(fd, buf[:])
	if err := errors.Join(kernelError(string(res), err), unix.Close(fd)); err != nil {
		return Pressure{}, fmt.Errorf("read the %s pressure of the machine: %w", res, err)
	}
	p, ok := ParsePressure(buf[:n])
	if !ok {
		return Pressure{}, fmt.Errorf("the %s pressure of the machine is %q", res, buf[:n])
	}
	return p, nil
}

func openMachinePressure(proc string, res Resource, flags int) (int, error) {
	if _, err := pressureFileOf(res); err != nil {
		return -1, err
	}
	if proc == "" {
		proc = "/proc"
	}
	fd, err := unix.Open(filepath.Join(proc, "pressure", string(res)), flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return -1, fmt.Errorf("%w: the kernel tells no pressure at %s: %w", ErrUnsupported, proc, err)
	}
	if err != nil {
		return -1, fmt.Errorf("open the %s pressure of the machine: %w", res, err)
	}
	return fd, nil
}

// Watch is the condition of a trigger: a stall of so much time within a window. The kernel accepts
// windows from half a second to ten.
type Watch struct {
	Resource      Resource
	Kind          Kind
	Stall, Window time.Duration
}

// Trigger reports pressure as soon as it occurs, at most once per window. Close releases its
// descriptors.
type Trigger struct {
	watch Watch
	fd    int // the kernel's trigger lives while the descriptor is open
	wake  int // an eventfd that ends Wait
}

// WatchPressure sets a trigger on the group's own pressure.
func (c *Control) WatchPressure(w Watch) (*Trigger, error) {
	m, file, err := c.pressureFile(w.Resource)
	if err != nil {
		return nil, fmt.Errorf("watch the pressure of %s: %w", c.name, err)
	}
	return watch(w, func() (int, error) { return c.open(m, file, unix.O_RDWR) })
}

// WatchMachinePressure sets a trigger on the machine's pressure. proc is the mount point, "/proc"
// if empty.
func WatchMachinePressure(proc string, w Watch) (*Trigger, error) {
	return watch(w, func() (int, error) { return openMachinePressure(proc, w.Resource, unix.O_RDWR) })
}

// unprivilegedWindow divides every window that is allowed without the capability CAP_SYS_RESOURCE.
const unprivilegedWindow = 2 * time.Second

// watch sets the trigger. Where the kernel refuses the window, it sets the same share of a window
// that every user may have.
func watch(w Watch, open func() (int, error)) (*Trigger, error) {
	if w.Kind != Some && w.Kind != Full {
		return nil, plimsoll.Invalid("kind", "a trigger counts some or full, not %q", string(w.Kind))
	}
	if w.Stall <= 0 || w.Window < w.Stall {
		return nil, plimsoll.Invalid(
			"stall", "a stall of %v within %v cannot be; it is more than 0 and no more than the window", w.Stall,
			w.Window,
		)
	}
	fd, err := setTrigger(w, open)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		if wider := w.widen(); wider != w {
			w = wider
			fd, err = setTrigger(w, open)
		}
	}
	if errors.Is(err, unix.EINVAL) {
		return nil, &plimsoll.Error{
			Code: plimsoll.CodeInvalid, Op: "watch the pressure", Field: "window",
			Msg: fmt.Sprintf(
				"the kernel refuses %v of %v; windows are 500ms to 10s, and multiples of 2s without CAP_SYS_RESOURCE",
				w.Stall, w.Window,
			),
			Err: err,
		}
	}
	if err != nil {
		return nil, fmt.Errorf("watch the pressure: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch the pressure: %w", err), unix.Close(fd))
	}
	return &Trigger{watch: w, fd: fd, wake: wake}, nil
}

// widen rounds the window up to a multiple that every user may have, and the stall in proportion.
func (w Watch) widen() Watch {
	window := (w.Window + unprivilegedWindow - 1) / unprivilegedWindow * unprivilegedWindow
	w.Stall = time.Duration(float64(w.Stall) * (float64(window) / float64(w.Window)))
	w.Window = window
	return w
}

func setTrigger(w Watch, open func() (int, error)) (int, error) {
	fd, err := open()
	if err != nil {
		return -1, err
	}
	text := fmt.Sprintf("%s %d %d\x00", w.Kind, w.Stall.Microseconds(), w.Window.Microseconds())
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return -1, errors.Join(kernelError(string(w.Resource)+" pressure", err), unix.Close(fd))
	}
	return fd, nil
}

// Watch returns the condition in effect, which may have a wider window than the request.
func (t *Trigger) Watch() Watch { return t.watch }

// Wait blocks a thread until the trigger fires (nil), ctx ends, or the group is gone (ErrGone). It
// takes one caller at a time.
func (t *Trigger) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		// the write fails only when the counter is full: then Wait is awake
		_, _ = unix.Write(t.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer stop()
	fds := []unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLPRI}, {Fd: int32(t.wake), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for pressure: %w", err)
		case fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0:
			return fmt.Errorf("wait for pressure: %w", ErrGone)
		case fds[0].Revents&unix.POLLPRI != 0:
			return nil
		case fds[1].Revents != 0:
			return ctx.Err()
		}
	}
}

// Close removes the trigger. Wait must have returned.
func (t *Trigger) Close() error { return errors.Join(unix.Close(t.fd), unix.Close(t.wake)) }
