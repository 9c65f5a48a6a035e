package nodeqos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Before Linux 5.15 no group can be idle. There it gets the least weight instead, once, and has its
// own back in the end; the rungs above go on.
func TestWhereNoGroupCanBeIdle(t *testing.T) {
	tree := fakeTree(t, "a-1")
	n := newNode(t, tree)
	dir := filepath.Join(tree.Hierarchy().Root(), "n1", "a-1")
	if err := os.Remove(filepath.Join(dir, "cpu.idle")); err != nil {
		t.Fatal(err)
	}
	n.tasks = []Task{{
		ID: "a", Attempt: 1, Group: "a-1", Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano(),
		Resources: plimsoll.Resources{plimsoll.CPU: 1000},
	}}
	weight := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "cpu.weight"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	n.loop.SetPolicies(
		policies(
			plimsoll.Action{
				CoolDown: 1, Weight: &plimsoll.WeightAction{Idle: true}, Throttle: &plimsoll.ThrottleAction{Step: 50},
			},
			plimsoll.Rule{},
		),
	)
	n.set(20)
	n.steps(12)
	same(t, "weight", weight(), "1")
	events := strings.Join(n.told(), "\n")
	if strings.Contains(events, "failed") || strings.Count(events, "reweighted") != 1 ||
		!strings.Contains(events, "throttled") {
		t.Errorf("told:\n%s", events)
	}
	n.set(1)
	n.steps(90)
	same(t, "weight after all", weight(), "100")
}

// Tasks whose endpoints hang hold up their own metric and no other one.
func TestTasksThatHangHoldUpTheirOwnMetric(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ *Task) (float64, bool, error) { <-ctx.Done(); return 0, true, ctx.Err() }
		answers := func(context.Context, *Task) (float64, bool, error) { return 1, true, nil }
		metrics := []Metric{
			{Metric: qos.Metric{Name: "hangs"}, Measure: hangs, PerTask: true},
			{Metric: qos.Metric{Name: "node"}, Measure: answers},
			{Metric: qos.Metric{Name: "tasks"}, Measure: answers, PerTask: true},
		}
		l, err := New(Config{Dir: t.TempDir(), Metrics: metrics}, Deps{
			Tasks: func() []Task { return nil }, Report: func(plimsoll.NodeReport) {},
			Evict: func(context.Context, string, int32, time.Duration, string) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		l.gauges.setTasks(slices.Repeat([]Task{{ID: "a", Attempt: 1, Started: 1}}, 100))
		var work sync.WaitGroup
		work.Go(func() { l.measureAll(t.Context(), &metrics[0]) })
		synctest.Wait()
		start := time.Now()
		l.measureAll(t.Context(), &metrics[1])
		l.measureAll(t.Context(), &metrics[2])
		if waited := time.Since(start); waited > 0 {
			t.Errorf("the others waited %v", waited)
		}
		work.Wait()
	})
}

// A frozen task that cannot be thawed, since nothing says where its group is, is tried at each
// sample and told once a minute.
func TestATaskThatCannotBeThawedIsToldNowAndThen(t *testing.T) {
	n := newNode(t, fakeTree(t, "a-1"))
	n.tasks = []Task{{ID: "a", Attempt: 1, Group: "a-1", Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano()}}
	step := &qos.Step{Verb: qos.Freeze, Task: "a", Attempt: 1, Until: n.loop.at(n.now), Use: qos.Core}
	n.loop.state.ledger.Begin(step, n.loop.at(n.now))
	n.loop.state.ledger.Done(step, nil, n.loop.at(n.now))
	n.task("a").Group = ""
	n.steps(100)
	same(t, "told", n.told(), slices.Repeat([]string{"failed a frozen → running"}, 2))
	n.task("a").Group = "a-1"
	n.steps(2)
	same(t, "told in the end", n.told(), []string{"thawed a frozen → running"})
}

// A group that cannot be opened is complained of once, however often that is tried.
func TestAGroupThatCannotBeOpenedIsComplainedOfOnce(t *testing.T) {
	n := newNode(t, fakeTree(t, "a-1"))
	writeFile(t, filepath.Join(n.tree.Hierarchy().Root(), "n1", "b-1"), "no directory")
	var told []Trouble
	n.loop.deps.Events.Trouble = func(t Trouble) { told = append(told, t) }
	n.tasks = []Task{{ID: "b", Attempt: 1, Group: "b-1", Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano()}}
	n.steps(20)
	if len(told) != 1 || told[0].Kind != TroubleOpen || told[0].Task != "b" {
		t.Errorf("told: %+v", told)
	}
}

// A task that does not answer because it is being stopped, or is frozen, is not missed: its last
// value does not count any more. Otherwise stopping the one task above the line would make the
// metric go missing, and all candidates would be acted on.
func TestATaskThatIsStoppedIsNotMissed(t *testing.T) {
	for name, action := range map[string]plimsoll.Action{
		"stopping": {Evict: &plimsoll.EvictAction{}},
		"frozen":   {Freeze: &plimsoll.FreezeAction{For: plimsoll.MaxFreeze}, Evict: &plimsoll.EvictAction{}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, fakeTree(t, "a-1"))
			answers := true
			n.cfg.Metrics = []Metric{{
				Metric: qos.Metric{Name: "depth", Throttleable: true, Evictable: true}, PerTask: true, Every: MinEvery,
				Measure: func(_ context.Context, t *Task) (float64, bool, error) {
					if t.ID != "a" {
						return 0, false, nil
					}
					if !answers {
						return 0, true, errors.New("connection refused")
					}
					return 20, true, nil
				},
			}}
			n.loop = n.start()
			only := policies(action, plimsoll.Rule{Metric: "depth"})
			all := policies(action, plimsoll.Rule{Metric: "depth"})
			only[1].TaskQOS.Labels = map[string]string{"app": "a"}
			n.tasks = []Task{
				{
					ID: "a", Attempt: 1, Group: "a-1", Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano(),
					Labels: only[1].TaskQOS.Labels,
				},
				{ID: "b", Attempt: 1, Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano()},
			}
			n.loop.SetPolicies(only)
			n.step()
			writeFile(
				t, filepath.Join(n.tree.Hierarchy().Root(), "n1", "a-1", "cpu.stat"),
				"usage_usec 1000000\nthrottled_usec 0\n",
			)
			n.step()
			n.settle()
			if told := strings.Join(n.told(), ", "); !strings.Contains(told, " a running") {
				t.Fatalf("nothing was done about it: %s", told)
			}
			n.loop.SetPolicies(all)
			answers, n.task("a").Stopping = false, name == "stopping"
			n.steps(20)
			n.settle()
			if told := strings.Join(n.told(), ", "); strings.Contains(told, " b ") {
				t.Errorf("told: %s", told)
			}
		})
	}
}

// The output of a program may be no text. It is converted, in no more bytes than a report takes,
// before it is reported: a report that is refused is lost.
func TestWhatIsNoTextIsMadeOne(t *testing.T) {
	var v reporter
	v.init()
	v.add(plimsoll.QOSEvent{Kind: plimsoll.QOSMetricMissing, Message: strings.Repeat("a\xff", 250)})
	r := wire.NodeReportFromProto(wire.NodeReportToProto(&plimsoll.NodeReport{Events: v.events}))
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
}

// A sample in which the size of the machine cannot be read is no reason to take back lent
// resources.
func TestAMachineThatCannotBeReadOnceIsNotEmpty(t *testing.T) {
	n := newNode(t, fakeTree(t, "a-1"))
	n.cfg.Extended = ExtendedConfig{Enabled: true, WarmUp: 2 * time.Second}
	n.cfg.Allocatable = plimsoll.Resources{plimsoll.CPU: 2000, plimsoll.Memory: 1 << 30}
	n.loop = n.start()
	n.tasks = []Task{{
		ID: "a", Attempt: 1, Group: "a-1", Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano(),
		Resources: plimsoll.Resources{plimsoll.ExtCPU: 500, plimsoll.ExtMemory: 1 << 20},
	}}
	stat := filepath.Join(n.tree.Hierarchy().Root(), "n1", "a-1", "cpu.stat")
	for i := range 10 {
		writeFile(t, stat, fmt.Sprintf("usage_usec %d\nthrottled_usec 0\n", i*100_000))
		n.step()
	}
	if told := n.told(); len(told) > 0 && strings.Contains(strings.Join(told, ", "), "triggered") {
		t.Fatalf("told before: %v", told)
	}
	for _, file := range []string{"meminfo", "stat"} {
		writeFile(t, filepath.Join(n.cfg.Proc, file), "\n")
	}
	writeFile(t, stat, "usage_usec 1000000\nthrottled_usec 0\n")
	n.step()
	same(t, "told", n.told(), []string(nil))
}

// Groups take no more open files than leave some for everything else: an agent that can open
// nothing loses its gateway, and its node with it.
func TestSomeOpenFilesAreLeft(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		v2    bool
		most  int
	}{
		{1024, false, 76},
		{1024, true, 128},
		{4096, false, 384},
		{20_000, false, 1974},
		{1 << 20, true, 174_720},
		{0, false, 0},
		{unix.RLIM_INFINITY, true, math.MaxInt},
	} {
		if got := maxGroups(c.limit, c.v2); got != c.most {
			t.Errorf("limit %d, v2 %t: %d groups, want %d", c.limit, c.v2, got, c.most)
		}
	}
	n := newNode(t, fakeTree(t, "a-1"))
	var told []Trouble
	n.loop.deps.Events.Trouble = func(t Trouble) { told = append(told, t) }
	n.loop.state.maxGroups = 0
	n.tasks = []Task{{ID: "a", Attempt: 1, Group: "a-1", Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano()}}
	n.steps(20)
	if len(told) != 1 || told[0].Kind != TroubleUnwatched || n.loop.state.sampler.Len() != 0 {
		t.Errorf("%d groups are open: %+v", n.loop.state.sampler.Len(), told)
	}
	n.loop.state.maxGroups = 1
	n.step()
	same(t, "groups that are open", n.loop.state.sampler.Len(), 1)
}

// A group that could not be frozen is thawed until that has worked, although the record does not
// have it as frozen.
func TestAGroupThatCouldNotBeFrozenIsThawed(t *testing.T) {
	n := newNode(t, fakeTree(t, "a-1"))
	dir := filepath.Join(n.tree.Hierarchy().Root(), "n1", "a-1")
	writeFile(t, filepath.Join(dir, "cgroup.events"), "populated 1\nfrozen 0\n")
	n.tasks = []Task{{ID: "a", Attempt: 1, Group: "a-1", Class: plimsoll.ClassBestEffort, Started: n.now.UnixNano()}}
	n.loop.SetPolicies(policies(plimsoll.Action{Freeze: &plimsoll.FreezeAction{For: time.Minute}}, plimsoll.Rule{}))
	n.step()
	n.set(20)
	writeFile(t, filepath.Join(dir, "cpu.stat"), "usage_usec 500000\nthrottled_usec 0\n")
	n.step()
	if told := strings.Join(n.told(), ", "); !strings.Contains(told, "failed a running → frozen") {
		t.Fatalf("told: %s", told)
	}
	writeFile(t, filepath.Join(dir, "cgroup.freeze"), "1\n") // as if the kernel had not taken that either
	n.set(1)
	n.step()
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.freeze"))
	if err != nil || strings.TrimSpace(string(data)) != "0" {
		t.Errorf("the freezer says %q, %v", data, err)
	}
}
