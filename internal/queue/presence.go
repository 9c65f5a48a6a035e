package queue

import (
	"math"
	"math/bits"

	"github.com/plimsoll-dev/plimsoll"
)

// presence counts the rows of a class that a limited queue may come to: those below it that are not
// set aside with a waiter, and not below a closed queue.
type presence struct {
	class   *Class
	queue   *Queue
	rows    int32
	inClass int32 // place in class.presences
	inQueue int32 // place in queue.presences
}

// count counts n more rows of a class from a queue upwards, as far as the first one that is closed;
// fewer if n is negative. One that is closed is opened if it has room for the class.
func (t *Tree) count(q *Queue, c *Class, n int32) {
	for ; q != nil; q = q.Parent {
		if q.MaxSet == 0 {
			continue
		}
		q.meet(c, n)
		if !q.closed {
			continue
		}
		if n > 0 && c.code == plimsoll.WaitNone && q.lacks(&c.amounts) < 0 {
			t.open(q)
		}
		return
	}
}

// open puts a closed queue back into the order, with all that waits below it.
func (t *Tree) open(q *Queue) {
	q.closed = false
	q.offer()
	for _, p := range q.presences {
		t.count(q.Parent, p.class, p.rows)
	}
}

// shut takes a queue out of the order that has no room for anything that waits below it.
func (t *Tree) shut(q *Queue) {
	for _, p := range q.presences {
		t.count(q.Parent, p.class, -p.rows)
	}
	q.closed = true
	q.withdraw()
}

// meet counts n more rows of a class at a limited queue. With the last one least may become too
// low: the class may have been the one with the least.
func (q *Queue) meet(c *Class, n int32) {
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

// lower keeps least right when a class that may be placed comes to wait below the queue.
func (q *Queue) lower(a *Amounts) {
	for set := q.MaxSet; set != 0; set &= set - 1 {
		i := bits.TrailingZeros32(set)
		q.least[i] = min(q.least[i], a[i])
	}
}

// findLeast computes, by resource, the least that any class below the queue asks for that is not
// blocked. If less than that is left of one resource, there is no room for any of the classes.
func (q *Queue) findLeast() {
	q.resetLeast()
	for _, p := range q.presences {
		if p.class.code == plimsoll.WaitNone {
			q.lower(&p.class.amounts)
		}
	}
}

// resetLeast makes least that of no class.
func (q *Queue) resetLeast() {
	for i := range q.least {
		q.least[i] = math.MaxInt64
	}
	q.stale = 0
}
