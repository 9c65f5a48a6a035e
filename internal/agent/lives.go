package agent

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// A job's id may be used again, so several lives of one task may have left traces on a node. Each
// has a local name, by which directories, the supervisor and the ledger know it.
//
// A trace has no uid if the agent, the supervisor or the gateway that assigned it was of an earlier
// version. Such a trace and an assignment belong to one life if their attempts have the same
// number, unless something shows that they do not. See isSameLife.

// place is the local name under which an attempt of a task runs. It is decided once: an attempt
// that has ended since could be taken for one of an earlier life.
type place struct {
	uid     plimsoll.UID
	attempt int32
	name    string
}

// clockSkew is how much an agent's clock may be behind the coordinator's. It matters only to
// attempts whose uid is unknown.
const clockSkew = 30 * time.Second

// validateLocalName checks that a local name is safe as the name of a directory.
func validateLocalName(name string) error {
	task, _, err := executor.SplitLocalName(name)
	if err != nil {
		return err //nolint:wrapcheck // it names the uid
	}
	return validateTaskID(task)
}

// reportName returns the local name of the task of a report.
func reportName(r *plimsoll.TaskReport) string { return executor.LocalName(r.Task, r.UID) }

// named returns a report about a task, without its state.
func named(name string, attempt int32) plimsoll.TaskReport {
	task, uid, _ := executor.SplitLocalName(name) // the ledger takes in no other names
	return plimsoll.TaskReport{Task: task, UID: uid, Attempt: attempt}
}

// placed returns the local name of an assignment. The first call for an attempt decides it, and
// needs the supervisor's complete list. The caller holds mu.
func (l *ledger) placed(task string, w *assignment) string {
	if p, ok := l.mu.places[task]; ok && p.uid == w.uid && p.attempt == w.attempt {
		return p.name
	}
	name := l.choosePlace(task, w)
	if l.mu.synced {
		l.mu.places[task] = place{w.uid, w.attempt, name}
	}
	return name
}

func (l *ledger) choosePlace(task string, w *assignment) string {
	own := executor.LocalName(task, w.uid)
	if l.find(attemptKey{own, w.attempt}) != nil && !w.uid.IsZero() {
		return own
	}
	// The last names are those of the latest jobs. The id alone comes first.
	for _, name := range slices.Backward(l.mu.names[task]) {
		if e := l.find(attemptKey{name, w.attempt}); (w.uid.IsZero() || name == task) && isSameLife(e, w) {
			return name
		}
	}
	if l.mu.idsOnly && len(l.mu.names[task]) == 0 {
		return task // the supervisor knows the task by its id, and it has no other life here
	}
	return own
}

// superviseWith notes whether the supervisor tells programs the ids of their tasks, beside local
// names. One of an older version does not.
func (l *ledger) superviseWith(ids bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.idsOnly = !ids
}

// isSameLife reports whether an attempt is the one of an assignment that has its number, although
// the uid of one of them is not known.
//
// It is not if it has ended and the assignment asks for its start: a coordinator that has
// acknowledged an end does not do so. Nor if it has started before the job was submitted.
func isSameLife(e *entry, w *assignment) bool {
	if e == nil {
		return false
	}
	over := e.phase == phaseEnded && e.acked || e.phase == phaseOrphan
	if over && w.state == plimsoll.TaskBound {
		return false
	}
	last := max(e.started, e.end.At)
	return w.uid.IsZero() || last == 0 || last >= w.uid.Submitted()-int64(clockSkew)
}

// wanted returns the assignment of the life with a local name. The caller holds mu.
func (l *ledger) wanted(name string) (a assignment, ok bool) {
	task := executor.TaskOf(name)
	a, ok = l.assigned(task)
	if !ok || l.placed(task, &a) != name {
		return assignment{}, false
	}
	return a, true
}

// assigned returns the assignment of a task. The caller holds mu.
func (l *ledger) assigned(task string) (a assignment, ok bool) {
	return l.mu.wanted.Index().Snapshot().Get(task)
}

// isForeign reports whether another life of the same task is assigned. Then the job of this one has
// ended, and reports about it are not for the job that has the id now. The caller holds mu.
func (l *ledger) isForeign(name string) bool {
	task := executor.TaskOf(name)
	w, ok := l.assigned(task)
	return ok && l.mu.synced && l.mu.connected && !w.uid.IsZero() && l.placed(task, &w) != name
}

// isBusy reports whether an attempt of another life of the same task may run here. The caller holds
// mu.
func (l *ledger) isBusy(name string) bool {
	for _, other := range l.mu.names[executor.TaskOf(name)] {
		if other != name && slices.ContainsFunc(l.mu.entries[other], (*entry).mayRun) {
			return true
		}
	}
	return false
}

func (e *entry) mayRun() bool { return e.phase == phaseLive || e.phase == phaseStarting }

// volumes returns the local names of tasks whose files another task shares. The caller holds mu.
func (l *ledger) volumes(tasks []string) []string {
	names := make([]string, len(tasks))
	for i, task := range tasks {
		names[i] = l.latest(task)
	}
	return names
}

// latest returns the local name of a task that is assigned here, or else of its latest life with a
// trace. The caller holds mu.
func (l *ledger) latest(task string) string {
	if w, ok := l.assigned(task); ok {
		return l.placed(task, &w)
	}
	if names := l.mu.names[task]; len(names) > 0 {
		return names[len(names)-1]
	}
	return task
}

// lifeOf returns the local name of a life for a reader of its files. A zero uid stands for the
// latest. The caller holds mu.
func (l *ledger) lifeOf(task string, uid plimsoll.UID, attempt int32) string {
	own := executor.LocalName(task, uid)
	w, assigned := l.assigned(task)
	switch {
	case uid.IsZero():
		return l.latest(task)
	case assigned && w.uid == uid && (attempt == 0 || attempt == w.attempt):
		return l.placed(task, &w)
	case slices.ContainsFunc(l.mu.entries[own], func(e *entry) bool { return attempt == 0 || e.attempt == attempt }):
		return own
	}
	for _, e := range slices.Backward(l.mu.entries[task]) {
		if attempt != 0 && e.attempt != attempt {
			continue
		}
		if last := max(e.started, e.end.At); last == 0 || last >= uid.Submitted()-int64(clockSkew) {
			return task
		}
	}
	return own
}

// parseUID reads the uid of a request; zero if there is none.
func parseUID(text string) (plimsoll.UID, error) {
	if text == "" {
		return plimsoll.UID{}, nil
	}
	return plimsoll.ParseUID(text) //nolint:wrapcheck // it names the field
}

// forgetPlaces drops the places of tasks that a complete list of assignments does not have. The
// caller holds mu.
func (l *ledger) forgetPlaces() {
	for task := range l.mu.places {
		if _, ok := l.assigned(task); !ok {
			delete(l.mu.places, task)
		}
	}
}
