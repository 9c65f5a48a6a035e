package main

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// maxNamedTasks bounds the tasks that a note names.
const maxNamedTasks = 5

// namedTasks counts the tasks of which a note tells, and keeps the first ones.
type namedTasks struct {
	count int
	first []string // Invariant: at most maxNamedTasks
}

func (n *namedTasks) add(text string) {
	if n.count++; len(n.first) < maxNamedTasks {
		n.first = append(n.first, oneLine(text))
	}
}

// addUnstarted adds a task with the reason why it never started.
func (n *namedTasks) addUnstarted(t *plimsoll.Task) {
	why := reason(t, &plimsoll.JobStatus{})
	if t.Result == plimsoll.ResultNeverStarted && t.Message != "" {
		why = t.Message
	}
	n.add(fmt.Sprintf("%s (%s)", t.ID, why))
}

// tell prints the note, if there is a task to tell of. what is said of the tasks, such as "never
// started".
func (n *namedTasks) tell(a *app, what string) {
	if n.count == 0 {
		return
	}
	more := ""
	if left := n.count - len(n.first); left > 0 {
		more = fmt.Sprintf(" and %s more", thousands(left))
	}
	a.notes.printf("plimsoll: %s %s: %s%s\n", counted(int64(n.count), "task"), what, strings.Join(n.first, ", "), more)
}

// neverStarted reports whether a task has ended without its program being started.
func neverStarted(t *plimsoll.Task) bool {
	return t.State == plimsoll.TaskFinished && (t.Attempt == 0 || t.Result == plimsoll.ResultNeverStarted)
}
