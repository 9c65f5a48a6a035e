package engine_test

import (
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// rank gives a job priorities, and its owner groups.
func (w *world) rank(spec *plimsoll.JobSpec) {
	for w.rng.IntN(2) == 0 && len(spec.OwnerGroups) < 3 {
		spec.OwnerGroups = append(spec.OwnerGroups, "g"+strconv.Itoa(len(spec.OwnerGroups))+w.pick([]string{"", "x"}))
	}
	for i := range spec.Groups {
		if w.rng.IntN(3) == 0 {
			spec.Groups[i].Priority = w.rng.Int32N(5) - 2
		}
	}
}

// order gives a queue properties that order what is below it, and limits of users and groups.
func (w *world) order(c *plimsoll.QueueConfig) {
	c.Properties = map[string]string{}
	for _, p := range [][]string{
		{plimsoll.PropertySort, "fair"},
		{plimsoll.PropertySortPriority, "disabled", "enabled"},
		{plimsoll.PropertyPriorityPolicy, "fence"},
		{plimsoll.PropertyOrder, "strict", "strict", "default"},
		{plimsoll.PropertyOrderHold, "1s", "20s"},
		{plimsoll.PropertyPriorityOffset, "1", "-3"},
		{plimsoll.PropertyHalfLife, "1m", "1h", "0"},
	} {
		if w.rng.IntN(3) == 0 {
			c.Properties[p[0]] = w.pick(p[1:])
		}
	}
	// A limit is at most that of the queue above and the maximum of the queue, which is 1 CPU or
	// more.
	most := int64(1000)
	if c.Name == plimsoll.RootQueue {
		most = 8000
	}
	limit := func(l plimsoll.QueueLimit) {
		l.Max = plimsoll.Resources{"cpu": most - w.rng.Int64N(most/4)}
		if c.Name == plimsoll.RootQueue && w.rng.IntN(2) == 0 {
			l.MaxJobs = 4
		}
		c.Limits = append(c.Limits, l)
	}
	for _, who := range []string{"alice", "bob", "*"} {
		if w.rng.IntN(4) == 0 {
			limit(plimsoll.QueueLimit{Users: []string{who}})
		}
	}
	for i, who := range []string{"g0", "g1", "*"} {
		if (i < 2 || len(c.Limits) > 0 && len(c.Limits[len(c.Limits)-1].Groups) > 0) && w.rng.IntN(4) == 0 {
			limit(plimsoll.QueueLimit{Groups: []string{who}})
		}
	}
	for i := range c.Queues {
		w.order(&c.Queues[i])
	}
}

// stillHeld reports whether the queue or the limit that a group waits for has no room for its
// tasks.
func (w *world) stillHeld(g *state.Group) bool {
	q := w.engine.State().Queue(g.Wait.Queue)
	if q == nil {
		return false
	}
	for _, k := range append(q.Trackers(), &q.Quota) {
		if k.Code() == g.Wait.Code && k.UserOrGroup() == g.Wait.UserOrGroup {
			return k.Lacks(g.Amounts()) >= 0
		}
	}
	return false
}

// checkQuotas checks the maxima of queues and the limits of users and groups. One of them may be
// over a lowered maximum, but its use does not grow. A new configuration may give jobs to another
// group, and jobs are admitted as soon as it allows it. So in a turn that sets one only the
// resources of queues are checked.
func (w *world) checkQuotas(configured int) {
	s := w.engine.State()
	s.Tree().Root.Walk(func(q *queue.Queue) {
		for _, k := range append(q.Trackers(), &q.Quota) {
			name := quotaName(k)
			if k != &q.Quota {
				w.tracked++
			}
			used, let := w.used[name], w.let[name]
			for i := range k.Max {
				if k.MaxSet&(1<<i) != 0 && k.Allocated[i] > k.Max[i] && k.Allocated[i] > used[i] &&
					(configured == 0 || k == &q.Quota) {
					w.t.Fatalf(
						"%s uses %d of %s, over its maximum of %d, and used %d before", name, k.Allocated[i],
						s.Names.Name(i), k.Max[i], used[i],
					)
				}
			}
			if configured == 0 && k.MaxAccounts > 0 && k.Admitted > k.MaxAccounts && k.Admitted > let {
				w.t.Fatalf(
					"%s has let in %d jobs, over its maximum of %d, and %d before",
					name, k.Admitted, k.MaxAccounts, let,
				)
			}
		}
	})
	w.remember()
}

func (w *world) remember() {
	clear(w.used)
	clear(w.let)
	w.engine.State().Tree().Root.Walk(func(q *queue.Queue) {
		for _, k := range append(q.Trackers(), &q.Quota) {
			w.used[quotaName(k)], w.let[quotaName(k)] = k.Allocated, k.Admitted
		}
	})
}

func quotaName(k *queue.Quota) string { return k.At().Path + " " + k.User + " " + k.Group }
