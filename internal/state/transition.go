package state

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// transition is a change of the state of a job or a task. DESIGN.md draws all transitions.
type transition[S plimsoll.JobState | plimsoll.TaskState] struct {
	cause  string   // text for messages and for DESIGN.md
	from   stateSet // states in which the transition may begin; empty: the row is new
	to     S
	change plimsoll.ChangeType   // change of the event
	detail plimsoll.ChangeDetail // detail of the event; DetailNone: there is no event
	reason plimsoll.StepReason   // of a job's transition, in its history; 0: it is not noted
}

// stateSet is a set of states of jobs or tasks, with a bit for each.
type stateSet uint32

func from[S plimsoll.JobState | plimsoll.TaskState](list ...S) (set stateSet) {
	for _, s := range list {
		set |= 1 << s
	}
	return set
}

// allows reports whether the transition may begin in a state. A new row has the state 0.
func (t *transition[S]) allows(state S) bool {
	if t.from == 0 {
		return state == 0
	}
	return t.from&(1<<state) != 0
}

// mustAllow panics if the transition may not begin in a state. No input leads to the panic: callers
// check the state first, and the load refuses records in states that are never stored. Going on
// would store a wrong state and emit events of it.
func (t *transition[S]) mustAllow(what, id string, state S) {
	if !t.allows(state) {
		panic(fmt.Sprintf("state: %s %s is %v, and from there no transition says: %s", what, id, state, t.cause))
	}
}

// jobCause is the cause of a transition of a job.
type jobCause uint8

const (
	jobSubmitted jobCause = iota
	jobCreated
	jobBound
	jobStarted
	jobKilled
	jobEndedBadly
	jobEndedWell
	jobGoesOn
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
		reason: plimsoll.ReasonSubmitted,
	},
	jobCreated: {
		cause: "its tasks are created", from: from(plimsoll.JobNew),
		to: plimsoll.JobAccepted, change: plimsoll.ChangeSet, detail: plimsoll.AppAccepted,
		reason: plimsoll.ReasonCreated,
	},
	jobBound: {
		cause: "a first task is bound", from: from(plimsoll.JobAccepted),
		to: plimsoll.JobStarting, change: plimsoll.ChangeSet, detail: plimsoll.AppStarting,
		reason: plimsoll.ReasonBound,
	},
	jobStarted: {
		cause: "a task runs", from: from(plimsoll.JobAccepted, plimsoll.JobStarting),
		to: plimsoll.JobRunning, change: plimsoll.ChangeSet, detail: plimsoll.AppRunning,
		reason: plimsoll.ReasonStarted,
	},
	jobKilled: {
		cause: "it is killed",
		from: from(plimsoll.JobNew, plimsoll.JobAccepted, plimsoll.JobStarting, plimsoll.JobRunning,
			plimsoll.JobCompleting),
		to: plimsoll.JobFailing, change: plimsoll.ChangeSet, detail: plimsoll.AppFailing,
		reason: plimsoll.ReasonKilled,
	},
	jobEndedBadly: {
		cause: "all tasks have ended, some by their own fault",
		from:  from(plimsoll.JobAccepted, plimsoll.JobStarting, plimsoll.JobRunning, plimsoll.JobCompleting),
		to:    plimsoll.JobFailing, change: plimsoll.ChangeSet, detail: plimsoll.AppFailing,
		reason: plimsoll.ReasonFailed,
	},
	jobEndedWell: {
		cause: "all tasks have ended well",
		from:  from(plimsoll.JobAccepted, plimsoll.JobStarting, plimsoll.JobRunning),
		to:    plimsoll.JobCompleting, change: plimsoll.ChangeSet, detail: plimsoll.AppCompleting,
		reason: plimsoll.ReasonSucceeded,
	},
	jobGoesOn: {
		cause: "more tasks are wanted", from: from(plimsoll.JobCompleting),
		to: plimsoll.JobRunning, change: plimsoll.ChangeSet, detail: plimsoll.AppRunning,
		reason: plimsoll.ReasonCreated,
	},
	jobFailed: {
		cause: "none of its tasks is left", from: from(plimsoll.JobFailing),
		to: plimsoll.JobFailed, change: plimsoll.ChangeSet, detail: plimsoll.AppFailed,
		reason: plimsoll.ReasonFailed,
	},
	jobCompleted: {
		cause: "none of its tasks is left, and its time for more has passed", from: from(plimsoll.JobCompleting),
		to: plimsoll.JobCompleted, change: plimsoll.ChangeSet, detail: plimsoll.AppCompleted,
		reason: plimsoll.ReasonSucceeded,
	},
	jobForgotten: {
		cause: "it has ended, and is kept no longer", from: from(plimsoll.JobCompleted, plimsoll.JobFailed),
		to: plimsoll.JobExpired, change: plimsoll.ChangeSet, detail: plimsoll.AppExpired,
	},
}

// jobRests reports whether a job can be in a state at the end of a turn, and so in the store.
func jobRests(state plimsoll.JobState) bool {
	for i := range jobTransitions {
		if jobTransitions[i].to == state {
			return true
		}
	}
	return false
}

// setJobState makes the transition of a cause and emits its event.
func (s *State) setJobState(j *Job, cause jobCause) {
	t := &jobTransitions[cause]
	t.mustAllow("job", j.Spec.ID, j.State)
	s.countJob(j.State, -1)
	s.countJob(t.to, 1)
	j.State = t.to
	s.markStatus(j, true)
	s.noteStep(j, t)
	message := ""
	if t.to == plimsoll.JobFailing || t.to == plimsoll.JobFailed {
		message = j.Reason
	}
	s.emitApp(j, t.change, t.detail, "", nil, message)
}

// noteStep adds a transition to the history of a job.
func (s *State) noteStep(j *Job, t *transition[plimsoll.JobState]) {
	if t.reason == 0 {
		return
	}
	step := plimsoll.JobStep{State: t.to, At: s.at, Reason: t.reason}
	if j.Killed && t.to == plimsoll.JobFailed {
		step.Reason = plimsoll.ReasonKilled
	}
	switch len(j.history) {
	case 0:
		j.history = make([]plimsoll.JobStep, 0, usualSteps)
	case plimsoll.MaxSteps:
		j.history = append(make([]plimsoll.JobStep, 0, plimsoll.MaxSteps), j.history[1:]...)
	}
	j.history = append(j.history, step)
	s.dirty.bytes += size.JobStep() // the status is marked already
}

// usualSteps is the number of steps in the life of a job.
const usualSteps = 6

// taskCause is the cause of a transition of a task.
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

// setTaskState makes the transition of a cause and updates the counts. For TaskFinished the result
// must be set before. If the transition has an event, the caller emits it with emitTask after all
// other changes.
func (s *State) setTaskState(r Ref, cause taskCause) {
	t, j := r.Task(), r.Group.Job
	taskTransitions[cause].mustAllow("task", t.ID, t.State)
	s.count(r, -1)
	s.countTask(t.State, -1)
	t.State = taskTransitions[cause].to
	s.countTask(t.State, 1)
	s.count(r, 1)
	s.markTask(r)
	s.markStatus(j, false)
}

// emitTask emits the event of a task's transition.
func (s *State) emitTask(r Ref, cause taskCause, message string) {
	t := &taskTransitions[cause]
	s.emitApp(r.Group.Job, t.change, t.detail, r.Task().ID, r.Group.Spec.Resources, message)
}
