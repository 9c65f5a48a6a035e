package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// former are the attempts of a task before the present one. Records share the slices: they are
// replaced, never changed.
type former struct {
	attempts []plimsoll.Attempt      // the last ones, oldest first
	earlier  []plimsoll.NodeAttempts // nodes of those before, oldest first
}

func (r Ref) former() former { return r.Group.former[r.Index] }

// keepAttempt keeps the last attempt of a task, before the row takes up something else. It may be
// kept already.
func (s *State) keepAttempt(r Ref) {
	t := r.Task()
	was := r.former()
	n := len(was.attempts)
	if t.Attempt == 0 || n > 0 && was.attempts[n-1].Number == t.Attempt {
		return
	}
	now := former{earlier: was.earlier}
	switch n {
	case 0: // a record of an older version has only the nodes of the attempts before
		now.earlier = withNode(now.earlier, t.Node, t.Attempt-1)
	case plimsoll.MaxAttempts:
		oldest := &was.attempts[0]
		now.earlier = withNode(now.earlier, oldest.Node, oldest.Number)
		was.attempts = was.attempts[1:]
	}
	now.attempts = append(make([]plimsoll.Attempt, 0, len(was.attempts)+1), was.attempts...)
	now.attempts = append(now.attempts, s.attemptOf(t, was))
	s.dirty.bytes += max(0, formerBytes(now)-formerBytes(r.former())) // the task may be marked already
	s.setFormer(r, now)
}

// attemptOf returns the last attempt of a task as it is kept.
func (s *State) attemptOf(t *Task, was former) plimsoll.Attempt {
	pending := t.Created
	if n := len(was.attempts); n > 0 {
		pending = was.attempts[n-1].Finished
	}
	return plimsoll.Attempt{
		Number: t.Attempt, Node: t.Node, Result: t.Result, ExitCode: t.ExitCode,
		Message: cutTo(t.Message, plimsoll.MaxAttemptMessage), Pending: pending, Bound: t.Bound, Starting: t.Starting,
		Started: t.Started, Stopping: t.Stopping, Finished: t.Finished,
	}
}

// withNode returns the list with the attempts up to last on a node. The oldest entry gives way.
func withNode(list []plimsoll.NodeAttempts, node string, last int32) []plimsoll.NodeAttempts {
	n, first := len(list), int32(1)
	if n > 0 {
		first = list[n-1].Last + 1
	}
	if first > last {
		return list
	}
	if n > 0 && list[n-1].Node == node {
		list = append(make([]plimsoll.NodeAttempts, 0, n), list...)
		list[n-1].Last = last
		return list
	}
	list = list[max(0, n-plimsoll.MaxEarlier+1):]
	return append(list[:len(list):len(list)], plimsoll.NodeAttempts{Node: node, First: first, Last: last})
}

// setFormer replaces the former attempts of a task.
func (s *State) setFormer(r Ref, f former) {
	g := r.Group
	s.countTexts(g.Job, formerBytes(f)-formerBytes(r.former()))
	if len(f.attempts)+len(f.earlier) == 0 {
		delete(g.former, r.Index)
		return
	}
	if g.former == nil {
		g.former = map[int32]former{}
	}
	g.former[r.Index] = f
}

func formerBytes(f former) (sum int) {
	for i := range f.attempts {
		sum += size.Attempt(f.attempts[i].Node, f.attempts[i].Message)
	}
	for i := range f.earlier {
		sum += size.NodeAttempts(f.earlier[i].Node)
	}
	return sum
}
