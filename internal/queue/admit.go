package queue

// Admit lets the tasks of an account be placed and returns nil, or parks the account and returns
// the quota at which it is parked. That is the first quota of its tenant, in the order of
// RefusesOwner, that is Full or has parked accounts already.
func (t *Tree) Admit(a *Account) (full *Quota) {
	t.recall(a)
	n := a.tenant
	if len(n.parked) == 0 {
		k := n.obstacle(nil, nil)
		if k == nil {
			t.AdmitAnyway(a)
			return nil
		}
		n.parked.push(a)
		t.park(n, k)
	} else {
		n.parked.push(a)
		n.at.parked.fix(n)
	}
	a.told = n.at
	return n.at
}

// obstacle returns the first quota of the tenant that is full, or that has parked accounts which go
// before an account: any, if first is nil. The quota at, at which the tenant is parked, counts only
// if it is full.
func (n *tenant) obstacle(at *Quota, first *Account) *Quota {
	for _, k := range n.trackers {
		if k.Full() || k != at && k.goesBefore(first) {
			return k
		}
	}
	for q := n.leaf; q != nil; q = q.Parent {
		if k := &q.Quota; k.Full() || k != at && k.goesBefore(first) {
			return k
		}
	}
	return nil
}

func (k *Quota) goesBefore(a *Account) bool {
	return len(k.parked) > 0 && (a == nil || k.parked[0].parked[0].before(a))
}

// AdmitAnyway admits an account regardless of the limits. It is for accounts that were admitted
// before a load.
func (t *Tree) AdmitAnyway(a *Account) {
	t.recall(a)
	a.admitted = true
	for q := a.queue; q != nil; q = q.Parent {
		q.Admitted++
		t.touch(q)
	}
	for _, k := range a.tenant.trackers {
		k.Admitted++
	}
	for l := a.lanes; l != nil; l = l.sibling {
		if l.ready > 0 {
			t.list(l)
		}
	}
}

// Dismiss takes the admission of an account back, or takes it from where it is parked. It keeps its
// place in its leaf, and Admit is called before it has tasks again. None of its tasks may be
// charged or pending.
func (t *Tree) Dismiss(a *Account) {
	t.expel(a)
	if a.dismissed {
		return
	}
	a.dismissed = true
	for q := a.queue; q != nil; q = q.Parent {
		q.Dismissed++
		t.touch(q)
	}
}

// expel ends the admission of an account, or the wait for it.
func (t *Tree) expel(a *Account) {
	if a.Parked() != nil {
		t.leaveParked(a)
	}
	if !a.admitted {
		return
	}
	a.admitted = false
	for q := a.queue; q != nil; q = q.Parent {
		q.Admitted--
		t.readmit(&q.Quota)
		t.touch(q)
	}
	for _, k := range a.tenant.trackers {
		k.Admitted--
		t.readmit(k)
	}
}

// recall ends the dismissal of an account.
func (t *Tree) recall(a *Account) {
	if !a.dismissed {
		return
	}
	a.dismissed = false
	for q := a.queue; q != nil; q = q.Parent {
		q.Dismissed--
		t.touch(q)
	}
}

// park puts a tenant with parked accounts at a quota.
func (t *Tree) park(n *tenant, at *Quota) {
	n.at = at
	at.parked.push(n)
	t.readmit(at)
}

// unpark undoes park.
func (n *tenant) unpark() {
	n.at.parked.remove(n)
	n.at = nil
}

// readmit lists a quota for Readmit if it may admit more of its parked accounts.
func (t *Tree) readmit(k *Quota) {
	if !k.admitting && len(k.parked) > 0 && !k.Full() {
		k.admitting = true
		t.admitting = append(t.admitting, k)
	}
}

// retell lists a tenant for Readmit if the first of its parked accounts was told another quota.
func (t *Tree) retell(n *tenant) {
	if !n.stale && n.needsTelling() {
		n.stale = true
		t.stale = append(t.stale, n)
	}
}

func (n *tenant) needsTelling() bool { return len(n.parked) > 0 && n.parked[0].told != n.at }

// Readmit takes the first parked account of a quota that may admit more. It admits the account, or
// parks its tenant at another quota, which is full or has accounts that go first;
// Account.Admitted and Parked say which. It also returns an account that is now the first of its
// tenant, and is parked elsewhere than it was told. It returns nil if there is nothing to do.
//
// Accounts of a tenant wait for the same quotas. So a tenant is parked as a whole, and the cost of
// a move does not grow with its accounts.
func (t *Tree) Readmit() *Account {
	for len(t.stale) > 0 {
		n := t.stale[0]
		n.stale = false
		t.stale[0] = nil
		t.stale = t.stale[1:]
		if n.needsTelling() {
			n.parked[0].told = n.at
			return n.parked[0]
		}
	}
	t.stale = nil
	for len(t.admitting) > 0 {
		k := t.admitting[0]
		if k.Full() || len(k.parked) == 0 {
			k.admitting = false
			t.admitting[0] = nil
			t.admitting = t.admitting[1:]
			continue
		}
		n := k.parked[0]
		a := n.parked[0]
		if other := n.obstacle(k, a); other != nil {
			n.unpark()
			t.park(n, other)
			a.told = other
			return a
		}
		t.leaveParked(a)
		t.AdmitAnyway(a)
		return a
	}
	t.admitting = nil
	return nil
}

// leaveParked takes an account out of the parked ones of its tenant.
func (t *Tree) leaveParked(a *Account) {
	n := a.tenant
	n.parked.remove(a)
	a.told = nil
	if len(n.parked) == 0 {
		n.unpark()
		return
	}
	n.at.parked.fix(n)
	t.retell(n)
}

// Readmitting reports whether Readmit would return another account.
func (t *Tree) Readmitting() bool {
	for _, n := range t.stale {
		if n.needsTelling() {
			return true
		}
	}
	for _, k := range t.admitting {
		if !k.Full() && len(k.parked) > 0 {
			return true
		}
	}
	return false
}
