package state

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// nodeless is a state without nodes, so that all tasks wait.
type nodeless struct {
	t  *testing.T
	s  *State
	at int64
}

func newNodeless(t *testing.T, c plimsoll.QueueConfig) *nodeless {
	s := New(Config{MaxEnded: 1}, c)
	return &nodeless{t, s, 1e15}
}

func (p *nodeless) turn(do func()) {
	p.t.Helper()
	p.at++
	p.s.Begin(p.at, 1)
	p.s.Forget(Budget{})
	p.s.Due(Budget{})
	do()
	p.s.Continue(Budget{})
	var c Changes
	p.s.Take(&c)
	if err := p.s.Check(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *nodeless) submit(id string, count int32, cpu int64, retry plimsoll.RetryPolicy) {
	p.t.Helper()
	p.turn(func() {
		_, err := p.s.Submit(&plimsoll.JobSpec{ID: id, Queue: "root.default", Groups: []plimsoll.GroupSpec{
			{
				Name: "g", Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": cpu},
				Retry: retry,
			},
		}}, false)
		if err != nil {
			p.t.Fatal(err)
		}
	})
}

func (p *nodeless) kill(id string) {
	p.t.Helper()
	p.turn(func() {
		if err := p.s.Kill(id, ""); err != nil {
			p.t.Fatal(err)
		}
	})
}

// Ended jobs leave no entries in the lists of waiting tasks, though an earlier job waits for ever.
func TestEndedJobsLeaveNothingBehind(t *testing.T) {
	tree := plimsoll.DefaultQueues()
	for _, parked := range []bool{false, true} {
		if parked {
			tree.Queues[0].MaxJobs = 1
		}
		p := newNodeless(t, tree)
		p.submit("first", 1, 100, plimsoll.RetryPolicy{})
		for i := range 2000 {
			id := fmt.Sprintf("j%d", i)
			p.submit(id, 1, 100, plimsoll.RetryPolicy{})
			p.kill(id)
			p.submit("own"+id, 1, int64(1000+i), plimsoll.RetryPolicy{}) // a class of its own
			p.kill("own" + id)
		}
		q := p.s.Queue("root.default")
		if q.Accounts != 1 || len(p.s.classes) != 1 || len(p.s.lanes.rows) > 3 || len(p.s.accounts.rows) > 3 ||
			len(p.s.jobs) > 3 {
			t.Errorf(
				"parked %t: %d accounts, %d classes, %d lanes, %d jobs are left", parked, q.Accounts, len(p.s.classes),
				len(p.s.lanes.rows), len(p.s.jobs),
			)
		}
	}
}

// Scaling up and down repeatedly does not lengthen the list of waiting tasks, nor change its order.
func TestScalingLeavesNothingBehind(t *testing.T) {
	p := newNodeless(t, plimsoll.DefaultQueues())
	p.submit("j", 100, 100, plimsoll.RetryPolicy{})
	g := &p.s.Job("j").Groups[0]
	for i := range 500 {
		for _, count := range []int32{int32(1 + i%99), 100} {
			p.turn(func() {
				if err := p.s.Scale("j", "g", count); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	if n := g.pending.len(); n > 400 {
		t.Errorf("%d entries, 100 tasks wait", n)
	}
	seen := map[int32]bool{}
	for g.lane.Ready() > 0 {
		ref := g.Next()
		if seen[ref.Index] {
			t.Fatalf("task %d stands twice", ref.Index)
		}
		seen[ref.Index] = true
		p.s.dequeue(g, ref.Task())
	}
	if len(seen) != 100 {
		t.Fatalf("%d tasks were next, want 100", len(seen))
	}
}

// The timer of a killed job's long delay does not keep the job.
func TestStaleTimersAreDropped(t *testing.T) {
	p := newNodeless(t, plimsoll.DefaultQueues())
	p.turn(func() {
		node := plimsoll.Node{ID: "n", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 1000}}
		if _, err := p.s.Register(&node, "gw"); err != nil {
			t.Fatal(err)
		}
	})
	for i := range 1000 {
		id := fmt.Sprintf("j%d", i)
		p.submit(
			id, 1, 100,
			plimsoll.RetryPolicy{Kind: plimsoll.RetryDelayed, Limit: 1, InitialDelay: math.MaxInt64 - time.Duration(i)},
		)
		p.turn(func() {
			ref := p.s.GroupOf(p.s.tree.Next()).Next()
			p.s.Bind(ref, 0)
			p.s.Report(
				p.s.Node("n"), id, "g", 0,
				&plimsoll.TaskReport{Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultFailed},
			)
		})
		p.kill(id)
	}
	if n := len(p.s.timers); n > 200 {
		t.Fatalf("%d timers, none has a cause", n)
	}
}

// The heap of timers gives them back in the order of their times.
func TestTimersFireInOrder(t *testing.T) {
	var h timerHeap
	for i := range int64(1000) {
		h.push(timer{at: i * 7919 % 1000})
	}
	for i := range int64(1000) {
		if got := h.pop().at; got != i {
			t.Fatalf("timer %d fires as number %d", got, i)
		}
	}
}

// A reader that has missed more changes than the log keeps must look at all nodes.
func TestNodeLogForgets(t *testing.T) {
	var s State
	for i := range int32(nodeLogSize) {
		s.nodeLog.add(i, RoomFreed)
	}
	events, next, ok := s.NodeEvents(0)
	if !ok || len(events) != nodeLogSize || next != nodeLogSize || events[1] != (NodeEvent{1, RoomFreed}) {
		t.Fatalf("%d events, %t", len(events), ok)
	}
	for i := range int32(nodeLogSize) {
		s.nodeLog.add(i, TaskCame)
	}
	if _, _, ok := s.NodeEvents(0); ok {
		t.Fatal("events are forgotten, but the reader is not told")
	}
	_, next, _ = s.NodeEvents(next)
	if events, _, ok := s.NodeEvents(next); !ok || len(events) != 0 {
		t.Fatal("nothing happened since now")
	}
}

// Retried tasks keep the place of their job: inside a leaf the job that was submitted first is
// first, over all classes.
func TestLeafIsFirstInFirstOutOverClasses(t *testing.T) {
	p := newNodeless(t, plimsoll.DefaultQueues())
	p.turn(func() {
		node := plimsoll.Node{ID: "n", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 100_000}}
		if _, err := p.s.Register(&node, "gw"); err != nil {
			t.Fatal(err)
		}
	})
	now := plimsoll.RetryPolicy{Kind: plimsoll.RetryImmediate, Limit: 5}
	p.submit("a", 2, 100, now)
	p.submit("b", 2, 200, now) // another class
	p.submit("c", 1, 100, now) // the class of a
	var order []string
	take := func() Ref {
		ref := p.s.GroupOf(p.s.tree.Next()).Next()
		order = append(order, ref.Task().ID)
		p.s.Bind(ref, 0)
		return ref
	}
	p.turn(func() { take(); take(); take() })
	p.turn(func() { // a.g.0 fails and is next again, before the other tasks of b and c
		p.s.Report(
			p.s.Node("n"), "a", "g", 0,
			&plimsoll.TaskReport{Attempt: 1, State: plimsoll.TaskFinished, Result: plimsoll.ResultFailed},
		)
		take()
		take()
		take()
	})
	if got, want := fmt.Sprint(order), "[a.g.0 a.g.1 b.g.0 a.g.0 b.g.1 c.g.0]"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if p.s.tree.Next() != nil {
		t.Fatal("something is left")
	}
}
