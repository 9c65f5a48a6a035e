package queue

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Amounts are amounts of resources, indexed by the number of the resource's name.
type Amounts = placement.Amounts

// Queue is a queue of the tree. Its exported fields are read-only; the Tree maintains them.
type Queue struct {
	Quota
	Guaranteed    Amounts
	GuaranteedSet uint32 // bit by index: the resource is guaranteed
	MaxTasks      int32  // tasks of all accounts, enforced by the caller; 0: no limit
	Path          string
	Name          string
	Parent        *Queue
	Children      []*Queue // ordered by name
	Leaf          bool
	Draining      bool // removed from the configuration; the queue disappears when it is empty
	Dynamic       bool // made by AddDynamic; the queue disappears when it is empty

	Pending   Amounts // Invariant: the sum over the waiting tasks below it
	Waiting   int32   // waiting tasks
	Dismissed int32   // accounts below it that gave their admission back
	Tasks     int64   // Invariant: the sum of Count over the accounts below it

	stated     plimsoll.QueueConfig // its configuration, without the queues below it
	properties map[string]string    // with those that it inherits

	order    order
	priority int64  // as the parent sees it; see shown
	levels   levels // priorities of the lanes in rows, or of the children
	share    fraction
	sharedAt uint64       // value of Tree.totals for which the shares below it were computed
	open     heap[*Queue] // children that are not closed and offer a row
	rank     int32        // position in Parent.open, or absent
	closed   bool         // Invariant: if set, its maximum has no room for any unblocked class below

	limits   *limits               // its limits for users and groups; nil: it has none
	limited  bool                  // the queue, or one above, has limits
	trackers map[trackerKey]*Quota // users and groups with accounts below it for which limits hold
	all      *tenant               // of a leaf: the accounts for which no limits of users or groups hold
	tenants  map[tenantKey]*tenant // of a leaf: the others
	accounts *Account              // of a leaf: the first account; the others follow by next
	whole    *Amounts              // of a fair leaf: what the shares of its accounts are parts of

	past *past // nil: the queue above has no half-life

	strict  *strict    // of a leaf with this order; nil: jobs behind one that does not fit may pass it
	holding []Hold     // of a Copy: what Holds returns
	noRoom  bool       // of a Copy: what HasNoRoom returns
	rows    []*row     // of a leaf, unordered
	offered heap[*row] // of a leaf: the rows that are not set aside

	presences  []*presence // of a limited queue: the classes whose rows may reach it
	presenceOf map[*Class]*presence
	least      Amounts // Invariant: by limited resource, at most the need of each unblocked class below
	stale      int     // number of changes, since findLeast, that may have left least too low

	changed bool // the queue is listed in Tree.changed
}

// Stated returns the configuration of the queue, without the queues below it. It must not be
// changed.
func (q *Queue) Stated() *plimsoll.QueueConfig { return &q.stated }

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

	now    int64 // Unix nanoseconds; see Advance
	holds  heap[*hold]
	rivals Rivals // nil: all lanes compete for nodes

	fading []*Queue // the parents with a half-life
	faded  int64    // time to which their children's pasts count
	pasts  []string // paths of queues whose pasts are to be stored or deleted; they may repeat

	live      int       // number of classes that have rows and are not blocked
	unsettled *waiter   // lanes that were told that they wait for their turn
	recheck   []*waiter // waiters whose cause may have ended; Settle checks them
	telling   []*waiter // waiters whose cause has ended; NextCause gives their lanes another
	admitting []*Quota  // quotas that may admit parked accounts
	stale     []*tenant // tenants whose first parked account may have been told another quota
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
	q.fix()
}

// fix moves a queue to its new position among its siblings.
func (q *Queue) fix() {
	if q.rank != absent {
		q.Parent.open.fix(q)
	}
}
