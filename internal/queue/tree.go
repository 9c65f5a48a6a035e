package queue

import (
	"math/bits"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Amounts are amounts of resources, by the index of a resource's name.
type Amounts = placement.Amounts

// Limits are the configured limits of a queue.
type Limits struct {
	Guaranteed    Amounts
	GuaranteedSet uint32 // bit by index: an amount is guaranteed
	Max           Amounts
	MaxSet        uint32 // bit by index: the resource is limited
	MaxAccounts   int32  // admitted at once; 0: no limit
	MaxTasks      int32  // of all accounts, which the caller holds to it; 0: no limit
}

// Queue is a queue of the tree. Its exported fields are for reading; the Tree keeps them.
type Queue struct {
	Limits
	Path     string
	Name     string
	Parent   *Queue
	Children []*Queue // by name
	Leaf     bool
	Draining bool // it is no longer in the configuration, and goes when it is empty

	Allocated Amounts // Invariant: the sum over the tasks below it that are charged
	Pending   Amounts // Invariant: the sum over the tasks below it that wait
	Running   int32   // tasks that are charged
	Waiting   int32   // tasks that wait
	Accounts  int32   // accounts below it
	Admitted  int32   // accounts that are admitted
	Tasks     int64   // Invariant: the sum of what Count said of the accounts below it

	share    fraction
	sharedAt uint64       // Tree.totals for which the shares of the children were computed
	open     heap[*Queue] // children that are not closed and have something to offer
	rank     int32        // place in Parent.open, or absent
	closed   bool         // Invariant: then its maximum has no room for any unblocked class below

	byClass map[*Class]*row // of a leaf: its rows
	rows    []*row          // the same, in no order that matters
	offered heap[*row]      // of a leaf: its rows that are not set aside

	presences  []*presence // of a queue with a maximum: the classes of the rows that it may come to
	presenceOf map[*Class]*presence
	least      Amounts // Invariant: by limited resource, at most what any class asks for that is not blocked
	stale      int     // how much has happened since least was found that may have made it too low

	waiters map[*Class]*waiter // of the classes that the maximum refused
	parked  heap[*Account]     // they wait until fewer are admitted here

	// short has, by the resource that was short, the waiters that come back when there is enough of
	// it, the one that asks for the least first.
	short [plimsoll.MaxResourceNames]heap[*waiter]

	admitting bool // it stands in Tree.admitting
	changed   bool // it stands in Tree.changed
}

func (q *Queue) before(o *Queue) bool {
	if c := q.share.compare(o.share); c != 0 {
		return c < 0
	}
	return q.Name < o.Name
}

func (q *Queue) place() *int32 { return &q.rank }

// Walk calls visit for the queue and all below it, parents first, children by name.
func (q *Queue) Walk(visit func(*Queue)) {
	visit(q)
	for _, c := range q.Children {
		c.Walk(visit)
	}
}

// Child returns the queue of a name directly below, or nil.
func (q *Queue) Child(name string) *Queue {
	for _, c := range q.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func byName(a, b *Queue) int { return strings.Compare(a.Name, b.Name) }

// empty reports whether nothing is offered in the queue: no row of a leaf, no child of a parent.
func (q *Queue) empty() bool { return len(q.open) == 0 && len(q.offered) == 0 }

// Tree is the tree of queues. It has one owner.
type Tree struct {
	Root *Queue

	names  *placement.Names
	byPath map[string]*Queue
	total  Amounts
	totals uint64 // counts the changes of the total

	live      int       // classes that have rows and are not blocked
	unsettled *waiter   // of the lanes that were told that they wait for their turn
	recheck   []*waiter // their cause may be gone; Settle looks
	telling   []*waiter // their cause is gone; Tell gives their lanes another
	admitting []*Queue  // they may admit parked accounts
	changed   []*Queue  // since Changed was called
}

// Find returns a queue by its path, or nil.
func (t *Tree) Find(path string) *Queue {
	if t.byPath == nil {
		return t.seek(path)
	}
	return t.byPath[path]
}

// Changed calls visit once for each queue of which something has changed since the last call. A
// queue may have been removed since.
func (t *Tree) Changed(visit func(*Queue)) {
	for _, q := range t.changed {
		q.changed = false
		visit(q)
	}
	clear(t.changed)
	t.changed = t.changed[:0]
}

func (t *Tree) touch(q *Queue) {
	if !q.changed {
		q.changed = true
		t.changed = append(t.changed, q)
	}
}

// offer puts a queue that is neither closed nor empty into its parent's order. If the parent was
// empty, it does the same with the parent.
func (q *Queue) offer() {
	for q.Parent != nil && !q.closed && q.rank == absent && !q.empty() {
		parent := q.Parent
		was := len(parent.open) > 0
		parent.open.push(q)
		if was {
			return
		}
		q = parent
	}
}

// withdraw takes a queue out of its parent's order. If nothing is left in that, it does the same
// with the parent.
func (q *Queue) withdraw() {
	for q.Parent != nil && q.rank != absent {
		parent := q.Parent
		parent.open.remove(q)
		if len(parent.open) > 0 {
			return
		}
		q = parent
	}
}

// reorder computes the share of a queue anew, and puts the queue at its new place among its
// siblings.
func (t *Tree) reorder(q *Queue) {
	q.share = t.shareOf(q)
	if q.rank != absent {
		q.Parent.open.fix(q)
	}
}

// Refuses returns the first queue from the leaf upwards whose maximum forbids one more task of such
// amounts, and the first resource that is short there; nil if there is room.
func (t *Tree) Refuses(leaf *Queue, a *Amounts) (by *Queue, resource int) {
	for q := leaf; q != nil; q = q.Parent {
		if q.MaxSet == 0 {
			continue
		}
		if i := q.lacks(a); i >= 0 {
			return q, i
		}
	}
	return nil, -1
}

// lacks returns the first resource of which the queue has not enough left, or -1.
func (q *Queue) lacks(a *Amounts) int {
	for set := q.MaxSet; set != 0; set &= set - 1 {
		if i := bits.TrailingZeros32(set); q.isShort(i, a) {
			return i
		}
	}
	return -1
}

// isShort reports whether the queue has not enough left of a resource for some amounts.
func (q *Queue) isShort(i int, a *Amounts) bool {
	return q.MaxSet&(1<<i) != 0 && a[i] > 0 && a[i] > q.Max[i]-q.Allocated[i]
}
