package nodeqos

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// The condition of the node is told at the start, when it changes, and when it is asked for; its
// reason stays the same while it lasts, though the cool-down goes on counting.
func TestTheGateIsToldWhenItChanges(t *testing.T) {
	n := newNode(t, nil)
	n.loop.SetPolicies(policies(plimsoll.Action{DisableScheduling: true, CoolDown: 5 * time.Second}, plimsoll.Rule{}))
	gates := func() (all []string) {
		for _, r := range n.reports {
			state := "open"
			if r.SchedulingDisabled {
				state = "closed: " + r.SchedulingReason
			}
			all = append(all, state)
		}
		n.reports = nil
		return all
	}
	n.steps(3)
	same(t, "at the start", gates(), []string{"open"})
	n.set(11)
	n.steps(3)
	same(t, "above the line", gates(), []string{"closed: node/rule is above its line"})
	n.set(5)
	n.steps(4)
	same(t, "below it", gates(), []string{"closed: node/rule cools down"})
	n.loop.resend()
	same(t, "asked again", gates(), []string{"closed: node/rule cools down"})
	n.steps(5)
	same(t, "cooled down", gates(), []string{"open"})
}

// A rule that is deleted while it is triggered is reported as ended, once. Otherwise it would be
// taken to be triggered still.
func TestADeletedRuleIsToldToHaveEnded(t *testing.T) {
	n := newNode(t, nil)
	n.loop.SetPolicies(policies(plimsoll.Action{DisableScheduling: true}, plimsoll.Rule{}))
	n.set(11)
	n.steps(2)
	n.told()
	n.reports = nil
	n.loop.SetPolicies(nil)
	n.steps(3)
	same(t, "told", n.told(), []string{"rule restored", "scheduling enabled"})
}

// A previewed step is reported once, not at every sample, and nothing is done.
func TestPreviewsAreToldOnce(t *testing.T) {
	n := newNode(t, subtree(t))
	n.batch("a", "b")
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{Preview: true}))
	n.set(10.5)
	n.steps(5)
	same(t, "told", n.told(), []string{"rule triggered", "previewed a quota 1 core → quota 0.8 cores"})
	n.set(11.5)
	n.steps(5)
	same(t, "another one", n.told(), []string{"previewed b quota 1 core → quota 0.8 cores"})
	same(t, "nothing is done", n.quotas(), "a:100000 b:100000")
	if st := n.loop.Status(); len(st.GetPlan()) != 2 || !st.GetPlan()[0].GetPreview() {
		t.Errorf("the plan is %v", st.GetPlan())
	}
}

// A metric that is no number is missing. That is told once, with the reason, and once more only
// when it was there in between.
func TestAMissingMetricIsToldOnce(t *testing.T) {
	for name, level := range map[string]float64{"NaN": math.NaN(), "+Inf": math.Inf(1), "-1": -1} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			n.loop.SetPolicies(policies(plimsoll.Action{DisableScheduling: true}, plimsoll.Rule{}))
			for range 2 {
				n.set(level)
				n.steps(12)
				var last []plimsoll.QOSEvent
				for _, r := range n.reports {
					last = append(last, r.Events...)
				}
				if len(last) != 1 || last[0].Kind != plimsoll.QOSMetricMissing ||
					!strings.Contains(last[0].Message, "its value is "+name) {
					t.Errorf("told %v", last)
				}
				n.set(1)
				n.step()
				n.told()
			}
		})
	}
}

// A rule on an unregistered metric closes nothing and stops no task, but is reported at once.
func TestAnUnregisteredMetricIsTold(t *testing.T) {
	n := newNode(t, nil)
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{Metric: "moon_phase"}))
	n.steps(3)
	same(t, "told", n.told(), []string{"metric missing"})
	if st := n.loop.Status(); len(st.GetLines()) != 1 ||
		!strings.Contains(st.GetLines()[0].GetWaits(), "nobody has registered") {
		t.Errorf("the lines are %v", st.GetLines())
	}
}

// A report holds no more events than the coordinator takes, says how many are left out, and no text
// is longer than it may be.
func TestReportsAreBounded(t *testing.T) {
	n := newNode(t, nil)
	v := &n.loop.state.reporter
	for range 3 * plimsoll.MaxQOSEvents {
		v.add(
			plimsoll.QOSEvent{
				Kind: plimsoll.QOSFailed, Rule: strings.Repeat("é", 200), Message: strings.Repeat("é", 1000),
			},
		)
	}
	n.step()
	if len(n.reports) != 1 || len(n.reports[0].Events) != plimsoll.MaxQOSEvents {
		t.Fatalf("%d reports", len(n.reports))
	}
	if last := n.reports[0].Events[plimsoll.MaxQOSEvents-1].Message; !strings.HasPrefix(last, "1001 more") {
		t.Errorf("the last event says %q", last)
	}
}

// A step that the kernel refuses is reported with its reason, and the task is left alone for a
// while.
func TestARefusedActionIsToldAndBackedOff(t *testing.T) {
	n := newNode(t, subtree(t))
	n.batch("a")
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{}))
	n.steps(2)
	g := n.loop.state.groups[n.tasks[0].Key()]
	if err := g.control.Close(); err != nil { // as good as any error of the kernel
		t.Fatal(err)
	}
	n.set(10.5)
	g.readAt = n.loop.state.number + 1 // it was just read
	n.step()
	if told := n.told(); len(told) != 2 || told[1] != "failed a quota 1 core → quota 0.8 cores" {
		t.Errorf("told %v", told)
	}
	n.steps(3)
	if told := n.told(); len(told) != 0 {
		t.Errorf("it was not left alone: %v", told)
	}
	if err := errors.Join(g.close(n.loop.state.sampler)); err != nil {
		t.Error(err)
	}
}

// Pressure costs two more files a group, so it is sampled only while some rule asks for it, and
// only of tasks that are protected.
func TestPressureIsSampledOnlyWhereItIsAskedFor(t *testing.T) {
	n := newNode(t, subtree(t))
	n.batch("a")
	n.add(Task{ID: "b", Class: plimsoll.ClassBurstable})
	sampled := func() (ids []string) {
		n.step()
		for i := range n.tasks {
			if n.loop.state.groups[n.tasks[i].Key()].pressure {
				ids = append(ids, n.tasks[i].ID)
			}
		}
		return ids
	}
	same(t, "without a rule", sampled(), []string{})
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{Metric: qos.MemoryPressure}))
	same(t, "with one", sampled(), []string{"b"})
	n.loop.SetPolicies(policies(throttleByFifth, plimsoll.Rule{}))
	same(t, "when it is gone", sampled(), []string{})
}

// A node without control groups still reports the use of the machine, closes itself, and has tasks
// stopped. No other step is planned, and none fails.
func TestANodeWithoutControlGroups(t *testing.T) {
	n := newNode(t, nil)
	n.batch("a", "b")
	all := plimsoll.Action{
		Weight: &plimsoll.WeightAction{Idle: true}, Throttle: throttleByFifth.Throttle,
		Freeze: &plimsoll.FreezeAction{For: time.Second},
		Evict:  &plimsoll.EvictAction{Reclaim: true}, DisableScheduling: true,
	}
	n.loop.SetPolicies(policies(all, plimsoll.Rule{}))
	n.set(11)
	n.steps(2)
	n.settle()
	same(t, "stopped", n.evicted, []string{"a"})
	same(t, "told", n.told(), []string{"rule triggered", "evicting a running → stopping", "scheduling disabled"})
	values := n.loop.state.snapshot.Values
	if values[qos.CPUTotalUsage] != 0 || values[qos.MemoryTotalUtilization] != 50_000 || values[qos.Load] != 500 {
		t.Errorf("the machine's values are %v", values)
	}
}
