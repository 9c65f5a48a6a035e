package queue_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// pastWorld is a parent with a half-life of an hour and a maximum of 8 CPUs. The children a and b
// use it by turns.
type pastWorld struct {
	*fixture
	now time.Duration
}

func newPastWorld(t *testing.T, properties ...string) *pastWorld {
	p := withProperties("p", properties...)
	p.Parent, p.Max = true, plimsoll.Resources{plimsoll.CPU: 8}
	p.Queues = []plimsoll.QueueConfig{{Name: "a"}, {Name: "b"}}
	w := &pastWorld{fixture: newFixture(t, p), now: 365 * 24 * time.Hour}
	total, _ := w.names.Amounts(plimsoll.Resources{plimsoll.CPU: 8})
	w.tree.SetTotal(&total)
	w.pass(0)
	return w
}

func (w *pastWorld) pass(d time.Duration) {
	w.now += d
	w.tree.Advance(int64(w.now))
	if err := w.tree.Check(); err != nil {
		w.t.Fatal(err)
	}
}

// end ends all tasks of a job that run, and its waiting ones.
func (w *pastWorld) end(j *fixtureJob, running int) {
	for range running {
		w.tree.Refund(&j.Lane)
	}
	w.leave(j)
}

func (w *pastWorld) running(leaf string) int32 { return w.tree.Find(leaf).Running }

// usesAlone lets a use all 8 CPUs for some time. Then jobs of both leaves wait for them.
func (w *pastWorld) usesAlone(time time.Duration) (a, b *fixtureJob) {
	w.t.Helper()
	c := w.class(1, 0)
	first := w.job("root.p.a", c, 8)
	w.cycle()
	w.pass(time)
	w.end(first, 8)
	a, b = w.job("root.p.a", c, 8), w.job("root.p.b", c, 8)
	w.cycle()
	return a, b
}

// With a half-life the queue that has used more goes later, until its past has faded or the other
// one has caught up. Without one only what is used now counts.
func TestAQueueThatHasUsedMoreGoesLater(t *testing.T) {
	for name, test := range map[string]struct {
		properties []string
		alone      time.Duration
		a, b       int32 // tasks of the 8 that the leaves get
	}{
		"without a half-life":             {nil, 8 * time.Hour, 4, 4},
		"none":                            {[]string{plimsoll.PropertyHalfLife, "0"}, 8 * time.Hour, 4, 4},
		"a long past counts as all of it": {[]string{plimsoll.PropertyHalfLife, "1h"}, 20 * time.Hour, 0, 8},
		"one half-life counts as half":    {[]string{plimsoll.PropertyHalfLife, "1h"}, time.Hour, 2, 6},
		"a short past does not count":     {[]string{plimsoll.PropertyHalfLife, "1h"}, time.Second, 4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPastWorld(t, test.properties...)
			w.usesAlone(test.alone)
			if a, b := w.running("root.p.a"), w.running("root.p.b"); a != test.a || b != test.b {
				t.Errorf("a has %d tasks and b %d, want %d and %d", a, b, test.a, test.b)
			}
		})
	}
}

// The past fades also when nothing is used, and a queue with none left counts as before.
func TestThePastIsForgotten(t *testing.T) {
	w := newPastWorld(t, plimsoll.PropertyHalfLife, "1h")
	a, b := w.usesAlone(20 * time.Hour)
	w.end(a, 0)
	w.end(b, 8)
	w.pass(200 * time.Hour)
	c := w.class(1, 0)
	w.job("root.p.a", c, 8)
	w.job("root.p.b", c, 8)
	w.cycle()
	if got := w.running("root.p.a"); got != 4 {
		t.Errorf("a has %d tasks", got)
	}
	if mean, _, ok := w.tree.Find("root.p.a").Past(); !ok || mean[placement.IndexCPU] != 0 {
		t.Errorf("the past of a is %v, %t", mean[placement.IndexCPU], ok)
	}
}

// nextPasts takes the paths whose pasts are to be stored or deleted.
func (w *pastWorld) nextPasts() (paths []string) {
	for path, ok := w.tree.NextPast(); ok; path, ok = w.tree.NextPast() {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// The past changes at most every 10 s, for all queues at once, and is listed to be stored. Another
// tree that is given what was stored goes on with it.
func TestThePastIsStored(t *testing.T) {
	w := newPastWorld(t, plimsoll.PropertyHalfLife, "1h")
	w.job("root.p.a", w.class(1, 0), 8)
	w.cycle()
	w.pass(10 * time.Second)
	if got := w.nextPasts(); !slices.Equal(got, []string{"root.p.a"}) {
		t.Errorf("%q are to be stored", got)
	}
	w.pass(9 * time.Second)
	if w.tree.HasNextPast() {
		t.Errorf("%q are to be stored again after 9 s", w.nextPasts())
	}
	if due := w.tree.PastDue(); due != int64(w.now+time.Second) {
		t.Errorf("the past changes next in %v", time.Duration(due)-w.now)
	}
	w.pass(time.Second)
	mean, at, ok := w.tree.Find("root.p.a").Past()
	if got := w.nextPasts(); !ok || !slices.Equal(got, []string{"root.p.a"}) || at != int64(w.now) {
		t.Errorf("%q are to be stored, as of %d: %t", got, at, ok)
	}
	if cpu := mean[placement.IndexCPU]; cpu < 0.030 || cpu > 0.031 { // 8 × (1 - 2^(-20s/1h))
		t.Errorf("the past of a is %v CPUs", cpu)
	}
	next := newPastWorld(t, plimsoll.PropertyHalfLife, "1h")
	next.tree.SetPast("root.p.a", &mean, at)
	next.tree.SetPast("root.p.gone", &mean, at)
	if again, since, ok := next.tree.Find("root.p.a").Past(); !ok || again != mean || since != at {
		t.Errorf("the other tree has %v as of %d: %t", again, since, ok)
	}
	if got := next.nextPasts(); !slices.Equal(got, []string{"root.p.gone"}) {
		t.Errorf("%q are to be deleted", got)
	}
}

// A queue keeps its past over a new configuration, as long as the queue above has a half-life. The
// past is deleted with the queue, or with the property.
func TestThePastFollowsTheConfiguration(t *testing.T) {
	w := newPastWorld(t, plimsoll.PropertyHalfLife, "1h")
	c := w.tree.Config()
	a, b := w.usesAlone(time.Hour)
	w.nextPasts()
	mean, _, _ := w.tree.Find("root.p.a").Past()
	c.Queues[0].Properties = map[string]string{plimsoll.PropertyHalfLife: "2h"}
	w.tree.Configure(&c)
	if after, _, ok := w.tree.Find("root.p.a").Past(); !ok || after != mean {
		t.Errorf("the past of a is %v, not %v", after, mean)
	}
	w.pass(time.Minute)
	w.nextPasts()
	w.end(a, int(w.running("root.p.a")))
	w.end(b, int(w.running("root.p.b")))
	c.Queues[0].Queues = c.Queues[0].Queues[1:]
	w.tree.Configure(&c)
	if got := w.nextPasts(); !slices.Equal(got, []string{"root.p.a"}) {
		t.Errorf("%q are to be deleted with the queue", got)
	}
	w.pass(time.Minute)
	w.nextPasts()
	c.Queues[0].Properties = nil
	w.tree.Configure(&c)
	if got := w.nextPasts(); !slices.Equal(got, []string{"root.p.b"}) {
		t.Errorf("%q are to be deleted with the property", got)
	}
	if _, _, ok := w.tree.Find("root.p.b").Past(); ok {
		t.Error("b has a past")
	}
}

// The property is inherited: it holds at each level below the queue that states it, and a queue
// below may state another value.
func TestTheHalfLifeIsInherited(t *testing.T) {
	p := withProperties("p", plimsoll.PropertyHalfLife, "1h")
	p.Parent = true
	off := withProperties("off", plimsoll.PropertyHalfLife, "0")
	off.Parent, off.Queues = true, []plimsoll.QueueConfig{{Name: "x"}}
	p.Queues = []plimsoll.QueueConfig{off, {Name: "on", Parent: true, Queues: []plimsoll.QueueConfig{{Name: "x"}}}}
	f := newFixture(t, p)
	f.tree.Advance(int64(time.Hour))
	for _, leaf := range []string{"root.p.off.x", "root.p.on.x"} {
		f.job(leaf, f.class(1, 0), 1)
	}
	f.cycle()
	f.tree.Advance(int64(2 * time.Hour))
	have := map[string]bool{}
	f.tree.Root.Walk(func(q *queue.Queue) {
		if _, _, ok := q.Past(); ok {
			have[q.Path] = true
		}
	})
	want := []string{"root.p.off", "root.p.on", "root.p.on.x"}
	if got := slices.Sorted(maps.Keys(have)); !slices.Equal(got, want) {
		t.Errorf("%q have a past, want %q", got, want)
	}
}

// A resource whose number another one may get is forgotten.
func TestAResourceIsForgotten(t *testing.T) {
	w := newPastWorld(t, plimsoll.PropertyHalfLife, "1h")
	w.usesAlone(time.Hour)
	w.nextPasts()
	w.tree.ForgetResource(placement.IndexCPU)
	if mean, _, _ := w.tree.Find("root.p.a").Past(); mean[placement.IndexCPU] != 0 {
		t.Errorf("the past of a is %v", mean)
	}
	if got := w.nextPasts(); !slices.Equal(got, []string{"root.p.a"}) {
		t.Errorf("%q are to be stored", got)
	}
	if err := w.tree.Check(); err != nil {
		t.Error(err)
	}
}
