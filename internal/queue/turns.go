package queue

import "slices"

// Turn is the place of a queue among the children of its parent.
type Turn struct {
	Queue *Queue
	Share float64 // dominant share, which orders the children of a queue
	// Next is its place among the children that have waiting tasks, from 1; 0: it has none.
	Next int
}

// Turns returns a queue and all below it, parents first. The children of a queue are in the order
// of their names. Their places are those in which Next would try them if none were held back. The
// tree is a Copy, whose shares are those of the moment at which it was made.
func (t *Tree) Turns(q *Queue) []Turn {
	list := []Turn{{Queue: q, Share: float64(q.share.num) / float64(q.share.den)}}
	var waiting []*Queue
	for _, c := range q.Children {
		if c.Waiting > 0 {
			waiting = append(waiting, c)
		}
	}
	for _, c := range q.Children {
		list = append(list, t.Turns(c)...)
	}
	slices.SortFunc(waiting, func(a, b *Queue) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	for i := range list {
		if k := slices.Index(waiting, list[i].Queue); k >= 0 {
			list[i].Next = k + 1
		}
	}
	return list
}
