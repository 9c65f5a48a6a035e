package state

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// earlier returns the nodes of the task's attempts before those on its present node.
func (r Ref) earlier() []plimsoll.NodeAttempts { return r.Group.earlier[r.Index] }

// rememberNode notes the node of a task's attempts so far, before the task is bound to another one.
func (s *State) rememberNode(r Ref, to string) {
	t := r.Task()
	if t.Attempt == 0 || t.Node == to {
		return
	}
	was := r.earlier()
	first := int32(1)
	if len(was) > 0 {
		first = was[len(was)-1].Last + 1
	}
	was = was[max(0, len(was)-plimsoll.MaxEarlier+1):]
	s.setEarlier(r, append(was[:len(was):len(was)], plimsoll.NodeAttempts{Node: t.Node, First: first, Last: t.Attempt}))
	s.dirty.bytes += size.NodeAttempts(t.Node) // it may be marked already
}

// setEarlier replaces the earlier attempts of a task.
func (s *State) setEarlier(r Ref, list []plimsoll.NodeAttempts) {
	g := r.Group
	s.countTexts(g.Job, earlierBytes(list)-earlierBytes(r.earlier()))
	if len(list) == 0 {
		delete(g.earlier, r.Index)
		return
	}
	if g.earlier == nil {
		g.earlier = map[int32][]plimsoll.NodeAttempts{}
	}
	g.earlier[r.Index] = list
}

func earlierBytes(list []plimsoll.NodeAttempts) (sum int) {
	for i := range list {
		sum += size.NodeAttempts(list[i].Node)
	}
	return sum
}
