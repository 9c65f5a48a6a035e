package queue

// Admit lets the tasks of an account be placed and returns nil, or parks the account and returns
// the queue at which it is parked: the first from its leaf upwards that has as many accounts
// admitted as it may, or at which others are parked already.
func (t *Tree) Admit(a *Account) (full *Queue) {
	if q := a.queue.obstacle(nil); q != nil {
		t.park(a, q)
		return q
	}
	t.AdmitAnyway(a)
	return nil
}

// obstacle returns the first queue from the leaf upwards that is full or has parked accounts, which
// go before. Those that are parked at the queue at or below it do not count.
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

// AdmitAnyway admits an account whatever the limits are. It is for one that was admitted before a
// load.
func (t *Tree) AdmitAnyway(a *Account) {
	a.admitted = true
	for q := a.queue; q != nil; q = q.Parent {
		q.Admitted++
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

// readmit puts a queue into the list of those that may admit more of their parked accounts, if it
// may.
func (t *Tree) readmit(q *Queue) {
	if !q.admitting && len(q.parked) > 0 && !q.full() {
		q.admitting = true
		t.admitting = append(t.admitting, q)
	}
}

// Readmit takes the parked account with the smallest key from a queue that may admit more. It
// admits the account, or parks it at another queue above its leaf that is full; Account.Admitted
// and Parked say which. It returns nil if no queue may admit more.
//
// An account that goes to a queue above stands there for all that are parked with it below: they
// stay until it has gone on, and then the next one takes its place. So a queue above chooses among
// the first of each queue below, and no account moves twice for the same reason.
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

// replace lets the next account of each queue below at take the place of one that was parked at it.
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
