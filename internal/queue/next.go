package queue

import "github.com/plimsoll-dev/plimsoll"

// Next returns the lane whose first task is placed next, or nil if no task can be placed now. It
// walks down the heaps to the first row. If that row cannot be placed, Next takes it out of the
// order and walks again.
func (t *Tree) Next() *Lane {
	for t.live > 0 && !t.Root.closed {
		q := t.Root
		for !q.Leaf {
			if q.sharedAt != t.totals {
				t.reshare(q)
			}
			if len(q.open) == 0 {
				return nil
			}
			q = q.open[0]
		}
		if len(q.offered) == 0 {
			return nil
		}
		if q.order.fair && q.sharedAt != t.totals {
			t.remeasure(q)
		}
		r := q.offered[0]
		if q.strict != nil && t.holder(r) != nil {
			t.holdBack(r)
		} else if r.class.code != plimsoll.WaitNone {
			t.setAside(r, &r.class.aside)
			t.unfit(r, nil)
		} else if by, resource := r.tenant.refusal(&r.class.amounts); by != nil {
			t.refuse(by, resource, r)
		} else {
			return r.lanes[0]
		}
	}
	return nil
}

// refuse takes a row out of the order because a quota has no room for it. If it is a queue that has
// no room for any class below it, the queue is closed and its rows stay in place. Otherwise the row
// is set aside with a waiter of the quota.
func (t *Tree) refuse(k *Quota, resource int, r *row) {
	if q := k.of; !k.tracks {
		if q.stale > 0 && q.Lacks(&q.least) < 0 {
			q.stale++ // counts each row that is set aside meanwhile, too
			if 4*q.stale >= len(q.presences) {
				q.findLeast()
			}
		}
		if q.Lacks(&q.least) >= 0 {
			t.shut(q)
			return
		}
	}
	t.setAside(r, &k.waiterOf(r.class, resource).aside)
	t.count(r.leaf, r.class, -1)
	t.unfit(r, k)
}

// reopen opens a limited queue if it has room for a class below it. It also brings back the
// set-aside rows for which the queue now has room.
func (t *Tree) reopen(q *Queue) {
	if q.closed && q.Lacks(&q.least) < 0 {
		t.open(q)
	}
	t.bringBackFitting(&q.Quota)
}

// bringBackFitting brings back the rows that were set aside for a quota and that it has room for.
func (t *Tree) bringBackFitting(k *Quota) {
	if k.short == nil {
		return
	}
	for i := range k.short {
		h := &k.short[i]
		for left := k.Max[i] - k.Allocated[i]; len(*h) > 0 && (*h)[0].class.amounts[i] <= left; {
			w := (*h)[0]
			h.remove(w)
			w.short = absent
			if other := k.Lacks(&w.class.amounts); other >= 0 {
				k.await(w, other)
				continue
			}
			t.release(w)
		}
	}
}

// release brings back the rows of a waiter whose quota has room for them. Rows of a class that was
// blocked meanwhile are set aside with the class instead, except in a strict leaf. The cause of the
// lanes is marked for Settle.
func (t *Tree) release(w *waiter) {
	for n := len(w.aside.rows); n > 0; n-- {
		r := w.aside.rows[n-1]
		if r.class.code == plimsoll.WaitNone || r.leaf.strict != nil {
			t.bringBack(r)
		} else {
			r.leaveAside()
			r.class.aside.add(r)
		}
		t.count(r.leaf, r.class, 1)
	}
	t.recheckLater(w)
}

// Block records that no node takes a class now, and why. Its rows stay in place until Next reaches
// them. A class that is blocked already gets the new code.
func (t *Tree) Block(c *Class, code plimsoll.WaitCode) {
	if c.code == plimsoll.WaitNone {
		if c.rows > 0 {
			t.live--
		}
		for _, p := range c.presences {
			p.queue.stale++
		}
	}
	other := c.code != code
	c.code = code
	for n := len(c.aside.rows); other && n > 0; n-- {
		t.reexamine(c.aside.rows[n-1])
	}
	if c.refused != nil && c.refused.code != code {
		t.recheckLater(c.refused)
		c.refused = nil
	}
}

// Open records that a node may take a class again, and brings back the rows that were set aside
// with it.
func (t *Tree) Open(c *Class) {
	if c.code == plimsoll.WaitNone {
		return
	}
	c.code = plimsoll.WaitNone
	if c.rows > 0 {
		t.live++
	}
	for i := 0; i < len(c.presences); i++ { // opening a queue appends those above it
		q := c.presences[i].queue
		q.lower(&c.amounts)
		if q.closed && q.Lacks(&c.amounts) < 0 {
			t.open(q)
		}
	}
	for n := len(c.aside.rows); n > 0; n-- {
		t.bringBack(c.aside.rows[n-1])
	}
	if c.refused != nil {
		t.recheckLater(c.refused)
	}
}
