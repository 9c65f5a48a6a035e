package queue

import (
	"math/bits"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Amounts are amounts of resources, indexed by the number of the resource's name.
type Amounts = placement.Amounts

// Limits are the configured limits of a queue.
type Limits struct {
	Guaranteed    Amounts
	GuaranteedSet uint32 // bit by index: the resource is guaranteed
	Max           Amounts
	MaxSet        uint32 // bit by index: the resource is limited
	MaxAccounts   int32  // accounts admitted at once; 0: no limit
	MaxTasks      int32  // tasks of all accounts, enforced by the caller; 0: no limit
}

// Queue is a queue of the tree. Its exported fields are read-only; the Tree maintains them.
type Queue struct {
	Limits
	Path     string
	Name     string
	Parent   *Queue
	Children []*Queue // ordered by name
	Leaf     bool
	Draining bool // removed from the configuration; the queue disappears when it is empty

	Allocated Amounts // Invariant: the sum over the charged tasks below it
	Pending   Amounts // Invariant: the sum over the waiting tasks below it
	Running   int32   // charged tasks
	Waiting   int32   // waiting tasks
	Accounts  int32   // accounts below it
	Admitted  int32   // admitted accounts below it
	Tasks     int64   // Invariant: the sum of Count over the accounts below it

	share    fraction
	sharedAt uint64       // value of Tree.totals for which the children's shares were computed
	open     heap[*Queue] // children that are not closed and offer a row
	rank     int32        // position in Parent.open, or absent
	closed   bool         // Invariant: if set, its maximum has no room for any unblocked class below

	byClass map[*Class]*row // of a leaf: its rows by class
	rows    []*row          // the same rows, unordered
	offered heap[*row]      // of a leaf: the rows that are not set aside

	presences  []*presence // of a limited queue: the classes whose rows may reach it
	presenceOf map[*Class]*presence
	least      Amounts // Invariant: by limited resource, at most the need of each unblocked class below
	stale      int     // number of changes, since findLeast, that may have left least too low

	waiters map[*Class]*waiter // waiters of the classes that the maximum refused
	parked  heap[*Account]     // accounts that wait until fewer are admitted here

	// short has, by the short resource, the waiters that come back when enough of it is free. The
	// waiter with the smallest need is first.
	short [plimsoll.MaxResourceNames]heap[*waiter]

	admitting bool // the queue is listed in Tree.admitting
	changed   bool // the queue is listed in Tree.changed
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

// Child returns the queue with a name directly below, or nil.
func (q *Queue) Child(name string) *Queue {
	for _, c := range q.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func byName(a, b *Queue) int { return strings.Compare(a.Name, b.Name) }

// empty reports whether the queue offers nothing: no row of a leaf, no child of a parent.
func (q *Queue) empty() bool { return len(q.open) == 0 && len(q.offered) == 0 }

// Tree is the tree of queues. It has one owner and no locks.
type Tree struct {
	Root *Queue

	names  *placement.Names
	byPath map[string]*Queue
	total  Amounts
	totals uint64 // number of changes of the total

	live      int       // number of classes that have rows and are not blocked
	unsettled *waiter   // lanes that were told that they wait for their turn
	recheck   []*waiter // waiters whose cause may have ended; Settle checks them
	telling   []*waiter // waiters whose cause has ended; NextCause gives their lanes another
	admitting []*Queue  // queues that may admit parked accounts
	changed   []*Queue  // queues changed since the last call of Changed
}

// Find returns a queue by its path, or nil.
func (t *Tree) Find(path string) *Queue {
	if t.byPath == nil {
		return t.seek(path)
	}
	return t.byPath[path]
}

// Changed calls visit once for each queue that has changed since the last call. Such a queue may
// have been removed meanwhile.
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
// empty, the parent is offered likewise.
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

// withdraw takes a queue out of its parent's order. A parent left empty is withdrawn likewise.
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

// reorder recomputes the share of a queue, and moves the queue to its new position among its
// siblings.
func (t *Tree) reorder(q *Queue) {
	q.share = t.shareOf(q)
	if q.rank != absent {
		q.Parent.open.fix(q)
	}
}

// Refuses returns the first queue from the leaf upwards whose maximum forbids one more task of such
// amounts, and the first short resource there. The queue is nil if there is room.
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

// lacks returns the first resource of which the queue has too little left, or -1.
func (q *Queue) lacks(a *Amounts) int {
	for set := q.MaxSet; set != 0; set &= set - 1 {
		if i := bits.TrailingZeros32(set); q.isShort(i, a) {
			return i
		}
	}
	return -1
}

// isShort reports whether the queue has too little left of a resource for some amounts.
func (q *Queue) isShort(i int, a *Amounts) bool {
	return q.MaxSet&(1<<i) != 0 && a[i] > 0 && a[i] > q.Max[i]-q.Allocated[i]
}
