package nodeqos_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// A program keeps the length of its queue below a line. Jobs are put off, the least important
// first.
func ExampleLoop() {
	dir, err := os.MkdirTemp("", "nodeqos-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is a temporary directory
	depth := nodeqos.Metric{
		Metric:  qos.Metric{Name: "queue_depth", Scale: 1, Evictable: true, EvictQuantified: true},
		PerTask: true, Sum: true, Every: nodeqos.MinEvery,
		Measure: func(_ context.Context, task *nodeqos.Task) (float64, bool, error) {
			return map[string]float64{"report": 70, "mail": 40, "index": 60}[task.ID], true, nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg := nodeqos.Config{Dir: dir, Interval: nodeqos.MinInterval, Metrics: []nodeqos.Metric{depth}}
	loop, err := nodeqos.New(cfg, nodeqos.Deps{
		Tasks: func() []nodeqos.Task {
			return []nodeqos.Task{
				{ID: "index", Class: plimsoll.ClassBestEffort, Priority: 1, Started: 1},
				{ID: "mail", Class: plimsoll.ClassBestEffort, Priority: 2, Started: 1},
				{ID: "report", Class: plimsoll.ClassGuaranteed, Started: 1},
			}
		},
		Evict: func(_ context.Context, task string, _ int32, _ time.Duration, reason string) error {
			fmt.Println("put off", task, "for", reason)
			cancel()
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	batch := plimsoll.Requirement{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}
	loop.SetPolicies([]plimsoll.Policy{
		{Action: &plimsoll.Action{Name: "put-off", CoolDown: time.Minute, Evict: &plimsoll.EvictAction{}}},
		{TaskQOS: &plimsoll.TaskQOS{Name: "batch", Match: []plimsoll.Requirement{batch}, Allowed: []string{"put-off"}}},
		{NodeQOS: &plimsoll.NodeQOS{Name: "queue", Rules: []plimsoll.Rule{
			{Name: "depth", Metric: "queue_depth", Waterline: "120", Action: "put-off"},
		}}},
	})
	if err := loop.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// put off index for queue/depth: queue_depth is 170 (line 120)
}
