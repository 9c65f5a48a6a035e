package queue

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// Cause is the reason why a lane waits.
type Cause struct {
	Code     plimsoll.WaitCode
	Quota    *Quota // with WaitQueueMax, WaitUserMax and WaitGroupMax: what holds the lane back
	Resource int    // with Quota: index of the short resource
}

// waiter is a cause and the lanes that were told it. The lanes are of one class unless the cause
// is WaitTurn, and of one row if it is WaitOrder. A waiter of a quota also holds the rows of the
// class that are set aside for it.
type waiter struct {
	code      plimsoll.WaitCode
	class     *Class // nil with WaitTurn and WaitOrder
	row       *row   // with WaitOrder: the row that is held back
	at        *Quota // the quota that refused the class; nil for other causes
	resource  int    // with at: the short resource when a lane was told last
	short     int32  // resource whose heap in at.short holds it; absent: none
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

// waiterOf returns the waiter of a class at a quota that refuses it. It makes one if necessary.
func (k *Quota) waiterOf(c *Class, resource int) *waiter {
	w := k.waiters[c]
	if w == nil {
		w = &waiter{code: k.Code(), class: c, at: k, resource: resource, short: absent, rank: absent}
		w.aside.of = w
		if k.waiters == nil {
			k.waiters = map[*Class]*waiter{}
		}
		k.waiters[c] = w
	}
	if w.short == absent {
		k.await(w, resource)
	}
	return w
}

// await registers a waiter to come back when the quota has enough of a resource.
func (k *Quota) await(w *waiter, resource int) {
	if k.short == nil {
		k.short = new([plimsoll.MaxResourceNames]heap[*waiter])
	}
	w.short = int32(resource)
	k.short[resource].push(w)
}

// stopAwaiting undoes await.
func (k *Quota) stopAwaiting(w *waiter) {
	if w.short != absent {
		k.short[w.short].remove(w)
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
	switch {
	case w.code == plimsoll.WaitTurn:
		return false
	case w.row != nil:
		return w.row.isHeldBack()
	case w.at != nil:
		return w.registered() && w.at.Lacks(&w.class.amounts) >= 0
	}
	return w.class.refused == w && w.class.code == w.code
}

// ofOthers reports whether the cause is a limit of users or groups that does not hold for a tenant.
func (w *waiter) ofOthers(n *tenant) bool {
	return w.at != nil && w.at.tracks && !slices.Contains(n.trackers, w.at)
}

// registered reports whether w is the current waiter of its class at its quota.
func (w *waiter) registered() bool { return w.at != nil && w.at.waiters[w.class] == w }

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
// its quota has room.
func (w *waiter) stillHolds() bool {
	held := w.holds()
	if held && w.at != nil && w.short == absent {
		w.at.await(w, w.at.Lacks(&w.class.amounts))
	}
	return held
}

// dropIdle removes a waiter of a quota that has no lanes and no rows.
func (w *waiter) dropIdle() {
	if w.at == nil || w.lanes != nil || len(w.aside.rows) > 0 || w.inRecheck || w.telling {
		return
	}
	if w.registered() {
		delete(w.at.waiters, w.class)
		w.at.stopAwaiting(w)
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
// A cause has changed when its code or quota differs, or when Restate has outdated it. Another
// short resource at the same quota is no change.
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
		if to.code != w.code || to.at != w.at || w.outdated {
			return l, Cause{to.code, to.at, to.resource}, true
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
	if by, resource := l.account.tenant.refusal(&c.amounts); by != nil {
		w := by.waiterOf(c, resource)
		w.resource = resource
		return w
	}
	if c.code == plimsoll.WaitNone && l.row.isHeldBack() {
		return l.row.kept
	}
	if c.code == plimsoll.WaitNone {
		return t.unsettled
	}
	if c.refused == nil {
		c.refused = &waiter{code: c.code, class: c, short: absent, rank: absent}
	}
	return c.refused
}
