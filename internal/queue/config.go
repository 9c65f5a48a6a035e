package queue

import (
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
		byClass: map[*Class]*row{}, presenceOf: map[*Class]*presence{}, waiters: map[*Class]*waiter{},
	}
	if parent != nil {
		q.Path = parent.Path + "." + c.Name
		i, _ := slices.BinarySearchFunc(parent.Children, q, byName)
		parent.Children = slices.Insert(parent.Children, i, q)
	}
	t.byPath[q.Path] = q
	t.setLimits(q, c)
	q.resetLeast()
	q.Leaf = len(c.Queues) == 0 && !c.Parent
	t.touch(q)
	for i := range c.Queues {
		t.addQueue(q, &c.Queues[i])
	}
	return q
}

func (t *Tree) setLimits(q *Queue, c *plimsoll.QueueConfig) {
	q.Guaranteed, q.GuaranteedSet = t.names.Amounts(c.Guaranteed)
	q.Max, q.MaxSet = t.names.Amounts(c.Max)
	q.MaxAccounts, q.MaxTasks = c.MaxJobs, c.MaxTasks
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
	c := plimsoll.QueueConfig{
		Name: q.Name, Parent: !q.Leaf, MaxJobs: q.MaxAccounts, MaxTasks: q.MaxTasks, Draining: q.Draining,
	}
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
// queue that stays keeps its *Queue. All waiting lanes are offered again, except those of blocked
// classes.
func (t *Tree) Configure(c *plimsoll.QueueConfig) []Change {
	changes := t.apply(nil, t.Root, c)
	t.rebuild()
	return changes
}

func (t *Tree) apply(changes []Change, q *Queue, c *plimsoll.QueueConfig) []Change {
	was := q.Limits
	t.setLimits(q, c)
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
		if !slices.ContainsFunc(c.Queues, func(o plimsoll.QueueConfig) bool { return o.Name == child.Name }) {
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

// Tidy removes a queue if it drains and is empty, then its parents under the same condition. It
// returns the removals.
func (t *Tree) Tidy(q *Queue) (changes []Change) {
	for q.Parent != nil && t.byPath[q.Path] == q && q.Draining && q.Accounts == 0 && len(q.Children) == 0 {
		parent := q.Parent
		parent.Children = slices.DeleteFunc(parent.Children, func(c *Queue) bool { return c == q })
		delete(t.byPath, q.Path)
		changes = append(changes, Change{Removed, q})
		q = parent
	}
	return changes
}

// rebuild makes the order of all waiting lanes anew, under new limits.
func (t *Tree) rebuild() {
	var rows []*row
	t.Root.Walk(func(q *Queue) {
		rows = append(rows, q.rows...)
		clear(q.open)
		clear(q.offered)
		q.open, q.offered, q.rank, q.closed = q.open[:0], q.offered[:0], absent, false
		for len(q.presences) > 0 {
			p := q.presences[0]
			q.addRows(p.class, -p.rows)
		}
		q.resetLeast()
		q.share, q.sharedAt = t.shareOf(q), t.totals
		t.readmit(q)
	})
	t.Root.Walk(func(q *Queue) {
		for i := range q.short {
			for h := &q.short[i]; len(*h) > 0; {
				w := (*h)[0]
				h.remove(w)
				w.short = absent
				t.recheckLater(w)
			}
		}
	})
	for _, r := range rows {
		if r.aside != nil {
			r.leaveAside()
		}
		t.count(r.leaf, r.class, 1)
		if r.class.code != plimsoll.WaitNone {
			r.class.aside.add(r)
			continue
		}
		r.rank = absent
		r.leaf.offered.push(r)
		r.leaf.offer()
	}
}
