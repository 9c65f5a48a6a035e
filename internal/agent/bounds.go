package agent

import "github.com/plimsoll-dev/plimsoll/internal/executor"

// Bounds of what is kept back of a machine's memory for all that is not a task.
const (
	keptPart = 20 // one part of so many
	keptMost = int64(512 << 20)
)

// tasksMemory is what all tasks of a node may use together: what it offers without what is kept
// back, and never all that the machine has. It is no bound for tasks that keep to what they asked
// for, unless more is promised than there is; those that asked for none share what is left of it.
func tasksMemory(measured, offered int64, reserve float64) int64 {
	left := measured - min(measured/keptPart, keptMost)
	return min(left, int64(float64(offered)*(1-reserve)))
}

// diskLimit says why nothing keeps tasks to what they asked for of the disk; empty: the supervisor
// does.
func diskLimit(caps *executor.Capabilities) string {
	switch caps.Disk {
	case executor.DiskMeasured:
		return ""
	case "":
		return "what tasks take of the disk is not measured: the supervisor is of an older version, and goes with the tasks that it runs"
	}
	return "what tasks take of the disk is not measured: " + caps.Disk
}
