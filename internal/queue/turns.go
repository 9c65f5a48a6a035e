package queue

import "slices"

// Turn is the place of a queue among the children of its parent.
type Turn struct {
	Queue *Queue
	Share float64 // dominant share, which orders the children of a queue
	// Next is its place among the children that may be next, from 1; 0: it is not one of them, or
	// it is root.
	Next int
	Of   int // number of the children that may be next
}

// Turns returns a queue and all below it, parents first. The children of a queue are in the order
// of their names. Their places are those in which Next would try them if nothing but their own
// maximum held their tasks back: no node, no limit of a user and no other queue. The tree is a
// Copy, whose shares are those of the moment at which it was made. It costs O(queues × log
// siblings), and the siblings of the queue itself.
func (t *Tree) Turns(q *Queue) []Turn {
	places := map[*Queue]Turn{}
	if q.Parent != nil {
		q.Parent.placeChildren(places)
	}
	var list []Turn
	q.Walk(func(q *Queue) {
		q.placeChildren(places)
		turn := places[q]
		turn.Queue, turn.Share = q, float64(q.share.num)/float64(q.share.den)
		list = append(list, turn)
	})
	return list
}

// placeChildren finds the places of the children that may be next.
func (q *Queue) placeChildren(places map[*Queue]Turn) {
	var list []*Queue
	for _, c := range q.Children {
		if c.mayBeNext() {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *Queue) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	for i, c := range list {
		places[c] = Turn{Next: i + 1, Of: len(list)}
	}
}

// mayBeNext reports whether tasks of admitted jobs wait in the queue, and its maximum has room for
// one of them at least.
func (q *Queue) mayBeNext() bool { return q.Waits() && !q.HasNoRoom() }

// Waits reports whether tasks of admitted jobs wait in the queue that may be placed now. Others are
// those of parked jobs, and those that wait for their next attempt.
func (q *Queue) Waits() bool { return q.Waiting > 0 && q.priority != nobody }

// HasNoRoom reports whether the maximum of the queue has no room for any task that waits below it.
// Tasks that a quota of another queue, of a user or of a group holds back do not count. It costs
// O(classes below the queue); a Copy knows the answer.
func (q *Queue) HasNoRoom() bool {
	if q.noRoom || q.MaxSet == 0 {
		return q.noRoom
	}
	for _, p := range q.presences {
		if q.Lacks(&p.class.amounts) < 0 {
			return false
		}
	}
	return len(q.presences) > 0 || q.refuses()
}

// refuses reports whether rows are set aside until more is left below the maximum of the queue.
func (q *Queue) refuses() bool {
	if q.short == nil {
		return false
	}
	for i := range q.short {
		if len(q.short[i]) > 0 {
			return true
		}
	}
	return false
}
