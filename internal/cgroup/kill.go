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

// Kill ends every process in the group with SIGKILL and returns when it is empty, or when ctx ends:
// then the error names what is left (a process in uninterruptible sleep cannot be killed by
// anyone). Frozen processes are thawed so that they can die.
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

// killOnce sends SIGKILL to all that is in the group now. Nothing can fork meanwhile, because it
// stands still or because the kernel kills the group in one step; and what would slip through is in
// the group too, and is found by the next call.
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
		// so the kernel names a process outside of our pid namespace; and to us signal 0 is a
		// group's: our own
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

// freezer is a way to stop a group as a whole.
type freezer struct {
	dir                string
	file, on, off      string // what to write where
	stateFile, stateOn string // what tells that everything stands still
}

// freezers returns the group's v1 freezer, and the v2 one where the kernel cannot kill a whole
// group. A group that a task froze through v2 itself needs no thawing: SIGKILL reaches it.
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

// freeze asks for it and waits a moment: what sleeps uninterruptibly freezes later, and is killed
// all the same.
func (f *freezer) freeze() error {
	if err := ignoreGone(write(filepath.Join(f.dir, f.file), f.on)); err != nil {
		return fmt.Errorf("freeze %s: %w", f.dir, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_ = retry(ctx, func() (bool, error) { return f.standsStill(), nil }) // not in time is fine, see above
	return nil
}

// thaw lets everything run, in groups that tasks made and froze below ours too.
func thaw(freezers []freezer) error {
	var errs []error
	for _, f := range freezers {
		errs = append(errs, walk(f.dir, func(dir string) error { return write(filepath.Join(dir, f.file), f.off) }))
	}
	return errors.Join(errs...)
}
