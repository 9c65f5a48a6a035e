package cgroup

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// freezing is the group's only freezer: the v1 freezer if it is mounted, else the v2 one.
type freezing struct {
	mount              int
	file, on, off      string
	stateFile, stateOn string // the file and its text when every process stands still
}

func (c *Control) freezing() (freezing, error) {
	if i := c.h.mountOf(freezerController); i >= 0 {
		return freezing{i, "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN\n"}, nil
	}
	if i := c.h.unified(); i >= 0 {
		return freezing{i, "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1\n"}, nil
	}
	return freezing{}, fmt.Errorf("%w: %s at %s has no freezer", ErrUnsupported, c.h.version, c.h.root)
}

// Freeze stops every process of the group and returns when all stand still. If ctx ends before, all
// run again and the error says so: a process in an uninterruptible sleep stops only when it wakes.
func (c *Control) Freeze(ctx context.Context) error {
	f, err := c.freezing()
	if err == nil {
		err = c.write(f.mount, f.file, f.on)
	}
	if err != nil {
		return fmt.Errorf("freeze the control group %s: %w", c.name, err)
	}
	var failed error
	err = retry(ctx, func() (bool, error) {
		var buf [256]byte
		state, err := c.read(f.mount, f.stateFile, buf[:])
		if err != nil {
			failed = err
			return true, nil
		}
		return strings.Contains(string(state), f.stateOn), nil
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf(
			"freeze the control group %s, which does not stand still: %w", c.name, errors.Join(err, c.Thaw()),
		)
	}
	return nil
}

// Thaw lets every process of the group run again. A group that is not frozen stays as it is.
func (c *Control) Thaw() error {
	f, err := c.freezing()
	if err == nil {
		err = c.write(f.mount, f.file, f.off)
	}
	if err != nil {
		return fmt.Errorf("thaw the control group %s: %w", c.name, err)
	}
	return nil
}

// Frozen tells whether the group is frozen or being frozen, so that Thaw has an effect.
func (c *Control) Frozen() (bool, error) {
	f, err := c.freezing()
	if err != nil {
		return false, fmt.Errorf("read whether %s is frozen: %w", c.name, err)
	}
	var buf [64]byte
	state, err := c.read(f.mount, f.file, buf[:])
	if err != nil {
		return false, fmt.Errorf("read whether %s is frozen: %w", c.name, err)
	}
	return strings.TrimSpace(string(state)) != f.off, nil
}
