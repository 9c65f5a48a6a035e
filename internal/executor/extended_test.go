package executor

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// Lent resources count into the limits, but give no weight: their owner goes first.
func TestLentResourcesAreLimitedAndYield(t *testing.T) {
	const core = int64(1000)
	for _, c := range []struct {
		name      string
		class     plimsoll.Class
		resources plimsoll.Resources
		limits    cgroup.Limits
		shares    int64 // 0: those of the limits
	}{
		{"nothing is asked for", 0, nil, cgroup.Limits{}, 0},
		{
			"nothing is lent", 0,
			plimsoll.Resources{plimsoll.CPU: core, plimsoll.Memory: 7},
			cgroup.Limits{CPUMilli: core, MemoryBytes: 7},
			0,
		},
		{
			"all is lent", 0,
			plimsoll.Resources{plimsoll.ExtCPU: 2 * core, plimsoll.ExtMemory: 9},
			cgroup.Limits{CPUMilli: 2 * core, MemoryBytes: 9},
			cgroup.MinShares,
		},
		{
			"a part is lent", 0,
			plimsoll.Resources{plimsoll.CPU: core, plimsoll.ExtCPU: core, plimsoll.Memory: 1, plimsoll.ExtMemory: 2},
			cgroup.Limits{CPUMilli: 2 * core, MemoryBytes: 3},
			1024,
		},
		{
			"only memory is lent", 0,
			plimsoll.Resources{plimsoll.CPU: core, plimsoll.ExtMemory: 2},
			cgroup.Limits{CPUMilli: core, MemoryBytes: 2},
			0,
		},
		{"best effort without a processor", plimsoll.ClassBestEffort, nil, cgroup.Limits{}, cgroup.MinShares},
		{
			"only memory is lent, without a processor", 0,
			plimsoll.Resources{plimsoll.ExtMemory: 2},
			cgroup.Limits{MemoryBytes: 2},
			cgroup.MinShares,
		},
		{
			"best effort with a processor", plimsoll.ClassBestEffort,
			plimsoll.Resources{plimsoll.CPU: core},
			cgroup.Limits{CPUMilli: core},
			0,
		},
		{
			"more than the kernel weighs", 0,
			plimsoll.Resources{plimsoll.CPU: 1 << 40, plimsoll.ExtCPU: 1},
			cgroup.Limits{CPUMilli: 1<<40 + 1},
			cgroup.MaxShares,
		},
	} {
		spec := plimsoll.GroupSpec{Class: c.class, Resources: c.resources}
		if l, s := groupLimits(c.resources), yieldingShares(&spec); l != c.limits || s != c.shares {
			t.Errorf("%s: limits %+v and %d shares, want %+v and %d", c.name, l, s, c.limits, c.shares)
		}
		if l := limitsOf(&spec); l.Memory != c.limits.MemoryBytes {
			t.Errorf("%s: its memory limit is told as %d, want %d", c.name, l.Memory, c.limits.MemoryBytes)
		}
	}
}

// The kernel's files show the same limits and weight.
func TestALentProcessorInTheControlGroup(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone}, func(_ *testing.T, n *node) {
		req := request("job.g.0", "sleep 1000")
		req.Spec.Resources = plimsoll.Resources{plimsoll.ExtCPU: 500, plimsoll.ExtMemory: 64 << 20}
		n.start(req)
		g := n.group(req.Task)
		if l, err := g.Limits(); err != nil || l != (cgroup.Limits{CPUMilli: 500, MemoryBytes: 64 << 20}) {
			n.Errorf("limits are %+v, %v", l, err)
		}
		var got cgroup.Scheduling
		if err := withControl(
			g, func(c *cgroup.Control) (err error) { got, err = c.Scheduling(); return err },
		); err != nil || got.Shares != cgroup.MinShares {
			n.Errorf("it competes as %+v, %v; want %d shares", got, err, cgroup.MinShares)
		}
	})
}

// The agent opens the node's control group from the supervisor's capabilities, and finds attempts
// in it by their names.
func TestTheSubtreeIsReported(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone, bare}, func(_ *testing.T, n *node) {
		n.start(request("job.g.0", "sleep 1000"))
		caps := n.Capabilities()
		tree, err := caps.OpenSubtree()
		if n.mode.cgroups == NoCgroups {
			if tree != nil || err != nil {
				n.Errorf("without control groups there is %v, %v", tree, err)
			}
			return
		}
		if err != nil {
			n.Fatal(err)
		}
		g, err := tree.Open(CgroupName("job.g.0", 1))
		if err != nil {
			n.Fatal(err)
		}
		if pids, err := g.Pids(); err != nil || len(pids) == 0 || tree.Path() != n.subtree().Path() {
			n.Errorf("%s holds the processes %v, %v", tree.Path(), pids, err)
		}
	})
}

// A stop thaws a frozen group, which would receive SIGTERM only after the grace. The task ends by
// itself.
func TestAStopThawsAFrozenAttempt(t *testing.T) {
	const script = `trap 'exit 7' TERM; echo ready >> said; while :; do sleep 0.01; done`
	eachMode(t, []mode{inGroups, inV1Alone}, func(_ *testing.T, n *node) {
		freeze := func(task string) {
			n.Helper()
			n.lines(task, "said", 1)
			freeze := func(c *cgroup.Control) error { return c.Freeze(n.limit()) }
			if err := withControl(n.group(task), freeze); err != nil {
				n.Fatal(err)
			}
		}
		stop := func(task string) {
			n.Helper()
			// The default grace is ten seconds; a kill after it would have exit code 137.
			if err := n.Stop(
				n.limit(), StopRequest{Task: task, Attempt: 1, Result: plimsoll.ResultEvicted, Message: "make room"},
			); err != nil {
				n.Fatal(err)
			}
		}
		for _, task := range []string{"job.g.0", "job.g.1"} {
			n.start(request(task, script))
			freeze(task)
		}
		stop("job.g.0")
		n.wantEnd(n.waitFor("job.g.0", 1, (*Status).Ended), plimsoll.ResultEvicted, 7, "make room")
		n.endSupervisor(syscall.SIGKILL) // the next supervisor adopts the attempt
		n.connect()
		stop("job.g.1")
		n.wantEnd(n.waitFor("job.g.1", 1, (*Status).Ended), plimsoll.ResultEvicted, -1, "make room")
	})
}

// If the agent freezes a task and does not come back, the supervisor thaws the task.
func TestAFrozenAttemptIsThawedWithoutAnAgent(t *testing.T) {
	short := func(m mode) mode { m.thaw = 300 * time.Millisecond; return m }
	eachMode(t, []mode{short(inGroups), short(inV1Alone)}, func(_ *testing.T, n *node) {
		n.start(request("job.g.0", `while :; do echo beat >> said; sleep 0.01; done`))
		n.lines("job.g.0", "said", 1)
		watch, gone := context.WithCancel(n.limit())
		watching, watched := make(chan struct{}, 1000), make(chan error, 1)
		go func() {
			watched <- n.Watch(watch, func([]Status, bool) error { watching <- struct{}{}; return nil })
		}()
		<-watching
		control := func(do func(*cgroup.Control) error) {
			n.Helper()
			if err := withControl(n.group("job.g.0"), do); err != nil {
				n.Fatal(err)
			}
		}
		frozen := func() (is bool) {
			control(func(c *cgroup.Control) (err error) { is, err = c.Frozen(); return err })
			return is
		}
		control(func(c *cgroup.Control) error { return c.Freeze(n.limit()) })
		n.run(request("job.g.1", "sleep 1")) // longer than a thaw would take
		if !frozen() {
			n.Error("it was thawed although an agent watches")
		}
		gone()
		if err := <-watched; !errors.Is(err, context.Canceled) && plimsoll.CodeOf(err) != plimsoll.CodeCanceled {
			n.Errorf("the watch ended with %v", err)
		}
		n.eventually("it runs again", func() bool { return !frozen() })
	})
}
