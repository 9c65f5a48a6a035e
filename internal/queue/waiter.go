package queue

import "github.com/plimsoll-dev/plimsoll"

// Cause is the reason why a lane waits.
type Cause struct {
	Code     plimsoll.WaitCode
	Queue    *Queue // with WaitQueueMax: the queue whose maximum holds the lane back
	Resource int    // with WaitQueueMax: index of the short resource
}

// waiter is a cause and the lanes that were told it. The lanes are of one class unless the cause
// is WaitTurn. A waiter with the cause WaitQueueMax also holds the rows of the class that are set
// aside at the queue.
type waiter struct {
	code      plimsoll.WaitCode
	class     *Class // nil with WaitTurn
	queue     *Queue // with WaitQueueMax
	resource  int    // with WaitQueueMax: the short resource when a lane was told last
	short     int32  // resource whose heap in queue.short holds it; absent: none
	rank      int32  // position in that heap
	aside     aside  // rows set aside for it
	lanes     *Lane  // first of the lanes that were told
	inRecheck bool   // it is listed in Tree.recheck
	telling   bool   // it is listed in Tree.telling
	outdated  bool   // its lanes are told again, even if their cause is unchanged
}

func (w *waiter) before(o *waiter) bool {
	return w.class.amounts[w.short] < o.class.amounts[w.short]
}

func (w *waiter) place() *int32 { return &w.rank }

// add puts a lane, which is in no list, into the list of lanes that were told the cause.
func (w *waiter) add(l *Lane) {
	l.told, l.prev, l.next = w, nil, w.lanes
	if w.lanes != nil {
		w.lanes.prev = l
	}
	w.lanes = l
}

// drop removes a lane from the list of lanes that were told the cause.
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
	w.dropIdle()
}

// waiterOf returns the waiter of a class at a queue that refuses it. It makes one if necessary.
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

// await registers a waiter to come back when the queue has enough of a resource.
func (q *Queue) await(w *waiter, resource int) {
	w.short = int32(resource)
	q.short[resource].push(w)
}

// stopAwaiting undoes await.
func (q *Queue) stopAwaiting(w *waiter) {
	if w.short != absent {
		q.short[w.short].remove(w)
		w.short = absent
	}
}

// recheckLater marks a cause that may have ended, for Settle.
func (t *Tree) recheckLater(w *waiter) {
	if !w.inRecheck {
		w.inRecheck = true
		t.recheck = append(t.recheck, w)
	}
}

// holds reports whether the cause is true of its class now. WaitTurn holds only until Settle.
func (w *waiter) holds() bool {
	switch w.code {
	case plimsoll.WaitTurn:
		return false
	case plimsoll.WaitQueueMax:
		return w.registered() && w.queue.lacks(&w.class.amounts) >= 0
	}
	return w.class.refused == w && w.class.code == w.code
}

// registered reports whether w is the current waiter of its class at its queue.
func (w *waiter) registered() bool { return w.queue != nil && w.queue.waiters[w.class] == w }

// Settle finds the causes that have changed; NextCause then returns the new ones. It is called when
// Next has returned nil, because then each waiting lane has a cause. Until Settle is called, lanes
// keep the cause that they were told.
func (t *Tree) Settle() {
	for _, w := range t.recheck {
		w.inRecheck = false
		if !w.stillHolds() && w.lanes != nil {
			t.tell(w)
		}
		w.dropIdle()
	}
	clear(t.recheck)
	t.recheck = t.recheck[:0]
	if t.unsettled.lanes != nil {
		t.tell(t.unsettled)
		t.unsettled = &waiter{code: plimsoll.WaitTurn}
	}
}

// stillHolds returns holds. A waiter whose cause still holds is registered again to come back when
// its queue has room.
func (w *waiter) stillHolds() bool {
	held := w.holds()
	if held && w.queue != nil && w.short == absent {
		w.queue.await(w, w.queue.lacks(&w.class.amounts))
	}
	return held
}

// dropIdle removes a waiter of a queue that has no lanes and no rows.
func (w *waiter) dropIdle() {
	if w.queue == nil || w.lanes != nil || len(w.aside.rows) > 0 || w.inRecheck || w.telling {
		return
	}
	if w.registered() {
		delete(w.queue.waiters, w.class)
		w.queue.stopAwaiting(w)
	}
}

// tell lists a waiter whose lanes are to be told another cause.
func (t *Tree) tell(w *waiter) {
	if !w.telling {
		w.telling = true
		t.telling = append(t.telling, w)
	}
}

// NextCause returns the next lane whose cause has changed, and the cause; ok is false if there is
// none.
// A cause has changed when its code or queue differs, or when Restate has outdated it. Another
// short resource at the same queue is no change.
func (t *Tree) NextCause() (l *Lane, cause Cause, ok bool) {
	for len(t.telling) > 0 {
		w := t.telling[0]
		if w.lanes == nil || w.stillHolds() {
			w.telling = false
			w.dropIdle()
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

// HasNextCause reports whether NextCause would return another lane.
func (t *Tree) HasNextCause() bool { return len(t.telling) > 0 }

// causeOf returns the present cause of a lane.
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
