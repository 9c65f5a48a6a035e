package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Limits are the limits of a group. Zero is no limit.
type Limits struct {
	CPUMilli int64 // a hard quota, and a weight in proportion to it when the machine is busy
	// MemoryBytes is memory without swap, which is turned off where the kernel can. The kernel
	// rounds it down to pages.
	MemoryBytes int64
	Pids        int64 // processes and threads at once
}

// Usage is the resources that a group has used. A field without a controller is zero.
type Usage struct {
	CPU         time.Duration // processor time since the group was made
	MemoryBytes int64         // memory now, page cache included
}

// Period of the cpu quota, which is the kernel's default, and the smallest quota that it accepts.
const (
	periodMicros   = 100_000
	minQuotaMicros = 1_000
)

// Group is one control group: a directory of the same name in every hierarchy.
type Group struct {
	s    *Subtree
	name string
	dirs []string // Invariant: one for each of s.h.mounts, in their order
}

// Create makes the group, or takes over a left-over one, and sets its limits. If a limit cannot be
// set, the group is removed again.
func (s *Subtree) Create(name string, l Limits) (*Group, error) {
	g, err := s.Open(name)
	if err != nil {
		return nil, err
	}
	for _, dir := range g.dirs {
		if err := mkdir(dir); err != nil {
			return nil, errors.Join(err, g.rmdir())
		}
	}
	if err := g.setLimits(l); err != nil {
		return nil, errors.Join(fmt.Errorf("limit the control group %s: %w", name, err), g.rmdir())
	}
	return g, nil
}

// Open returns the group of a name. The group may be gone: then it holds no process, and removing
// it does nothing.
func (s *Subtree) Open(name string) (*Group, error) {
	if !fs.ValidPath(name) || name == "." || strings.Contains(name, "/") {
		return nil, plimsoll.Invalid(
			"cgroup", "%q is not the name of a control group; use letters, digits and - _ .", name,
		)
	}
	g := &Group{s: s, name: name}
	for _, dir := range s.dirs {
		g.dirs = append(g.dirs, filepath.Join(dir, name))
	}
	return g, nil
}

// Name returns the group's name in its subtree.
func (g *Group) Name() string { return g.name }

func (g *Group) setLimits(l Limits) error {
	if dir, v2 := g.controller(cpuController); dir != "" && l.CPUMilli > 0 {
		if err := setCPU(dir, v2, l.CPUMilli); err != nil {
			return err
		}
	}
	if dir, _ := g.controller(pidsController); dir != "" && l.Pids > 0 {
		if err := write(filepath.Join(dir, "pids.max"), strconv.FormatInt(l.Pids, 10)); err != nil {
			return err
		}
	}
	dir, v2 := g.controller(memoryController)
	switch {
	case dir != "" && l.MemoryBytes > 0:
		return setMemory(dir, v2, l.MemoryBytes)
	case dir != "" && v2:
		return setOOMGroup(dir) // the subtree may have the limit
	}
	return nil
}

func setCPU(dir string, v2 bool, milli int64) error {
	quota := max(milli*(periodMicros/1000), minQuotaMicros)
	shares := min(max(milli*1024/1000, MinShares), MaxShares)
	if v2 {
		if err := write(filepath.Join(dir, "cpu.max"), fmt.Sprintf("%d %d", quota, periodMicros)); err != nil {
			return err
		}
		return write(filepath.Join(dir, "cpu.weight"), strconv.FormatInt(weightOf(shares), 10))
	}
	if err := write(filepath.Join(dir, "cpu.cfs_period_us"), strconv.Itoa(periodMicros)); err != nil {
		return err
	}
	if err := write(filepath.Join(dir, "cpu.cfs_quota_us"), strconv.FormatInt(quota, 10)); err != nil {
		return err
	}
	return write(filepath.Join(dir, "cpu.shares"), strconv.FormatInt(shares, 10))
}

func setMemory(dir string, v2 bool, bytes int64) error {
	value := strconv.FormatInt(bytes, 10)
	if v2 {
		if err := write(filepath.Join(dir, "memory.max"), value); err != nil {
			return err
		}
		// Older kernels have neither file.
		return errors.Join(writeIfThere(filepath.Join(dir, "memory.swap.max"), "0"), setOOMGroup(dir))
	}
	if err := write(filepath.Join(dir, "memory.limit_in_bytes"), value); err != nil {
		return err
	}
	// Memory and swap together are limited to the memory limit: no swap. The files are missing
	// where swap is not accounted.
	return writeIfThere(filepath.Join(dir, "memory.memsw.limit_in_bytes"), value)
}

// setOOMGroup makes the kernel kill the whole v2 group when it is out of memory, not one process of
// it.
func setOOMGroup(dir string) error { return writeIfThere(filepath.Join(dir, "memory.oom.group"), "1") }

func writeIfThere(file, value string) error {
	if err := write(file, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// controller returns the group's directory in the hierarchy of a controller, or "".
func (g *Group) controller(name string) (dir string, v2 bool) {
	i := g.s.h.mountOf(name)
	if i < 0 {
		return "", false
	}
	return g.dirs[i], g.s.h.mounts[i].v2
}

// Add puts a process in the group, in every hierarchy. Its future children are born in the group.
func (g *Group) Add(pid int) error {
	for _, dir := range g.dirs {
		if err := write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("put process %d in the control group %s: %w", pid, dir, err)
		}
	}
	return nil
}

// FD opens the group's v2 directory, for starting a process in it with CLONE_INTO_CGROUP. The
// result is nil without a v2 hierarchy. Add is still needed for v1 hierarchies beside it.
func (g *Group) FD() (*os.File, error) {
	i := g.s.h.unified()
	if i < 0 {
		return nil, nil
	}
	f, err := os.Open(g.dirs[i])
	if err != nil {
		return nil, fmt.Errorf("open the control group: %w", err)
	}
	return f, nil
}

// Limits reads the limits back from the kernel.
func (g *Group) Limits() (Limits, error) {
	var l Limits
	if dir, v2 := g.controller(cpuController); dir != "" {
		quota, period, err := readCPU(dir, v2)
		if err != nil {
			return l, fmt.Errorf("read the cpu limit of %s: %w", g.name, err)
		}
		if quota > 0 && period > 0 {
			l.CPUMilli = quota * 1000 / period
		}
	}
	if dir, v2 := g.controller(memoryController); dir != "" {
		file := "memory.limit_in_bytes"
		if v2 {
			file = "memory.max"
		}
		n, err := readInt(filepath.Join(dir, file))
		if err != nil {
			return l, fmt.Errorf("read the memory limit of %s: %w", g.name, err)
		}
		if n < 1<<62 { // v1 writes the largest number of pages for "no limit"
			l.MemoryBytes = n
		}
	}
	if dir, _ := g.controller(pidsController); dir != "" {
		var err error
		if l.Pids, err = readInt(filepath.Join(dir, "pids.max")); err != nil {
			return l, fmt.Errorf("read the limit on processes of %s: %w", g.name, err)
		}
	}
	return l, nil
}

func readCPU(dir string, v2 bool) (quota, period int64, err error) {
	if !v2 {
		if quota, err = readInt(filepath.Join(dir, "cpu.cfs_quota_us")); err != nil {
			return 0, 0, err
		}
		period, err = readInt(filepath.Join(dir, "cpu.cfs_period_us"))
		return quota, period, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return 0, 0, fmt.Errorf("cpu.max says %q", data)
	}
	if quota, err = parseInt(fields[0]); err != nil {
		return 0, 0, err
	}
	period, err = parseInt(fields[1])
	return quota, period, err
}

// OOMKills returns the number of the group's processes that the kernel killed for lack of memory.
func (g *Group) OOMKills() (int64, error) {
	dir, v2 := g.controller(memoryController)
	if dir == "" {
		return 0, nil
	}
	file := "memory.oom_control"
	if v2 {
		file = "memory.events"
	}
	n, err := readKey(filepath.Join(dir, file), "oom_kill")
	if err != nil {
		return 0, fmt.Errorf("count the out-of-memory kills of %s: %w", g.name, err)
	}
	return n, nil
}

// Usage reads the resources that the group has used.
func (g *Group) Usage() (Usage, error) {
	var u Usage
	if err := g.readCPUUsage(&u); err != nil {
		return u, fmt.Errorf("read the processor time of %s: %w", g.name, err)
	}
	if dir, v2 := g.controller(memoryController); dir != "" {
		file := "memory.usage_in_bytes"
		if v2 {
			file = "memory.current"
		}
		var err error
		if u.MemoryBytes, err = readInt(filepath.Join(dir, file)); err != nil {
			return u, fmt.Errorf("read the memory in use of %s: %w", g.name, err)
		}
	}
	return u, nil
}

func (g *Group) readCPUUsage(u *Usage) error {
	if dir, _ := g.controller("cpuacct"); dir != "" {
		n, err := readInt(filepath.Join(dir, "cpuacct.usage"))
		u.CPU = time.Duration(n)
		return err
	}
	if i := g.s.h.unified(); i >= 0 {
		n, err := readKey(filepath.Join(g.dirs[i], "cpu.stat"), "usage_usec")
		u.CPU = time.Duration(n) * time.Microsecond
		return err
	}
	return nil
}

// Pids returns, in order, the processes of the group and of the groups that tasks made below it. A
// group that is gone has none.
func (g *Group) Pids() ([]int, error) {
	var pids []int
	for _, top := range g.dirs {
		err := walk(top, func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				return err
			}
			for field := range strings.FieldsSeq(string(data)) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					return fmt.Errorf("%s/cgroup.procs says %q", dir, field)
				}
				pids = append(pids, pid)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list the processes of %s: %w", g.name, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// walk calls visit for top and every directory below it, the deepest first. Directories that vanish
// meanwhile are skipped.
func walk(top string, visit func(dir string) error) error {
	entries, err := os.ReadDir(top)
	if err != nil {
		return ignoreGone(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := walk(filepath.Join(top, e.Name()), visit); err != nil {
				return err
			}
		}
	}
	return ignoreGone(visit(top))
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

// Remove removes the group and the groups that tasks made below it. It retries while processes are
// ending, until ctx ends.
func (g *Group) Remove(ctx context.Context) error {
	return retry(ctx, func() (bool, error) {
		err := g.rmdir()
		return err == nil, err
	})
}

func (g *Group) rmdir() error {
	var errs []error
	for _, top := range g.dirs {
		errs = append(errs, walk(top, func(dir string) error {
			if err := syscall.Rmdir(dir); err != nil {
				return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// retry calls try at growing intervals, at least once, until try is done or ctx ends.
func retry(ctx context.Context, try func() (done bool, err error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	pauses := plimsoll.Backoff{First: time.Millisecond, Longest: 100 * time.Millisecond}
	for tries := 1; ; tries++ {
		done, err := try()
		if done {
			return nil
		}
		timer.Reset(pauses.Delay(tries))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

func readInt(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := parseInt(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// parseInt reads a number as the kernel writes it; "max" becomes zero, no limit.
func parseInt(s string) (int64, error) {
	if s == "max" {
		return 0, nil
	}
	return strconv.ParseInt(s, 10, 64)
}

// readKey reads the number of a key from a file of lines "key number".
func readKey(file, key string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			return parseInt(v)
		}
	}
	return 0, fmt.Errorf("%s has no line %q", file, key)
}
