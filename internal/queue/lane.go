package queue

import "github.com/plimsoll-dev/plimsoll"

// Class is a request in the form that the tree knows. NewClass makes one.
type Class struct {
	amounts   Amounts
	code      plimsoll.WaitCode // why no node takes it; WaitNone: the class is not blocked
	rows      int32             // number of its rows in the whole tree
	aside     aside             // rows that Next reached while the class was blocked
	refused   *waiter           // lanes that were told the code; nil if there are none
	presences []*presence       // limited queues below which it has rows
}

// NewClass makes a class whose tasks each need such amounts. A class that is no longer used needs
// no removal.
func (t *Tree) NewClass(amounts *Amounts) *Class { return &Class{amounts: *amounts} }

// Amounts returns the amounts that one task of the class needs.
func (c *Class) Amounts() *Amounts { return &c.amounts }

// Blocked returns why no node takes the class; WaitNone if the class is not blocked.
func (c *Class) Blocked() plimsoll.WaitCode { return c.code }

// Account is the holder of tasks in a leaf: a job. It is embedded in the caller's row; Enter puts
// it into the tree.
type Account struct {
	ID int32 // set by the caller

	queue      *Queue
	owner      Owner
	tenant     *tenant
	key        int64 // place in the order of the leaf, the smallest first; it is unique
	priority   int64 // highest of its lanes with ready tasks; nobody if there are none
	use        *use  // only in a fair leaf
	stuckSince int64 // with stuck: the time at which it did not fit first
	stuck      bool  // in a strict leaf: it did not fit, and some of its tasks have waited since
	admitted   bool
	dismissed  bool     // it gave its admission back; see Tree.Dismiss
	told       *Quota   // quota at which the caller was told that it is parked; nil if it is not parked
	rank       int32    // position in tenant.parked, or absent
	lanes      *Lane    // first lane; the others follow by sibling
	next, prev *Account // neighbours in Queue.accounts
	tasks      int64    // tasks reported by Count
}

func (a *Account) place() *int32 { return &a.rank }

// Queue returns the leaf of the account; nil before Enter and after Leave.
func (a *Account) Queue() *Queue { return a.queue }

// LimitedBy says whose limits hold for an account.
type LimitedBy struct {
	User  bool   // those of users, for its owner, who has a name
	Group string // those of this group of users; "*": of the wildcard; empty: of none
}

// LimitedBy returns whose limits hold for the account now; zero outside of the tree.
func (a *Account) LimitedBy() LimitedBy {
	if a.tenant == nil {
		return LimitedBy{}
	}
	key := &a.tenant.key
	return LimitedBy{key.limited && key.user != "", key.group}
}

// Admitted reports whether the tasks of the account may be placed.
func (a *Account) Admitted() bool { return a.admitted }

// Parked returns the quota at which the account is parked until fewer accounts are admitted there,
// or for accounts that go first. It returns nil if the account is not parked.
func (a *Account) Parked() *Quota {
	if a.tenant == nil || a.rank == absent {
		return nil
	}
	return a.tenant.at
}

// Lane is the tasks of an account that are of one class. It is embedded in the caller's row; Add
// puts it into the tree.
type Lane struct {
	ID int32 // set by the caller

	account  *Account
	sibling  *Lane // next lane of the account
	class    *Class
	priority int32
	seq      int32 // position in the order of the account, among lanes of the same priority
	ready    int32 // tasks that may be placed
	running  int32 // charged tasks
	row      *row  // set while ready > 0 and the account is admitted
	rank     int32 // position in row.lanes

	told       *waiter // last cause that it was told, while it stands in a row
	next, prev *Lane   // neighbours in the list of lanes that were told the same cause
}

func (l *Lane) place() *int32 { return &l.rank }

// Class returns the class of the lane.
func (l *Lane) Class() *Class { return l.class }

// Ready returns how many tasks of the lane may be placed.
func (l *Lane) Ready() int32 { return l.ready }

// row is the lanes of a tenant that are of one class. A row is in one of four places: in the order
// of its leaf, set aside with its class, set aside with a waiter of a quota, or held back. Only a
// strict leaf holds rows back.
type row struct {
	leaf   *Queue
	tenant *tenant
	class  *Class
	lanes  heap[*Lane] // Invariant: not empty
	aside  *aside      // list in which it is set aside; nil if it is in leaf.offered
	rank   int32       // position in leaf.offered or aside.rows
	inLeaf int32       // position in leaf.rows
	hold   *hold       // of a strict leaf: its first lane holds others back
	kept   *waiter     // of a strict leaf: lanes that were told that they are held back
}

func (r *row) before(o *row) bool { return r.lanes[0].before(o.lanes[0]) }
func (r *row) place() *int32      { return &r.rank }

// aside is an unordered list of rows of one class that are out of the order of their leaves.
type aside struct {
	rows []*row
	of   *waiter // waiter that owns the list; nil for that of a blocked class, or of a strict leaf
}

func (a *aside) add(r *row) {
	r.aside, r.rank = a, int32(len(a.rows))
	a.rows = append(a.rows, r)
}

// setAside moves a row from the order of its leaf to a list.
func (t *Tree) setAside(r *row, to *aside) {
	leaf := r.leaf
	leaf.offered.remove(r)
	if len(leaf.offered) == 0 {
		leaf.withdraw()
	}
	to.add(r)
}

// bringBack moves a set-aside row back into the order of its leaf.
func (t *Tree) bringBack(r *row) {
	r.leaveAside()
	r.leaf.offered.push(r)
	r.leaf.offer()
}

// leaveAside removes a set-aside row from its list.
func (r *row) leaveAside() {
	from := r.aside
	last := len(from.rows) - 1
	moved := from.rows[last]
	from.rows[r.rank], moved.rank = moved, r.rank
	from.rows[last] = nil
	from.rows = from.rows[:last]
	r.aside, r.rank = nil, absent
	if from.of != nil {
		from.of.dropIdle()
	}
}

// Enter puts an account of an owner into a leaf, behind the accounts with a smaller key. Keys are
// unique. The account is neither admitted nor parked yet.
func (t *Tree) Enter(a *Account, leaf *Queue, o Owner, key int64) {
	a.queue, a.owner, a.key, a.rank, a.priority = leaf, o, key, absent, nobody
	a.next = leaf.accounts
	if a.next != nil {
		a.next.prev = a
	}
	leaf.accounts = a
	if leaf.order.fair {
		a.use = &use{share: fraction{0, 1}}
	}
	t.tenantOf(leaf, o, true).join(a)
	for q := leaf; q != nil; q = q.Parent {
		q.Accounts++
		t.touch(q)
	}
}

// Count sets the number of all tasks of an account, in any state.
func (t *Tree) Count(a *Account, tasks int64) {
	if tasks == a.tasks {
		return
	}
	for q := a.queue; q != nil; q = q.Parent {
		q.Tasks += tasks - a.tasks
		t.touch(q)
	}
	a.tasks = tasks
}

// Leave removes an account and its lanes from the tree. None of its tasks may be charged or
// pending.
func (t *Tree) Leave(a *Account) {
	for l := a.lanes; l != nil; l = l.sibling {
		t.unlist(l)
		l.ready = 0
	}
	t.expel(a)
	t.recall(a)
	t.Count(a, 0)
	for q := a.queue; q != nil; q = q.Parent {
		q.Accounts--
		t.touch(q)
	}
	a.tenant.quit()
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		a.queue.accounts = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	a.next, a.prev, a.tenant = nil, nil, nil
}

// Add gives an account one more lane of a class. Inside the account the lanes of the highest
// priority go first, and among these the one with the smallest seq.
func (t *Tree) Add(l *Lane, a *Account, c *Class, priority, seq int32) {
	l.account, l.class, l.priority, l.seq, l.rank = a, c, priority, seq, absent
	l.sibling, a.lanes = a.lanes, l
}

// SetClass moves a lane to another class with the same amounts. A lane with ready tasks of an
// admitted account then counts as told that it waits for its turn.
func (t *Tree) SetClass(l *Lane, c *Class) {
	listed := l.row != nil
	t.unlist(l)
	l.class = c
	if listed {
		t.list(l)
	}
}

// Restate gives a class other amounts. No task of it may be charged, and none may be counted as
// waiting: the caller counts them again by Pend. With outdated, its lanes are told the code of
// their nodes again, even if it is the same.
func (t *Tree) Restate(c *Class, amounts *Amounts, outdated bool) {
	c.amounts = *amounts
	for i := 0; i < len(c.presences); i++ { // opening a queue appends those above it
		q := c.presences[i].queue
		q.stale++
		q.lower(&c.amounts)
		if q.closed && c.code == plimsoll.WaitNone && q.Lacks(&c.amounts) < 0 {
			t.open(q)
		}
	}
	if outdated && c.refused != nil {
		c.refused.outdated = true
		t.recheckLater(c.refused)
		c.refused = nil
	}
	for _, h := range t.holds {
		t.freeBack(h.row.leaf)
	}
}

// Pend counts n more tasks of the lane as waiting, whether or not they may be placed yet. A
// negative n counts fewer.
func (t *Tree) Pend(l *Lane, n int32) {
	for q := l.account.queue; q != nil; q = q.Parent {
		q.Pending.AddTimes(&l.class.amounts, int64(n))
		q.Waiting += n
		q.fix()
		t.touch(q)
	}
}

// Ready lets n more tasks of the lane be placed; a negative n lets fewer. listed reports that the
// lane had none before. It waits for its turn now, and the caller tells it so.
func (t *Tree) Ready(l *Lane, n int32) (listed bool) {
	had := l.ready > 0
	l.ready += n
	if has := l.ready > 0; has == had {
		return false
	}
	if !had {
		t.prioritize(l.account)
		if l.account.admitted {
			t.list(l)
			return true
		}
		return false
	}
	t.unlist(l)
	t.prioritize(l.account)
	return false
}

// Charge counts one task of the lane, which Pend and Ready have counted, as running.
func (t *Tree) Charge(l *Lane) {
	t.Ready(l, -1)
	for q := l.account.queue; q != nil; q = q.Parent {
		q.Pending.Sub(&l.class.amounts)
		q.Waiting--
		t.book(q, l)
	}
	t.track(l, 1)
}

// Book counts a task as running that was never counted as waiting. It is for a load.
func (t *Tree) Book(l *Lane) {
	for q := l.account.queue; q != nil; q = q.Parent {
		t.book(q, l)
	}
	t.track(l, 1)
}

func (t *Tree) book(q *Queue, l *Lane) {
	if q.past != nil {
		q.past.spend(&q.Allocated, t.now)
	}
	q.Allocated.Add(&l.class.amounts)
	q.Running++
	t.reorder(q)
	t.touch(q)
}

// track counts n more running tasks of a lane in the trackers and in the account.
func (t *Tree) track(l *Lane, n int32) {
	l.running += n
	for _, k := range l.account.tenant.trackers {
		k.book(&l.class.amounts, n)
	}
	t.bookUse(l.account, &l.class.amounts, int64(n))
}

// Refund subtracts an ended task from its quotas. It opens the queues and brings back the rows that
// now have room.
func (t *Tree) Refund(l *Lane) {
	for q := l.account.queue; q != nil; q = q.Parent {
		if q.past != nil {
			q.past.spend(&q.Allocated, t.now)
		}
		q.Allocated.Sub(&l.class.amounts)
		q.Running--
		t.reorder(q)
		t.touch(q)
	}
	t.track(l, -1)
	for _, k := range l.account.tenant.trackers {
		t.bringBackFitting(k)
	}
	for q := l.account.queue; q != nil; q = q.Parent {
		if q.MaxSet != 0 {
			t.reopen(q)
		}
	}
}

// list puts a lane with ready tasks into the row of its tenant and class. The lane counts as told
// that it waits for its turn.
func (t *Tree) list(l *Lane) {
	t.enlist(l)
	t.unsettled.add(l)
}

// enlist is list without what the lane was told.
func (t *Tree) enlist(l *Lane) {
	leaf := l.account.queue
	r := l.account.tenant.byClass[l.class]
	if r != nil {
		l.row = r
		r.lanes.push(l)
		if r.lanes[0] == l {
			if r.aside == nil {
				leaf.offered.fix(r)
			}
			t.reexamine(r)
		}
	} else {
		t.addRow(leaf, l)
	}
	leaf.levels.add(int64(l.priority))
	leaf.reprioritize()
}

// addRow makes a row of one lane. The row is offered unless its class is blocked; in a strict leaf
// it is offered anyway, because its first lane may have to hold others back. It opens the closed
// queues above that have room for it.
func (t *Tree) addRow(leaf *Queue, l *Lane) {
	c, n := l.class, l.account.tenant
	r := &row{leaf: leaf, tenant: n, class: c, rank: absent, inLeaf: int32(len(leaf.rows))}
	l.row = r
	r.lanes.push(l)
	leaf.rows = append(leaf.rows, r)
	n.byClass[c] = r
	if c.rows++; c.rows == 1 && c.code == plimsoll.WaitNone {
		t.live++
	}
	if c.code != plimsoll.WaitNone && leaf.strict == nil {
		c.aside.add(r)
	} else {
		leaf.offered.push(r)
		leaf.offer()
	}
	t.count(leaf, c, 1)
}

// unlist removes a lane from its row.
func (t *Tree) unlist(l *Lane) {
	r := l.row
	if r == nil {
		return
	}
	wasFront := r.lanes[0] == l
	if len(r.lanes) == 1 {
		t.dropRow(r)
	}
	l.told.drop(l)
	r.lanes.remove(l)
	l.row = nil
	if wasFront && len(r.lanes) > 0 {
		if r.aside == nil {
			r.leaf.offered.fix(r)
		}
		t.reexamine(r)
	}
	r.leaf.levels.remove(int64(l.priority))
	r.leaf.reprioritize()
}

// dropRow removes a row from the tree, before its last lane leaves it.
func (t *Tree) dropRow(r *row) {
	leaf, c := r.leaf, r.class
	t.endHold(r)
	if r.aside == nil || r.aside.of == nil {
		t.count(leaf, c, -1)
	}
	if r.aside != nil {
		r.leaveAside()
	} else {
		leaf.offered.remove(r)
		if len(leaf.offered) == 0 {
			leaf.withdraw()
		}
	}
	last := leaf.rows[len(leaf.rows)-1]
	leaf.rows[r.inLeaf], last.inLeaf = last, r.inLeaf
	leaf.rows[len(leaf.rows)-1] = nil
	leaf.rows = leaf.rows[:len(leaf.rows)-1]
	delete(r.tenant.byClass, c)
	if c.rows--; c.rows == 0 && c.code == plimsoll.WaitNone {
		t.live--
	}
}
