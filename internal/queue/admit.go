package queue

// Admit lets the tasks of an account be placed and returns nil, or parks the account and returns
// the queue at which it is parked. That is the first queue from its leaf upwards that has as many
// accounts admitted as it may, or that has parked accounts already.
func (t *Tree) Admit(a *Account) (full *Queue) {
	if q := a.queue.obstacle(nil); q != nil {
		t.park(a, q)
		return q
	}
	t.AdmitAnyway(a)
	return nil
}

// obstacle returns the first queue from the leaf upwards that is full or has parked accounts,
// which go first. Accounts parked at or below at do not count.
func (q *Queue) obstacle(at *Queue) *Queue {
	for ; q != nil; q = q.Parent {
		if q.full() || at == nil && q.MaxAccounts > 0 && len(q.parked) > 0 {
			return q
		}
		if q == at {
			at = nil
		}
	}
	return nil
}

// AdmitAnyway admits an account regardless of the limits. It is for accounts that were admitted
// before a load.
func (t *Tree) AdmitAnyway(a *Account) {
	a.admitted = true
	for q := a.queue; q != nil; q = q.Parent {
		q.Admitted++
		t.touch(q)
	}
	for l := a.lanes; l != nil; l = l.sibling {
		if l.ready > 0 {
			t.list(l)
		}
	}
}

// Full returns the first queue from the leaf upwards that has as many accounts admitted as it may,
// or nil.
func Full(leaf *Queue) *Queue {
	for q := leaf; q != nil; q = q.Parent {
		if q.full() {
			return q
		}
	}
	return nil
}

func (q *Queue) full() bool { return q.MaxAccounts > 0 && q.Admitted >= q.MaxAccounts }

func (t *Tree) park(a *Account, at *Queue) {
	a.parkedAt = at
	at.parked.push(a)
	t.readmit(at)
}

// readmit lists a queue for Readmit if it may admit more of its parked accounts.
func (t *Tree) readmit(q *Queue) {
	if !q.admitting && len(q.parked) > 0 && !q.full() {
		q.admitting = true
		t.admitting = append(t.admitting, q)
	}
}

// Readmit takes the parked account with the smallest key from a queue that may admit more. It
// admits the account, or parks it at a full queue further up; Account.Admitted and Parked say
// which. It returns nil if no queue may admit more.
//
// An account that moves to a queue above represents all accounts parked with it below. They stay
// until it has moved on, and then the next one takes its place. So a queue above chooses among the
// first of each queue below, and no account moves twice for the same reason.
func (t *Tree) Readmit() *Account {
	for len(t.admitting) > 0 {
		q := t.admitting[0]
		if q.full() || len(q.parked) == 0 {
			t.admittingDone(q)
			continue
		}
		a := q.parked[0]
		q.parked.remove(a)
		a.parkedAt = nil
		switch other := a.queue.obstacle(q); {
		case other == nil:
			t.AdmitAnyway(a)
		case other.isAbove(q):
			t.admittingDone(q)
			t.park(a, other)
			return a
		default:
			t.park(a, other)
		}
		t.replace(a, q)
		return a
	}
	t.admitting = nil
	return nil
}

func (t *Tree) admittingDone(q *Queue) {
	q.admitting = false
	t.admitting[0] = nil
	t.admitting = t.admitting[1:]
}

// replace moves up the next account of each queue below at, after one of their accounts left at.
func (t *Tree) replace(a *Account, at *Queue) {
	for q := a.queue; q != at; q = q.Parent {
		if len(q.parked) == 0 || q.full() {
			continue
		}
		next := q.parked[0]
		q.parked.remove(next)
		t.park(next, at)
	}
}

func (q *Queue) isAbove(below *Queue) bool {
	for below = below.Parent; below != nil; below = below.Parent {
		if below == q {
			return true
		}
	}
	return false
}

// Readmitting reports whether Readmit would return another account.
func (t *Tree) Readmitting() bool {
	for _, q := range t.admitting {
		if !q.full() && len(q.parked) > 0 {
			return true
		}
	}
	return false
}
