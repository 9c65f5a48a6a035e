package state

import (
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// find returns the task of an id.
func (s *State) find(id string) (Ref, bool) {
	job, group, index, ok := splitID(id)
	if !ok {
		return Ref{}, false
	}
	return s.FindTask(job, group, index)
}

// splitID takes the id of a task apart.
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

// whereIs is what the fleet asks about a task that a request wants to be near to or far from.
func (s *State) whereIs(id string) (node, owner string, err error) {
	ref, ok := s.find(id)
	if !ok || !ref.Task().State.OnNode() {
		return "", "", nil
	}
	return ref.Task().Node, ref.Group.Job.Spec.Owner, nil
}

// volumesOf is what the fleet asks about a task whose directory a request wants: that stays on the
// node where it ran last.
func (s *State) volumesOf(id string) (node string, err error) {
	ref, ok := s.find(id)
	if !ok {
		return "", plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task %q", id)
	}
	return ref.Task().Node, nil
}
