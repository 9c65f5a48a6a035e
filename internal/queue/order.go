package queue

import (
	"math"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// nobody is the priority of an account or a queue without a waiting lane.
const nobody = math.MinInt64

// level is the waiting lanes, or the children, of a queue that have one priority.
type level struct {
	priority int64
	count    int32
	rank     int32 // position in levels.top
}

func (l *level) before(o *level) bool { return l.priority > o.priority }
func (l *level) place() *int32        { return &l.rank }

// levels are the priorities below a queue, each with its count.
type levels struct {
	top  heap[*level]
	each map[int64]*level
}

func (v *levels) highest() int64 {
	if len(v.top) == 0 {
		return nobody
	}
	return v.top[0].priority
}

func (v *levels) add(priority int64) {
	l := v.each[priority]
	if l == nil {
		if v.each == nil {
			v.each = map[int64]*level{}
		}
		l = &level{priority: priority, rank: absent}
		v.each[priority] = l
		v.top.push(l)
	}
	l.count++
}

func (v *levels) remove(priority int64) {
	l := v.each[priority]
	if l.count--; l.count == 0 {
		delete(v.each, priority)
		v.top.remove(l)
	}
}

// order is the part of a queue's settings that orders its children or jobs.
type order struct {
	fair       bool // jobs by their share
	byPriority bool // priority goes before share and age
	fence      bool
	offset     int64
	strict     bool          // a job that does not fit holds back those behind it
	hold       time.Duration // with strict: for how long at most
	halfLife   time.Duration // of the use that the shares of the children count; 0: only that of now
}

func orderOf(s *plimsoll.QueueSettings) order {
	return order{s.Fair, s.PrioritySort, s.PriorityFence, int64(s.PriorityOffset), s.Strict, s.Hold, s.HalfLife}
}

// shown returns the priority of a queue as its parent sees it: the highest below plus the offset,
// or only the offset behind a fence.
func (q *Queue) shown() int64 {
	p := q.levels.highest()
	switch {
	case p == nobody:
		return nobody
	case q.order.fence:
		return q.order.offset
	}
	return max(math.MinInt32, min(math.MaxInt32, p+q.order.offset))
}

// reprioritize passes a change of the priorities below a queue on to the queues above.
func (q *Queue) reprioritize() {
	for ; q != nil; q = q.Parent {
		was := q.priority
		if q.priority = q.shown(); q.priority == was || q.Parent == nil {
			return
		}
		q.fix()
		if was != nobody {
			q.Parent.levels.remove(was)
		}
		if q.priority != nobody {
			q.Parent.levels.add(q.priority)
		}
	}
}

// before is the order of children. Priority comes first, unless the parent puts it behind the
// share. Then come the larger pending amounts, by resource in the order of their numbers, and the
// name.
func (q *Queue) before(o *Queue) bool {
	first := q.Parent.order.byPriority
	if first && q.priority != o.priority {
		return q.priority > o.priority
	}
	if c := q.share.compare(o.share); c != 0 {
		return c < 0
	}
	if !first && q.priority != o.priority {
		return q.priority > o.priority
	}
	for i := range q.Pending {
		if q.Pending[i] != o.Pending[i] {
			return q.Pending[i] > o.Pending[i]
		}
	}
	return q.Name < o.Name
}

// before is the order in which parked accounts are admitted: priority, unless the leaf puts it
// behind, then key.
func (a *Account) before(o *Account) bool {
	p, q := a.priority, o.priority
	if !a.queue.order.byPriority {
		p = 0
	}
	if !o.queue.order.byPriority {
		q = 0
	}
	if p != q {
		return p > q
	}
	return a.key < o.key
}

// goesFirst is the order of the accounts of a leaf.
func (a *Account) goesFirst(o *Account) bool {
	by := &a.queue.order
	if by.byPriority && a.priority != o.priority {
		return a.priority > o.priority
	}
	if by.fair {
		if c := a.compareUse(o); c != 0 {
			return c < 0
		}
		if a.priority != o.priority {
			return a.priority > o.priority
		}
	}
	return a.key < o.key
}

// before is the order of the lanes of a leaf. Inside an account it is by priority, then position.
func (l *Lane) before(o *Lane) bool {
	switch {
	case l.account != o.account:
		return l.account.goesFirst(o.account)
	case l.priority != o.priority:
		return l.priority > o.priority
	}
	return l.seq < o.seq
}

// use has the amounts that an account of a fair leaf uses, and its largest share.
type use struct {
	allocated Amounts
	share     fraction
}

// compareUse compares the sorted shares of two accounts of a fair leaf, the largest first.
func (a *Account) compareUse(o *Account) int {
	if c := a.use.share.compare(o.use.share); c != 0 {
		return c
	}
	if a.use.allocated == o.use.allocated {
		return 0
	}
	v, w := a.queue.shares(&a.use.allocated), a.queue.shares(&o.use.allocated)
	for i := range v {
		if c := v[i].compare(w[i]); c != 0 {
			return c
		}
	}
	return 0
}

// shares returns the shares that amounts are of a fair leaf, the largest first.
func (q *Queue) shares(a *Amounts) (v [plimsoll.MaxResourceNames]fraction) {
	for i := range a {
		v[i] = fraction{uint64(max(a[i], 0)), uint64(q.whole[i])}
	}
	slices.SortFunc(v[:], func(a, b fraction) int { return b.compare(a) })
	return v
}

// largestShare returns the first of shares.
func (q *Queue) largestShare(a *Amounts) fraction {
	best := fraction{0, 1}
	for i := range a {
		if a[i] > 0 {
			if f := (fraction{uint64(a[i]), uint64(q.whole[i])}); best.compare(f) < 0 {
				best = f
			}
		}
	}
	return best
}

// measure sets what the shares of a fair leaf's accounts are parts of: what the leaf is guaranteed,
// or else the whole cluster. The shares are computed anew.
func (t *Tree) measure(leaf *Queue) {
	leaf.sharedAt = t.totals
	leaf.whole = &Amounts{}
	for i := range leaf.whole {
		switch {
		case leaf.GuaranteedSet&(1<<i) != 0 && leaf.Guaranteed[i] > 0:
			leaf.whole[i] = leaf.Guaranteed[i]
		case t.total[i] > 0:
			leaf.whole[i] = t.total[i]
		default:
			leaf.whole[i] = 1
		}
	}
	for a := leaf.accounts; a != nil; a = a.next {
		if a.use != nil {
			a.use.share = leaf.largestShare(&a.use.allocated)
		}
	}
}

// remeasure is measure for a leaf with rows, which it puts in their new order.
func (t *Tree) remeasure(leaf *Queue) {
	t.measure(leaf)
	for _, r := range leaf.rows {
		r.lanes.order()
	}
	leaf.offered.order()
	for _, r := range leaf.rows {
		t.reexamine(r)
	}
}

// bookUse adds n running tasks to the amounts that an account of a fair leaf uses.
func (t *Tree) bookUse(a *Account, amounts *Amounts, n int64) {
	if a.use == nil {
		return
	}
	t.resort(a, func() {
		a.use.allocated.AddTimes(amounts, n)
		a.use.share = a.queue.largestShare(&a.use.allocated)
	})
}

// prioritize finds the priority of an account anew: the highest of its lanes with ready tasks.
func (t *Tree) prioritize(a *Account) {
	p := int64(nobody)
	for l := a.lanes; l != nil; l = l.sibling {
		if l.ready > 0 {
			p = max(p, int64(l.priority))
		}
	}
	if p == nobody {
		a.stuck = false
	}
	if p == a.priority {
		return
	}
	t.resort(a, func() { a.priority = p })
	if n := a.tenant; a.rank != absent {
		n.parked.fix(a)
		n.at.parked.fix(n)
		t.retell(n)
	}
}

// resort calls change, which changes the place of an account in the order of its leaf. It then
// moves the lanes of the account and their rows to their new places.
func (t *Tree) resort(a *Account, change func()) {
	t.move(a, change)
	for l := a.lanes; l != nil && a.queue.strict != nil; l = l.sibling {
		if l.row != nil {
			t.reexamine(l.row)
		}
	}
}

func (t *Tree) move(a *Account, change func()) {
	var one *Lane
	listed := 0
	for l := a.lanes; l != nil; l = l.sibling {
		if l.row != nil {
			one = l
			listed++
		}
	}
	offered := &a.queue.offered
	if listed <= 1 {
		change()
		if one != nil {
			one.row.lanes.fix(one)
			if one.row.aside == nil {
				offered.fix(one.row)
			}
		}
		return
	}
	// A heap can only move one item that has changed. So all are taken out before they change.
	for l := a.lanes; l != nil; l = l.sibling {
		if r := l.row; r != nil {
			if r.aside == nil && r.rank != absent {
				offered.remove(r)
			}
			r.lanes.remove(l)
		}
	}
	change()
	for l := a.lanes; l != nil; l = l.sibling {
		if l.row != nil {
			l.row.lanes.push(l)
		}
	}
	for l := a.lanes; l != nil; l = l.sibling {
		if r := l.row; r != nil && r.aside == nil && r.rank == absent {
			offered.push(r)
		}
	}
}
