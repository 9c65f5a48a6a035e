package queue

import (
	"fmt"
	"math/bits"

	"github.com/plimsoll-dev/plimsoll"
)

// Check recomputes the derived fields of the tree and reports the first difference. It is for
// tests and for debugging: it costs O(everything). It compares sums only with the sums of the
// children, because the tasks themselves are the caller's. DESIGN.md lists the checks and their
// limits.
func (t *Tree) Check() error {
	live := map[*Class]bool{}
	var err error
	t.Root.Walk(func(q *Queue) {
		if err == nil {
			err = t.checkQueue(q, live)
		}
	})
	if err == nil && len(live) != t.live {
		err = fmt.Errorf("%d classes may be placed, but there are %d", t.live, len(live))
	}
	return err
}

func (t *Tree) checkQueue(q *Queue, live map[*Class]bool) error {
	if err := t.checkSums(q); err != nil {
		return fmt.Errorf("queue %s: %w", q.Path, err)
	}
	if len(q.byClass) != len(q.rows) {
		return fmt.Errorf("queue %s: %d rows by class, but %d in all", q.Path, len(q.byClass), len(q.rows))
	}
	for i, r := range q.rows {
		if r.class.code == plimsoll.WaitNone {
			live[r.class] = true
		}
		if int(r.inLeaf) != i || q.byClass[r.class] != r || r.leaf != q {
			return fmt.Errorf("queue %s: the row of %v is misplaced", q.Path, r.class.amounts)
		}
		if err := r.check(); err != nil {
			return fmt.Errorf("queue %s: the row of %v: %w", q.Path, r.class.amounts, err)
		}
	}
	if offered := q.rank != absent; q.Parent != nil && offered != (!q.closed && !q.empty()) {
		return fmt.Errorf("queue %s: offered %t, but closed %t and empty %t", q.Path, offered, q.closed, q.empty())
	}
	if err := checkPresences(q); err != nil {
		return err
	}
	return t.checkWaiters(q)
}

// checkWaiters reports waiters of a queue that are not needed, and waiters that would never be
// brought back.
func (t *Tree) checkWaiters(q *Queue) error {
	registered := map[*waiter]bool{}
	for i := range q.short {
		if err := checkHeap(q.short[i]); err != nil {
			return fmt.Errorf("queue %s: waiters for resource %d: %w", q.Path, i, err)
		}
		for _, w := range q.short[i] {
			registered[w] = true
			if int(w.short) != i || !w.registered() || !q.isShort(i, &w.class.amounts) {
				return fmt.Errorf("queue %s: a waiter for resource %d does not belong there", q.Path, i)
			}
			if pending := w.inRecheck || w.telling; !pending && w.lanes == nil && len(w.aside.rows) == 0 {
				return fmt.Errorf("queue %s: nobody needs the waiter of %v for resource %d", q.Path, w.class.amounts, i)
			}
		}
	}
	for _, list := range [][]*waiter{t.recheck, t.telling} {
		for _, w := range list {
			if w.queue == q && w.registered() {
				registered[w] = true
			}
		}
	}
	if len(registered) != len(q.waiters) {
		return fmt.Errorf("queue %s: %d waiters, but only %d that are needed", q.Path, len(q.waiters), len(registered))
	}
	return nil
}

// checkSums compares the sums of a queue with those of its children, its share with its use, and
// its heaps with their order.
func (t *Tree) checkSums(q *Queue) error {
	sum := *q
	if !q.Leaf {
		sum = Queue{}
		for _, c := range q.Children {
			sum.Allocated.Add(&c.Allocated)
			sum.Pending.Add(&c.Pending)
			sum.Running += c.Running
			sum.Waiting += c.Waiting
			sum.Accounts += c.Accounts
			sum.Admitted += c.Admitted
		}
	}
	if sum.Allocated != q.Allocated || sum.Pending != q.Pending || sum.Running != q.Running ||
		sum.Waiting != q.Waiting ||
		sum.Accounts != q.Accounts || sum.Admitted != q.Admitted {
		return fmt.Errorf("its sums are not those of its children")
	}
	if q.Parent != nil && q.Parent.sharedAt == t.totals && q.share.compare(t.shareOf(q)) != 0 {
		return fmt.Errorf("its share is %v, not %v", q.share, t.shareOf(q))
	}
	if err := checkHeap(q.open); err != nil {
		return err
	}
	if err := checkHeap(q.parked); err != nil {
		return err
	}
	return checkHeap(q.offered)
}

func checkHeap[T ranked[T]](h heap[T]) error {
	for i, v := range h {
		if int(*v.place()) != i || i > 0 && v.before(h[(i-1)/2]) {
			return fmt.Errorf("item %d of %d is out of order", i, len(h))
		}
	}
	return nil
}

func (r *row) check() error {
	if err := checkHeap(r.lanes); err != nil || len(r.lanes) == 0 {
		return fmt.Errorf("it has %d lanes: %w", len(r.lanes), err)
	}
	for _, l := range r.lanes {
		if l.row != r || l.ready <= 0 || !l.account.admitted || l.class != r.class ||
			l.account.queue != r.leaf || l.told == nil {
			return fmt.Errorf("lane %d does not belong there", l.ID)
		}
	}
	switch {
	case r.aside == nil:
		if r.leaf.offered[r.rank] != r {
			return fmt.Errorf("is not where it is offered")
		}
	case r.aside.rows[r.rank] != r:
		return fmt.Errorf("is not where it is set aside")
	case r.aside == &r.class.aside:
		if r.class.code == plimsoll.WaitNone {
			return fmt.Errorf("is set aside, but its class is not blocked")
		}
	case r.aside.of.queue.lacks(&r.class.amounts) < 0 || r.aside.of.short == absent:
		return fmt.Errorf("is set aside, but %s has room for it", r.aside.of.queue.Path)
	}
	return nil
}

// checkPresences recounts the classes below a limited queue, and compares closed and least with
// the result.
func checkPresences(q *Queue) error {
	rows := map[*Class]int32{}
	q.Walk(func(below *Queue) {
		for _, r := range below.rows {
			hidden := r.aside != nil && r.aside.of != nil
			for at := below; at != q; at = at.Parent {
				hidden = hidden || at.closed
			}
			if !hidden {
				rows[r.class]++
			}
		}
	})
	if q.MaxSet == 0 {
		rows = nil
	}
	if len(rows) != len(q.presences) || len(rows) != len(q.presenceOf) {
		return fmt.Errorf(
			"queue %s: %d classes may be come to below it, but it knows %d", q.Path, len(rows), len(q.presences),
		)
	}
	for _, p := range q.presences {
		c := p.class
		switch {
		case rows[c] != p.rows || c.presences[p.inClass] != p || q.presences[p.inQueue] != p:
			return fmt.Errorf("queue %s: a class has %d rows below it, not %d", q.Path, rows[c], p.rows)
		case c.code != plimsoll.WaitNone:
		case q.closed && q.lacks(&c.amounts) < 0:
			return fmt.Errorf("queue %s: is closed, but has room for %v", q.Path, c.amounts)
		case !q.atMost(&q.least, &c.amounts):
			return fmt.Errorf(
				"queue %s: %v waits below it, which is less than the least, %v", q.Path, c.amounts, q.least,
			)
		}
	}
	return nil
}

// atMost reports whether a is at most b in each resource that the queue limits.
func (q *Queue) atMost(a, b *Amounts) bool {
	for set := q.MaxSet; set != 0; set &= set - 1 {
		if i := bits.TrailingZeros32(set); a[i] > b[i] {
			return false
		}
	}
	return true
}
