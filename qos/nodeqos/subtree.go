package nodeqos

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// Subtree is a directory of control groups, v1 or v2. OpenSubtree makes one.
type Subtree = cgroup.Subtree

// OpenSubtree makes or finds a directory of control groups, such as "batch/workers", below the root
// at which the machine has mounted them. Task.Group names a group in it. The error describes
// the limitation of the machine.
func OpenSubtree(path string) (*Subtree, error) {
	h, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		return nil, fmt.Errorf("find the control groups of this machine: %w", err)
	}
	s, err := h.Subtree(path)
	if err != nil {
		return nil, fmt.Errorf("open the control groups %s: %w", path, err)
	}
	return s, nil
}
