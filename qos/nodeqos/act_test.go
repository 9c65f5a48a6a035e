package nodeqos

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
)

var throttleByFifth = plimsoll.Action{Throttle: &plimsoll.ThrottleAction{MinRatio: 10, Step: 20}}

// When a line is crossed by two and a half steps, exactly three tasks of the lowest priority are
// throttled, in the kernel. Below the line they get everything back, the highest priority first, up
// to the exact original.
func TestThrottleOnlyAsManyAsNeededAndGiveBackExactly(t *testing.T) {
	n := newNode(t, subtree(t))
	n.batch("a", "b", "c", "d")
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{}))
	n.set(5)
	n.steps(2)
	same(t, "below the line", n.quotas(), "a:100000 b:100000 c:100000 d:100000")
	n.told()

	n.set(12.5)
	n.step()
	same(t, "above the line", n.quotas(), "a:80000 b:80000 c:80000 d:100000")
	same(t, "told", n.told(), []string{
		"rule triggered", "throttled a quota 1 core → quota 0.8 cores", "throttled b quota 1 core → quota 0.8 cores",
		"throttled c quota 1 core → quota 0.8 cores",
	})

	n.set(9.85)
	n.step()
	same(t, "at once the one of the highest priority", n.quotas(), "a:80000 b:96000 c:96000 d:100000")
	n.set(5)
	n.steps(3)
	same(t, "given back", n.quotas(), "a:100000 b:100000 c:100000 d:100000")
	if held := n.loop.state.ledger.Held(); len(held) > 0 {
		t.Errorf("still held: %v", held)
	}
}

// The first rung only lets others go first: the group runs when nothing else wants to. It gets
// exactly the weight back that it had.
func TestIdleAndWeightComeBack(t *testing.T) {
	for name, weight := range map[string]*plimsoll.WeightAction{"idle": {Idle: true}, "shares": {Shares: 64}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, subtree(t))
			n.batch("a")
			c := n.control("a")
			before, err := c.Scheduling()
			if err != nil {
				t.Fatal(err)
			}
			n.loop.SetPolicies(policies(plimsoll.Action{Weight: weight, CoolDown: 5 * time.Second}, plimsoll.Rule{}))
			n.set(11)
			n.steps(3)
			got, err := c.Scheduling()
			if err != nil || got.Idle != weight.Idle || !weight.Idle && got.Shares > 64 {
				t.Errorf("above the line it is %+v, %v", got, err)
			}
			if told := n.told(); len(told) != 2 || !strings.HasPrefix(told[1], "reweighted a weight") {
				t.Errorf("told %v", told)
			}
			n.set(1)
			n.steps(10)
			if got, err := c.Scheduling(); err != nil || got != before {
				t.Errorf("below the line it is %+v, %v; want %+v", got, err, before)
			}
		})
	}
}

// A task that was frozen stands still in the kernel, for no longer than the action says, however
// far above its line the node is.
func TestFreezeHasALimit(t *testing.T) {
	n := newNode(t, subtree(t))
	g := n.burning("a")
	n.loop.SetPolicies(policies(plimsoll.Action{Freeze: &plimsoll.FreezeAction{For: 3 * time.Second}}, plimsoll.Rule{}))
	n.steps(2)
	n.set(11)
	burn := used(t, g)
	eventually(t, "burning", func() bool { return used(t, g) > burn+10*time.Millisecond })
	n.step()
	frozen, err := n.control("a").Frozen()
	if err != nil || !frozen {
		t.Fatalf("frozen %v, %v", frozen, err)
	}
	n.steps(2)
	if frozen, err := n.control("a").Frozen(); err != nil || !frozen {
		t.Errorf("after two seconds: frozen %v, %v", frozen, err)
	}
	n.steps(1)
	if frozen, err := n.control("a").Frozen(); err != nil || frozen {
		t.Errorf("after three seconds: frozen %v, %v", frozen, err)
	}
	burn = used(t, g)
	eventually(t, "burning again", func() bool { return used(t, g) > burn })
	same(t, "told", n.told(), []string{"rule triggered", "frozen a running → frozen", "thawed a frozen → running"})
}

// A frozen task that is being stopped must receive SIGTERM, so it is thawed. The loop thaws a task
// before it stops it.
func TestFrozenTasksAreThawedToBeStopped(t *testing.T) {
	for _, who := range []string{"somebody else", "the loop", "the end of the loop"} {
		t.Run(who, func(t *testing.T) {
			n := newNode(t, subtree(t))
			g := n.burning("a")
			freeze := plimsoll.Action{Freeze: &plimsoll.FreezeAction{For: time.Minute}}
			n.loop.SetPolicies(policies(freeze, plimsoll.Rule{}))
			n.steps(2)
			n.set(11)
			burn := used(t, g)
			eventually(t, "burning", func() bool { return used(t, g) > burn+10*time.Millisecond })
			c := n.control("a")
			// at once, unless the machine is so busy that it takes more than freezeTime
			eventually(t, "standing still", func() bool {
				n.step()
				frozen, err := c.Frozen()
				if err != nil {
					t.Fatal(err)
				}
				return frozen
			})
			n.evict = func(context.Context, string) error {
				if frozen, err := c.Frozen(); err != nil || frozen {
					t.Errorf("when it is stopped: frozen %v, %v", frozen, err)
				}
				return nil
			}
			switch who {
			case "somebody else":
				n.task("a").Stopping = true
				n.step()
			case "the loop":
				n.loop.SetPolicies(policies(plimsoll.Action{Evict: &plimsoll.EvictAction{}}, plimsoll.Rule{}))
				n.step()
				n.settle()
				same(t, "stopped", n.evicted, []string{"a"})
			default:
				if err := n.loop.end(); err != nil {
					t.Fatal(err)
				}
			}
			if frozen, err := c.Frozen(); err != nil || frozen {
				t.Errorf("frozen %v, %v", frozen, err)
			}
		})
	}
}

// Just as many tasks are stopped as the gap needs. Tasks that are on their way count, so no other
// task is stopped for them. A task whose stop was refused counts for nothing, is reported, and is
// left alone for a while.
func TestEvictExactlyAndCountThoseOnTheirWay(t *testing.T) {
	n := newNode(t, nil)
	n.batch("a", "b", "c", "d", "e")
	n.loop.SetPolicies(policies(plimsoll.Action{Evict: &plimsoll.EvictAction{Grace: time.Second}}, plimsoll.Rule{}))
	n.evict = func(_ context.Context, task string) error {
		if task == "a" {
			return errors.New("the supervisor does not answer")
		}
		return nil
	}
	n.set(13) // two tasks release two each
	n.step()
	n.settle()
	slices.Sort(n.evicted)
	same(t, "stopped", n.evicted, []string{"a", "b"})
	n.step()
	n.settle()
	slices.Sort(n.evicted)
	same(t, "and for the one that failed", n.evicted, []string{"a", "b", "c"})
	n.steps(3)
	n.settle()
	same(t, "stopped at last", len(n.evicted), 3)
	same(t, "told", n.told(), []string{
		"rule triggered", "evicting a running → stopping", "evicting b running → stopping",
		"failed a running → stopping", "evicting c running → stopping",
	})
}

// Stopping tasks may take for ever. The loop goes on meanwhile, and a stop that is cut off when it
// ends is not reported.
func TestStoppingTasksDoesNotHoldUpTheLoop(t *testing.T) {
	n := newNode(t, nil)
	n.batch("a", "b")
	n.loop.SetPolicies(policies(plimsoll.Action{Evict: &plimsoll.EvictAction{}}, plimsoll.Rule{}))
	n.evict = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	ctx, stop := context.WithCancel(t.Context())
	n.set(11)
	n.now = n.now.Add(time.Second)
	n.loop.measureAll(ctx, &n.loop.cfg.Metrics[0])
	n.loop.sample(ctx)
	n.steps(3)
	if n.loop.state.number != 4 {
		t.Errorf("%d samples", n.loop.state.number)
	}
	stop()
	n.loop.background.wait()
	n.loop.collectFinished(ctx)
	same(t, "told", n.told(), []string{"rule triggered", "evicting a running → stopping"})
}

// A group that vanishes after the plan was made is no failure: it is not told, and nothing is kept
// of it.
func TestAGroupThatVanishesIsNoFailure(t *testing.T) {
	n := newNode(t, subtree(t))
	n.batch("a", "b")
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{}))
	n.steps(2)
	n.during = func(task string) {
		g, err := n.tree.Open(task + "-1")
		if err == nil && task == "a" {
			err = g.Remove(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	n.set(11.5)
	n.step()
	same(t, "told", n.told(), []string{"rule triggered", "throttled b quota 1 core → quota 0.8 cores"})
	n.during = nil
	n.tasks = n.tasks[1:]
	n.set(1)
	n.steps(3)
	same(t, "b has everything back", n.quotas(), "b:100000")
	if len(n.loop.state.groups) != 1 || len(n.loop.state.ledger.Held()) != 0 {
		t.Errorf("%d groups, %v held", len(n.loop.state.groups), n.loop.state.ledger.Held())
	}
}

// Changes to a group by other programs between its readings are noticed before the loop changes it,
// so that the right original is recorded.
func TestWhatOthersWriteIsSeenBeforeActing(t *testing.T) {
	n := newNode(t, subtree(t))
	n.batch("a")
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{}))
	n.steps(2)
	if err := n.control("a").SetQuota(cgroup.Quota{Micros: 60_000}); err != nil {
		t.Fatal(err)
	}
	n.set(10.5)
	n.steps(2)
	same(t, "throttled from what it really had", n.quotas(), "a:48000")
	n.set(1)
	n.steps(3)
	same(t, "and back", n.quotas(), "a:60000")
}

// A guaranteed task may use the unused part of one period in the next. If policies allow to
// throttle it below that, the burst gives way.
func TestGuaranteedTasksGetABurst(t *testing.T) {
	n := newNode(t, subtree(t))
	n.add(Task{ID: "a", Class: plimsoll.ClassGuaranteed, Resources: plimsoll.Resources{plimsoll.CPU: 500}})
	n.step()
	c := n.control("a")
	if burst, err := c.Burst(); err != nil || burst != 50_000 {
		t.Skipf("no burst here: %d, %v", burst, err)
	}
	g := n.loop.state.groups[n.tasks[0].Key()]
	if err := g.setQuota(200_000_000); err != nil {
		t.Fatal(err)
	}
	if q, err := c.Quota(); err != nil || q.Micros != 20_000 {
		t.Errorf("quota %v, %v", q, err)
	}
}

// Before a task is stopped the kernel may reclaim memory of it, in the background. The task is
// stopped only if that had its time and was not enough.
func TestMemoryIsReclaimedBeforeAnybodyIsStopped(t *testing.T) {
	n := newNode(t, subtree(t))
	g := n.burning("a")
	eventually(t, "using memory", func() bool { u, err := g.Usage(); return err == nil && u.MemoryBytes > 4<<20 })
	n.loop.SetPolicies(policies(plimsoll.Action{Evict: &plimsoll.EvictAction{Reclaim: true}}, plimsoll.Rule{}))
	n.steps(2)
	n.set(11)
	n.step()
	if steps := n.loop.state.result.Steps; len(steps) != 1 || steps[0].Verb != qos.Reclaim {
		t.Fatalf("planned %+v", steps)
	}
	n.settle()
	told := n.told()
	// an old kernel takes its time
	if len(told) != 2 || !strings.HasPrefix(told[1], "reclaimed a") && !strings.HasPrefix(told[1], "failed a") {
		t.Errorf("told %v", told)
	}
	n.step()
	n.settle()
	same(t, "stopped while memory is reclaimed", n.evicted, []string{})
	n.steps(12) // when it failed, the task is left alone for longer
	n.settle()
	same(t, "stopped at last", n.evicted, []string{"a"})
}
