package agent

import "github.com/plimsoll-dev/plimsoll"

// phase is the position of an attempt in its life on this node.
type phase uint8

const (
	// Its directory exists, but the supervisor does not hold it and its end is unknown.
	phaseOrphan   phase = iota + 1
	phaseStarting       // the supervisor was asked to start it
	phaseLive           // the supervisor holds it, and it has not ended
	phaseEnded          // its end is known, and reported
)

// want is the coordinator's wanted state of a task on this node.
type want struct {
	attempt int32
	state   plimsoll.TaskState
	result  plimsoll.TaskResult // stopping: the reason
	message string              // stopping: details
}

// have is an attempt of the task on this node.
type have struct {
	attempt  int32
	phase    phase
	stopping bool // it was asked to stop
	void     bool // its end was reported already, so it must not live
}

type actionKind uint8

const (
	actionStart actionKind = iota + 1
	actionStop
	actionEnd // report its end, with the result
)

// action is one step for one attempt.
type action struct {
	kind    actionKind
	attempt int32
	result  plimsoll.TaskResult
	message string
}

// reconcile compares the wanted state of one task (nil: none) with its attempts here, and returns
// the actions. held must be complete. The function depends on nothing else, so it may be called at
// any time.
func reconcile(wanted *want, held []have) []action {
	var actions []action
	newest, busy := int32(0), false
	for i := range held {
		h := &held[i]
		newest = max(newest, h.attempt)
		busy = busy || h.phase == phaseLive || h.phase == phaseStarting
		switch h.phase {
		case phaseLive:
			if result, message := stopReason(wanted, h); result != plimsoll.ResultNone && !h.stopping {
				actions = append(actions, action{actionStop, h.attempt, result, message})
			}
		case phaseOrphan:
			if wanted != nil && wanted.attempt == h.attempt {
				actions = append(actions, action{
					actionEnd, h.attempt, plimsoll.ResultLost,
					"the node has a directory of this attempt but no record of its process",
				})
			}
		}
	}
	if wanted == nil || wanted.attempt <= newest {
		return actions // an old list changes nothing
	}
	switch wanted.state {
	case plimsoll.TaskBound, plimsoll.TaskStarting:
		if !busy {
			actions = append(actions, action{kind: actionStart, attempt: wanted.attempt})
		}
	case plimsoll.TaskRunning:
		actions = append(
			actions, action{actionEnd, wanted.attempt, plimsoll.ResultLost, "the node knows nothing of this attempt"},
		)
	case plimsoll.TaskStopping:
		actions = append(actions, action{actionEnd, wanted.attempt, wanted.cause(), "stopped before it was started"})
	}
	return actions
}

// stopReason returns the reason for stopping a live attempt; ResultNone: it may run on.
func stopReason(wanted *want, h *have) (result plimsoll.TaskResult, message string) {
	switch {
	case h.void:
		return plimsoll.ResultKilled, "it was reported as ended"
	case wanted == nil:
		return plimsoll.ResultKilled, "the task is no longer assigned to this node"
	case h.attempt < wanted.attempt:
		return plimsoll.ResultKilled, "a newer attempt took its place"
	case h.attempt == wanted.attempt && wanted.state == plimsoll.TaskStopping:
		return wanted.cause(), wanted.message
	}
	return plimsoll.ResultNone, ""
}

func (w *want) cause() plimsoll.TaskResult {
	if w.result == plimsoll.ResultNone {
		return plimsoll.ResultKilled
	}
	return w.result
}
