package queue

// Copy returns the present queues and trackers, with their limits and allocated amounts, for
// questions: Find, Refuses, RefusesOwner, Full and Walk. Accounts, lanes and classes are not
// copied, so nothing may enter a copy. It costs about 1 µs for each queue and tracker. A queue's
// trackers are sorted: 10,000 of one queue cost 2 µs each. An index of the queues would cost as
// much again, so Find searches them. A full queue looks at each class below it: see HasNoRoom.
func (t *Tree) Copy() *Tree {
	queues := make([]Queue, 0, len(t.byPath)+1)
	c := &Tree{total: t.total}
	var add func(q, parent *Queue) *Queue
	add = func(q, parent *Queue) *Queue {
		queues = append(queues, Queue{
			Quota: q.counts(), Guaranteed: q.Guaranteed, GuaranteedSet: q.GuaranteedSet, MaxTasks: q.MaxTasks,
			Path: q.Path, Name: q.Name, Parent: parent, Leaf: q.Leaf, Draining: q.Draining, Dynamic: q.Dynamic,
			stated: q.stated, properties: q.properties, limits: q.limits, limited: q.limited,
			Pending: q.Pending, Waiting: q.Waiting, Dismissed: q.Dismissed,
			share: t.shareOf(q), priority: q.priority, order: q.order, holding: q.Holds(), noRoom: q.HasNoRoom(),
		})
		out := &queues[len(queues)-1] // queues has room for all of them, so the pointer stays valid
		// A parent is asked too: for a leaf that is to be made below it.
		out.of, out.all = out, &tenant{leaf: out}
		if len(q.trackers) > 0 {
			out.trackers = make(map[trackerKey]*Quota, len(q.trackers))
			for _, k := range q.Trackers() {
				counts := k.counts()
				counts.of = out
				out.trackers[k.trackerKey()] = &counts
			}
		}
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

// counts returns the limits and counts of a quota, without its waiters and parked tenants.
func (k *Quota) counts() Quota {
	return Quota{
		Max: k.Max, MaxSet: k.MaxSet, MaxAccounts: k.MaxAccounts, Allocated: k.Allocated, Running: k.Running,
		Accounts: k.Accounts, Admitted: k.Admitted, User: k.User, Group: k.Group, tracks: k.tracks,
	}
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
