package queue_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
)

// rivals is true of lanes that both need the third resource, and of those that both do not.
func rivals(held, other *queue.Lane) bool {
	return (held.Class().Amounts()[2] > 0) == (other.Class().Amounts()[2] > 0)
}

// wait lets time go by.
func (w *world) wait() {
	w.time += rapid.Int64Range(1, int64(15*time.Second)).Draw(w.t, "time goes by")
	w.tree.Advance(w.time)
}

// forget ends the time for which an account may hold others back, when nothing of it waits.
func (a *account) forget() {
	if !slices.ContainsFunc(a.lanes, func(l *lane) bool { return l.ready > 0 }) {
		a.stuck = 0
	}
}

// held reports whether one of the present holds keeps a lane back.
func (w *world) held(l *lane) bool {
	return slices.ContainsFunc(w.tree.Find(l.of.leaf).Holds(), func(h queue.Hold) bool {
		by := w.lanes[h.Lane]
		return by.of != l.of && w.compareAccounts(by.of, l.of) < 0 && w.competes(h, by, l)
	})
}

func (w *world) competes(h queue.Hold, by, l *lane) bool {
	if h.ForNodes {
		return rivals(&by.Lane, &l.Lane)
	}
	if h.User != "" && h.User != l.of.owner.User || h.Group != "" && h.Group != w.link(l.of.leaf, l.of.owner) {
		return false
	}
	for i := range l.class.Amounts() {
		if h.Limited&(1<<i) != 0 && l.class.Amounts()[i] > 0 {
			return true
		}
	}
	return false
}

// mayFit reports whether a lane fits if others end.
func (w *world) mayFit(l *lane) bool {
	if code := l.class.Blocked(); code != plimsoll.WaitNone && code != plimsoll.WaitNoNode {
		return false
	}
	for _, q := range w.quotas(l.of.leaf, l.of.owner) {
		for i, a := range l.class.Amounts() {
			if a == 0 {
				continue
			}
			if most, ok := q.max[w.names.Name(i)]; ok && a > most {
				return false
			}
		}
	}
	return true
}

// checkHolds checks the holds of a leaf in which a lane is next: each is of a lane that does not
// fit, for its time at most, and none is missing.
func (w *world) checkHolds(next *queue.Lane) {
	w.tree.Root.Walk(func(q *queue.Queue) {
		for _, h := range q.Holds() {
			a, s := w.accounts[h.Account], w.settings(q.Path)
			if a.stuck == 0 {
				a.stuck = w.time
			}
			if !s.Strict || h.Until != a.stuck+int64(s.Hold) || h.Until <= w.time {
				w.t.Fatalf("a hold of %s ends at %d; the account began at %d, now is %d, %+v", q.Path, h.Until, a.stuck,
					w.time, s)
			}
		}
	})
	if next == nil {
		return
	}
	of := w.lanes[next.ID].of
	s := w.settings(of.leaf)
	for _, l := range w.lanes {
		if !s.Strict || l == nil || l.of.leaf != of.leaf || l.ready == 0 || !l.of.Admitted() || l.of == of ||
			w.compareAccounts(l.of, of) > 0 || w.held(l) || !w.isFirst(l) {
			continue
		}
		unfit := (l.class.Blocked() != plimsoll.WaitNone || w.refused(l)) && w.mayFit(l)
		over := l.of.stuck != 0 && l.of.stuck+int64(s.Hold) <= w.time
		holds := slices.ContainsFunc(w.tree.Find(of.leaf).Holds(), func(h queue.Hold) bool { return h.Lane == l.ID })
		if unfit && !over != holds {
			w.t.Fatalf("lane %d of %s does not fit, its time is over: %t, but it holds others back: %t", l.ID,
				of.leaf, over, holds)
		}
	}
}

// isFirst reports whether no lane of the same class and limits goes before a lane in its leaf.
func (w *world) isFirst(l *lane) bool {
	return !slices.ContainsFunc(w.lanes, func(o *lane) bool {
		if o == nil || o == l || o.of.leaf != l.of.leaf || o.class != l.class || o.ready == 0 || !o.of.Admitted() ||
			!slices.EqualFunc(w.quotas(o.of.leaf, o.of.owner), w.quotas(l.of.leaf, l.of.owner), func(a, b *quota) bool {
				return a.path == b.path && a.user == b.user && a.group == b.group
			}) {
			return false
		}
		if o.of == l.of {
			return o.priority > l.priority || o.priority == l.priority && o.seq < l.seq
		}
		return w.compareAccounts(o.of, l.of) < 0
	})
}
