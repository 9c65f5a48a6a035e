package queue

// Copy returns the queues as they are now, with their limits and what is allocated in them, for
// questions: Find, Refuses, Full and Walk. Accounts, lanes and classes are not in it, so nothing
// may enter it. It costs O(queues), a little under 1 µs each, and an index of them would cost as
// much again: Find looks through them.
func (t *Tree) Copy() *Tree {
	queues := make([]Queue, 0, len(t.byPath)+1)
	c := &Tree{total: t.total}
	var add func(q, parent *Queue) *Queue
	add = func(q, parent *Queue) *Queue {
		queues = append(queues, Queue{
			Limits: q.Limits, Path: q.Path, Name: q.Name, Parent: parent, Leaf: q.Leaf, Draining: q.Draining,
			Allocated: q.Allocated,
			Pending:   q.Pending, Running: q.Running, Waiting: q.Waiting, Accounts: q.Accounts, Admitted: q.Admitted,
		})
		out := &queues[len(queues)-1] // there is room for all of them, so it stays where it is
		if len(q.Children) > 0 {
			out.Children = make([]*Queue, 0, len(q.Children))
		}
		for _, child := range q.Children {
			out.Children = append(out.Children, add(child, out))
		}
		return out
	}
	c.Root = add(t.Root, nil)
	return c
}

// seek finds a queue of a copy, which has no index.
func (t *Tree) seek(path string) (found *Queue) {
	t.Root.Walk(func(q *Queue) {
		if q.Path == path {
			found = q
		}
	})
	return found
}
