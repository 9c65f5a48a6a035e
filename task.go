package plimsoll

import "slices"

// TaskState is a step in the life of a task.
type TaskState uint8

// The task states. From TaskBound to TaskStopping a task holds resources of its node.
const (
	TaskPending  TaskState = iota + 1 // waits for a node
	TaskBound                         // a node was chosen; its agent has not reported yet
	TaskStarting                      // its agent prepares it
	TaskRunning                       // its process runs
	TaskStopping                      // its agent was asked to stop it
	TaskFinished                      // it has ended for good; its result says how

	numTaskStates
)

// NumTaskStates is one more than the highest state, for tables.
const NumTaskStates = int(numTaskStates)

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
	ResultKilled                  // a kill was requested
	ResultEvicted                 // its node had to make room, or was drained
	ResultPreempted               // a more important task took its place
	ResultLost                    // its node or its record is gone, and its end is not known
	ResultOutOfMemory             // it went over its memory limit
	ResultTimedOut                // it ran longer than its maxRuntime
	ResultNeverStarted            // its command could not be started
	ResultUnknownExit             // it ended while no supervisor watched, and its exit code is not known
	ResultNodeFault               // its node could not start it for a reason of the node's, such as a full disk
	ResultOutOfDisk               // it used more disk than it requested

	numTaskResults
)

// NumTaskResults is one more than the highest result, for tables.
const NumTaskResults = int(numTaskResults)

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

// Charged reports whether an attempt with this result counts against the task's retry limit.
// Losses that are not the task's own fault do not count.
func (r TaskResult) Charged() bool {
	switch r {
	case ResultFailed, ResultOutOfMemory, ResultOutOfDisk, ResultTimedOut, ResultNeverStarted, ResultUnknownExit:
		return true
	}
	return false
}

// Task is one unit to place and run. Times are Unix nanoseconds; 0 means that it has not happened.
// Node, exit code, message and times are those of the current attempt.
type Task struct {
	ID       string
	Job      string
	Group    string
	Index    int32 // place in its group, from 0
	Attempt  int32 // current attempt, from 1; 0 before the first binding
	Failures int32 // attempts that failed by the task's own fault
	State    TaskState
	Result   TaskResult // result of the last attempt that ended
	Node     string     // node of the current attempt, also after its end
	// ExitCode is the exit code of the last attempt that ended: 128+n after signal n, 126 if its
	// program could not be executed, 127 if it was not found. It is -1 if no code is known.
	ExitCode  int32
	Message   string // details of the result, for people
	Created   int64
	Bound     int64
	Started   int64
	Finished  int64
	NotBefore int64 // of a pending task: earliest instant at which it is placed
	Revision  uint64

	Starting int64
	Stopping int64
	// Attempts are the last attempts before the present one, oldest first: MaxAttempts, and those
	// that the archive does not have yet.
	Attempts []Attempt
	// Earlier are the nodes of attempts that are no longer in Attempts, oldest first. In a record
	// of an older version they are the nodes before Node.
	Earlier []NodeAttempts
}

// NodeAttempts are consecutive attempts of a task on one node.
type NodeAttempts struct {
	Node  string
	First int32
	Last  int32
}

// MaxEarlier is the largest length of Task.Earlier; the oldest entry gives way to a new one.
const MaxEarlier = 16

// NodeOf returns the node of an attempt. ok is false if there was no such attempt, or if its node
// is no longer remembered.
func (t *Task) NodeOf(attempt int32) (node string, ok bool) {
	if attempt < 1 || attempt > t.Attempt {
		return "", false
	}
	here := int32(1) // first attempt on t.Node, in a record without Attempts
	for _, e := range t.Earlier {
		if e.First <= attempt && attempt <= e.Last {
			return e.Node, true
		}
		here = e.Last + 1
	}
	for i := range t.Attempts {
		if t.Attempts[i].Number == attempt {
			return t.Attempts[i].Node, true
		}
		here = t.Attempts[i].Number + 1
	}
	return t.Node, attempt >= here
}

// TaskReport is the report of an agent about an attempt.
type TaskReport struct {
	Task     string
	Attempt  int32
	State    TaskState // TaskStarting, TaskRunning or TaskFinished
	Result   TaskResult
	ExitCode int32
	Message  string
	At       int64 // instant of the change on the node, Unix nanoseconds
	UID      UID   // of the job; zero: the agent does not know it
}

// Ending describes the end of a finished task, such as "finished (failed) on node n1".
func (t *Task) Ending() string {
	text := "finished (" + t.Result.String() + ")"
	if t.Node != "" {
		text += " on node " + t.Node
	}
	return text
}
