package queue

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

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
	if err == nil {
		err = checkHeap(t.holds)
	}
	if err == nil && len(live) != t.live {
		err = fmt.Errorf("%d classes may be placed, but there are %d", t.live, len(live))
	}
	return err
}

func (t *Tree) checkQueue(q *Queue, live map[*Class]bool) error {
	if err := t.checkSums(q); err != nil {
		return fmt.Errorf("queue %s: %w", q.Path, err)
	}
	if err := t.checkTenants(q); err != nil {
		return fmt.Errorf("queue %s: %w", q.Path, err)
	}
	if err := q.checkPriority(); err != nil {
		return fmt.Errorf("queue %s: %w", q.Path, err)
	}
	for i, r := range q.rows {
		if r.class.code == plimsoll.WaitNone {
			live[r.class] = true
		}
		if int(r.inLeaf) != i || r.tenant.byClass[r.class] != r || r.leaf != q || r.tenant.leaf != q {
			return fmt.Errorf("queue %s: the row of %v is misplaced", q.Path, r.class.amounts)
		}
		if err := r.check(); err != nil {
			return fmt.Errorf("queue %s: the row of %v: %w", q.Path, r.class.amounts, err)
		}
	}
	if offered := q.rank != absent; q.Parent != nil && offered != (!q.closed && !q.empty()) {
		return fmt.Errorf("queue %s: offered %t, but closed %t and empty %t", q.Path, offered, q.closed, q.empty())
	}
	if err := t.checkHolds(q); err != nil {
		return fmt.Errorf("queue %s: %w", q.Path, err)
	}
	if err := checkPresences(q); err != nil {
		return err
	}
	for _, k := range append(q.Trackers(), &q.Quota) {
		if err := t.checkWaiters(k); err != nil {
			return fmt.Errorf("queue %s, user or group %q: %w", q.Path, k.UserOrGroup(), err)
		}
		if err := t.checkParked(k); err != nil {
			return fmt.Errorf("queue %s, user or group %q: %w", q.Path, k.UserOrGroup(), err)
		}
	}
	return nil
}

// checkHolds compares the holds of a leaf with its rows, and the rows that are held back with them.
func (t *Tree) checkHolds(q *Queue) error {
	if (q.strict != nil) != (q.Leaf && q.order.strict) {
		return fmt.Errorf("it is strict: %t, but its order says %t", q.strict != nil, q.order.strict)
	}
	holds := 0
	for _, r := range q.rows {
		h := r.hold
		if h == nil {
			if r.isHeldBack() && t.holder(r) == nil {
				return fmt.Errorf("lane %d is held back, and nobody that goes first competes with it", r.lanes[0].ID)
			}
			continue
		}
		holds++
		if h.row != r || h.lane != r.lanes[0] || !h.lane.account.stuck || !slices.Contains(q.strict.holds, h) ||
			t.holds[h.rank] != h {
			return fmt.Errorf("the hold of lane %d is not that of its row", h.lane.ID)
		}
		if want := h.lane.account.stuckSince + int64(q.order.hold); h.until != want || h.until <= t.now {
			return fmt.Errorf("the hold of lane %d ends at %d, not %d; now is %d", h.lane.ID, h.until, want, t.now)
		}
	}
	if q.strict != nil && (holds != len(q.strict.holds) || holds > maxHolds) {
		return fmt.Errorf("%d holds, but its rows have %d", len(q.strict.holds), holds)
	}
	return nil
}

// checkTenants compares the tenants of a leaf with the owners of its accounts. It also compares the
// trackers of a queue with the lanes below it that count in them.
func (t *Tree) checkTenants(q *Queue) error {
	rows, parked, accounts := len(q.all.byClass), len(q.all.parked), map[*tenant]int32{}
	for _, n := range slices.SortedFunc(maps.Values(q.tenants), (*tenant).compare) {
		rows += len(n.byClass)
		parked += len(n.parked)
		if n.accounts == 0 {
			return fmt.Errorf("the tenant %v has no accounts", n.key)
		}
	}
	if rows != len(q.rows) {
		return fmt.Errorf("%d rows by class, but %d in all", rows, len(q.rows))
	}
	for a := q.accounts; a != nil; a = a.next {
		n := a.tenant
		accounts[n]++
		if n != t.tenantOf(q, a.owner, false) {
			return fmt.Errorf("account %d is of another tenant than its owner", a.ID)
		}
		if a.rank != absent {
			parked--
		}
		if err := a.check(); err != nil {
			return fmt.Errorf("account %d: %w", a.ID, err)
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(accounts), (*tenant).compare) {
		if n.accounts != accounts[n] {
			return fmt.Errorf("the tenant %v has %d accounts, not %d", n.key, accounts[n], n.accounts)
		}
	}
	if parked != 0 {
		return fmt.Errorf("the tenants have %d parked accounts too many", parked)
	}
	return q.checkTrackers()
}

func (q *Queue) checkTrackers() error {
	sums := map[*Quota]*Quota{}
	q.Walk(func(below *Queue) {
		for a := below.accounts; a != nil; a = a.next {
			for _, k := range a.tenant.trackers {
				if k.of == q {
					if sums[k] == nil {
						sums[k] = &Quota{}
					}
					sums[k].addAccount(a)
				}
			}
		}
	})
	if len(sums) != len(q.trackers) {
		return fmt.Errorf("%d trackers, but %d that are needed", len(q.trackers), len(sums))
	}
	for _, k := range q.Trackers() {
		sum := sums[k]
		if sum == nil || sum.Allocated != k.Allocated || sum.Running != k.Running || sum.Accounts != k.Accounts ||
			sum.Admitted != k.Admitted || q.trackers[k.trackerKey()] != k {
			return fmt.Errorf("the tracker of %q is not the sum of its accounts: %+v", k.UserOrGroup(), sum)
		}
	}
	return nil
}

// addAccount counts an account, for a comparison.
func (k *Quota) addAccount(a *Account) {
	k.Accounts++
	if a.admitted {
		k.Admitted++
	}
	for l := a.lanes; l != nil; l = l.sibling {
		k.book(&l.class.amounts, l.running)
	}
}

// check compares the priority and the share of an account with those of its lanes.
func (a *Account) check() error {
	sum, priority := Quota{}, int64(nobody)
	sum.addAccount(a)
	for l := a.lanes; l != nil; l = l.sibling {
		if l.ready > 0 {
			priority = max(priority, int64(l.priority))
		}
		if (l.row != nil) != (l.ready > 0 && a.admitted) {
			return fmt.Errorf("lane %d has %d tasks ready, but it stands in a row: %t", l.ID, l.ready, l.row != nil)
		}
	}
	q := a.queue
	switch {
	case priority != a.priority:
		return fmt.Errorf("its priority is %d, not %d", a.priority, priority)
	case (a.use != nil) != q.order.fair:
		return fmt.Errorf("its use is counted: %t, but its leaf is fair: %t", a.use != nil, q.order.fair)
	case a.use != nil && (a.use.allocated != sum.Allocated || a.use.share.compare(q.largestShare(&sum.Allocated)) != 0):
		return fmt.Errorf("its share is %v of %v, but it uses %v", a.use.share, a.use.allocated, sum.Allocated)
	}
	return nil
}

// checkPriority compares the priorities below a queue with those of its lanes or children.
func (q *Queue) checkPriority() error {
	var v levels
	for _, r := range q.rows {
		for _, l := range r.lanes {
			v.add(int64(l.priority))
		}
	}
	for _, c := range q.Children {
		if c.priority != nobody {
			v.add(c.priority)
		}
	}
	if len(v.each) != len(q.levels.each) || q.priority != q.shown() {
		return fmt.Errorf("its priority is %d of %d levels, not %d of %d", q.priority, len(q.levels.each), q.shown(),
			len(v.each))
	}
	for _, priority := range slices.Sorted(maps.Keys(v.each)) {
		count := v.each[priority].count
		if is := q.levels.each[priority]; is == nil || is.count != count {
			return fmt.Errorf("it does not have the priority %d as often as %d times", priority, count)
		}
	}
	return checkHeap(q.levels.top)
}

// checkParked reports parked accounts that nobody would admit, or that are out of order.
func (t *Tree) checkParked(k *Quota) error {
	for _, n := range k.parked {
		if n.at != k || len(n.parked) == 0 {
			return fmt.Errorf("a tenant of %s is parked elsewhere, or has nobody parked", n.leaf.Path)
		}
		if err := checkHeap(n.parked); err != nil {
			return err
		}
		if !n.stale && n.needsTelling() {
			return fmt.Errorf("account %d does not know where it is parked", n.parked[0].ID)
		}
	}
	if len(k.parked) > 0 && !k.Full() && !k.admitting {
		return fmt.Errorf("accounts are parked there, and it has room for one more")
	}
	return checkHeap(k.parked)
}

// checkWaiters reports waiters of a quota that are not needed, and waiters that would never be
// brought back.
func (t *Tree) checkWaiters(k *Quota) error {
	registered := map[*waiter]bool{}
	for i := 0; k.short != nil && i < len(k.short); i++ {
		if err := checkHeap(k.short[i]); err != nil {
			return fmt.Errorf("waiters for resource %d: %w", i, err)
		}
		for _, w := range k.short[i] {
			registered[w] = true
			if int(w.short) != i || !w.registered() || !k.isShort(i, &w.class.amounts) {
				return fmt.Errorf("a waiter for resource %d does not belong there", i)
			}
			if pending := w.inRecheck || w.telling; !pending && w.lanes == nil && len(w.aside.rows) == 0 {
				return fmt.Errorf("nobody needs the waiter of %v for resource %d", w.class.amounts, i)
			}
		}
	}
	for _, list := range [][]*waiter{t.recheck, t.telling} {
		for _, w := range list {
			if w.at == k && w.registered() {
				registered[w] = true
			}
		}
	}
	if len(registered) != len(k.waiters) {
		return fmt.Errorf("%d waiters, but only %d that are needed", len(k.waiters), len(registered))
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
			sum.Dismissed += c.Dismissed
		}
	}
	if sum.Allocated != q.Allocated || sum.Pending != q.Pending || sum.Running != q.Running ||
		sum.Waiting != q.Waiting ||
		sum.Accounts != q.Accounts || sum.Admitted != q.Admitted || sum.Dismissed != q.Dismissed {
		return fmt.Errorf("its sums are not those of its children")
	}
	if q.Parent != nil && q.Parent.sharedAt == t.totals && q.share.compare(t.shareOf(q)) != 0 {
		return fmt.Errorf("its share is %v, not %v", q.share, t.shareOf(q))
	}
	if err := checkHeap(q.open); err != nil {
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
			l.account.tenant != r.tenant || l.told == nil || l.told.ofOthers(r.tenant) {
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
	case r.isHeldBack():
		if r.kept == nil || r.hold != nil || len(r.leaf.strict.holds) == 0 {
			return fmt.Errorf("is held back by nobody")
		}
	case r.aside == &r.class.aside:
		if r.class.code == plimsoll.WaitNone {
			return fmt.Errorf("is set aside, but its class is not blocked")
		}
	case r.aside.of.at.Lacks(&r.class.amounts) < 0 || r.aside.of.short == absent:
		return fmt.Errorf("is set aside, but %s has room for it", r.aside.of.at.of.Path)
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
		case q.closed && q.Lacks(&c.amounts) < 0:
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
