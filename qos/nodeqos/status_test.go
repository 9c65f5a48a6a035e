package nodeqos

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// TestStatusTellsHowFarARuleIs: the count of samples while it waits, and a gap only when it is
// above its line or acts.
func TestStatusTellsHowFarARuleIs(t *testing.T) {
	n := newNode(t, nil)
	n.loop.SetPolicies(
		policies(
			plimsoll.Action{DisableScheduling: true}, plimsoll.Rule{TriggerAfter: 3, Release: "8", RestoreAfter: 2},
		),
	)
	for i, c := range []struct {
		level float64
		waits string
		gap   int64
	}{
		{9, "", 0},
		{11, "1 of 3 samples", 3000},
		{11, "2 of 3 samples", 3000},
		{11, "", 3000},
		{9, "", 1000},
		{7, "", 0},
	} {
		n.set(c.level)
		n.step()
		line := n.loop.Status().GetLines()[0]
		if line.GetWaits() != c.waits || line.GetGap() != c.gap {
			t.Errorf("sample %d: waits %q, gap %d; want %q, %d", i, line.GetWaits(), line.GetGap(), c.waits, c.gap)
		}
	}
}

// TestStatusTellsWhatAPlanIsMadeOf: the machine and its values, and of each task the attributes
// that policies select by and the resources that it holds.
func TestStatusTellsWhatAPlanIsMadeOf(t *testing.T) {
	n := newNode(t, nil)
	n.add(Task{
		ID: "a", Attempt: 2, Class: plimsoll.ClassBestEffort, Owner: "alice", Queue: "root.batch",
		Labels: map[string]string{"tier": "batch"}, Started: 7,
		Resources: plimsoll.Resources{plimsoll.ExtCPU: 500, plimsoll.ExtMemory: 1 << 20}, Stopping: true,
	})
	n.loop.SetPolicies(policies(plimsoll.Action{Evict: &plimsoll.EvictAction{}}, plimsoll.Rule{}))
	n.set(14)
	n.step()
	st := n.loop.Status()
	same(t, "values", st.GetValues()["pretend"], int64(14_000))
	same(t, "processors", st.GetCpuNanocores(), 2*qos.Core)
	same(t, "can do without control groups", st.GetUnable() != "", true)
	if len(st.GetTasks()) != 1 || len(st.GetSkipped()) != 1 {
		t.Fatal(st)
	}
	task := st.GetTasks()[0]
	same(
		t, "owner, queue, label", []string{task.GetOwner(), task.GetQueue(), task.GetLabels()["tier"]},
		[]string{"alice", "root.batch", "batch"},
	)
	same(t, "extended", []int64{task.GetExtCpuNanocores(), task.GetExtMemoryBytes()}, []int64{qos.Core / 2, 1 << 20})
	same(t, "class", task.GetClass(), pb.Class_CLASS_BEST_EFFORT)
	same(
		t, "stopping, use not known", []bool{task.GetStopping(), task.GetCpuUnknown(), task.GetMemoryUnknown()},
		[]bool{true, true, true},
	)
	skip := st.GetSkipped()[0]
	same(
		t, "skip", []string{skip.GetTask(), skip.GetVerb(), skip.GetReason()},
		[]string{"a", "evict", qos.WhyLeaving.String()},
	)
	if skip.GetRule() == "" {
		t.Error("it is not told for which rule")
	}
}

// TestStatusTellsTheThreeSetsOfWaterlines: design, "there will be three waterline sets, namely,
// throttledownwaterline, throttleupwaterline and evictwaterline", of which the smallest of a metric
// counts.
func TestStatusTellsTheThreeSetsOfWaterlines(t *testing.T) {
	n := newNode(t, nil)
	action := plimsoll.Action{Throttle: &plimsoll.ThrottleAction{Step: 20}, Evict: &plimsoll.EvictAction{}}
	all := policies(action, plimsoll.Rule{})
	second := all[2].NodeQOS.Rules[0]
	second.Name, second.Waterline = "second", "12"
	all[2].NodeQOS.Rules = append(all[2].NodeQOS.Rules, second)
	n.loop.SetPolicies(all)
	told := func(set []*pb.QOSWaterline) (lines []string) {
		for _, w := range set {
			lines = append(lines, fmt.Sprintf("%s %s %d/%d gap %d %t",
				w.GetMetric(), w.GetRule(), w.GetValue(), w.GetScale(), w.GetGap(), w.GetSmallest()))
		}
		return lines
	}
	n.set(15)
	n.step()
	above := []string{"pretend node/rule 10000/1000 gap 5000 true", "pretend node/second 12000/1000 gap 3000 false"}
	w := n.loop.Status().GetWaterlines()
	same(t, "throttle", told(w.GetThrottle()), above)
	same(t, "restore", told(w.GetRestore()), []string{})
	same(t, "evict", told(w.GetEvict()), above)
	n.set(7)
	n.step()
	w = n.loop.Status().GetWaterlines()
	same(t, "throttle below", told(w.GetThrottle()), []string{})
	same(t, "restore below", told(w.GetRestore()), []string{
		"pretend node/rule 10000/1000 gap 3000 true", "pretend node/second 12000/1000 gap 5000 false",
	})
	same(t, "evict below", told(w.GetEvict()), []string{})
}
