package queue

import (
	"math"
	"math/bits"

	"github.com/plimsoll-dev/plimsoll"
)

// presence counts the rows of a class that may reach a limited queue: rows below it that are
// neither set aside with a waiter nor below a closed queue.
type presence struct {
	class   *Class
	queue   *Queue
	rows    int32
	inClass int32 // position in class.presences
	inQueue int32 // position in queue.presences
}

// count adds n rows of a class from a queue upwards, up to the first closed queue; a negative n
// subtracts. A closed queue that has room for the class is opened.
func (t *Tree) count(q *Queue, c *Class, n int32) {
	for ; q != nil; q = q.Parent {
		if q.MaxSet == 0 {
			continue
		}
		q.addRows(c, n)
		if !q.closed {
			continue
		}
		if n > 0 && c.code == plimsoll.WaitNone && q.Lacks(&c.amounts) < 0 {
			t.open(q)
		}
		return
	}
}

// open puts a closed queue, with all rows that wait below it, back into the order.
func (t *Tree) open(q *Queue) {
	q.closed = false
	q.offer()
	for _, p := range q.presences {
		t.count(q.Parent, p.class, p.rows)
	}
}

// shut takes a queue out of the order because it has no room for any row that waits below it.
func (t *Tree) shut(q *Queue) {
	for _, p := range q.presences {
		t.count(q.Parent, p.class, -p.rows)
	}
	q.closed = true
	q.withdraw()
}

// addRows adds n rows of a class at a limited queue. When the last row leaves, least may become too
// low: the class may have been the one with the least.
func (q *Queue) addRows(c *Class, n int32) {
	p := q.presenceOf[c]
	if p == nil {
		p = &presence{class: c, queue: q, inClass: int32(len(c.presences)), inQueue: int32(len(q.presences))}
		c.presences, q.presences = append(c.presences, p), append(q.presences, p)
		q.presenceOf[c] = p
		if c.code == plimsoll.WaitNone {
			q.lower(&c.amounts)
		}
	}
	if p.rows += n; p.rows > 0 {
		return
	}
	delete(q.presenceOf, c)
	last := len(q.presences) - 1
	q.presences[p.inQueue] = q.presences[last]
	q.presences[p.inQueue].inQueue = p.inQueue
	q.presences[last] = nil
	q.presences = q.presences[:last]
	last = len(c.presences) - 1
	c.presences[p.inClass] = c.presences[last]
	c.presences[p.inClass].inClass = p.inClass
	c.presences[last] = nil
	c.presences = c.presences[:last]
	q.stale++
	if len(q.presences) == 0 {
		q.resetLeast()
	}
}

// lower updates least for a class, not blocked, that begins to wait below the queue.
func (q *Queue) lower(a *Amounts) {
	for set := q.MaxSet; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		q.least[i] = min(q.least[i], a[i])
	}
}

// findLeast computes, by resource, the least amount over all unblocked classes below the queue. If
// less than that is left of one resource, none of the classes has room.
func (q *Queue) findLeast() {
	q.resetLeast()
	for _, p := range q.presences {
		if p.class.code == plimsoll.WaitNone {
			q.lower(&p.class.amounts)
		}
	}
}

// resetLeast sets least to the value without any class.
func (q *Queue) resetLeast() {
	for i := range q.least {
		q.least[i] = math.MaxInt64
	}
	q.stale = 0
}
