package queue

import (
	"math/bits"

	"github.com/plimsoll-dev/plimsoll"
)

// Quota is the use of a maximum, with the lanes and accounts that wait until less is used. Each
// queue has one. A Quota with a User or Group is a tracker: it counts what that user or group has
// in a queue and all below it. The exported fields are read-only.
type Quota struct {
	Max         Amounts
	MaxSet      uint32 // bit by index: the resource is limited
	MaxAccounts int32  // accounts admitted at once; 0: no limit

	Allocated Amounts // Invariant: the sum over the charged tasks that count
	Running   int32   // charged tasks
	Accounts  int32   // accounts that count
	Admitted  int32   // admitted accounts that count

	User, Group string // of a tracker: one of them; Group "*" is all groups that no limit names
	tracks      bool   // it is a tracker
	of          *Queue // the queue, or the one at which the tracker counts

	waiters map[*Class]*waiter // waiters of the classes that the maximum refused
	parked  heap[*tenant]      // tenants whose accounts wait until fewer are admitted here

	// short has, by the short resource, the waiters that come back when enough of it is free. The
	// waiter with the smallest need is first. nil: no waiter has been there yet.
	short *[plimsoll.MaxResourceNames]heap[*waiter]

	admitting bool // it is listed in Tree.admitting
}

// At returns the queue that has the quota, or at which the tracker counts.
func (k *Quota) At() *Queue { return k.of }

// Code returns the waiting cause of the tasks and accounts that the maximum holds back.
func (k *Quota) Code() plimsoll.WaitCode {
	switch {
	case !k.tracks:
		return plimsoll.WaitQueueMax
	case k.Group != "":
		return plimsoll.WaitGroupMax
	}
	return plimsoll.WaitUserMax
}

// UserOrGroup returns the user or group of a tracker; empty for a queue.
func (k *Quota) UserOrGroup() string { return k.User + k.Group }

// Lacks returns the first resource of which too little is left for some amounts, or -1.
func (k *Quota) Lacks(a *Amounts) int {
	for set := k.MaxSet; set != 0; set &= set - 1 {
		if i := bits.TrailingZeros32(set); k.isShort(i, a) {
			return i
		}
	}
	return -1
}

// isShort reports whether too little is left of a resource for some amounts.
func (k *Quota) isShort(i int, a *Amounts) bool {
	return k.MaxSet&(1<<i) != 0 && a[i] > 0 && a[i] > k.Max[i]-k.Allocated[i]
}

// Full reports whether as many accounts are admitted as may be.
func (k *Quota) Full() bool { return k.MaxAccounts > 0 && k.Admitted >= k.MaxAccounts }

// book counts n more running tasks; a negative n counts fewer.
func (k *Quota) book(a *Amounts, n int32) {
	k.Allocated.AddTimes(a, int64(n))
	k.Running += n
}

// Refuses returns the first queue from the leaf upwards whose maximum forbids one more task of such
// amounts, and the first short resource there. The queue is nil if there is room.
func (t *Tree) Refuses(leaf *Queue, a *Amounts) (by *Queue, resource int) {
	for q := leaf; q != nil; q = q.Parent {
		if q.MaxSet == 0 {
			continue
		}
		if i := q.Lacks(a); i >= 0 {
			return q, i
		}
	}
	return nil, -1
}

// refusal returns the first quota that forbids one more task of such amounts to a tenant, and the
// first short resource there: those of the user, those of the group, then those of the queues, each
// from the leaf upwards. The quota is nil if there is room.
func (n *tenant) refusal(a *Amounts) (by *Quota, resource int) {
	for _, k := range n.trackers {
		if i := k.Lacks(a); i >= 0 {
			return k, i
		}
	}
	for q := n.leaf; q != nil; q = q.Parent {
		if q.MaxSet == 0 {
			continue
		}
		if i := q.Lacks(a); i >= 0 {
			return &q.Quota, i
		}
	}
	return nil, -1
}

// RefusesOwner is Refuses for tasks of an owner: the limits of users and groups come first. The
// owner needs no account in the leaf.
func (t *Tree) RefusesOwner(leaf *Queue, o Owner, a *Amounts) (by *Quota, resource int) {
	n := t.tenantOf(leaf, o, false)
	return n.refusal(a)
}

// Full returns the first quota, in the order of RefusesOwner, that has as many accounts of the
// owner admitted as it may; nil if there is none.
func (t *Tree) Full(leaf *Queue, o Owner) *Quota {
	n := t.tenantOf(leaf, o, false)
	return n.full()
}
