package nodeqos

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// others is the use outside of tasks in the reports since it was called last.
func (n *node) others() (all []plimsoll.NodeUse) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.reports {
		if r.Occupied != nil {
			all = append(all, *r.Occupied)
		}
	}
	n.reports = nil
	return all
}

// machine sets the counters: busy hundredths of a second since boot, and the memory in use.
func (n *node) machine(busy, mebibytes int) {
	n.t.Helper()
	writeFile(n.t, filepath.Join(n.cfg.Proc, "stat"),
		fmt.Sprintf("cpu  %d 0 0 100 0 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 1\n", busy))
	writeFile(n.t, filepath.Join(n.cfg.Proc, "meminfo"),
		fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", 64<<20, 64<<20-mebibytes<<10))
}

// The use outside of tasks is reported as a mean of ten seconds, without any policy, and once until
// it changes enough.
func TestOthersAreReported(t *testing.T) {
	n := newNode(t, nil)
	n.loop.cfg.Allocatable = plimsoll.Resources{plimsoll.CPU: 2000, plimsoll.Memory: 64 << 30}
	busy := 1000
	run := func(seconds, perSecond, mebibytes int) []plimsoll.NodeUse {
		for range seconds {
			busy += perSecond
			n.machine(busy, mebibytes)
			n.step()
		}
		return n.others()
	}
	n.machine(busy, 1024)
	n.step()
	n.others()
	none := []plimsoll.NodeUse(nil)
	same(t, "the first nine seconds", run(9, 50, 1024), none)
	same(t, "after ten", run(1, 50, 1024), []plimsoll.NodeUse{{CPU: 500, Memory: 1 << 30}})
	same(t, "5 % more of the processors, and less than 1 GiB more", run(10, 60, 2047), none)
	same(t, "more than that", run(10, 61, 1024), []plimsoll.NodeUse{{CPU: 610, Memory: 1 << 30}})
	same(t, "a moment's work", run(1, 130, 1024), none)
	same(t, "is no change", run(9, 61, 1024), none)
	same(t, "1 GiB of memory", run(10, 61, 2048), []plimsoll.NodeUse{{CPU: 610, Memory: 2 << 30}})
	n.loop.resend()
	same(t, "once more for a new coordinator", n.others(), []plimsoll.NodeUse{{CPU: 610, Memory: 2 << 30}})
}

// The use of the node's tasks is no use by others. Where it is not known, that by others is not
// either.
func TestOthersAreWithoutTasks(t *testing.T) {
	task := func(cpu, memory int64) qos.Task {
		return qos.Task{ID: "a", Started: 1, CPU: cpu, Memory: memory, CPUKnown: true, MemoryKnown: true}
	}
	unknown, gone, planned := task(qos.Core, 100), task(qos.Core, 100), task(qos.Core, 100)
	unknown.CPUKnown, gone.Gone, planned.Started = false, true, 0
	for _, c := range []struct {
		name  string
		tasks []qos.Task
		want  string
	}{
		{"no task", nil, "{2000 1000} true"},
		{"two tasks", []qos.Task{task(qos.Core/2, 100), task(qos.Core, 300)}, "{500 600} true"},
		{"more than all, by the grain of the counters", []qos.Task{task(3*qos.Core, 3000)}, "{0 0} true"},
		{"a task whose use is not known", []qos.Task{task(qos.Core, 100), unknown}, "{0 0} false"},
		{"a task that is gone, and one that does not run yet", []qos.Task{gone, planned}, "{2000 1000} true"},
	} {
		snap := &qos.Snapshot{
			Tasks: c.tasks, Values: map[string]int64{qos.CPUTotalUsage: 2 * qos.Core, qos.MemoryTotalUsage: 1000},
		}
		use, known := others(snap)
		same(t, c.name, fmt.Sprint(use, known), c.want)
	}
	_, known := others(&qos.Snapshot{Values: map[string]int64{qos.CPUTotalUsage: 1}})
	same(t, "a machine whose memory is not known", known, false)
}

// Ten seconds without a known sample are no mean of one later sample.
func TestOthersBeginAnew(t *testing.T) {
	o, now := occupancy{}, time.Unix(1000, 0)
	for second := range 21 {
		snap := &qos.Snapshot{Values: map[string]int64{}}
		if second > 12 {
			snap.Values[qos.CPUTotalUsage], snap.Values[qos.MemoryTotalUsage] = qos.Core, 7<<20+5
		}
		o.observe(snap, now.Add(time.Duration(second)*time.Second), plimsoll.Resources{})
		if second < 20 && o.reported != nil {
			t.Fatalf("reported in second %d", second)
		}
	}
	same(t, "reported", *o.reported, plimsoll.NodeUse{CPU: 1000, Memory: 7 << 20})
}
