package queue

import (
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// maxHolds bounds the jobs of a leaf that hold others back at the same time: each row that Next
// reaches is compared with all of them. There is more than one only if they wait for different
// nodes or limits. A further job that does not fit waits, and holds nobody back.
const maxHolds = 16

// strict is the order of a leaf in which a job that does not fit holds back those behind it.
type strict struct {
	holds []*hold // in the order in which they began; at most maxHolds
	back  aside   // rows that are held back
}

// hold is a row of a strict leaf whose first lane does not fit. It holds back the accounts behind
// that of the lane, as far as they compete with it.
type hold struct {
	row   *row
	lane  *Lane  // first lane of the row when Next reached it
	at    *Quota // quota that refused it; nil: no node takes it
	until int64  // Unix nanoseconds
	rank  int32  // position in Tree.holds
}

func (h *hold) before(o *hold) bool { return h.until < o.until }
func (h *hold) place() *int32       { return &h.rank }

// Rivals reports whether two lanes, of which no node takes the first now, could use the same nodes.
// It may be true of lanes that could not.
type Rivals func(held, other *Lane) bool

// SetRivals sets what tells whether lanes compete for nodes. Without it all of them do. After a
// change of its answers the caller calls NodesChanged.
func (t *Tree) SetRivals(rivals Rivals) { t.rivals = rivals }

// NodesChanged lets Next examine anew who competes with a job for nodes. It costs O(rows held back
// by jobs that wait for nodes).
func (t *Tree) NodesChanged() {
	for _, h := range t.holds {
		if h.at == nil {
			t.freeBack(h.row.leaf)
		}
	}
}

// Advance sets the time, in Unix nanoseconds. It ends the holds that are over by then, and brings
// the past of the queues up to date.
func (t *Tree) Advance(now int64) {
	t.now = now
	t.fadePasts()
	for len(t.holds) > 0 && t.holds[0].until <= now {
		t.endHold(t.holds[0].row)
	}
}

// HoldEnds returns the time at which the next hold ends; 0: there is none.
func (t *Tree) HoldEnds() int64 {
	if len(t.holds) == 0 {
		return 0
	}
	return t.holds[0].until
}

// holder returns a hold that keeps a row of a strict leaf back, or nil. Lanes of the same account
// do not hold each other back.
func (t *Tree) holder(r *row) *hold {
	first := r.lanes[0].account
	for _, h := range r.leaf.strict.holds {
		if a := h.lane.account; a != first && a.goesFirst(first) && t.competes(h, r) {
			return h
		}
	}
	return nil
}

// competes reports whether a row and the lane of a hold wait for the same thing: a resource that
// both ask for and that the refusing quota limits for both, or nodes.
func (t *Tree) competes(h *hold, r *row) bool {
	if h.at == nil {
		return t.rivals == nil || t.rivals(h.lane, r.lanes[0])
	}
	if h.at.tracks && !slices.Contains(r.tenant.trackers, h.at) {
		return false
	}
	return h.at.limitsBoth(&h.lane.class.amounts, &r.class.amounts)
}

// limitsBoth reports whether the quota limits a resource of which both amounts have some.
func (k *Quota) limitsBoth(a, b *Amounts) bool {
	for i := range a {
		if k.MaxSet&(1<<i) != 0 && a[i] > 0 && b[i] > 0 {
			return true
		}
	}
	return false
}

// holdBack sets a row of a strict leaf aside because another job goes first.
func (t *Tree) holdBack(r *row) {
	t.endHold(r)
	t.setAside(r, &r.leaf.strict.back)
	if r.kept == nil {
		r.kept = &waiter{code: plimsoll.WaitOrder, row: r, short: absent, rank: absent}
	}
}

// isHeldBack reports whether the row is set aside because another job goes first.
func (r *row) isHeldBack() bool { return r.leaf.strict != nil && r.aside == &r.leaf.strict.back }

// unfit is called for a row that Next has reached, which nobody holds back and which does not fit:
// a quota refused it or, without one, no node takes it. In a strict leaf its first lane then holds
// back those behind it, unless its time for that is over.
func (t *Tree) unfit(r *row, at *Quota) {
	s := r.leaf.strict
	if s == nil {
		return
	}
	l, may := r.lanes[0], r.mayFitLater()
	if h := r.hold; h != nil {
		if may && h.lane == l && h.at == at {
			return
		}
		t.endHold(r)
	}
	if !may || len(s.holds) == maxHolds {
		return
	}
	if !l.account.stuck {
		l.account.stuck, l.account.stuckSince = true, t.now
	}
	until := int64(math.MaxInt64)
	if length := int64(r.leaf.order.hold); l.account.stuckSince <= until-length {
		until = l.account.stuckSince + length
	}
	if until <= t.now {
		return
	}
	r.hold = &hold{row: r, lane: l, at: at, until: until, rank: absent}
	s.holds = append(s.holds, r.hold)
	t.holds.push(r.hold)
}

// mayFitLater reports whether tasks that end may make room for the row. If not, holding others back
// does not help it.
func (r *row) mayFitLater() bool {
	if c := r.class.code; c != plimsoll.WaitNone && c != plimsoll.WaitNoNode {
		return false
	}
	for _, k := range r.tenant.trackers {
		if k.isTooSmall(&r.class.amounts) {
			return false
		}
	}
	for q := r.leaf; q != nil; q = q.Parent {
		if q.isTooSmall(&r.class.amounts) {
			return false
		}
	}
	return true
}

// isTooSmall reports whether the quota has too little for some amounts even if nothing is used.
func (k *Quota) isTooSmall(a *Amounts) bool {
	for i := range a {
		if k.MaxSet&(1<<i) != 0 && a[i] > k.Max[i] {
			return true
		}
	}
	return false
}

// endHold ends the hold of a row, if it has one. Next examines those that were held back.
func (t *Tree) endHold(r *row) {
	h := r.hold
	if h == nil {
		return
	}
	r.hold = nil
	t.holds.remove(h)
	s := r.leaf.strict
	i := slices.Index(s.holds, h)
	s.holds = slices.Delete(s.holds, i, i+1)
	t.freeBack(r.leaf)
}

// freeBack brings back all rows of a strict leaf that are held back.
func (t *Tree) freeBack(leaf *Queue) {
	for back := &leaf.strict.back; len(back.rows) > 0; {
		t.free(back.rows[len(back.rows)-1])
	}
}

// free brings back one row that is set aside. Next examines it.
func (t *Tree) free(r *row) {
	held, of := r.isHeldBack(), r.aside.of
	t.bringBack(r)
	if held {
		t.recheckLater(r.kept)
	}
	if of != nil {
		t.count(r.leaf, r.class, 1)
	}
}

// reexamine lets Next examine a row of a strict leaf anew. Its first lane, or the place of that
// lane in the order, may have changed.
func (t *Tree) reexamine(r *row) {
	if r.leaf.strict == nil {
		return
	}
	t.endHold(r)
	if r.aside != nil {
		t.free(r)
	}
}

// Hold is a job that does not fit and that holds back those behind it in its leaf.
type Hold struct {
	Account, Lane int32 // ids of the caller
	Until         int64 // Unix nanoseconds
	ForNodes      bool  // it waits for nodes; otherwise for the quota
	// User and Group are those of the quota, if it is a tracker. Limited has a bit for each
	// resource that the quota limits and that the job asks for.
	User, Group string
	Limited     uint32
}

// Holds returns the holds of a strict leaf, in the order in which they began.
func (q *Queue) Holds() (list []Hold) {
	if q.strict == nil {
		return q.holding
	}
	for _, h := range q.strict.holds {
		list = append(list, h.public())
	}
	return list
}

func (h *hold) public() Hold {
	out := Hold{Account: h.lane.account.ID, Lane: h.lane.ID, Until: h.until, ForNodes: h.at == nil}
	if k := h.at; k != nil {
		out.User, out.Group = k.User, k.Group
		for i := range h.lane.class.amounts {
			if h.lane.class.amounts[i] > 0 {
				out.Limited |= k.MaxSet & (1 << i)
			}
		}
	}
	return out
}

// HeldBackBy returns the hold that keeps the tasks of a lane back; ok is false if there is none.
func (t *Tree) HeldBackBy(l *Lane) (h Hold, ok bool) {
	if l.row == nil || !l.row.isHeldBack() {
		return Hold{}, false
	}
	if by := t.holder(l.row); by != nil {
		return by.public(), true
	}
	return Hold{}, false
}
