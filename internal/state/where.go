package state

import (
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// find returns the task with an id.
func (s *State) find(id string) (Ref, bool) {
	job, group, index, ok := splitID(id)
	if !ok {
		return Ref{}, false
	}
	return s.FindTask(job, group, index)
}

// splitID splits the id of a task into job, group and index.
func splitID(id string) (job, group string, index int32, ok bool) {
	rest, number, ok := cutLast(id)
	job, group, ok2 := cutLast(rest)
	n, err := strconv.ParseInt(number, 10, 32)
	return job, group, int32(n), ok && ok2 && err == nil
}

func cutLast(text string) (before, after string, ok bool) {
	i := strings.LastIndexByte(text, '.')
	if i < 0 {
		return "", "", false
	}
	return text[:i], text[i+1:], true
}

// locate returns the node and the owner of a task, for a request that wants to be near to it or far
// from it. Both are empty if the task is on no node.
func (s *State) locate(id string) (node, owner string, err error) {
	ref, ok := s.find(id)
	if !ok || !ref.Task().State.OnNode() {
		return "", "", nil
	}
	return ref.Task().Node, ref.Group.Job.Spec.Owner, nil
}

// locateVolumes returns the node with the directory of a task: the node where the task ran last.
func (s *State) locateVolumes(id string) (node string, err error) {
	ref, ok := s.find(id)
	if !ok {
		return "", plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task %q", id)
	}
	return ref.Task().Node, nil
}
