package executor

import (
	"os"
	"strconv"
)

// limitTasks limits the memory of all tasks of the node together, so that tasks without an amount
// of memory do not exhaust the machine. A failure is reported, and the attempt starts.
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

// raiseOOMScore makes the kernel end a process, and all that it starts, first when memory is short.
// The process asked for no memory, so others have a better claim to it.
func raiseOOMScore(pid int) {
	const first = "1000"
	file := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	_ = os.WriteFile(file, []byte(first), 0) // best effort; some sandboxes forbid it
}
