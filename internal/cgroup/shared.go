package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// LimitMemory limits the memory of all groups of the subtree together, without swap; page cache
// counts. At the limit the kernel ends a process in one of the groups. Without a memory controller
// the call does nothing, and Hierarchy.Missing says so.
func (s *Subtree) LimitMemory(bytes int64) error {
	i := s.h.mountOf(memoryController)
	if i < 0 {
		return nil
	}
	dir, value := s.dirs[i], strconv.FormatInt(bytes, 10)
	steps := [][2]string{{"memory.max", value}, {"memory.swap.max", "0"}}
	if !s.h.mounts[i].v2 {
		if err := countBelow(dir); err != nil {
			return err
		}
		steps = [][2]string{{"memory.limit_in_bytes", value}, {"memory.memsw.limit_in_bytes", value}}
		// The kernel requires that memory and swap together are never less than memory alone.
		if old, err := readInt(filepath.Join(dir, steps[0][0])); err == nil && old < bytes {
			slices.Reverse(steps)
		}
	}
	for _, step := range steps {
		err := write(filepath.Join(dir, step[0]), step[1])
		if errors.Is(err, fs.ErrNotExist) && strings.Contains(step[0], "sw") {
			continue // swap is not accounted everywhere
		}
		if err != nil {
			return fmt.Errorf("limit the memory of all groups in %s to %s: %w", dir, value, err)
		}
	}
	return nil
}

// countBelow makes a v1 group count the usage of the groups below it. Since Linux 5.11 all do.
func countBelow(dir string) error {
	file := filepath.Join(dir, "memory.use_hierarchy")
	if on, err := readInt(file); err != nil || on != 0 {
		return ignoreGone(err)
	}
	if err := write(file, "1"); err != nil {
		return unavailable("%s counts its own memory only, and its groups cannot have a limit together: %v", dir, err)
	}
	return nil
}
