package executor

import (
	"os"
	"strconv"
)

// limitTasks limits what all tasks of the node use together, so that those without an amount of
// memory do not take the machine. A limit that cannot be set is told; the attempt starts.
func (s *Supervisor) limitTasks(a *attempt, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes <= 0 || bytes == s.memory {
		return
	}
	if err := s.tree.LimitMemory(bytes); err != nil {
		s.trouble(TroubleTasksMemory, a.key, err)
		return
	}
	s.memory = bytes
}

// expendable makes a process, and all that it starts, the first that the kernel ends when memory
// is short: it asked for none, so others have a better right to what there is.
func expendable(pid int) {
	const first = "1000"
	file := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	_ = os.WriteFile(file, []byte(first), 0) // it only changes who is chosen; some sandboxes forbid it
}
