package agent

import "github.com/plimsoll-dev/plimsoll/internal/executor"

// Bounds of the memory that is kept back from tasks, for the agent and the machine's other
// processes.
const (
	keptPart = 20 // divisor: one twentieth of the machine, but at most keptMost
	keptMost = int64(512 << 20)
)

// tasksMemory returns the memory limit of all tasks of a node together: the offered memory without
// the reserve, and always less than the machine has.
//
// Tasks within their requests do not reach the limit, unless the node promises more than it has.
// Tasks that asked for no memory share the rest.
func tasksMemory(measured, offered int64, reserve float64) int64 {
	left := measured - min(measured/keptPart, keptMost)
	return min(left, int64(float64(offered)*(1-reserve)))
}

// diskLimit returns the reason why the disk usage of tasks is not limited; empty: it is limited.
func diskLimit(caps *executor.Capabilities) string {
	switch caps.Disk {
	case executor.DiskMeasured:
		return ""
	case "":
		return "the disk usage of tasks is not measured: the supervisor is of an older version, and ends with the tasks that it runs"
	}
	return "the disk usage of tasks is not measured: " + caps.Disk
}
