package agent

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// beginAttempts announces a list of all attempts of the supervisor. Until the list is complete no
// action is decided. The list does not replace the ledger: an attempt that it does not name has
// ended unseen, and stays until its end is reported.
func (l *ledger) beginAttempts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.synced, l.mu.seen = false, map[attemptKey]bool{}
}

// attempts records a part of the supervisor's list, or changes to it. complete is true at the end
// of the list.
func (l *ledger) attempts(list []executor.Status, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		l.attempt(&list[i])
	}
	if !complete || l.mu.synced {
		return
	}
	for name, entries := range l.mu.entries {
		for _, e := range entries {
			e.stopping = false // the supervisor may be a new one: ask again
			if e.phase != phaseLive || l.mu.seen[attemptKey{name, e.attempt}] {
				continue
			}
			e.markGone()
		}
	}
	l.mu.synced, l.mu.known, l.mu.seen = true, true, nil
	l.repeatReports()
	l.markAllDirty()
}

// markGone records that the supervisor no longer holds a live attempt.
func (e *entry) markGone() {
	e.phase = phaseOrphan
	if e.void {
		e.phase, e.void = phaseEnded, false
	}
}

// attempt records the supervisor's status of one attempt.
func (l *ledger) attempt(a *executor.Status) {
	if err := validateLocalName(a.Task); err != nil || a.Attempt < 1 {
		l.trouble(Trouble{Kind: TroubleForeign, Task: a.Task, Attempt: a.Attempt})
		return
	}
	key := attemptKey{a.Task, a.Attempt}
	if l.mu.seen != nil {
		l.mu.seen[key] = true
	}
	e := l.ensure(key)
	e.onDisk = true
	defer l.markDirty(a.Task)
	if e.phase == phaseEnded || e.void {
		l.attemptAfterEnd(a, e)
		return
	}
	e.phase, e.ending = phaseLive, a.State == plimsoll.TaskStopping
	if a.Started != 0 {
		e.started = a.Started
	}
	if a.Started != 0 && a.State >= plimsoll.TaskRunning && e.reported < plimsoll.TaskRunning {
		l.report(a.Task, e, plimsoll.TaskRunning, a.Started)
	}
	if a.State == plimsoll.TaskFinished {
		e.phase, e.stopping, e.confirmed, e.reported = phaseEnded, false, true, plimsoll.TaskFinished
		e.end = named(a.Task, a.Attempt)
		e.end.State, e.end.Result, e.end.ExitCode = plimsoll.TaskFinished, a.Result, a.ExitCode
		e.end.Message, e.end.At = cleanMessage(a.Message), a.Finished
		l.reportEnd(a.Task, e)
	}
}

// attemptAfterEnd records the status of an attempt whose end is reported already. A call and the
// watch may overtake each other. So after an end that the supervisor has reported, every other
// status is old. After an end that the agent has inferred, the attempt must not live.
func (l *ledger) attemptAfterEnd(a *executor.Status, e *entry) {
	switch {
	case a.State == plimsoll.TaskFinished:
		e.phase, e.void, e.stopping, e.confirmed = phaseEnded, false, false, true
		if e.acked {
			l.forget(a.Task, e)
		}
	case !e.confirmed:
		e.phase, e.void = phaseLive, true
	}
}

// done records the result of an operation.
func (l *ledger) done(o *op, result executor.Status, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.busy--
	defer l.markDirty(o.task)
	switch o.kind {
	case opStart:
		l.started(attemptKey{o.task, o.start.Attempt}, result, err, now)
	case opStop:
		if e := l.find(attemptKey{o.task, o.stop.Attempt}); err != nil && e != nil {
			e.stopping = false
			if o.once {
				delete(l.mu.evicting, attemptKey{o.task, o.stop.Attempt})
			}
			if plimsoll.CodeOf(err) == plimsoll.CodeNotFound && e.phase == phaseLive {
				e.markGone()
			}
		}
	case opForget:
		if transient(err) {
			l.mu.ops = append(l.mu.ops, *o)
		}
	}
}

func (l *ledger) started(key attemptKey, result executor.Status, err error, now time.Time) {
	e := l.find(key)
	switch {
	case err == nil:
		result.Task, result.Attempt = key.task, key.attempt
		l.attempt(&result)
	case e == nil || e.phase == phaseEnded || e.reported >= plimsoll.TaskRunning:
		// The watch has already reported a later status.
	case transient(err):
		if e.phase == phaseStarting {
			l.mu.known = false
			// The attempt may have started or not. The supervisor's list will tell, or the start is
			// repeated.
			l.remove(key)
		}
	case plimsoll.CodeOf(err) == plimsoll.CodeAlreadyExists:
		e.phase, e.onDisk = phaseOrphan, true
	default:
		result := plimsoll.ResultNodeFault
		if plimsoll.CodeOf(err) == plimsoll.CodeInvalid {
			result = plimsoll.ResultNeverStarted // the request is wrong, here and on any node
		}
		e.onDisk = true
		l.inferEnd(key, result, cleanMessage(err.Error()), now)
	}
}

// transient reports whether a call may have had its effect, or may succeed when repeated.
func transient(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeDeadline, plimsoll.CodeCanceled, plimsoll.CodeExhausted,
		plimsoll.CodeAlreadyRunning:
		return true
	}
	return false
}

// status locates the files of an attempt of one life of a task for a reader of its logs. A zero uid
// stands for the latest life, attempt 0 for the newest one with a directory. known is false if the
// life has left no trace here. begun is false if the task is assigned but has no directory yet.
// writing is true if the attempt may still write.
func (l *ledger) status(task string, uid plimsoll.UID, attempt int32) (key attemptKey, known, begun, writing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.lifeOf(task, uid, attempt)
	w, wanted := l.wanted(name)
	var found *entry
	for _, e := range l.mu.entries[name] {
		if e.onDisk && (attempt == 0 || attempt == e.attempt) {
			found = e
		}
	}
	if found == nil {
		coming := wanted && (attempt == 0 || attempt == w.attempt)
		over := l.find(attemptKey{name, w.attempt})
		return attemptKey{name, w.attempt}, coming, false, coming && (over == nil || over.phase != phaseEnded)
	}
	return attemptKey{name, found.attempt}, true, true, found.phase != phaseEnded &&
		(found.phase != phaseOrphan || !l.mu.synced || !l.mu.connected)
}
