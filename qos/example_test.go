package qos_test

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// batch allows the action "shed" for best-effort tasks.
func batch() plimsoll.Policy {
	return plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{
		Name: "batch", Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}},
		Allowed: []string{"shed"},
	}}
}

func burner(id string, use int64) qos.Task {
	return qos.Task{
		ID: id, Class: plimsoll.ClassBestEffort, CPU: use, CPUKnown: true, MemoryKnown: true,
		Groups: []qos.Group{{Name: "main", CPU: use, Quota: qos.Unlimited}},
	}
}

// One sample of a node is above its line. The plan names the tasks, the steps and the reasons.
func ExamplePlan() {
	policies := []plimsoll.Policy{
		{
			Action: &plimsoll.Action{
				Name: "shed", CoolDown: time.Minute, Throttle: &plimsoll.ThrottleAction{MinRatio: 10, Step: 20},
				DisableScheduling: true,
			},
		},
		{
			NodeQOS: &plimsoll.NodeQOS{
				Name:  "mixed",
				Rules: []plimsoll.Rule{{Name: "cpu", Metric: qos.CPUTotalUsage, Waterline: "3", Action: "shed"}},
			},
		},
		batch(),
	}
	registry, err := qos.NewRegistry()
	if err != nil {
		fmt.Println(err)
		return
	}
	server := burner("server", 1*qos.Core)
	server.Class = plimsoll.ClassGuaranteed
	sample := &qos.Snapshot{
		Sequence: 1, At: 1, Cores: 4 * qos.Core, Values: map[string]int64{qos.CPUTotalUsage: 3_250_000_000},
		Tasks: []qos.Task{server, burner("light", 3*qos.Core/4), burner("heavy", 3*qos.Core/2)},
	}
	ledger := qos.NewLedger()
	plan := qos.Plan(sample, qos.Compile(policies, registry, nil, qos.Options{}), ledger, 1)
	ledger.Accept(plan, sample)
	for i := range plan.Steps {
		s := &plan.Steps[i]
		ledger.Begin(s, 1) // the ledger can be written to disk here, and then the step is done
		before, after := s.Change()
		fmt.Printf("%s %s: %s → %s\n", s.Verb, s.Task, before, after)
		fmt.Println("reason:", s.Reason)
		ledger.Done(s, nil, 1)
	}
	fmt.Println("closed:", plan.Closed, plan.ClosedBy)
	fmt.Println("held:", ledger.Held())
	// Output:
	// throttle heavy: quota unlimited → quota 1.25 cores
	// reason: mixed/cpu: cpu_total_usage is 3.25 cores (line 3 cores)
	// closed: true mixed/cpu is above its line
	// held: [{heavy 0}]
}

// A metric of the user's own: tasks report how much they write. When the disk is too busy, the
// tasks that write most are stopped until it is not.
func ExampleNewRegistry() {
	const rate = "disk_write_rate"
	sorter := qos.OrderedBy(qos.ClassAndPriority, qos.ByValue(rate), qos.RunningTime)
	registry, err := qos.NewRegistry(qos.Metric{
		Name: rate, Help: "megabytes written in a second", Unit: "MB/s", Scale: 1, ActionPriority: 6,
		Sort: &sorter, Evictable: true, EvictQuantified: true, // the release of a task is its own value
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	policies := []plimsoll.Policy{
		{
			Action: &plimsoll.Action{
				Name: "shed", CoolDown: time.Minute, Evict: &plimsoll.EvictAction{Grace: 10 * time.Second},
			},
		},
		{
			NodeQOS: &plimsoll.NodeQOS{
				Name: "mixed", Rules: []plimsoll.Rule{{Name: "disk", Metric: rate, Waterline: "400", Action: "shed"}},
			},
		},
		batch(),
	}
	sample := &qos.Snapshot{Sequence: 1, At: 1, Cores: 4 * qos.Core, Values: map[string]int64{rate: 520}}
	for id, writes := range map[string]int64{"logs": 30, "copy": 200, "sort": 170} {
		t := burner(id, qos.Core/2)
		t.Values = map[string]int64{rate: writes}
		sample.Tasks = append(sample.Tasks, t)
	}
	plan := qos.Plan(sample, qos.Compile(policies, registry, nil, qos.Options{}), qos.NewLedger(), 1)
	for i := range plan.Steps {
		s := &plan.Steps[i]
		fmt.Println(s.Verb, s.Task, "grace", s.Grace, "releases", s.Release[len(s.Release)-1].Value)
	}
	// Output:
	// evict copy grace 10s releases 200
}
