package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Kill ends every process in the group with SIGKILL and returns when the group is empty. If ctx
// ends before, the error names the processes left: none can be killed in an uninterruptible sleep.
// Frozen processes are thawed so that they can die.
func (g *Group) Kill(ctx context.Context) error {
	var left []int
	err := retry(ctx, func() (bool, error) {
		if err := g.killOnce(); err != nil {
			return false, err
		}
		pids, err := g.Pids()
		left = pids
		return err == nil && len(pids) == 0, err
	})
	if err != nil {
		return fmt.Errorf("kill the control group %s, which still holds processes %v: %w", g.name, left, err)
	}
	return nil
}

// killOnce sends SIGKILL to every process of the group. No process can fork meanwhile: the group is
// frozen, or the kernel kills it in one step. A process that slips through is still in the group,
// and the next call finds it.
func (g *Group) killOnce() error {
	pids, err := g.Pids()
	if err != nil || len(pids) == 0 {
		return err
	}
	freezers := g.freezers()
	for _, f := range freezers {
		if err := f.freeze(); err != nil {
			return errors.Join(err, thaw(freezers))
		}
	}
	if i := g.s.h.unified(); i >= 0 {
		err = writeIfThere(filepath.Join(g.dirs[i], "cgroup.kill"), "1") // since Linux 5.14
	}
	pids, listErr := g.Pids()
	err = errors.Join(err, listErr)
	for _, pid := range pids {
		// The kernel writes 0 for a process outside of our pid namespace. A signal to 0 would reach
		// the caller's own process group.
		if pid <= 0 {
			err = errors.Join(
				err,
				fmt.Errorf("%s holds a process of another pid namespace, which cannot be killed from here", g.name),
			)
			continue
		}
		if e := syscall.Kill(pid, syscall.SIGKILL); e != nil && !errors.Is(e, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", pid, e))
		}
	}
	return errors.Join(err, thaw(freezers))
}

// freezer is one way to stop a whole group.
type freezer struct {
	dir                string
	file, on, off      string // the file and its text for freezing and thawing
	stateFile, stateOn string // the file and its text when every process stands still
}

// freezers returns the group's v1 freezer, and the v2 one where the kernel cannot kill a whole
// group. A group that a task froze through v2 needs no thawing, because SIGKILL reaches it.
func (g *Group) freezers() []freezer {
	var all []freezer
	if dir, _ := g.controller(freezerController); dir != "" {
		all = append(all, freezer{dir, "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"})
	}
	if i := g.s.h.unified(); i >= 0 && !exists(filepath.Join(g.dirs[i], "cgroup.kill")) {
		all = append(all, freezer{g.dirs[i], "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"})
	}
	return all
}

func (f *freezer) standsStill() bool {
	data, err := os.ReadFile(filepath.Join(f.dir, f.stateFile))
	return err == nil && strings.Contains(string(data), f.stateOn)
}

// freeze starts freezing and waits a moment. A process in an uninterruptible sleep freezes later,
// and is killed all the same.
func (f *freezer) freeze() error {
	if err := ignoreGone(write(filepath.Join(f.dir, f.file), f.on)); err != nil {
		return fmt.Errorf("freeze %s: %w", f.dir, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	// a late freeze is fine, see above
	_ = retry(ctx, func() (bool, error) { return f.standsStill(), nil })
	return nil
}

// thaw lets every process run, also in groups that tasks made and froze below the group.
func thaw(freezers []freezer) error {
	var errs []error
	for _, f := range freezers {
		errs = append(errs, walk(f.dir, func(dir string) error { return write(filepath.Join(dir, f.file), f.off) }))
	}
	return errors.Join(errs...)
}
