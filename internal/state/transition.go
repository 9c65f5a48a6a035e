package state

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
)

// transition is one way in which a job or a task changes its state. DESIGN.md draws them.
type transition[S plimsoll.JobState | plimsoll.TaskState] struct {
	cause  string // for people
	from   states // empty: it is new
	to     S
	change plimsoll.ChangeType   // of the event that tells it
	detail plimsoll.ChangeDetail // the same; DetailNone: there is no event
}

// states is a set of states, with a bit for each.
type states uint32

func from[S plimsoll.JobState | plimsoll.TaskState](list ...S) (set states) {
	for _, s := range list {
		set |= 1 << s
	}
	return set
}

// allows reports whether something in a state can take the transition. What is new has the state 0.
func (t *transition[S]) allows(state S) bool {
	if t.from == 0 {
		return state == 0
	}
	return t.from&(1<<state) != 0
}

// mustAllow panics if the transition does not begin at a state. Nothing that a user, an agent or a
// stored record says leads there: the callers ask for the state first, and the load takes no record
// of a state in which nothing is stored. To go on would store a state that is wrong, and tell
// events of it.
func (t *transition[S]) mustAllow(what, id string, state S) {
	if !t.allows(state) {
		panic(fmt.Sprintf("state: %s %s is %v, and from there no transition says: %s", what, id, state, t.cause))
	}
}

// jobCause is why a job changes its state.
type jobCause uint8

const (
	jobSubmitted jobCause = iota
	jobCreated
	jobBound
	jobStarted
	jobKilled
	jobEndedBadly
	jobEndedWell
	jobFailed
	jobCompleted
	jobForgotten

	numJobCauses
)

// jobTransitions are all transitions of jobs, by their cause.
var jobTransitions = [numJobCauses]transition[plimsoll.JobState]{
	jobSubmitted: {
		cause: "it is submitted",
		to:    plimsoll.JobNew, change: plimsoll.ChangeSet, detail: plimsoll.AppNew,
	},
	jobCreated: {
		cause: "its tasks are created", from: from(plimsoll.JobNew),
		to: plimsoll.JobAccepted, change: plimsoll.ChangeSet, detail: plimsoll.AppAccepted,
	},
	jobBound: {
		cause: "a first task is bound", from: from(plimsoll.JobAccepted),
		to: plimsoll.JobStarting, change: plimsoll.ChangeSet, detail: plimsoll.AppStarting,
	},
	jobStarted: {
		cause: "a task runs", from: from(plimsoll.JobAccepted, plimsoll.JobStarting),
		to: plimsoll.JobRunning, change: plimsoll.ChangeSet, detail: plimsoll.AppRunning,
	},
	jobKilled: {
		cause: "it is killed",
		from:  from(plimsoll.JobNew, plimsoll.JobAccepted, plimsoll.JobStarting, plimsoll.JobRunning),
		to:    plimsoll.JobFailing, change: plimsoll.ChangeSet, detail: plimsoll.AppFailing,
	},
	jobEndedBadly: {
		cause: "all tasks have ended, some by their own fault",
		from:  from(plimsoll.JobAccepted, plimsoll.JobStarting, plimsoll.JobRunning),
		to:    plimsoll.JobFailing, change: plimsoll.ChangeSet, detail: plimsoll.AppFailing,
	},
	jobEndedWell: {
		cause: "all tasks have ended well",
		from:  from(plimsoll.JobAccepted, plimsoll.JobStarting, plimsoll.JobRunning),
		to:    plimsoll.JobCompleting, change: plimsoll.ChangeSet, detail: plimsoll.AppCompleting,
	},
	jobFailed: {
		cause: "none of its tasks is left", from: from(plimsoll.JobFailing),
		to: plimsoll.JobFailed, change: plimsoll.ChangeSet, detail: plimsoll.AppFailed,
	},
	jobCompleted: {
		cause: "none of its tasks is left", from: from(plimsoll.JobCompleting),
		to: plimsoll.JobCompleted, change: plimsoll.ChangeSet, detail: plimsoll.AppCompleted,
	},
	jobForgotten: {
		cause: "it ended long ago", from: from(plimsoll.JobCompleted, plimsoll.JobFailed),
		to: plimsoll.JobExpired, change: plimsoll.ChangeSet, detail: plimsoll.AppExpired,
	},
}

// jobRests reports whether a job can be in a state at the end of a turn, and so in the store: it
// got there, and does not leave it in the same turn.
func jobRests(state plimsoll.JobState) bool {
	if state == plimsoll.JobCompleting {
		return false
	}
	for i := range jobTransitions {
		if jobTransitions[i].to == state {
			return true
		}
	}
	return false
}

// setJobState moves a job along the transition of a cause, and tells it.
func (s *State) setJobState(j *Job, cause jobCause) {
	t := &jobTransitions[cause]
	t.mustAllow("job", j.Spec.ID, j.State)
	j.State = t.to
	s.markStatus(j, true)
	message := ""
	if t.to == plimsoll.JobFailing || t.to == plimsoll.JobFailed {
		message = j.Reason
	}
	s.emitApp(j, t.change, t.detail, "", nil, message)
}

// taskCause is why a task changes its state.
type taskCause uint8

const (
	taskCreated taskCause = iota
	taskBound
	taskPrepared
	taskStarted
	taskToStop
	taskCanceled
	taskTriedAgain
	taskEnded
	taskRevived

	numTaskCauses
)

var onNode = from(plimsoll.TaskBound, plimsoll.TaskStarting, plimsoll.TaskRunning, plimsoll.TaskStopping)

// taskTransitions are all transitions of tasks, by their cause.
var taskTransitions = [numTaskCauses]transition[plimsoll.TaskState]{
	taskCreated: {
		cause: "its job wants it",
		to:    plimsoll.TaskPending, change: plimsoll.ChangeAdd, detail: plimsoll.AppRequest,
	},
	taskBound: {
		cause: "a node was chosen", from: from(plimsoll.TaskPending),
		to: plimsoll.TaskBound, change: plimsoll.ChangeAdd, detail: plimsoll.AppAlloc,
	},
	taskPrepared: {
		cause: "its agent prepares it", from: from(plimsoll.TaskBound),
		to: plimsoll.TaskStarting,
	},
	taskStarted: {
		cause: "its process runs", from: from(plimsoll.TaskBound, plimsoll.TaskStarting),
		to: plimsoll.TaskRunning,
	},
	taskToStop: {
		cause: "it is to be stopped",
		from:  from(plimsoll.TaskBound, plimsoll.TaskStarting, plimsoll.TaskRunning),
		to:    plimsoll.TaskStopping,
	},
	taskCanceled: {
		cause: "it is not wanted any more", from: from(plimsoll.TaskPending),
		to: plimsoll.TaskFinished, change: plimsoll.ChangeRemove, detail: plimsoll.RequestCancel,
	},
	taskTriedAgain: {
		cause: "its attempt has ended, and another follows", from: onNode,
		to: plimsoll.TaskPending,
	},
	taskEnded: {
		cause: "its last attempt has ended", from: onNode,
		to: plimsoll.TaskFinished, change: plimsoll.ChangeRemove, detail: plimsoll.AppRequest,
	},
	taskRevived: {
		cause: "its job wants it again", from: from(plimsoll.TaskFinished),
		to: plimsoll.TaskPending, change: plimsoll.ChangeAdd, detail: plimsoll.AppRequest,
	},
}

// setTaskState moves a task along the transition of a cause and keeps the counts. For TaskFinished,
// the result must be set before. The caller tells it with emitTask, where there is an event, when
// all else has changed.
func (s *State) setTaskState(r Ref, cause taskCause) {
	t, j := r.Task(), r.Group.Job
	taskTransitions[cause].mustAllow("task", t.ID, t.State)
	s.count(r, -1)
	t.State = taskTransitions[cause].to
	s.count(r, 1)
	s.markTask(r)
	s.markStatus(j, false)
}

// emitTask tells the transition of a task.
func (s *State) emitTask(r Ref, cause taskCause, message string) {
	t := &taskTransitions[cause]
	s.emitApp(r.Group.Job, t.change, t.detail, r.Task().ID, r.Group.Spec.Resources, message)
}
