package queue

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// wildcard is the name of a limit for all users, or groups, that no other limit of the queue names.
const wildcard = "*"

// Owner is whose an account is.
type Owner struct {
	User   string
	Groups []string
}

// limit is a maximum for a user or group at a queue.
type limit struct {
	max         Amounts
	maxSet      uint32
	maxAccounts int32
}

// limits are the limits for users and groups that a queue states. They are never changed.
type limits struct {
	users, groups map[string]*limit // named ones
	order         []string          // named groups, in the order of the configuration
	user, group   *limit            // of the wildcard; nil: none
	resources     uint32            // bit by index: a limit names the resource
}

// limitsOf returns the limits of a configuration; nil if there are none.
func (t *Tree) limitsOf(c *plimsoll.QueueConfig) *limits {
	if len(c.Limits) == 0 {
		return nil
	}
	v := &limits{users: map[string]*limit{}, groups: map[string]*limit{}}
	for i := range c.Limits {
		l := &limit{maxAccounts: c.Limits[i].MaxJobs}
		l.max, l.maxSet = t.names.Amounts(c.Limits[i].Max)
		v.resources |= l.maxSet
		for _, name := range c.Limits[i].Users {
			if name == wildcard {
				v.user = l
			} else {
				v.users[name] = l
			}
		}
		for _, name := range c.Limits[i].Groups {
			if name == wildcard {
				v.group = l
			} else if v.groups[name] == nil {
				v.groups[name] = l
				v.order = append(v.order, name)
			}
		}
	}
	return v
}

func (v *limits) ofUser(name string) *limit {
	if l := v.users[name]; l != nil {
		return l
	}
	return v.user
}

func (v *limits) ofGroup(name string) *limit {
	if name == wildcard {
		return v.group
	}
	return v.groups[name]
}

// link returns the group whose limits hold for an owner below a queue: at the first queue from the
// leaf upwards that has one, the first configured group that the user is in, or else the wildcard.
// It is empty if there is none.
func link(leaf *Queue, groups []string) string {
	for q := leaf; q != nil; q = q.Parent {
		if q.limits == nil {
			continue
		}
		for _, name := range q.limits.order {
			if slices.Contains(groups, name) {
				return name
			}
		}
		if q.limits.group != nil {
			return wildcard
		}
	}
	return ""
}

// trackerKey names a tracker of a queue.
type trackerKey struct {
	group bool
	name  string
}

// tenantKey names a tenant of a leaf. The tenant that no limit holds for has the zero key.
type tenantKey struct {
	limited bool // limits of users hold for the user
	user    string
	group   string // group whose limits hold; empty: none
}

// tenant is the accounts of a leaf for which the same limits of users and groups hold. So the same
// quotas hold for all of them.
type tenant struct {
	leaf     *Queue
	key      tenantKey
	trackers []*Quota        // of the user, then of the group, each from the leaf upwards
	byClass  map[*Class]*row // its rows by class
	accounts int32

	parked heap[*Account] // accounts that wait to be admitted
	at     *Quota         // quota at which they wait; nil: there are none
	rank   int32          // position in at.parked
	stale  bool           // it is listed in Tree.stale
}

func (n *tenant) before(o *tenant) bool { return n.parked[0].before(o.parked[0]) }
func (n *tenant) place() *int32         { return &n.rank }

// compare orders the tenants of a leaf by their keys, those without limits of users first.
func (n *tenant) compare(o *tenant) int {
	if n.key.limited != o.key.limited {
		if n.key.limited {
			return 1
		}
		return -1
	}
	return cmp.Or(strings.Compare(n.key.user, o.key.user), strings.Compare(n.key.group, o.key.group))
}

func newTenant(leaf *Queue, key tenantKey) *tenant {
	return &tenant{leaf: leaf, key: key, byClass: map[*Class]*row{}, rank: absent}
}

// tenantOf returns the tenant of an owner in a leaf. With add it is put into the tree if it is new,
// with its trackers; otherwise a new one is only to be looked at.
func (t *Tree) tenantOf(leaf *Queue, o Owner, add bool) *tenant {
	if !leaf.limited {
		return leaf.all
	}
	key := tenantKey{group: link(leaf, o.Groups)}
	for q := leaf; q != nil && !key.limited; q = q.Parent {
		if q.limits != nil && q.limits.ofUser(o.User) != nil {
			key.limited, key.user = true, o.User
		}
	}
	if key == (tenantKey{}) {
		return leaf.all
	}
	if n := leaf.tenants[key]; n != nil {
		return n
	}
	n := newTenant(leaf, key)
	if key.limited {
		for q := leaf; q != nil; q = q.Parent {
			if q.limits != nil {
				n.track(q, trackerKey{false, key.user}, q.limits.ofUser(key.user), add)
			}
		}
	}
	for q := leaf; q != nil && key.group != ""; q = q.Parent {
		if q.limits != nil {
			n.track(q, trackerKey{true, key.group}, q.limits.ofGroup(key.group), add)
		}
	}
	if add {
		if leaf.tenants == nil {
			leaf.tenants = map[tenantKey]*tenant{}
		}
		leaf.tenants[key] = n
	}
	return n
}

// track gives a tenant the tracker of a limit at a queue.
func (n *tenant) track(q *Queue, key trackerKey, l *limit, add bool) {
	if l == nil {
		return
	}
	k := q.trackers[key]
	known := k != nil
	if !known {
		k = &Quota{of: q, tracks: true}
		if key.group {
			k.Group = key.name
		} else {
			k.User = key.name
		}
		if add {
			if q.trackers == nil {
				q.trackers = map[trackerKey]*Quota{}
			}
			q.trackers[key] = k
		}
	}
	if add || !known { // the trackers of a copy have several readers
		k.Max, k.MaxSet, k.MaxAccounts = l.max, l.maxSet, l.maxAccounts
	}
	n.trackers = append(n.trackers, k)
}

// Trackers returns the trackers at the queue, users before groups, each by name. A tracker exists
// while an account below the queue counts in it.
func (q *Queue) Trackers() []*Quota {
	list := slices.AppendSeq(make([]*Quota, 0, len(q.trackers)), maps.Values(q.trackers))
	slices.SortFunc(list, func(a, b *Quota) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.User, b.User))
	})
	return list
}

func (k *Quota) trackerKey() trackerKey { return trackerKey{k.Group != "", k.UserOrGroup()} }

// join counts an account in its tenant and in the tenant's trackers.
func (n *tenant) join(a *Account) {
	a.tenant = n
	n.accounts++
	for _, k := range n.trackers {
		k.Accounts++
	}
}

// quit undoes join. The last account removes the tenant, and the trackers that count nobody.
func (n *tenant) quit() {
	n.accounts--
	for _, k := range n.trackers {
		if k.Accounts--; k.Accounts == 0 {
			delete(k.of.trackers, k.trackerKey())
		}
	}
	if n.accounts == 0 && n != n.leaf.all {
		delete(n.leaf.tenants, n.key)
	}
}

// full returns the first quota that has as many accounts admitted as it may, or nil.
func (n *tenant) full() *Quota {
	for _, k := range n.trackers {
		if k.Full() {
			return k
		}
	}
	for q := n.leaf; q != nil; q = q.Parent {
		if q.Full() {
			return &q.Quota
		}
	}
	return nil
}
