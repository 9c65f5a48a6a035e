package plimsoll

// StepReason is the cause for which a job or a task has changed its state.
type StepReason uint8

// The reasons. From ReasonSucceeded on they are the results of attempts.
const (
	ReasonSubmitted    StepReason = iota + 1 // the job was submitted
	ReasonCreated                            // the task was created, or all tasks of the job, or more in Completing
	ReasonBound                              // a node was chosen for the task, or for the first one of the job
	ReasonPrepared                           // the agent prepares the task
	ReasonStarted                            // the process runs, or the first one of the job
	ReasonSucceeded                          // as the results from here on
	ReasonFailed                             //
	ReasonKilled                             //
	ReasonEvicted                            //
	ReasonPreempted                          //
	ReasonLost                               //
	ReasonOutOfMemory                        //
	ReasonTimedOut                           //
	ReasonNeverStarted                       //
	ReasonUnknownExit                        //
	ReasonNodeFault                          //
	ReasonOutOfDisk                          //

	numStepReasons
)

var stepReasonNames = [numStepReasons]string{
	"", "submitted", "created", "bound", "prepared", "started", "succeeded", "failed", "killed", "evicted", "preempted",
	"lost", "out_of_memory", "timed_out", "never_started", "unknown_exit", "node_fault", "out_of_disk",
}

// Known reports whether this version has the reason.
func (r StepReason) Known() bool { return r >= ReasonSubmitted && r < numStepReasons }

// String returns the reason's word, such as "out_of_memory".
func (r StepReason) String() string { return wordOf(stepReasonNames[:], r) }

var resultReasons = [numTaskResults]StepReason{
	ResultSucceeded:    ReasonSucceeded,
	ResultFailed:       ReasonFailed,
	ResultKilled:       ReasonKilled,
	ResultEvicted:      ReasonEvicted,
	ResultPreempted:    ReasonPreempted,
	ResultLost:         ReasonLost,
	ResultOutOfMemory:  ReasonOutOfMemory,
	ResultTimedOut:     ReasonTimedOut,
	ResultNeverStarted: ReasonNeverStarted,
	ResultUnknownExit:  ReasonUnknownExit,
	ResultNodeFault:    ReasonNodeFault,
	ResultOutOfDisk:    ReasonOutOfDisk,
}

// StepReason returns the reason of a change of state that has this result; 0 for ResultNone and
// for a result that this version does not have.
func (r TaskResult) StepReason() StepReason {
	if !r.Known() {
		return 0
	}
	return resultReasons[r]
}

// JobStep is a change of a job's state.
type JobStep struct {
	State  JobState
	At     int64 // Unix nanoseconds
	Reason StepReason
}

// MaxSteps is the largest length of JobStatus.History; the oldest entry gives way to a new one.
const MaxSteps = 16

// TaskStep is a change of a task's state. Task.Steps derives it.
type TaskStep struct {
	State   TaskState
	At      int64 // Unix nanoseconds
	Attempt int32 // 0 before the first
	Node    string
	Reason  StepReason
	Message string // details of the result, for people
}

// Steps returns the changes of the task's state that the record holds, the oldest first.
func (t *Task) Steps() []TaskStep {
	attempts := t.AllAttempts()
	steps := make([]TaskStep, 0, 1+4*len(attempts))
	if len(attempts) == 0 || attempts[0].Number == 1 {
		steps = append(steps, TaskStep{State: TaskPending, At: t.Created, Reason: ReasonCreated})
	}
	for i := range attempts {
		a := &attempts[i]
		end, stop := TaskPending, a.Result
		switch {
		case a.Number != t.Attempt || a.Finished != 0 && a.Finished != t.Finished:
		case t.State == TaskFinished:
			end = TaskFinished
		case t.State == TaskStopping:
			stop = t.Result
		}
		steps = a.appendSteps(steps, stop, end)
	}
	if t.State == TaskFinished && (len(steps) == 0 || steps[len(steps)-1].State != TaskFinished) {
		steps = append(steps, TaskStep{ // it was stopped while it waited
			State: TaskFinished, At: t.Finished, Attempt: t.Attempt, Reason: t.Result.StepReason(), Message: t.Message,
		})
	}
	return steps
}

// appendSteps appends the changes of state of an attempt. stop is the result that a stop asked for,
// and end the state in which the attempt left the task.
func (a *Attempt) appendSteps(steps []TaskStep, stop TaskResult, end TaskState) []TaskStep {
	if stop == ResultSucceeded { // it succeeded while it was being stopped
		stop = ResultNone
	}
	for _, s := range [...]TaskStep{
		{State: TaskBound, At: a.Bound, Reason: ReasonBound},
		{State: TaskStarting, At: a.Starting, Reason: ReasonPrepared},
		{State: TaskRunning, At: a.Started, Reason: ReasonStarted},
		{State: TaskStopping, At: a.Stopping, Reason: stop.StepReason()},
		{State: end, At: a.Finished, Reason: a.Result.StepReason(), Message: a.Message},
	} {
		if s.At != 0 {
			s.Attempt, s.Node = a.Number, a.Node
			steps = append(steps, s)
		}
	}
	return steps
}
