package plimsoll

import "slices"

// TaskState is where a task is in its life.
type TaskState uint8

// The task states. From TaskBound to TaskStopping a task holds resources of its node.
const (
	TaskPending  TaskState = iota + 1 // waits for a node
	TaskBound                         // a node was chosen; its agent has not said anything yet
	TaskStarting                      // the agent prepares it
	TaskRunning                       // its process runs
	TaskStopping                      // the agent was asked to stop it
	TaskFinished                      // it has ended for good; Result says how

	numTaskStates
)

var taskStateNames = [numTaskStates]string{"", "Pending", "Bound", "Starting", "Running", "Stopping", "Finished"}

// Known reports whether this version has the state.
func (s TaskState) Known() bool { return s >= TaskPending && s < numTaskStates }

// String returns the state's name, such as "Running".
func (s TaskState) String() string { return wordOf(taskStateNames[:], s) }

// ParseTaskState is the inverse of String; an unknown name is zero.
func ParseTaskState(s string) TaskState { return TaskState(indexOf(taskStateNames[:], s)) }

// OnNode reports whether a task in this state holds resources of a node.
func (s TaskState) OnNode() bool { return s >= TaskBound && s <= TaskStopping }

// TaskResult says how an attempt ended.
type TaskResult uint8

// The results.
const (
	ResultNone         TaskResult = iota
	ResultSucceeded               // exit code 0
	ResultFailed                  // another exit code, or a signal
	ResultKilled                  // somebody asked for it
	ResultEvicted                 // its node had to make room, or was drained
	ResultPreempted               // a more important task took its place
	ResultLost                    // its node or its record is gone; what became of it is not known
	ResultOutOfMemory             // it went over its memory limit
	ResultTimedOut                // it ran longer than its maxRuntime
	ResultNeverStarted            // its command could not be started
	ResultUnknownExit             // it ended while nobody watched, and its exit code is not known
	ResultNodeFault               // its node could not start it, for a reason that is the node's, such as a full disk
	ResultOutOfDisk               // it took more of the disk than it asked for

	numTaskResults
)

var taskResultNames = [numTaskResults]string{
	"", "succeeded", "failed", "killed", "evicted", "preempted", "lost", "out of memory", "timed out", "never started",
	"exit code unknown", "node fault", "out of disk",
}

// Known reports whether this version has the result.
func (r TaskResult) Known() bool { return r < numTaskResults }

// String returns the result in words, such as "out of memory"; empty for ResultNone.
func (r TaskResult) String() string { return wordOf(taskResultNames[:], r) }

// ParseTaskResult reads a result in words; ok is false for unknown ones.
func ParseTaskResult(s string) (result TaskResult, ok bool) {
	i := slices.Index(taskResultNames[:], s)
	return TaskResult(max(i, 0)), i >= 0
}

// Charged reports whether an attempt that ended so counts against the task's retry limit. What is
// not the task's own fault does not.
func (r TaskResult) Charged() bool {
	switch r {
	case ResultFailed, ResultOutOfMemory, ResultOutOfDisk, ResultTimedOut, ResultNeverStarted, ResultUnknownExit:
		return true
	}
	return false
}

// Task is one unit to place and run. Times are Unix nanoseconds, zero if it has not happened. The
// times, node, exit code and message are those of the current attempt.
type Task struct {
	ID       string
	Job      string
	Group    string
	Index    int32 // place in its group, from 0
	Attempt  int32 // current attempt, from 1; 0 before the first binding
	Failures int32 // attempts that ended by the task's own fault
	State    TaskState
	Result   TaskResult // of the last attempt that ended
	Node     string     // where it is or was
	// ExitCode is that of the last attempt that ended: 128+n if signal n ended it, 126 if its
	// program could not be executed, 127 if it was not found, -1 if none is known.
	ExitCode  int32
	Message   string // more about the result, for people
	Created   int64
	Bound     int64
	Started   int64
	Finished  int64
	NotBefore int64 // pending: not placed before this instant
	Revision  uint64

	Earlier []NodeAttempts // attempts before those on Node, the oldest first
}

// NodeAttempts are attempts of a task in a row that were on the same node.
type NodeAttempts struct {
	Node  string
	First int32
	Last  int32
}

// MaxEarlier is how many entries Task.Earlier has at most; the oldest is dropped for a new one.
const MaxEarlier = 16

// NodeOf returns the node of an attempt; ok is false if there was no such attempt, or its node is
// remembered no more.
func (t *Task) NodeOf(attempt int32) (node string, ok bool) {
	if attempt < 1 || attempt > t.Attempt {
		return "", false
	}
	here := int32(1) // first attempt on t.Node
	for _, e := range t.Earlier {
		if e.First <= attempt && attempt <= e.Last {
			return e.Node, true
		}
		here = e.Last + 1
	}
	return t.Node, attempt >= here
}

// TaskReport is what an agent says about an attempt.
type TaskReport struct {
	Task     string
	Attempt  int32
	State    TaskState // TaskStarting, TaskRunning or TaskFinished
	Result   TaskResult
	ExitCode int32
	Message  string
	At       int64 // when it happened on the node, Unix nanoseconds
}
