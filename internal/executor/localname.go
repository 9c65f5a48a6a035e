package executor

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// nameMark stands in a local name between the task's id and the uid of its job. No id has it.
const nameMark = "~"

// LocalName returns the name of a task on its node, by which supervisors know it: its id, the mark
// and the uid of its job. So a later job with the same id has tasks with other names, directories
// and control groups. Without a uid, which agents did not know once, the name is the id.
func LocalName(task string, uid plimsoll.UID) string {
	if uid.IsZero() {
		return task
	}
	return task + nameMark + uid.String()
}

// SplitLocalName is the inverse of LocalName. It does not check the task's id.
func SplitLocalName(name string) (task string, uid plimsoll.UID, err error) {
	task, text, marked := strings.Cut(name, nameMark)
	if marked {
		uid, err = plimsoll.ParseUID(text)
	}
	return task, uid, err //nolint:wrapcheck // it names the uid
}

// TaskOf returns the id of the task with a local name, for people.
func TaskOf(name string) string {
	task, _, _ := strings.Cut(name, nameMark)
	return task
}
