package simulate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// smallWorkload is a drawn workload with nodes for it.
func smallWorkload(seed uint64) *simulate.Workload {
	w := simulate.Synthesize(simulate.Synthetic{
		Seed: seed, Jobs: 80, Users: 4, Span: time.Hour, Tasks: 20, Runtime: 10 * time.Minute, Failures: 0.1,
	})
	w.AddNodes(4, plimsoll.Resources{"cpu": 32_000, "memory": 128 << 30})
	return w
}

func run(t *testing.T, w *simulate.Workload) *simulate.Report {
	report, _, err := simulate.Run(&simulate.Config{Queues: plimsoll.DefaultQueues(), Seed: 1}, w)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestTheSameSeedGivesTheSameBytes runs drawn workloads twice. All tasks end, and none is lost.
func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	seed := testrun.Seed(t)
	encode := func() (*simulate.Report, string) {
		report := run(t, smallWorkload(seed))
		data, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		return report, string(data)
	}
	report, first := encode()
	if _, second := encode(); first != second {
		t.Errorf("two reports differ:\n%s\n%s", first, second)
	}
	if report.Placed != report.Tasks || report.Ended != report.Tasks || report.Refused+report.Waiting != 0 {
		t.Errorf("of %d tasks %d were placed, %d ended, %d refused, %d wait", report.Tasks, report.Placed, report.Ended,
			report.Refused, report.Waiting)
	}
	if len(report.Series.At) != simulate.Samples {
		t.Errorf("%d samples, want %d", len(report.Series.At), simulate.Samples)
	}
}

// TestWaitsAreThoseOfTheQueue runs three tasks of a minute one after the other on one node.
func TestWaitsAreThoseOfTheQueue(t *testing.T) {
	minute := simulate.Task{{Runtime: int64(time.Minute), Result: plimsoll.ResultSucceeded}}
	w := &simulate.Workload{
		Name:  "three",
		Nodes: []simulate.Node{{ID: "n", Capacity: plimsoll.Resources{"cpu": 1000, "memory": 1 << 30}}},
		Arrivals: []simulate.Arrival{{
			Job: "j", Owner: "ann", Groups: []simulate.TaskGroup{{
				Resources: plimsoll.Resources{"cpu": 1000}, Tasks: []simulate.Task{minute, minute, minute},
			}},
		}},
	}
	report := run(t, w)
	if w := report.Waits; w.P50 < 59.9 || w.P50 > 60.1 || w.Max < 119.9 || w.Max > 120.1 || report.Span < 179 {
		t.Errorf("waits %+v until %v, want 0, 60 and 120 seconds", w, report.Span)
	}
}

// A report says why tasks wait at the end, and whose they are.
func TestTasksThatWaitAtTheEndHaveACause(t *testing.T) {
	forever := simulate.Task{{}}
	job := func(id, owner string, r plimsoll.Resources) simulate.Arrival {
		return simulate.Arrival{Job: id, Owner: owner, Groups: []simulate.TaskGroup{{
			Resources: r, Tasks: []simulate.Task{forever, forever, forever},
		}}}
	}
	report := run(t, &simulate.Workload{
		Name:  "too much",
		Nodes: []simulate.Node{{ID: "n", Capacity: plimsoll.Resources{"cpu": 2000, "memory": 1 << 30}}},
		Arrivals: []simulate.Arrival{
			job("runs", "ann", plimsoll.Resources{"cpu": 1000}), job("waits", "bob", plimsoll.Resources{"cpu": 1000}),
			job("links", "cid", plimsoll.Resources{"cpu": 1000, "rdma": 1}),
		},
	})
	want := []simulate.Cause{{Cause: "no node can take it now", Tasks: 4}, {Cause: "no node has rdma", Tasks: 3}}
	if !slices.Equal(report.Causes, want) {
		t.Errorf("the causes are %v, want %v", report.Causes, want)
	}
	for i, waiting := range []int{1, 3, 3} {
		if got := report.Owners[i]; got.Waiting != waiting {
			t.Errorf("of %s %d tasks wait, want %d", got.Name, got.Waiting, waiting)
		}
	}
}

// TestReadTraces reads lines of both traces.
func TestReadTraces(t *testing.T) {
	nodes, err := simulate.ReadOpenBNodes("nodes", strings.NewReader(
		"sn,cpu_milli,memory_mib,gpu,model\na,32000,1024,0,\nb,96000,2048,2,T4\n"))
	if err != nil || len(nodes) != 2 || nodes[1].Capacity[simulate.GPUMilli] != 2000 {
		t.Errorf("nodes %+v, error %v", nodes, err)
	}
	w, err := simulate.ReadPods("pods", strings.NewReader(
		"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"+
			"p2,6000,1024,1,460,T4|P100,LS,Failed,20,50,30\np1,1000,512,0,0,,BE,Running,10,25,\n"))
	if err != nil {
		t.Fatal(err)
	}
	if a := w.Arrivals[1]; a.Job != "p2" || a.Groups[0].Resources[simulate.GPUMilli] != 460 || a.Queue != "ls" ||
		a.Groups[0].Tasks[0][0] != (simulate.Attempt{Runtime: int64(20 * time.Second), Result: plimsoll.ResultFailed}) {
		t.Errorf("arrival %+v", a)
	}
	w.Nodes = nodes
	if report := run(t, w); report.Placed != 2 || report.Failed != 1 || report.Waits.Max != 0 {
		t.Errorf("%d placed, %d failed, waits %+v", report.Placed, report.Failed, report.Waits)
	}
	w, err = simulate.ReadPods("dlrm", strings.NewReader(
		"instance_sn,role,app_name,cpu_request,gpu_request,rdma_request,memory_request,disk_request,max_instance_per_node,"+
			"creation_time,scheduled_time,deletion_time\n"+
			"instance_0,HN,app_0,12,1,25,120.0,640.0,1,,,\ninstance_1,HN,app_0,12,1,25,120.0,640.0,8,,,\n"+
			"instance_2,HN,app_0,12,1,25,120.0,640.0,-1,,,\n"))
	if err != nil || len(w.Arrivals) != 3 || len(w.Arrivals[0].Groups[0].Constraints.Far) != 1 ||
		len(w.Arrivals[1].Groups[0].Constraints.Far) != 0 || !strings.Contains(w.Notes[1], "above 1: 1;") {
		t.Errorf("workload %+v, error %v", w, err)
	}
	for _, text := range []string{"", "creation_time\n", "creation_time,scheduled_time,deletion_time,gpu_milli\nx\n"} {
		if _, err := simulate.ReadPods("pods", strings.NewReader(text)); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%q: error %v, want an invalid value", text, err)
		}
	}
}
