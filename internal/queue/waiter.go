package queue

import "github.com/plimsoll-dev/plimsoll"

// Cause says why a lane waits.
type Cause struct {
	Code     plimsoll.WaitCode
	Queue    *Queue // with WaitQueueMax: its maximum holds the lane back
	Resource int    // with WaitQueueMax: index of the resource that was short
}

// waiter is a cause and the lanes that were told it, which are of one class unless the cause is
// WaitTurn. That of a queue's maximum also holds the rows of the class that are set aside for it.
type waiter struct {
	code     plimsoll.WaitCode
	class    *Class // nil with WaitTurn
	queue    *Queue // with WaitQueueMax
	resource int    // the same: that was short when a lane was told last
	short    int32  // resource by which it stands in queue.short; absent: it does not
	rank     int32  // place there
	aside    aside  // rows that are set aside for it
	lanes    *Lane  // the first of those that were told
	doubted  bool   // it stands in Tree.recheck
	telling  bool   // it stands in Tree.telling
	outdated bool   // its lanes are told anew, whatever their cause is now
}

func (w *waiter) before(o *waiter) bool {
	return w.class.amounts[w.short] < o.class.amounts[w.short]
}

func (w *waiter) place() *int32 { return &w.rank }

// add puts a lane, which stands in no list, into the list of those that were told the cause.
func (w *waiter) add(l *Lane) {
	l.told, l.prev, l.next = w, nil, w.lanes
	if w.lanes != nil {
		w.lanes.prev = l
	}
	w.lanes = l
}

// drop takes a lane out of the list of those that were told the cause.
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

// waiterOf returns the waiter of a class at a queue that refuses it, and makes it if there is none.
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

// await lets a waiter come back when the queue has enough of a resource.
func (q *Queue) await(w *waiter, resource int) {
	w.short = int32(resource)
	q.short[resource].push(w)
}

// standDown takes a waiter out of those that come back when the queue has room.
func (q *Queue) standDown(w *waiter) {
	if w.short != absent {
		q.short[w.short].remove(w)
		w.short = absent
	}
}

// doubt marks a cause that may be gone, for Settle to look at.
func (t *Tree) doubt(w *waiter) {
	if !w.doubted {
		w.doubted = true
		t.recheck = append(t.recheck, w)
	}
}

// holds reports whether the cause is true of its class now. WaitTurn is a cause until Settle only.
func (w *waiter) holds() bool {
	switch w.code {
	case plimsoll.WaitTurn:
		return false
	case plimsoll.WaitQueueMax:
		return w.registered() && w.queue.lacks(&w.class.amounts) >= 0
	}
	return w.class.refused == w && w.class.code == w.code
}

// registered reports whether it is the waiter of its class at a queue.
func (w *waiter) registered() bool { return w.queue != nil && w.queue.waiters[w.class] == w }

// Settle looks which causes have changed; Tell then gives out the new ones. It is to be called when
// Next has returned nil: then each lane that waits has a cause. Until Settle is called lanes keep
// the cause that they were told.
func (t *Tree) Settle() {
	for _, w := range t.recheck {
		w.doubted = false
		if !w.stillHolds() && w.lanes != nil {
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

// stillHolds is holds, and lets a waiter whose cause holds after all come back when its queue has
// room.
func (w *waiter) stillHolds() bool {
	held := w.holds()
	if held && w.queue != nil && w.short == absent {
		w.queue.await(w, w.queue.lacks(&w.class.amounts))
	}
	return held
}

// forgetIdle drops a waiter of a queue that has no lanes and no rows.
func (w *waiter) forgetIdle() {
	if w.queue == nil || w.lanes != nil || len(w.aside.rows) > 0 || w.doubted || w.telling {
		return
	}
	if w.registered() {
		delete(w.queue.waiters, w.class)
		w.queue.standDown(w)
	}
}

// tell puts a waiter into the list of those whose lanes are to be told another cause.
func (t *Tree) tell(w *waiter) {
	if !w.telling {
		w.telling = true
		t.telling = append(t.telling, w)
	}
}

// Tell returns the next lane whose cause has changed, and the cause; ok is false if there is none.
// A cause has changed when its code or its queue is another one, or Restate has outdated it. That
// another resource is short at the same queue is not told.
func (t *Tree) Tell() (l *Lane, cause Cause, ok bool) {
	for len(t.telling) > 0 {
		w := t.telling[0]
		if w.lanes == nil || w.stillHolds() {
			w.telling = false
			w.forgetIdle()
			t.telling[0] = nil
			t.telling = t.telling[1:]
			continue
		}
		l, to := w.lanes, t.causeOf(w.lanes)
		w.drop(l)
		to.add(l)
		if to.code != w.code || to.queue != w.queue || w.outdated {
			return l, Cause{to.code, to.queue, to.resource}, true
		}
	}
	t.telling = nil
	return nil, Cause{}, false
}

// Telling reports whether Tell would return another lane.
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
