package queue_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// world is a tree and the simplest model of it: lists that are searched for each answer.
type world struct {
	t     *rapid.T
	names *placement.Names
	tree  *queue.Tree
	total placement.Amounts

	plain    bool // queues have no properties and no limits of users and groups
	config   plimsoll.QueueConfig
	classes  []*queue.Class
	accounts []*account
	lanes    []*lane // by id; nil for lanes of accounts that have left
	key      int64
	time     int64 // Unix nanoseconds
}

type account struct {
	queue.Account
	leaf  string
	owner queue.Owner
	key   int64
	lanes []*lane
	gone  bool
	stuck int64 // time at which it began to hold others back; 0: it has not
}

type lane struct {
	queue.Lane
	of       *account
	class    *queue.Class
	priority int32
	seq      int32
	ready    int32
	running  int32
	told     queue.Cause
}

// The model.

func (w *world) configOf(path string) (found *plimsoll.QueueConfig) {
	c := &w.config
	for _, name := range strings.Split(path, ".")[1:] {
		i := slices.IndexFunc(c.Queues, func(o plimsoll.QueueConfig) bool { return o.Name == name })
		if i < 0 {
			return nil
		}
		c = &c.Queues[i]
	}
	return c
}

func below(path, queue string) bool { return path == queue || strings.HasPrefix(path, queue+".") }

// quota is a queue, or a user or group at a queue.
type quota struct {
	path, user, group string
	max               plimsoll.Resources
	maxJobs           int32
}

// counts reports whether an account counts in a quota.
func (w *world) counts(q *quota, a *account) bool {
	if a.gone || !below(a.leaf, q.path) {
		return false
	}
	return (q.user == "" || q.user == a.owner.User) && (q.group == "" || q.group == w.link(a.leaf, a.owner))
}

func (w *world) used(q *quota) (sum placement.Amounts) {
	for _, l := range w.lanes {
		if l != nil && w.counts(q, l.of) {
			sum.AddTimes(l.class.Amounts(), int64(l.running))
		}
	}
	return sum
}

func (w *world) admitted(q *quota) (n int32) {
	for _, a := range w.accounts {
		if w.counts(q, a) && a.Admitted() {
			n++
		}
	}
	return n
}

func (w *world) full(q *quota) bool { return q.maxJobs > 0 && w.admitted(q) >= q.maxJobs }

// above returns a queue and those above it, from below.
func above(path string) (paths []string) {
	for ; path != ""; path = path[:max(0, strings.LastIndexByte(path, '.'))] {
		paths = append(paths, path)
	}
	return paths
}

// link returns the group whose limits hold for an owner in a leaf.
func (w *world) link(leaf string, o queue.Owner) string {
	for _, path := range above(leaf) {
		anyone := ""
		for _, l := range w.configOf(path).Limits {
			for _, name := range l.Groups {
				if slices.Contains(o.Groups, name) {
					return name
				}
				if name == "*" {
					anyone = name
				}
			}
		}
		if anyone != "" {
			return anyone
		}
	}
	return ""
}

// quotas returns what holds for an owner in a leaf: limits of the user, of the group, and queues.
func (w *world) quotas(leaf string, o queue.Owner) (list []*quota) {
	for _, path := range above(leaf) {
		var found *plimsoll.QueueLimit
		for i, l := range w.configOf(path).Limits {
			if slices.Contains(l.Users, o.User) || found == nil && slices.Contains(l.Users, "*") {
				found = &w.configOf(path).Limits[i]
			}
		}
		if found != nil {
			list = append(list, &quota{path, o.User, "", found.Max, found.MaxJobs})
		}
	}
	group := w.link(leaf, o)
	for _, path := range above(leaf) {
		for _, l := range w.configOf(path).Limits {
			if slices.Contains(l.Groups, group) {
				list = append(list, &quota{path, "", group, l.Max, l.MaxJobs})
				break
			}
		}
	}
	for _, path := range above(leaf) {
		c := w.configOf(path)
		list = append(list, &quota{path, "", "", c.Max, c.MaxJobs})
	}
	return list
}

// same returns the quota of the model that a quota of the tree is; nil if it is none of the owner.
func (w *world) same(k *queue.Quota, a *account) *quota {
	for _, q := range w.quotas(a.leaf, a.owner) {
		if q.path == k.At().Path && q.user == k.User && q.group == k.Group {
			return q
		}
	}
	return nil
}

// lacks reports whether a quota forbids one more task of a class.
func (w *world) lacks(q *quota, c *queue.Class) bool {
	used := w.used(q)
	for i, a := range c.Amounts() {
		if a == 0 {
			continue
		}
		if most, ok := q.max[w.names.Name(i)]; ok && used[i]+a > most {
			return true
		}
	}
	return false
}

func (w *world) refused(l *lane) bool {
	return slices.ContainsFunc(w.quotas(l.of.leaf, l.of.owner), func(q *quota) bool { return w.lacks(q, l.class) })
}

func (w *world) share(path string) *big.Rat {
	c, best := w.configOf(path), new(big.Rat)
	for i, used := range w.used(&quota{path: path}) {
		if used == 0 {
			continue
		}
		name, of := w.names.Name(i), big.NewRat(used, 1)
		if g, ok := c.Guaranteed[name]; ok && g > 0 {
			of = big.NewRat(used, g)
		} else if ok {
			of = big.NewRat(1, 1)
		} else if m, ok := c.Max[name]; ok && m > 0 {
			of = big.NewRat(used, m)
		} else if !ok && w.total[i] > 0 || ok && w.total[i] > 0 {
			of = big.NewRat(used, w.total[i])
		}
		if of.Cmp(best) > 0 {
			best = of
		}
	}
	return best
}

// settings returns the settings of a queue, including those that it inherits.
func (w *world) settings(path string) plimsoll.QueueSettings {
	var properties map[string]string
	paths := above(path)
	slices.Reverse(paths)
	for _, p := range paths {
		properties = plimsoll.InheritProperties(properties, w.configOf(p).Properties)
	}
	return plimsoll.ParseQueueSettings(properties)
}

const nobody = math.MinInt64

// priority returns the priority of an account.
func priority(a *account) int64 {
	p := int64(nobody)
	for _, l := range a.lanes {
		if l.ready > 0 {
			p = max(p, int64(l.priority))
		}
	}
	return p
}

// priorityOf returns the priority of a queue as its parent sees it.
func (w *world) priorityOf(path string) int64 {
	p := int64(nobody)
	for _, l := range w.lanes {
		if l != nil && l.of.leaf == path && l.ready > 0 && l.of.Admitted() {
			p = max(p, int64(l.priority))
		}
	}
	for _, c := range w.configOf(path).Queues {
		p = max(p, w.priorityOf(path+"."+c.Name))
	}
	s := w.settings(path)
	switch {
	case p == nobody:
		return p
	case s.PriorityFence:
		return int64(s.PriorityOffset)
	}
	return max(math.MinInt32, min(math.MaxInt32, p+int64(s.PriorityOffset)))
}

func (w *world) pending(path string) (sum placement.Amounts) {
	for _, l := range w.lanes {
		if l != nil && below(l.of.leaf, path) {
			sum.AddTimes(l.class.Amounts(), int64(l.ready))
		}
	}
	return sum
}

// comparePriorities says which of two priorities goes first.
func comparePriorities(p, q int64) int { return cmp.Compare(q, p) }

// compareQueues says which of two children of a queue goes first.
func (w *world) compareQueues(parent, a, b string) int {
	byPriority, byShare := comparePriorities(w.priorityOf(a), w.priorityOf(b)), w.share(a).Cmp(w.share(b))
	larger := 0
	p, q := w.pending(a), w.pending(b)
	for i := range p {
		larger = cmp.Or(larger, cmp.Compare(q[i], p[i]))
	}
	if w.settings(parent).PrioritySort {
		return cmp.Or(byPriority, byShare, larger, cmp.Compare(a, b))
	}
	return cmp.Or(byShare, byPriority, larger, cmp.Compare(a, b))
}

// shares returns the shares of an account of its leaf, the largest first.
func (w *world) shares(a *account) (list []*big.Rat) {
	var used placement.Amounts
	for _, l := range a.lanes {
		used.AddTimes(l.class.Amounts(), int64(l.running))
	}
	for i, n := range used {
		if n == 0 {
			list = append(list, new(big.Rat))
			continue
		}
		whole := max(w.total[i], 1)
		if g := w.configOf(a.leaf).Guaranteed[w.names.Name(i)]; g > 0 {
			whole = g
		}
		list = append(list, big.NewRat(n, whole))
	}
	slices.SortFunc(list, func(a, b *big.Rat) int { return b.Cmp(a) })
	return list
}

// compareAccounts says which of two accounts of a leaf goes first.
func (w *world) compareAccounts(a, b *account) int {
	s := w.settings(a.leaf)
	byPriority := comparePriorities(priority(a), priority(b))
	first := 0
	if s.PrioritySort {
		first = byPriority
	}
	if s.Fair {
		for i, share := range w.shares(a) {
			first = cmp.Or(first, share.Cmp(w.shares(b)[i]))
		}
		first = cmp.Or(first, byPriority)
	}
	return cmp.Or(first, cmp.Compare(a.key, b.key))
}

// compareParked says which of two parked accounts goes first.
func (w *world) compareParked(a, b *account) int {
	of := func(a *account) int64 {
		if !w.settings(a.leaf).PrioritySort {
			return 0
		}
		return priority(a)
	}
	return cmp.Or(comparePriorities(of(a), of(b)), cmp.Compare(a.key, b.key))
}

func (w *world) next() *lane {
	var open []*lane
	for _, l := range w.lanes {
		if l != nil && l.ready > 0 && l.of.Admitted() && l.class.Blocked() == plimsoll.WaitNone && !w.refused(l) &&
			!w.held(l) {
			open = append(open, l)
		}
	}
	if len(open) == 0 {
		return nil
	}
	path := "root"
	for {
		var best string
		for i := range w.configOf(path).Queues {
			child := path + "." + w.configOf(path).Queues[i].Name
			if !slices.ContainsFunc(open, func(l *lane) bool { return below(l.of.leaf, child) }) {
				continue
			}
			if best == "" || w.compareQueues(path, child, best) < 0 {
				best = child
			}
		}
		if best == "" {
			break
		}
		path = best
	}
	open = slices.DeleteFunc(open, func(l *lane) bool { return l.of.leaf != path })
	return slices.MinFunc(open, func(a, b *lane) int {
		if a.of == b.of {
			return cmp.Or(comparePriorities(int64(a.priority), int64(b.priority)), cmp.Compare(a.seq, b.seq))
		}
		return w.compareAccounts(a.of, b.of)
	})
}

// The steps of the model follow.

var resourceNames = []string{plimsoll.CPU, plimsoll.Memory, "gpu"}

func (w *world) amounts(label string, most int64) plimsoll.Resources {
	r := plimsoll.Resources{}
	for _, name := range resourceNames {
		if n := rapid.Int64Range(-most/2, most).Draw(w.t, label+" "+name); n >= 0 {
			r[name] = n
		}
	}
	return r
}

// draw makes a tree of three levels. Most names stay, so that limits change while tasks wait and
// run. Some are left out now and then, and a team becomes a leaf or a parent.
func (w *world) draw() plimsoll.QueueConfig {
	c := plimsoll.QueueConfig{Name: "root", Parent: true}
	w.orders(&c)
	w.limitOwners(&c, 30)
	for i := range 3 {
		team := plimsoll.QueueConfig{Name: fmt.Sprint("team", i), Parent: true}
		if i > 0 && w.now("team goes") {
			continue
		}
		if path := "root." + team.Name; w.accountsBelow(path) == 0 {
			team.Parent = !w.now("team is a leaf")
		} else {
			team.Parent = !slices.ContainsFunc(w.accounts, func(a *account) bool { return !a.gone && a.leaf == path })
		}
		for j := 0; j < 2 && team.Parent; j++ {
			leaf := plimsoll.QueueConfig{Name: fmt.Sprint("leaf", j)}
			if w.now("leaf goes") {
				continue
			}
			w.limit(&leaf, 12)
			w.orders(&leaf)
			w.limitOwners(&leaf, 10)
			team.Queues = append(team.Queues, leaf)
		}
		w.limit(&team, 25)
		w.orders(&team)
		w.limitOwners(&team, 20)
		c.Queues = append(c.Queues, team)
	}
	return c
}

// now returns true about once in ten calls.
func (w *world) now(label string) bool { return rapid.IntRange(0, 9).Draw(w.t, label) == 9 }

func (w *world) accountsBelow(path string) (n int) {
	for _, a := range w.accounts {
		if !a.gone && below(a.leaf, path) {
			n++
		}
	}
	return n
}

// configure gives the tree another configuration. Queues that are left out stay as long as
// accounts are below them.
func (w *world) configure() {
	c := w.draw()
	if err := w.tree.CheckConfig(&c); err != nil {
		w.t.Fatal(err)
	}
	w.tree.Configure(&c)
	w.drain("root", &w.config, &c)
	w.config = c
}

func (w *world) drain(path string, was, is *plimsoll.QueueConfig) {
	for i := range was.Queues {
		old := &was.Queues[i]
		at := path + "." + old.Name
		k := slices.IndexFunc(is.Queues, func(o plimsoll.QueueConfig) bool { return o.Name == old.Name })
		if k < 0 && w.accountsBelow(at) == 0 {
			continue
		}
		if k < 0 {
			k = len(is.Queues)
			is.Queues = append(is.Queues, *old)
			is.Queues[k].Queues, is.Queues[k].Draining = nil, true
		}
		w.drain(at, old, &is.Queues[k])
	}
}

// tidy removes draining queues without accounts.
func (w *world) tidy(path string, c *plimsoll.QueueConfig) {
	for i := range c.Queues {
		w.tidy(path+"."+c.Queues[i].Name, &c.Queues[i])
	}
	c.Queues = slices.DeleteFunc(c.Queues, func(o plimsoll.QueueConfig) bool {
		gone := o.Draining && w.accountsBelow(path+"."+o.Name) == 0
		if there := w.tree.Find(path+"."+o.Name) != nil; there == gone {
			w.t.Fatalf("queue %s.%s: it is there: %t, and ought to be gone: %t", path, o.Name, there, gone)
		}
		return gone
	})
}

// leaves returns the paths of the leaves that accept accounts.
func leaves(path string, c *plimsoll.QueueConfig) (paths []string) {
	if c.Draining {
		return nil
	}
	if !c.Parent {
		return []string{path}
	}
	for i := range c.Queues {
		paths = append(paths, leaves(path+"."+c.Queues[i].Name, &c.Queues[i])...)
	}
	return paths
}

func (w *world) limit(c *plimsoll.QueueConfig, most int64) {
	if rapid.Bool().Draw(w.t, "has a maximum") {
		c.Max = w.amounts("max", most)
	}
	if rapid.Bool().Draw(w.t, "has a guarantee") {
		c.Guaranteed = w.amounts("guaranteed", most)
	}
	if rapid.Bool().Draw(w.t, "limits jobs") {
		c.MaxJobs = rapid.Int32Range(1, 3).Draw(w.t, "max jobs")
	}
}

// orders draws properties that order what is below a queue.
func (w *world) orders(c *plimsoll.QueueConfig) {
	c.Properties = map[string]string{}
	if w.plain {
		return
	}
	draw := func(name string, values ...string) {
		if v := rapid.SampledFrom(append(values, "", "")).Draw(w.t, name); v != "" {
			c.Properties[name] = v
		}
	}
	draw(plimsoll.PropertySort, "fair", "fifo")
	draw(plimsoll.PropertyOrder, "strict", "strict", "default")
	draw(plimsoll.PropertyOrderHold, "10s")
	draw(plimsoll.PropertySortPriority, "disabled", "enabled")
	draw(plimsoll.PropertyPriorityPolicy, "fence")
	draw(plimsoll.PropertyPriorityOffset, "1", "-2", "2147483647")
}

var (
	users  = []string{"ann", "bob", "cid"}
	groups = []string{"dev", "ops", "sci"}
)

// limitOwners draws limits of users and groups.
func (w *world) limitOwners(c *plimsoll.QueueConfig, most int64) {
	for !w.plain && w.rarely("another limit") {
		l := plimsoll.QueueLimit{}
		if rapid.Bool().Draw(w.t, "of users") {
			l.Users = []string{rapid.SampledFrom(append(users[:2:2], "*")).Draw(w.t, "limited user")}
		} else {
			l.Groups = []string{rapid.SampledFrom(append(groups[:2:2], "*")).Draw(w.t, "limited group")}
		}
		if slices.ContainsFunc(c.Limits, func(o plimsoll.QueueLimit) bool {
			return slices.Equal(o.Users, l.Users) && slices.Equal(o.Groups, l.Groups)
		}) {
			continue
		}
		if rapid.Bool().Draw(w.t, "limits resources") {
			l.Max = w.amounts("limit", most)
		}
		l.MaxJobs = rapid.Int32Range(0, 2).Draw(w.t, "limit of jobs")
		c.Limits = append(c.Limits, l)
	}
}

func (w *world) rarely(label string) bool { return rapid.IntRange(0, 4).Draw(w.t, label) == 4 }

func (w *world) submit() {
	open := leaves("root", &w.config)
	if len(open) == 0 {
		return
	}
	w.key++
	a := &account{leaf: rapid.SampledFrom(open).Draw(w.t, "leaf"), key: w.key}
	a.ID = int32(len(w.accounts))
	w.accounts = append(w.accounts, a)
	a.owner.User = rapid.SampledFrom(users).Draw(w.t, "owner")
	a.owner.Groups = rapid.SliceOfN(rapid.SampledFrom(groups), 0, 2).Draw(w.t, "groups")
	w.tree.Enter(&a.Account, w.tree.Find(a.leaf), a.owner, a.key)
	for seq := range rapid.Int32Range(1, 2).Draw(w.t, "lanes") {
		l := &lane{of: a, seq: seq, class: rapid.SampledFrom(w.classes).Draw(w.t, "class")}
		l.ID = int32(len(w.lanes))
		w.lanes, a.lanes = append(w.lanes, l), append(a.lanes, l)
		l.priority = rapid.SampledFrom([]int32{0, 0, 0, 1, 3, -1}).Draw(w.t, "priority")
		w.tree.Add(&l.Lane, &a.Account, l.class, l.priority, seq)
		w.more(l, rapid.Int32Range(0, 3).Draw(w.t, "tasks"))
	}
	if w.now("had begun before a load") {
		w.tree.AdmitAnyway(&a.Account)
		w.turn(a)
	} else {
		w.admit(a)
	}
}

func (w *world) admit(a *account) {
	full := w.tree.Admit(&a.Account)
	if a.Admitted() != (full == nil) || a.Parked() != full {
		w.t.Fatalf("admitted %t, parked at %v, but Admit says %v", a.Admitted(), a.Parked(), full)
	}
	for _, o := range w.accounts {
		if a.Admitted() && o.Parked() != nil && w.same(o.Parked(), a) != nil {
			w.t.Fatalf("account %d was admitted before account %d, which waits at %s", a.ID, o.ID, o.Parked().At().Path)
		}
	}
	w.turn(a)
}

// turn records that the lanes of an account were told that it is their turn.
func (w *world) turn(a *account) {
	for _, l := range a.lanes {
		if a.Admitted() && l.ready > 0 {
			l.told = queue.Cause{Code: plimsoll.WaitTurn}
		}
	}
}

func (w *world) more(l *lane, n int32) {
	l.ready += n
	l.of.forget()
	w.tree.Pend(&l.Lane, n)
	if w.tree.Ready(&l.Lane, n) {
		l.told = queue.Cause{Code: plimsoll.WaitTurn}
	}
}

// pick returns a random lane that ok accepts, or nil.
func (w *world) pick(label string, ok func(*lane) bool) *lane {
	list := slices.DeleteFunc(slices.Clone(w.lanes), func(l *lane) bool { return l == nil || !ok(l) })
	if len(list) == 0 {
		return nil
	}
	return rapid.SampledFrom(list).Draw(w.t, label)
}

func (w *world) leave(a *account) {
	for _, l := range a.lanes {
		for ; l.running > 0; l.running-- {
			w.tree.Refund(&l.Lane)
		}
		w.more(l, -l.ready)
		w.lanes[l.ID] = nil
	}
	a.gone = true
	w.tree.Leave(&a.Account)
	w.tree.Tidy(w.tree.Find(a.leaf))
	w.tidy("root", &w.config)
}

// cutShort runs part of a cycle: a few lanes are placed or blocked, and a few are told.
func (w *world) cutShort() {
	w.place(rapid.IntRange(0, 3).Draw(w.t, "lanes before it is cut short"))
	for range rapid.IntRange(0, 3).Draw(w.t, "lanes that are told") {
		if l, cause, ok := w.tree.NextCause(); ok {
			w.lanes[l.ID].told = cause
		}
	}
}

// cycle places lanes until there is no next one. Then it compares the causes with the truth.
func (w *world) cycle() {
	if w.place(1000) {
		w.settle()
	}
}

// place places at most n lanes and blocks some classes on the way. It reports whether no lane is
// left.
func (w *world) place(n int) (done bool) {
	for range n {
		got := w.tree.Next() // first, because it finds the jobs that hold others back
		w.checkHolds(got)
		want := w.next()
		if want == nil && got == nil {
			return true
		}
		if want == nil || got != &want.Lane {
			w.t.Fatalf("next is %v, not %v", got, want)
		}
		if rapid.IntRange(0, 3).Draw(w.t, "blocked") == 0 {
			w.tree.Block(
				want.class,
				rapid.SampledFrom([]plimsoll.WaitCode{plimsoll.WaitNoNode, plimsoll.WaitTooLarge}).Draw(w.t, "code"),
			)
			continue
		}
		want.ready--
		want.running++
		want.of.forget()
		w.tree.Charge(&want.Lane)
	}
	return false
}

func (w *world) settle() {
	w.tree.Settle()
	for l, cause, ok := w.tree.NextCause(); ok; l, cause, ok = w.tree.NextCause() {
		w.lanes[l.ID].told = cause
	}
	for _, l := range w.lanes {
		if l == nil || l.ready == 0 || !l.of.Admitted() {
			continue
		}
		switch c := l.told; c.Code {
		case plimsoll.WaitQueueMax, plimsoll.WaitUserMax, plimsoll.WaitGroupMax:
			if q := w.same(c.Quota, l.of); q == nil || !w.lacks(q, l.class) || c.Quota.Code() != c.Code {
				w.t.Fatalf("lane %d in %s was told that %s is full, which has room: %+v",
					l.ID, l.of.leaf, c.Quota.At().Path, q)
			}
		case plimsoll.WaitOrder:
			if !w.held(l) {
				w.t.Fatalf("lane %d was told that it is held back, and nobody holds it", l.ID)
			}
		case l.class.Blocked():
			if c.Code == plimsoll.WaitNone {
				w.t.Fatalf("lane %d was told nothing", l.ID)
			}
		default:
			w.t.Fatalf("lane %d was told %v, but its class is blocked by %v", l.ID, c.Code, l.class.Blocked())
		}
	}
}

// restate changes the amount that an idle class needs of a resource that no queue limits. That
// happens when the first node brings a resource, or the last one takes it away.
func (w *world) restate() {
	c := rapid.SampledFrom(w.classes).Draw(w.t, "class that asks for something else")
	k := rapid.IntRange(0, w.names.Len()-1).Draw(w.t, "resource")
	limited := false
	w.tree.Root.Walk(func(q *queue.Queue) { limited = limited || q.ResourcesNamed()&(1<<k) != 0 })
	if limited ||
		slices.ContainsFunc(w.lanes, func(l *lane) bool { return l != nil && l.class == c && l.running > 0 }) {
		return
	}
	count := func(sign int32) {
		for _, l := range w.lanes {
			if l != nil && l.class == c {
				w.tree.Pend(&l.Lane, sign*l.ready)
			}
		}
	}
	amounts := *c.Amounts()
	amounts[k] = rapid.Int64Range(0, 6).Draw(w.t, "amount")
	count(-1)
	w.tree.Restate(c, &amounts, rapid.Bool().Draw(w.t, "outdated"))
	count(1)
	if rapid.Bool().Draw(w.t, "opens") {
		w.tree.Open(c)
	}
}

// readmit admits the parked accounts for which there is room, and checks that none is forgotten.
func (w *world) readmit() {
	for a := w.tree.Readmit(); a != nil; a = w.tree.Readmit() {
		is := w.accounts[a.ID]
		w.turn(is)
		for _, o := range w.accounts {
			if a.Admitted() && o.Parked() != nil && w.compareParked(o, is) < 0 && w.same(o.Parked(), is) != nil {
				w.t.Fatalf("account %d was admitted before account %d at %s", a.ID, o.ID, o.Parked().At().Path)
			}
		}
	}
	if w.tree.Readmitting() {
		w.t.Fatal("Readmit returned nil, but there is more")
	}
	for _, a := range w.accounts {
		if a.gone || a.Admitted() {
			continue
		}
		if q := w.same(a.Parked(), a); q == nil || !w.full(q) {
			w.t.Fatalf("account %d is parked at %s, which is not full: %+v", a.ID, a.Parked().At().Path, q)
		}
	}
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, names: placement.NewNames()}
	w.names.Amounts(plimsoll.Resources{"gpu": 1})
	w.plain = rapid.IntRange(0, 2).Draw(t, "plain") == 0
	w.config = w.draw()
	w.tree = queue.New(w.names, &w.config)
	w.tree.SetRivals(rivals)
	w.wait()
	for range rapid.IntRange(1, 6).Draw(t, "classes") {
		a, _ := w.names.Amounts(w.amounts("asks for", 6))
		w.classes = append(w.classes, w.tree.NewClass(&a))
	}
	return w
}

// After every step, the tree agrees with the simplest model: which lane is next, which queue
// refuses a lane, and which accounts are parked.
func TestTreeIsItsModel(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		for range 5 { // 500 histories in make test
			history(t)
		}
	})
}

func history(t *rapid.T) {
	w := newWorld(t)
	step := map[string]func(){
		"submit": w.submit,
		"cycle":  w.cycle,
		"short":  w.cutShort,
		"more": func() {
			if l := w.pick("lane that gets more", func(*lane) bool { return true }); l != nil {
				w.more(l, rapid.Int32Range(1, 3).Draw(t, "more"))
			}
		},
		"fewer": func() {
			if l := w.pick("lane that loses", func(l *lane) bool { return l.ready > 0 }); l != nil {
				w.more(l, -rapid.Int32Range(1, l.ready).Draw(t, "fewer"))
			}
		},
		"end": func() {
			if l := w.pick("lane whose task ends", func(l *lane) bool { return l.running > 0 }); l != nil {
				l.running--
				w.tree.Refund(&l.Lane)
			}
		},
		"leave": func() {
			if l := w.pick("account that leaves", func(*lane) bool { return true }); l != nil {
				w.leave(l.of)
			}
		},
		"reshape": func() {
			l := w.pick("lane of another class", func(l *lane) bool { return l.ready > 0 })
			if l == nil {
				return
			}
			c := w.tree.NewClass(l.class.Amounts())
			w.classes = append(w.classes, c)
			w.tree.SetClass(&l.Lane, c)
			l.class = c
			w.turn(&account{Account: l.of.Account, lanes: []*lane{l}})
		},
		"restate":   w.restate,
		"open":      func() { w.tree.Open(rapid.SampledFrom(w.classes).Draw(t, "class that opens")) },
		"total":     func() { w.total, _ = w.names.Amounts(w.amounts("total", 100)); w.tree.SetTotal(&w.total) },
		"configure": w.configure,
		"wait":      w.wait,
	}
	names := []string{
		"cycle", "cycle", "configure", "end", "end", "end", "fewer", "leave", "more", "open", "open", "reshape",
		"restate", "short", "short", "submit", "submit", "submit", "total", "total", "wait",
	}
	for range rapid.IntRange(1, 120).Draw(t, "steps") {
		name := rapid.SampledFrom(names).Draw(t, "step")
		step[name]()
		if rapid.Bool().Draw(t, "readmits") {
			w.readmit()
		}
		if err := w.tree.Check(); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
	}
	w.readmit()
	w.cycle()
}
