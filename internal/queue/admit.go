package queue

// Admit lets the tasks of an account be placed and returns nil, or parks the account and returns
// the queue at which it is parked: the first from its leaf upwards that has as many accounts
// admitted as it may, or at which others are parked already.
func (t *Tree) Admit(a *Account) (full *Queue) {
	for q := a.queue; q != nil; q = q.Parent {
		if q.full() || q.MaxAccounts > 0 && len(q.parked) > 0 { // those that are parked go before
			t.park(a, q)
			return q
		}
	}
	t.AdmitAnyway(a)
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
func (t *Tree) Readmit() *Account {
	for len(t.admitting) > 0 {
		q := t.admitting[0]
		if q.full() || len(q.parked) == 0 {
			q.admitting = false
			t.admitting[0] = nil
			t.admitting = t.admitting[1:]
			continue
		}
		a := q.parked[0]
		q.parked.remove(a)
		a.parkedAt = nil
		if other := Full(a.queue); other != nil {
			t.park(a, other)
		} else {
			t.AdmitAnyway(a)
		}
		return a
	}
	t.admitting = nil
	return nil
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
