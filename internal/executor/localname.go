package executor

import "github.com/plimsoll-dev/plimsoll"

// LocalName returns the name of a task on its node, by which supervisors know it: that of the
// lifetime of its job. So a later job with the same id has tasks with other names, directories and
// control groups. Without a uid, which agents did not know once, the name is the id.
func LocalName(task string, uid plimsoll.UID) string { return plimsoll.LifetimeName(task, uid) }

// SplitLocalName is the inverse of LocalName. It does not check the task's id.
func SplitLocalName(name string) (task string, uid plimsoll.UID, err error) {
	return plimsoll.SplitLifetimeName(name) //nolint:wrapcheck // it names the uid
}

// TaskOf returns the id of the task with a local name, for people.
func TaskOf(name string) string {
	task, _, _ := plimsoll.SplitLifetimeName(name)
	return task
}
