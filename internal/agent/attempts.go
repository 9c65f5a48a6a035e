package agent

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// beginAttempts says that a list of all attempts that the supervisor holds follows. Until it is
// complete nothing is decided.
func (l *ledger) beginAttempts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.synced, l.mu.seen = false, map[attemptKey]bool{}
}

// attempts enters a part of the supervisor's list, or changes to it. complete says that the list
// has been sent.
func (l *ledger) attempts(list []executor.Status, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		l.attempt(&list[i])
	}
	if !complete || l.mu.synced {
		return
	}
	for task, entries := range l.mu.entries {
		for _, e := range entries {
			e.stopping = false // the supervisor may be another one: ask again
			if e.phase != phaseLive || l.mu.seen[attemptKey{task, e.attempt}] {
				continue
			}
			e.gone()
		}
	}
	l.mu.synced, l.mu.known, l.mu.seen = true, true, nil
	l.touchAll()
}

// gone enters that the supervisor no longer holds a live attempt.
func (e *entry) gone() {
	e.phase = phaseOrphan
	if e.void {
		e.phase, e.void = phaseEnded, false
	}
}

// attempt enters what the supervisor says about one attempt.
func (l *ledger) attempt(a *executor.Status) {
	if err := validateTaskID(a.Task); err != nil || a.Attempt < 1 {
		l.trouble(Trouble{Kind: TroubleForeign, Task: a.Task, Attempt: a.Attempt})
		return
	}
	key := attemptKey{a.Task, a.Attempt}
	if l.mu.seen != nil {
		l.mu.seen[key] = true
	}
	e := l.ensure(key)
	e.onDisk = true
	defer l.touch(a.Task)
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
		e.end = plimsoll.TaskReport{
			Task: a.Task, Attempt: a.Attempt, State: plimsoll.TaskFinished, Result: a.Result, ExitCode: a.ExitCode,
			Message: cleanMessage(a.Message), At: a.Finished,
		}
		l.out.add(e.end)
	}
}

// attemptAfterEnd enters what is said about an attempt whose end is reported already. A call and
// the watch may overtake each other, so after an end that the supervisor has told itself,
// everything else is old. After an end that was made up, the attempt must not live.
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

// done says what became of an operation.
func (l *ledger) done(o *op, result executor.Status, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.busy--
	defer l.touch(o.task)
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
				e.gone()
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
		// the watch has told more than this call
	case transient(err):
		if e.phase == phaseStarting {
			l.mu.known = false
			// whether it was started is not known: the supervisor's list will tell, or the start is
			// repeated
			l.remove(key)
		}
	case plimsoll.CodeOf(err) == plimsoll.CodeAlreadyExists:
		e.phase, e.onDisk = phaseOrphan, true
	default:
		result := plimsoll.ResultNodeFault
		if plimsoll.CodeOf(err) == plimsoll.CodeInvalid {
			result = plimsoll.ResultNeverStarted // what was asked for is wrong, here and anywhere
		}
		e.onDisk = true
		l.makeUpEnd(key, result, cleanMessage(err.Error()), now)
	}
}

// transient reports whether a call may have had its effect, or may be repeated with hope.
func transient(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeDeadline, plimsoll.CodeCanceled, plimsoll.CodeExhausted,
		plimsoll.CodeAlreadyRunning:
		return true
	}
	return false
}

// status tells where an attempt's files are, for those who read its logs. attempt 0 is the newest
// that has begun. known is false if the task has left no trace here; begun is false if it is
// assigned but has no directory yet; writing says whether more may be written.
func (l *ledger) status(task string, attempt int32) (key attemptKey, known, begun, writing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, wanted := l.mu.wanted[task]
	var found *entry
	for _, e := range l.mu.entries[task] {
		if e.onDisk && (attempt == 0 || attempt == e.attempt) {
			found = e
		}
	}
	if found == nil {
		coming := wanted && (attempt == 0 || attempt == w.attempt)
		over := l.find(attemptKey{task, w.attempt})
		return attemptKey{task, w.attempt}, coming, false, coming && (over == nil || over.phase != phaseEnded)
	}
	return attemptKey{task, found.attempt}, true, true, found.phase != phaseEnded &&
		(found.phase != phaseOrphan || !l.mu.synced || !l.mu.connected)
}
