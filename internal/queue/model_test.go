package queue_test

import (
	"fmt"
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

	config   plimsoll.QueueConfig
	classes  []*queue.Class
	accounts []*account
	lanes    []*lane // by id; nil for lanes of accounts that have left
	key      int64
}

type account struct {
	queue.Account
	leaf  string
	key   int64
	lanes []*lane
	gone  bool
}

type lane struct {
	queue.Lane
	of      *account
	class   *queue.Class
	seq     int32
	ready   int32
	running int32
	told    queue.Cause
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

func (w *world) used(path string) (sum placement.Amounts) {
	for _, l := range w.lanes {
		if l != nil && below(l.of.leaf, path) {
			sum.AddTimes(l.class.Amounts(), int64(l.running))
		}
	}
	return sum
}

func (w *world) admitted(path string) (n int32) {
	for _, a := range w.accounts {
		if !a.gone && a.Admitted() && below(a.leaf, path) {
			n++
		}
	}
	return n
}

// lacks reports whether the maximum of a queue forbids one more task of a class.
func (w *world) lacks(path string, c *queue.Class) bool {
	for i := range w.names.Len() {
		if w.short(path, c, i) {
			return true
		}
	}
	return false
}

// short reports whether the maximum of a queue forbids one more task because of one resource.
func (w *world) short(path string, c *queue.Class, resource int) bool {
	most, ok := w.configOf(path).Max[w.names.Name(resource)]
	a := c.Amounts()[resource]
	return ok && a > 0 && w.used(path)[resource]+a > most
}

func (w *world) refused(leaf string, c *queue.Class) bool {
	for path := leaf; ; path = path[:strings.LastIndexByte(path, '.')] {
		if w.lacks(path, c) {
			return true
		}
		if !strings.Contains(path, ".") {
			return false
		}
	}
}

func (w *world) share(path string) *big.Rat {
	c, best := w.configOf(path), new(big.Rat)
	for i, used := range w.used(path) {
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

func (w *world) next() *lane {
	var open []*lane
	for _, l := range w.lanes {
		if l != nil && l.ready > 0 && l.of.Admitted() && l.class.Blocked() == plimsoll.WaitNone &&
			!w.refused(l.of.leaf, l.class) {
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
			if best == "" || w.share(child).Cmp(w.share(best)) < 0 ||
				w.share(child).Cmp(w.share(best)) == 0 && child < best {
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
		if a.of.key != b.of.key {
			return int(a.of.key - b.of.key)
		}
		return int(a.seq - b.seq)
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
			team.Queues = append(team.Queues, leaf)
		}
		w.limit(&team, 25)
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

func (w *world) submit() {
	open := leaves("root", &w.config)
	if len(open) == 0 {
		return
	}
	w.key++
	a := &account{leaf: rapid.SampledFrom(open).Draw(w.t, "leaf"), key: w.key}
	a.ID = int32(len(w.accounts))
	w.accounts = append(w.accounts, a)
	w.tree.Enter(&a.Account, w.tree.Find(a.leaf), a.key)
	for seq := range rapid.Int32Range(1, 2).Draw(w.t, "lanes") {
		l := &lane{of: a, seq: seq, class: rapid.SampledFrom(w.classes).Draw(w.t, "class")}
		l.ID = int32(len(w.lanes))
		w.lanes, a.lanes = append(w.lanes, l), append(a.lanes, l)
		w.tree.Add(&l.Lane, &a.Account, l.class, seq)
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
		if a.Admitted() && o.Parked() != nil && o.Parked().MaxAccounts > 0 && below(a.leaf, o.Parked().Path) {
			w.t.Fatalf("account %d was admitted before account %d, which waits at %s", a.ID, o.ID, o.Parked().Path)
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
		want, got := w.next(), w.tree.Next()
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
		case plimsoll.WaitQueueMax:
			if !below(l.of.leaf, c.Queue.Path) || !w.lacks(c.Queue.Path, l.class) {
				w.t.Fatalf("lane %d in %s was told that %s is full, which has room", l.ID, l.of.leaf, c.Queue.Path)
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
	w.tree.Root.Walk(func(q *queue.Queue) { limited = limited || q.MaxSet&(1<<k) != 0 })
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
		w.turn(w.accounts[a.ID])
	}
	if w.tree.Readmitting() {
		w.t.Fatal("Readmit returned nil, but there is more")
	}
	for _, a := range w.accounts {
		if a.gone || a.Admitted() {
			continue
		}
		full := false // the queue where it is parked, or a queue above
		for path := a.Parked().Path; path != ""; path = path[:max(0, strings.LastIndexByte(path, '.'))] {
			most := w.configOf(path).MaxJobs
			full = full || most > 0 && w.admitted(path) >= most
		}
		if !full {
			w.t.Fatalf("account %d is parked at %s, but neither that nor a queue above is full", a.ID, a.Parked().Path)
		}
	}
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, names: placement.NewNames()}
	w.names.Amounts(plimsoll.Resources{"gpu": 1})
	w.config = w.draw()
	w.tree = queue.New(w.names, &w.config)
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
	}
	names := []string{
		"cycle", "cycle", "configure", "end", "end", "end", "fewer", "leave", "more", "open", "open", "reshape",
		"restate", "short", "short", "submit", "submit", "submit", "total", "total",
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
