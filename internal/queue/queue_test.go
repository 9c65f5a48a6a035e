package queue_test

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// cluster is a state with one node that is large enough for everything, or none.
type cluster struct {
	t interface {
		Helper()
		Fatal(args ...any)
	}
	s  *state.State
	at int64
}

func (c *cluster) turn(do func() error) {
	c.t.Helper()
	c.at++
	c.s.Begin(c.at, uint64(c.at))
	if err := do(); err != nil {
		c.t.Fatal(err)
	}
	c.s.Continue(state.Budget{})
	var changes state.Changes
	c.s.Take(&changes)
	if err := c.s.Check(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) node(id string, capacity plimsoll.Resources) {
	c.t.Helper()
	c.turn(func() error {
		_, err := c.s.Register(&plimsoll.Node{ID: id, Incarnation: 1, Capacity: capacity}, "gw")
		return err
	})
}

func (c *cluster) submit(id, leaf string, count int32, r plimsoll.Resources) {
	c.t.Helper()
	c.turn(func() error {
		_, err := c.s.Submit(&plimsoll.JobSpec{ID: id, Queue: leaf, Groups: []plimsoll.GroupSpec{
			{Name: "g", Count: count, Command: []string{"true"}, Resources: r},
		}})
		return err
	})
}

// bind puts the next n tasks on the first node, whatever quotas say.
func (c *cluster) bind(leaf string, n int) {
	c.t.Helper()
	c.turn(func() error {
		for range n {
			c.s.Bind(c.s.Queue(leaf).Head().Group().Next(), 0)
		}
		return nil
	})
}

func tree(queues ...plimsoll.QueueConfig) plimsoll.QueueConfig {
	return plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true, Queues: queues}
}

// The queue with the smallest share goes first. A share is the largest, over the resources in use, of used over guaranteed, or over
// the maximum where nothing is guaranteed, or over the whole cluster where there is no maximum either.
func TestSmallestShareGoesFirst(t *testing.T) {
	const huge = plimsoll.MaxAmount
	type res = plimsoll.Resources
	for _, test := range []struct {
		name         string
		a, b         plimsoll.QueueConfig
		taskA, taskB res
		usedA, usedB int // tasks
		want         string
	}{
		{"nothing used: by name", plimsoll.QueueConfig{}, plimsoll.QueueConfig{}, res{"cpu": 1}, res{"cpu": 1}, 0, 0, "a"},
		{"equal shares: by name", plimsoll.QueueConfig{}, plimsoll.QueueConfig{}, res{"cpu": 7}, res{"cpu": 7}, 3, 3, "a"},
		{"less of the cluster", plimsoll.QueueConfig{}, plimsoll.QueueConfig{}, res{"cpu": 10}, res{"cpu": 10}, 2, 1, "b"},
		{
			"used over guaranteed",
			plimsoll.QueueConfig{Guaranteed: res{"cpu": 100}},
			plimsoll.QueueConfig{Guaranteed: res{"cpu": 10}},
			res{"cpu": 10},
			res{"cpu": 2},
			4, 4, "a", // 40 % and 80 %
		},
		{
			"guaranteed counts, not the maximum",
			plimsoll.QueueConfig{Guaranteed: res{"cpu": 100}, Max: res{"cpu": 100}},
			plimsoll.QueueConfig{Guaranteed: res{"cpu": 10}, Max: res{"cpu": 1000}},
			res{"cpu": 10},
			res{"cpu": 2},
			4, 4, "a",
		},
		{
			"used over the maximum where nothing is guaranteed",
			plimsoll.QueueConfig{Max: res{"cpu": 20}},
			plimsoll.QueueConfig{Max: res{"cpu": 200}},
			res{"cpu": 10},
			res{"cpu": 10},
			1, 4, "b", // 50 % and 20 %
		},
		{
			"the largest share of its resources",
			plimsoll.QueueConfig{Max: res{"cpu": 100, "memory": 100}},
			plimsoll.QueueConfig{Max: res{"cpu": 100, "memory": 100}},
			res{"cpu": 1, "memory": 30},
			res{"cpu": 20, "memory": 20},
			2, 2, "b", // 60 % of memory, 40 % of both
		},
		{
			"guaranteed nothing counts as all of it",
			plimsoll.QueueConfig{Guaranteed: res{"cpu": 0}},
			plimsoll.QueueConfig{Guaranteed: res{"cpu": 10}},
			res{"cpu": 1},
			res{"cpu": 1},
			1, 9, "b", // 100 % and 90 %
		},
		{
			"huge amounts that differ by one",
			plimsoll.QueueConfig{Guaranteed: res{"memory": huge}},
			plimsoll.QueueConfig{Guaranteed: res{"memory": huge}},
			res{"memory": huge / 2},
			res{"memory": huge/2 - 1},
			1, 1, "b",
		},
		{
			"huge amounts over huge guarantees that differ by one",
			plimsoll.QueueConfig{Guaranteed: res{"memory": huge - 1}},
			plimsoll.QueueConfig{Guaranteed: res{"memory": huge}},
			res{"memory": huge / 2},
			res{"memory": huge / 2},
			1, 1, "b",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.a.Name, test.b.Name = "a", "b"
			c := &cluster{t: t, s: state.New(state.Config{}, tree(test.a, test.b))}
			c.node("n", res{"cpu": 1000, "memory": huge})
			c.submit("ja", "root.a", int32(test.usedA+1), test.taskA)
			c.submit("jb", "root.b", int32(test.usedB+1), test.taskB)
			c.bind("root.a", test.usedA)
			c.bind("root.b", test.usedB)
			if got := queue.Next(c.s).Queue.Name; got != test.want {
				t.Fatalf("%s goes first, want %s", got, test.want)
			}
		})
	}
}

// Where nothing can be placed there is no next, and a queue without anything to place is passed over.
func TestNextPassesOverWhatIsBlocked(t *testing.T) {
	c := &cluster{t: t, s: state.New(state.Config{}, tree(plimsoll.QueueConfig{Name: "a"}, plimsoll.QueueConfig{Name: "b"}))}
	if queue.Next(c.s) != nil {
		t.Fatal("something is next, and nothing waits")
	}
	c.submit("ja", "root.a", 1, plimsoll.Resources{"cpu": 1})
	c.submit("jb", "root.b", 1, plimsoll.Resources{"cpu": 1})
	c.turn(func() error {
		c.s.Block(queue.Next(c.s), plimsoll.WaitNoNodes, nil, "there is no node")
		return nil
	})
	if got := queue.Next(c.s).Queue.Name; got != "b" {
		t.Fatalf("%s is next, want b", got)
	}
	c.turn(func() error {
		c.s.Block(queue.Next(c.s), plimsoll.WaitNoNodes, nil, "there is no node")
		return nil
	})
	if queue.Next(c.s) != nil {
		t.Fatal("something is next, and all is blocked")
	}
}

// Maxima hold on the way up, and the reason names the queue that is full, or the one that never has enough.
func TestBlockedNamesTheQueue(t *testing.T) {
	c := &cluster{t: t, s: state.New(state.Config{}, tree(plimsoll.QueueConfig{
		Name: "team", Parent: true, Max: plimsoll.Resources{"cpu": 4000, "memory": 4 << 30},
		Queues: []plimsoll.QueueConfig{{Name: "x", Max: plimsoll.Resources{"cpu": 3000}}, {Name: "y"}},
	}))}
	c.node("n", plimsoll.Resources{"cpu": 100_000, "memory": 100 << 30})
	leaf := func(name string) *state.Queue { return c.s.Queue("root.team." + name) }
	for i, test := range []struct {
		leaf     string
		task     plimsoll.Resources
		by, want string
	}{
		{"x", plimsoll.Resources{"cpu": 3000}, "", ""},
		{"x", plimsoll.Resources{"cpu": 3001}, "root.team.x", "the task asks for more than the max of root.team.x: cpu 3001m of 3"},
		{"y", plimsoll.Resources{"cpu": 4000, "memory": 5 << 30}, "root.team", "the task asks for more than the max of root.team: memory 5Gi of 4Gi"},
		{"y", plimsoll.Resources{"nvidia.com/gpu": 8}, "", ""}, // no maximum
	} {
		id := fmt.Sprintf("j%d", i)
		c.submit(id, "root.team."+test.leaf, 1, test.task)
		by, reason := queue.Blocked(c.s, leaf(test.leaf), c.s.Job(id).Groups[0].Amounts())
		if by != nil != (test.by != "") || by != nil && by.Path != test.by || reason != test.want {
			t.Errorf("%s in %s: %q, want %q", test.task, test.leaf, reason, test.want)
		}
	}
	c.bind("root.team.x", 1) // three cores are gone
	for _, test := range []struct{ leaf, job, want string }{
		{"x", "j0", "root.team.x is at its max: cpu 3 of 3"},
		{"y", "j0", "root.team is at its max: cpu 3 of 4"},
	} {
		if _, reason := queue.Blocked(c.s, leaf(test.leaf), c.s.Job(test.job).Groups[0].Amounts()); reason != test.want {
			t.Errorf("%s: %q, want %q", test.leaf, reason, test.want)
		}
	}
}

// However the tree looks and whatever is asked for, no queue goes over its maximum; and what is blocked by a queue would go over.
func TestQuotaIsNeverExceeded(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		var leaves []string
		config := tree(subtree(t, "root", 1, &leaves)...)
		c := &cluster{t: t, s: state.New(state.Config{}, config)}
		c.node("n", plimsoll.Resources{"cpu": 1 << 40, "memory": 1 << 40})
		sched := scheduler.New(c.s, rapid.Uint64().Draw(t, "seed"))
		for i := range rapid.IntRange(1, 12).Draw(t, "jobs") {
			c.submit(fmt.Sprintf("j%d", i), rapid.SampledFrom(leaves).Draw(t, "leaf"), rapid.Int32Range(1, 6).Draw(t, "count"), amounts(t, "asked", 9))
			c.turn(func() error {
				sched.Cycle(c.s, state.Budget{})
				return nil
			})
			c.s.Root.Walk(func(q *state.Queue) {
				for k := range q.Max {
					if q.MaxSet&(1<<k) != 0 && q.Allocated[k] > q.Max[k] {
						t.Fatalf("%s uses %d of %s, its maximum is %d", q.Path, q.Allocated[k], c.s.Names.Name(k), q.Max[k])
					}
				}
			})
		}
		for i := range 12 {
			j := c.s.Job(fmt.Sprintf("j%d", i))
			if j == nil || j.Groups[0].Counts.Pending == 0 {
				continue
			}
			if by, _ := queue.Blocked(c.s, j.Queue, j.Groups[0].Amounts()); by == nil {
				t.Fatalf("%s waits (%s), but no queue is in its way and there is room", j.Spec.ID, j.Groups[0].WaitReason)
			}
		}
	})
}

func subtree(t *rapid.T, path string, depth int, leaves *[]string) []plimsoll.QueueConfig {
	var queues []plimsoll.QueueConfig
	for i := range rapid.IntRange(1, 3).Draw(t, "queues") {
		q := plimsoll.QueueConfig{Name: fmt.Sprintf("q%d", i), Max: amounts(t, "max", 30)}
		if depth < 3 && rapid.Bool().Draw(t, "parent") {
			q.Parent, q.Queues = true, subtree(t, path+"."+q.Name, depth+1, leaves)
		} else {
			*leaves = append(*leaves, path+"."+q.Name)
		}
		queues = append(queues, q)
	}
	return queues
}

func amounts(t *rapid.T, label string, most int64) plimsoll.Resources {
	r := plimsoll.Resources{}
	for _, name := range []string{"cpu", "memory"} {
		if rapid.Bool().Draw(t, label+" "+name+"?") {
			r[name] = rapid.Int64Range(0, most).Draw(t, label+" "+name)
		}
	}
	return r
}

// Shares are compared exactly, however large the amounts: the order of two queues is that of the fractions as rational numbers.
func TestSharesAreComparedExactly(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(plimsoll.MaxAmount-100, plimsoll.MaxAmount))
		var used, guaranteed [2]int64
		for i := range used {
			used[i], guaranteed[i] = amount.Draw(t, "used"), amount.Draw(t, "guaranteed")
		}
		c := &cluster{t: t, s: state.New(state.Config{}, tree(
			plimsoll.QueueConfig{Name: "a", Guaranteed: plimsoll.Resources{"memory": guaranteed[0]}},
			plimsoll.QueueConfig{Name: "b", Guaranteed: plimsoll.Resources{"memory": guaranteed[1]}}))}
		c.node("n", plimsoll.Resources{"memory": 0})
		c.submit("ja", "root.a", 2, plimsoll.Resources{"memory": used[0]})
		c.submit("jb", "root.b", 2, plimsoll.Resources{"memory": used[1]})
		// The node is too small for that, so the state is not checked from here on.
		c.s.Bind(c.s.Queue("root.a").Head().Group().Next(), 0)
		c.s.Bind(c.s.Queue("root.b").Head().Group().Next(), 0)
		want := "a"
		if big.NewRat(used[1], guaranteed[1]).Cmp(big.NewRat(used[0], guaranteed[0])) < 0 {
			want = "b"
		}
		if got := queue.Next(c.s).Queue.Name; got != want {
			t.Fatalf("%s goes first, want %s: %d of %d and %d of %d", got, want, used[0], guaranteed[0], used[1], guaranteed[1])
		}
	})
}
