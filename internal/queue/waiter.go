package queue

import "github.com/plimsoll-dev/plimsoll"

// Cause says why a lane waits.
type Cause struct {
	Code     plimsoll.WaitCode
	Queue    *Queue // with WaitQueueMax: its maximum holds the lane back
	Resource int    // with WaitQueueMax: index of the resource that was short
}

// waiter is a cause and the lanes of one class that were told it. Of a queue's maximum it also holds the rows that are set aside.
type waiter struct {
	code     plimsoll.WaitCode
	class    *Class // nil with WaitTurn
	queue    *Queue // with WaitQueueMax
	resource int
	short    int32 // resource by which it stands in queue.short; absent: it does not
	rank     int32 // there
	aside    aside
	lanes    *Lane // the first of those that were told
	doubted  bool  // it stands in Tree.recheck
	telling  bool  // it stands in Tree.telling
}

func (w *waiter) before(o *waiter) bool {
	return w.class.amounts[w.short] < o.class.amounts[w.short]
}

func (w *waiter) place() *int32 { return &w.rank }

// add notes that a lane, which was told nothing, was told the cause.
func (w *waiter) add(l *Lane) {
	l.told, l.prev, l.next = w, nil, w.lanes
	if w.lanes != nil {
		w.lanes.prev = l
	}
	w.lanes = l
}

func (w *waiter) drop(l *Lane) {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		w.lanes = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.told, l.next, l.prev = nil, nil, nil
	w.forgetIdle()
}

// waiterOf returns the waiter of a class at a queue that refuses it.
func (q *Queue) waiterOf(c *Class, resource int) *waiter {
	w := q.waiters[c]
	if w == nil {
		w = &waiter{code: plimsoll.WaitQueueMax, class: c, queue: q, resource: resource, short: absent, rank: absent}
		w.aside.of = w
		q.waiters[c] = w
	}
	if w.short == absent {
		q.await(w, resource)
	}
	return w
}

// await has a waiter brought back when the queue has enough of a resource.
func (q *Queue) await(w *waiter, resource int) {
	w.short = int32(resource)
	q.short[resource].push(w)
}

// doubt has a cause looked at again when all that can be placed is placed.
func (t *Tree) doubt(w *waiter) {
	if !w.doubted {
		w.doubted = true
		t.recheck = append(t.recheck, w)
	}
}

// holds reports whether the cause is true of its class now.
func (w *waiter) holds() bool {
	switch w.code {
	case plimsoll.WaitTurn:
		return false
	case plimsoll.WaitQueueMax:
		return w.queue.waiters[w.class] == w && w.queue.MaxSet != 0 && w.queue.lacks(&w.class.amounts) >= 0
	}
	return w.class.refused == w && w.class.code == w.code
}

// Settle is to be called when Next has returned nil, and finds the causes that have changed; Tell then gives them out. Without it lanes
// keep the cause that they were told.
func (t *Tree) Settle() {
	for _, w := range t.recheck {
		w.doubted = false
		switch {
		case w.holds():
			w.resume()
		case w.lanes != nil:
			t.tell(w)
		}
		w.forgetIdle()
	}
	clear(t.recheck)
	t.recheck = t.recheck[:0]
	if t.unsettled.lanes != nil {
		t.tell(t.unsettled)
		t.unsettled = &waiter{code: plimsoll.WaitTurn}
	}
}

// resume has a waiter that holds after all brought back when its queue has room.
func (w *waiter) resume() {
	if w.queue != nil && w.short == absent {
		w.queue.await(w, w.queue.lacks(&w.class.amounts))
	}
}

// forgetIdle drops a waiter of a queue that no lane was told and that holds no rows.
func (w *waiter) forgetIdle() {
	if w.queue == nil || w.lanes != nil || len(w.aside.rows) > 0 || w.doubted || w.telling {
		return
	}
	if w.queue.waiters[w.class] == w {
		delete(w.queue.waiters, w.class)
		if w.short != absent {
			w.queue.short[w.short].remove(w)
			w.short = absent
		}
	}
}

func (t *Tree) tell(w *waiter) {
	if !w.telling {
		w.telling = true
		t.telling = append(t.telling, w)
	}
}

// Tell returns the next lane whose cause has changed, and the cause; ok is false if there is none.
func (t *Tree) Tell() (l *Lane, cause Cause, ok bool) {
	for len(t.telling) > 0 {
		w := t.telling[0]
		if w.lanes == nil || w.holds() {
			w.telling = false
			if w.lanes != nil {
				w.resume()
			}
			w.forgetIdle()
			t.telling[0] = nil
			t.telling = t.telling[1:]
			continue
		}
		l, to := w.lanes, t.causeOf(w.lanes)
		w.drop(l)
		to.add(l)
		if to.code != w.code || to.queue != w.queue {
			return l, Cause{to.code, to.queue, to.resource}, true
		}
	}
	t.telling = nil
	return nil, Cause{}, false
}

// Telling reports whether Tell has more.
func (t *Tree) Telling() bool { return len(t.telling) > 0 }

// causeOf returns the cause that is true of a lane now.
func (t *Tree) causeOf(l *Lane) *waiter {
	c := l.class
	if by, resource := t.Refuses(l.account.queue, &c.amounts); by != nil {
		w := by.waiterOf(c, resource)
		w.resource = resource
		return w
	}
	if c.code == plimsoll.WaitNone {
		return t.unsettled
	}
	if c.refused == nil {
		c.refused = &waiter{code: c.code, class: c, short: absent, rank: absent}
	}
	return c.refused
}
