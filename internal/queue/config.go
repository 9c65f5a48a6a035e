package queue

import (
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// ChangeKind is a kind of change that Configure makes to a queue.
type ChangeKind uint8

// The changes.
const (
	Added ChangeKind = iota
	MaxSet
	GuaranteedSet
	TypeSet     // the queue became a leaf or a parent
	DrainingSet // it is no longer configured and waits for its jobs to end, or is configured again
	Removed
)

// Change is one change made by Configure or Tidy.
type Change struct {
	Kind  ChangeKind
	Queue *Queue
}

// New returns the tree of a stored configuration, which may contain draining queues. The
// configuration must be valid.
func New(names *placement.Names, c *plimsoll.QueueConfig) *Tree {
	t := &Tree{names: names, byPath: map[string]*Queue{}, unsettled: &waiter{code: plimsoll.WaitTurn}}
	t.Root = t.addQueue(nil, c)
	return t
}

func (t *Tree) addQueue(parent *Queue, c *plimsoll.QueueConfig) *Queue {
	q := &Queue{
		Name: c.Name, Path: c.Name, Parent: parent, Draining: c.Draining, rank: absent, share: fraction{0, 1},
		presenceOf: map[*Class]*presence{}, priority: nobody,
	}
	q.of, q.all = q, newTenant(q, tenantKey{})
	if parent != nil {
		q.Path = parent.Path + "." + c.Name
		i, _ := slices.BinarySearchFunc(parent.Children, q, byName)
		parent.Children = slices.Insert(parent.Children, i, q)
	}
	t.byPath[q.Path] = q
	t.state(q, c)
	q.resetLeast()
	q.Leaf = len(c.Queues) == 0 && !c.Parent
	t.inherit(q)
	t.touch(q)
	for i := range c.Queues {
		t.addQueue(q, &c.Queues[i])
	}
	return q
}

// state gives a queue what its configuration states.
func (t *Tree) state(q *Queue, c *plimsoll.QueueConfig) {
	q.stated = *c
	q.stated.Queues = nil
	q.Dynamic = c.Dynamic
	q.Guaranteed, q.GuaranteedSet = t.names.Amounts(c.Guaranteed)
	q.Max, q.MaxSet = t.names.Amounts(c.Max)
	q.MaxAccounts, q.MaxTasks = c.MaxJobs, c.MaxTasks
	q.limits = t.limitsOf(c)
}

// inherit gives a queue what follows from its own properties and limits and from the queues above.
func (t *Tree) inherit(q *Queue) {
	q.properties, q.limited = q.stated.Properties, q.limits != nil
	if up := q.Parent; up != nil {
		q.limited = q.limited || up.limited
		if len(up.properties) > 0 {
			q.properties = plimsoll.InheritProperties(up.properties, q.stated.Properties)
		}
	}
	s := plimsoll.ParseQueueSettings(q.properties)
	q.order = orderOf(&s)
	q.strict = nil
	if q.Leaf && q.order.strict {
		q.strict = &strict{}
	}
	if q.Leaf && q.order.fair {
		t.measure(q)
	}
	t.inheritPast(q)
}

// ResourcesNamed returns the resources that the maximum, the guarantee or a limit of the queue
// names, as bits by index.
func (q *Queue) ResourcesNamed() uint32 {
	set := q.MaxSet | q.GuaranteedSet
	if q.limits != nil {
		set |= q.limits.resources
	}
	return set
}

// Config returns the tree in its stored form: the configured queues and the draining ones.
func (t *Tree) Config() plimsoll.QueueConfig { return t.configOf(t.Root) }

func (t *Tree) configOf(q *Queue) plimsoll.QueueConfig {
	c := t.ConfigOf(q)
	for _, child := range q.Children {
		c.Queues = append(c.Queues, t.configOf(child))
	}
	return c
}

// ConfigOf returns the stored form of a queue, without the queues below it.
func (t *Tree) ConfigOf(q *Queue) plimsoll.QueueConfig {
	c := q.stated
	c.Parent, c.Draining, c.Dynamic, c.Guaranteed, c.Max = !q.Leaf, q.Draining, q.Dynamic, nil, nil
	if q.GuaranteedSet != 0 {
		c.Guaranteed = t.names.Masked(&q.Guaranteed, q.GuaranteedSet)
	}
	if q.MaxSet != 0 {
		c.Max = t.names.Masked(&q.Max, q.MaxSet)
	}
	return c
}

// CheckConfig reports whether Configure can apply a configuration. The configuration must be valid
// by itself. A leaf with accounts cannot become a parent, nor a parent with accounts below it a
// leaf.
func (t *Tree) CheckConfig(c *plimsoll.QueueConfig) error { return checkConfig(t.Root, c) }

func checkConfig(q *Queue, c *plimsoll.QueueConfig) error {
	becomesParent := len(c.Queues) > 0 || c.Parent
	if q.Leaf && becomesParent && q.Accounts > 0 {
		return plimsoll.Errorf(
			plimsoll.CodeConflict, "%s holds %d jobs and cannot become a parent of queues; wait until they have ended",
			q.Path, q.Accounts,
		)
	}
	if !q.Leaf && !becomesParent && len(q.Children) > 0 && q.Accounts > 0 {
		return plimsoll.Errorf(
			plimsoll.CodeConflict, "%s has queues with jobs and cannot become a leaf; wait until they have ended",
			q.Path,
		)
	}
	for i := range c.Queues {
		if child := q.Child(c.Queues[i].Name); child != nil {
			if err := checkConfig(child, &c.Queues[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Configure applies a configuration that CheckConfig has accepted, and returns the changes in
// their order. A queue that is no longer configured drains, and is removed when it is empty. A
// dynamic queue with accounts stays as it is, unless the queue above is no longer configured. A
// queue that stays keeps its *Queue. All waiting lanes are offered again, except those of blocked
// classes.
func (t *Tree) Configure(c *plimsoll.QueueConfig) []Change {
	changes := t.apply(nil, t.Root, c)
	t.rebuild()
	return changes
}

func (t *Tree) apply(changes []Change, q *Queue, c *plimsoll.QueueConfig) []Change {
	was := *q
	t.state(q, c)
	if q.Draining {
		q.Draining = false
		changes = append(changes, Change{DrainingSet, q})
	}
	if was.MaxSet != q.MaxSet || was.Max != q.Max {
		changes = append(changes, Change{MaxSet, q})
	}
	if was.GuaranteedSet != q.GuaranteedSet || was.Guaranteed != q.Guaranteed {
		changes = append(changes, Change{GuaranteedSet, q})
	}
	t.touch(q)
	for i := range c.Queues {
		if child := q.Child(c.Queues[i].Name); child != nil {
			changes = t.apply(changes, child, &c.Queues[i])
			continue
		}
		t.addQueue(q, &c.Queues[i]).Walk(func(added *Queue) { changes = append(changes, Change{Added, added}) })
	}
	for _, child := range slices.Clone(q.Children) {
		configured := slices.ContainsFunc(c.Queues, func(o plimsoll.QueueConfig) bool { return o.Name == child.Name })
		if !configured && child.Dynamic && !child.Draining {
			changes = append(changes, t.tidyBelow(child)...)
		} else if !configured {
			changes = t.drain(changes, child)
		}
	}
	if leaf := len(c.Queues) == 0 && !c.Parent && len(q.Children) == 0; leaf != q.Leaf {
		q.Leaf = leaf
		changes = append(changes, Change{TypeSet, q})
	}
	return changes
}

func (t *Tree) drain(changes []Change, q *Queue) []Change {
	drained := q.Draining
	q.Draining = true
	t.touch(q)
	for _, child := range slices.Clone(q.Children) {
		changes = t.drain(changes, child)
	}
	changes = append(changes, t.Tidy(q)...)
	if !drained && t.byPath[q.Path] == q {
		changes = append(changes, Change{DrainingSet, q})
	}
	return changes
}

// AddDynamic adds a dynamic queue below a parent, and the queues below it that the configuration
// states. All of them are dynamic: Tidy removes each when it is empty. It returns the changes. The
// parent is no leaf and does not drain, it has no queue with the name yet, and the configuration
// is valid.
func (t *Tree) AddDynamic(parent *Queue, c *plimsoll.QueueConfig) (changes []Change) {
	t.touch(parent)
	t.addQueue(parent, c).Walk(func(q *Queue) {
		q.Dynamic = true
		changes = append(changes, Change{Added, q})
	})
	return changes
}

// tidyBelow tidies the leaves of a part of the tree, which removes it if it is empty.
func (t *Tree) tidyBelow(q *Queue) (changes []Change) {
	for _, child := range slices.Clone(q.Children) {
		changes = append(changes, t.tidyBelow(child)...)
	}
	return append(changes, t.Tidy(q)...)
}

// removable reports whether Tidy removes the queue: it is empty, and it drains or is dynamic.
func (q *Queue) removable() bool {
	return q.Parent != nil && (q.Draining || q.Dynamic) && q.Accounts == 0 && len(q.Children) == 0
}

// Tidy removes a queue if it is empty, and drains or is dynamic, then its parents under the same
// condition. It returns the removals.
func (t *Tree) Tidy(q *Queue) (changes []Change) {
	for t.byPath[q.Path] == q && q.removable() {
		parent := q.Parent
		parent.Children = slices.DeleteFunc(parent.Children, func(c *Queue) bool { return c == q })
		delete(t.byPath, q.Path)
		t.dropPast(q)
		changes = append(changes, Change{Removed, q})
		q = parent
	}
	return changes
}

// rebuild makes the order of all waiting lanes anew, under new limits and properties.
func (t *Tree) rebuild() {
	var lanes []*Lane
	var parked []*Account
	t.Root.Walk(func(q *Queue) {
		for _, r := range q.rows {
			for _, l := range r.lanes {
				l.row = nil
				lanes = append(lanes, l)
			}
			t.dissolve(r)
		}
		q.reset()
		for a := q.accounts; a != nil; a = a.next {
			if a.rank != absent {
				parked = append(parked, a)
			}
		}
		t.stopWaiting(&q.Quota)
		for _, k := range q.Trackers() {
			t.stopWaiting(k)
		}
	})
	clear(t.holds)
	t.holds = t.holds[:0]
	clear(t.admitting)
	t.admitting, t.stale = t.admitting[:0], nil
	clear(t.fading)
	t.fading = t.fading[:0]
	t.Root.Walk(func(q *Queue) {
		t.inherit(q)
		q.share, q.sharedAt = t.shareOf(q), t.totals
		t.regroup(q)
	})
	t.Root.Walk((*Queue).dropTrackers)
	for _, a := range parked {
		n := a.tenant
		if n.parked.push(a); n.at != nil {
			n.at.parked.fix(n)
			continue
		}
		k := n.full()
		if k == nil {
			k = &n.leaf.Quota
		}
		t.park(n, k)
	}
	for _, a := range parked {
		t.retell(a.tenant)
	}
	for _, l := range lanes {
		t.enlist(l)
		if l.told.ofOthers(l.account.tenant) {
			l.told.drop(l)
			t.unsettled.add(l)
		}
	}
}

// dissolve takes apart a row whose lanes have left it.
func (t *Tree) dissolve(r *row) {
	if r.aside != nil {
		r.leaveAside()
	}
	if r.kept != nil {
		t.recheckLater(r.kept)
	}
	if r.class.rows--; r.class.rows == 0 && r.class.code == plimsoll.WaitNone {
		t.live--
	}
}

// reset empties the order below a queue.
func (q *Queue) reset() {
	clear(q.open)
	clear(q.offered)
	clear(q.rows)
	q.open, q.offered, q.rows, q.rank, q.closed = q.open[:0], q.offered[:0], q.rows[:0], absent, false
	for len(q.presences) > 0 {
		p := q.presences[0]
		q.addRows(p.class, -p.rows)
	}
	q.resetLeast()
	q.levels, q.priority = levels{}, nobody
}

// stopWaiting lets the waiters of a quota come back, and empties its parked tenants.
func (t *Tree) stopWaiting(k *Quota) {
	clear(k.parked)
	k.parked, k.admitting = k.parked[:0], false
	for i := 0; k.short != nil && i < len(k.short); i++ {
		for h := &k.short[i]; len(*h) > 0; {
			w := (*h)[0]
			h.remove(w)
			w.short = absent
			t.recheckLater(w)
		}
	}
	k.short = nil
	if k.tracks {
		k.Allocated, k.Running, k.Accounts, k.Admitted = Amounts{}, 0, 0, 0
	}
}

// regroup puts the accounts of a leaf into the tenants that its limits make, and counts what they
// use.
func (t *Tree) regroup(q *Queue) {
	q.all, q.tenants = newTenant(q, tenantKey{}), nil
	for a := q.accounts; a != nil; a = a.next {
		a.rank = absent
		t.tenantOf(q, a.owner, true).join(a)
		a.use = nil
		if q.order.fair {
			a.use = &use{}
		}
		for _, k := range a.tenant.trackers {
			if a.admitted {
				k.Admitted++
			}
		}
		for l := a.lanes; l != nil; l = l.sibling {
			for _, k := range a.tenant.trackers {
				k.book(&l.class.amounts, l.running)
			}
			if a.use != nil {
				a.use.allocated.AddTimes(&l.class.amounts, int64(l.running))
			}
		}
		if a.use != nil {
			a.use.share = q.largestShare(&a.use.allocated)
		}
	}
}

// dropTrackers removes the trackers of a queue that count nobody any more.
func (q *Queue) dropTrackers() {
	maps.DeleteFunc(q.trackers, func(_ trackerKey, k *Quota) bool { return k.Accounts == 0 })
}
