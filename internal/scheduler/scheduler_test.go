package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

type cluster struct {
	t     *testing.T
	s     *state.State
	sched *scheduler.Scheduler
	at    int64
}

func newCluster(t *testing.T, queues plimsoll.QueueConfig) *cluster {
	s := state.New(state.Config{}, queues)
	return &cluster{t: t, s: s, sched: scheduler.New(s, 1)}
}

// turn calls do, runs a cycle, and returns the ids of the bound tasks in their order.
func (c *cluster) turn(do func() error) (bound []string) {
	c.t.Helper()
	c.at++
	c.s.Begin(c.at, uint64(c.at))
	if err := do(); err != nil {
		c.t.Fatal(err)
	}
	c.s.Continue(state.Budget{})
	n, more := c.sched.Cycle(c.s, state.Budget{})
	if more {
		c.t.Fatal("a cycle without a budget stopped before it was done")
	}
	var changes state.Changes
	c.s.Take(&changes)
	if err := c.s.Check(); err != nil {
		c.t.Fatal(err)
	}
	for i := range changes.Events {
		if e := &changes.Events[i]; e.Detail == plimsoll.AppAlloc && e.Change == plimsoll.ChangeAdd {
			bound = append(bound, e.Reference)
		}
	}
	if len(bound) != n {
		c.t.Fatalf("%d tasks were bound, Cycle says %d", len(bound), n)
	}
	return bound
}

func (c *cluster) node(id string, cpu int64) []string {
	c.t.Helper()
	return c.turn(func() error {
		_, err := c.s.Register(&plimsoll.Node{ID: id, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": cpu}}, "gw")
		return err
	})
}

func (c *cluster) submit(id, leaf string, count int32, cpu int64) []string {
	c.t.Helper()
	return c.turn(func() error {
		_, err := c.s.Submit(&plimsoll.JobSpec{ID: id, Queue: leaf, Groups: []plimsoll.GroupSpec{
			{Name: "g", Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": cpu}},
		}}, false)
		return err
	})
}

func leaves(queues ...plimsoll.QueueConfig) plimsoll.QueueConfig {
	return plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true, Queues: queues}
}

// Two leaves that want more than the cluster has get the same, task by task, however early and
// large the demand of one is.
func TestTwoLeavesShareEvenly(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}, plimsoll.QueueConfig{Name: "b"}))
	c.submit("ja", "root.a", 1000, 100)
	c.submit("jb", "root.b", 100, 100)
	bound := c.node("n", 10_000)
	if len(bound) != 100 {
		t.Fatalf("%d tasks were bound, want 100", len(bound))
	}
	a := 0
	for i, id := range bound {
		if strings.HasPrefix(id, "ja.") {
			a++
		}
		if b := i + 1 - a; a-b > 1 || b-a > 1 {
			t.Fatalf("after %d tasks one leaf has %d and the other %d", i+1, a, b)
		}
	}
}

// Guarantees weigh: a leaf that is guaranteed three times as much gets three times as much.
func TestGuaranteesWeigh(t *testing.T) {
	c := newCluster(t, leaves(
		plimsoll.QueueConfig{Name: "a", Guaranteed: plimsoll.Resources{"cpu": 3000}},
		plimsoll.QueueConfig{Name: "b", Guaranteed: plimsoll.Resources{"cpu": 1000}}))
	c.submit("ja", "root.a", 1000, 100)
	c.submit("jb", "root.b", 1000, 100)
	c.node("n", 8000)
	if a, b := c.s.Queue("root.a").Running, c.s.Queue("root.b").Running; a != 60 || b != 20 {
		t.Fatalf("%d and %d tasks run, want 60 and 20", a, b)
	}
}

// A task that cannot be placed now does not delay tasks that can. It is first again once it can be
// placed.
func TestSmallTasksPassLargeOnes(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("n", 1000)
	c.submit("large", "root.a", 1, 2000)
	if bound := c.submit("small", "root.a", 3, 500); fmt.Sprint(bound) != "[small.g.0 small.g.1]" {
		t.Fatalf("%v were bound", bound)
	}
	if bound := c.node("n2", 2000); fmt.Sprint(bound) != "[large.g.0]" {
		t.Fatalf("%v were bound, want the large task, which came first", bound)
	}
}

// A cycle without a cause evaluates no server: blocked classes are not polled.
func TestBlockedShapesAreNotPolled(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a", Max: plimsoll.Resources{"cpu": 5000}}))
	c.node("full", 1000)
	c.submit("fill", "root.a", 1, 1000)
	for i := range 20 {
		c.submit(fmt.Sprintf("j%d", i), "root.a", 1, int64(900+i))
	}
	quiet := func() error { return nil }
	if n := testing.AllocsPerRun(50, func() {
		if bound, more := c.sched.Cycle(c.s, state.Budget{}); bound != 0 || more {
			t.Fatal("a cycle without a cause did something")
		}
	}); n != 0 {
		t.Errorf("%v allocations: a cycle without a cause explains something again", n)
	}
	c.turn(quiet)
	before := c.s.Job("j0").Groups[0].Wait
	// A node that frees room wakes only the classes that fit into it.
	c.turn(func() error {
		c.s.Report(
			c.s.Node("full"), "fill", "g", 0,
			&plimsoll.TaskReport{Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultSucceeded},
		)
		return nil
	})
	if c.s.Job("j0").Groups[0].Counts.Bound != 1 {
		t.Fatalf("j0 still waits: %s", before)
	}
}

// A cycle that its budget ends reports more, and the next one continues.
func TestBudgetEndsACycle(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.submit("j", "root.a", 100, 10)
	c.s.Begin(100, 100)
	if _, err := c.s.Register(
		&plimsoll.Node{ID: "n", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 1000}}, "gw",
	); err != nil {
		t.Fatal(err)
	}
	total := 0
	for cycles := 1; ; cycles++ {
		n, more := c.sched.Cycle(c.s, state.Budget{Ops: 30})
		if total += n; !more {
			if total != 100 || cycles < 4 {
				t.Fatalf("%d tasks in %d cycles", total, cycles)
			}
			return
		}
		if n == 0 || n > 40 {
			t.Fatalf("a cycle bound %d tasks", n)
		}
		var changes state.Changes
		c.s.Take(&changes)
	}
}

// Explain is true of a task in each state of its life.
func TestExplain(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a", Max: plimsoll.Resources{"cpu": 5000}, MaxJobs: 4}))
	explain := func(job string) string {
		ref, ok := c.s.FindTask(job, "g", 0)
		if !ok {
			t.Fatalf("there is no task of %s", job)
		}
		e, err := c.sched.Explain(c.s, ref, "")
		if err != nil {
			t.Fatal(err)
		}
		return e.Code.String() + ": " + e.Summary
	}
	want := func(job, text string) {
		t.Helper()
		if got := explain(job); got != text {
			t.Errorf("%s: %q, want %q", job, got, text)
		}
	}
	c.submit("early", "root.a", 1, 1000)
	want("early", "no_nodes: there is no node")
	c.node("n", 4000)
	want("early", ": Bound on node n, attempt 1")
	c.submit("wide", "root.a", 1, 3500)
	want("wide", "no_node: 1 of 1 nodes: not enough cpu")
	c.submit("large", "root.a", 1, 4500)
	want("large", "queue_max: root.a is at its max: cpu 1 of 5")
	c.submit("huge", "root.a", 1, 5500)
	want("huge", "queue_max: the task asks for more than the max of root.a: cpu 5500m of 5")
	c.submit("parked", "root.a", 1, 100)
	want("parked", "queue_max: root.a runs as many jobs as it may: 4 of 4")
	c.turn(func() error { return c.s.SetNodeMode("n", plimsoll.NodeCordoned) })
	want("wide", "no_nodes: 1 of 1 nodes: cordoned")
	c.turn(func() error { return c.s.Kill("huge", "") })
	want("huge", ": finished (killed)")
	want("parked", "no_nodes: 1 of 1 nodes: cordoned")
}
