package coordinator

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/store"
)

// long makes a name of the given length that ends in i.
func long(length, i int) string {
	end := fmt.Sprintf("-%d", i)
	return strings.Repeat("x", length-len(end)) + end
}

// A batch is never larger than the count of the state, so it is within the limits of the store. All
// texts and lists of the test have their largest length.
func TestBatchesAreNotLargerThanEstimated(t *testing.T) {
	parent := plimsoll.QueueConfig{Name: long(64, 1), Parent: true}
	for i := range 20 {
		parent.Queues = append(
			parent.Queues, plimsoll.QueueConfig{Name: long(64, i), Max: resources(plimsoll.MaxAmount)},
		)
	}
	leaf := "root." + parent.Name + "." + parent.Queues[0].Name
	s := state.New(state.Config{KeepEnded: 1e9, LostAfter: 1e9}, plimsoll.DefaultQueues())
	e, enc, now, id := engine.New(engine.Config{Seed: 1}, s, 0, 1e18), encoder{epoch: 1}, int64(1e18), uint64(0)
	turn := func(name string, do ...engine.Operation) {
		t.Helper()
		var commands []engine.Command
		for _, d := range do {
			id++
			commands = append(commands, engine.Command{ID: id, Do: d})
		}
		for more := true; more; {
			var out engine.Batch
			var taken int
			taken, _, more = e.Turn(now, commands, &out)
			commands = commands[taken:]
			for _, r := range out.Replies {
				if r.Err != nil {
					t.Fatalf("%s: %v", name, r.Err)
				}
			}
			if _, bytes := store.Measure(enc.encode(&out)); bytes > out.Changes.Bytes {
				t.Errorf("%s: a batch of %d bytes was estimated at %d", name, bytes, out.Changes.Bytes)
			} else if bytes > 0 {
				t.Logf("%s: %d bytes, estimated at %d", name, bytes, out.Changes.Bytes)
			}
		}
	}
	turn(
		"queues",
		&engine.SetQueueConfig{
			Config: plimsoll.QueueConfig{Name: "root", Parent: true, Queues: []plimsoll.QueueConfig{parent}},
		},
	)
	waiting := []engine.Operation{}
	for i := range 5 {
		waiting = append(waiting, longJob(i, leaf))
	}
	turn("jobs that wait", waiting...)
	turn("small jobs", spec("a", leaf, 1, nil), spec("b", leaf, 3, plimsoll.Resources{"cpu": 1}))
	var nodes []engine.Operation
	for i := range 3 {
		nodes = append(nodes, longNode(i))
	}
	turn("nodes", nodes...)
	turn("policies", &engine.ApplyPolicies{Policies: longPolicies()})
	var historians []engine.Operation
	for i := range plimsoll.MaxHistorians {
		historians = append(historians, &engine.ReportHistorian{
			Name: long(128, i), Instance: long(64, i), Next: math.MaxUint64,
		})
	}
	turn("historians", historians...)
	turn("a historian goes", &engine.RemoveHistorian{Name: long(128, 0)})
	for i := range 3 {
		turn("what a QoS agent says", longReport(i))
	}
	for i := range 5 {
		task := s.Job(long(128, i)).Groups[0].Tasks[0]
		r := engine.Report{Job: long(128, i), Group: long(63, 0)}
		r.Attempt, r.State, r.Result = task.Attempt, plimsoll.TaskFinished, plimsoll.ResultEvicted
		r.Message = strings.Repeat("m", 2000)
		turn("evictions", &engine.ReportTasks{Node: task.Node, Incarnation: 1 << 26, Reports: []engine.Report{r}})
	}
	for i := range 5 {
		job := s.Job(long(128, i))
		for g := range job.Groups {
			for index := range job.Groups[g].Tasks {
				task := &job.Groups[g].Tasks[index]
				r := engine.Report{Job: job.Spec.ID, Group: job.Groups[g].Spec.Name, Index: int32(index)}
				r.Attempt, r.State, r.Result = task.Attempt, plimsoll.TaskFinished, plimsoll.ResultFailed
				r.ExitCode, r.Message = -1, strings.Repeat("m", 2000)
				turn("report", &engine.ReportTasks{Node: task.Node, Incarnation: 1 << 26, Reports: []engine.Report{r}})
			}
		}
	}
	turn("kill", &engine.KillJob{ID: long(128, 0), Reason: strings.Repeat("r", 2000)})
	for i := range 3 {
		turn("silence", &engine.NodeSilent{ID: long(128, i), Registration: s.Node(long(128, i)).Registration})
	}
	now += 2e9
	turn("losses")
	for i := range 3 {
		turn("remove", &engine.RemoveNode{ID: long(128, i)})
	}
	for i := range 5 {
		if i > 0 {
			turn("kill", &engine.KillJob{ID: long(128, i)})
		}
	}
	now += 2e9
	turn("forget")
	for _, kind := range []plimsoll.PolicyKind{plimsoll.PolicyNodeQOS, plimsoll.PolicyTaskQOS, plimsoll.PolicyAction} {
		turn("policies go", &engine.DeletePolicy{Ref: plimsoll.PolicyRef{Kind: kind, Name: long(63, 1)}})
	}
}

func resources(amount int64) plimsoll.Resources {
	r := plimsoll.Resources{}
	for i := range plimsoll.MaxResourceNames - 3 {
		r[long(63, i)] = amount
	}
	return r
}

func longJob(i int, queue string) *engine.SubmitJob {
	job := &plimsoll.JobSpec{
		ID: long(128, i), Owner: long(128, i), Queue: queue, Token: long(128, i), Labels: map[string]string{},
	}
	for k := range plimsoll.MaxLabels {
		job.Labels[long(128, k)] = long(1024, k)
	}
	for k := range 20 {
		job.Groups = append(job.Groups, plimsoll.GroupSpec{
			Name: long(63, k), Count: 3, Command: []string{long(200, 1), "x", ""}, WorkDir: long(4096, 1),
			User: long(4096, 1), UserGroup: long(4096, 1),
			Env: map[string]string{long(200, 1): long(300, 1), "A": "b"}, Resources: resources(int64(i*20 + k)),
			Retry: plimsoll.RetryPolicy{
				Kind: plimsoll.RetryBackoff, Limit: 1, InitialDelay: 1 << 60, MaxDelay: 1 << 60,
			},
			MaxRuntime: 1 << 60, KillGrace: 1 << 60, LogLimit: plimsoll.MaxAmount,
		})
	}
	return &engine.SubmitJob{Spec: job}
}

func longPolicies() []plimsoll.Policy {
	pairs, values := map[string]string{}, []string{}
	for k := range plimsoll.MaxLabels {
		pairs[long(128, k)] = long(1024, k)
	}
	for k := range plimsoll.MaxPolicyValues {
		values = append(values, long(128, k))
	}
	task := &plimsoll.TaskQOS{Name: long(63, 1), Labels: pairs, Prefer: true}
	node := &plimsoll.NodeQOS{Name: long(63, 1), Selector: pairs, Options: plimsoll.QOSOptions{
		Excess: 100, Overdue: plimsoll.MaxQOSOption, Stale: plimsoll.MaxQOSOption, Backoff: plimsoll.MaxQOSOption,
		Settle: plimsoll.MaxQOSOption, Lag: plimsoll.MaxQOSOption,
	}}
	for k := range 100 {
		task.Match = append(
			task.Match, plimsoll.Requirement{Scope: plimsoll.ScopeOwner, Not: true, Values: values[:k+1]},
		)
		task.Allowed = append(task.Allowed, long(63, 1))
		node.Rules = append(node.Rules, plimsoll.Rule{
			Name: long(63, k), Metric: "memory_total_utilization", Waterline: strings.Repeat("0", 60) + "90",
			Release:      strings.Repeat("0", 60) + "80",
			TriggerAfter: plimsoll.MaxRuleSamples, RestoreAfter: plimsoll.MaxRuleSamples, Action: long(63, 1),
			Preview: true, Hold: true,
		})
	}
	return []plimsoll.Policy{{NodeQOS: node}, {TaskQOS: task}, {Action: &plimsoll.Action{
		Name: long(63, 1), CoolDown: plimsoll.MaxCoolDown, Weight: &plimsoll.WeightAction{Shares: plimsoll.MaxShares},
		DisableScheduling: true,
		Throttle:          &plimsoll.ThrottleAction{MinRatio: 100, Step: 100},
		Freeze:            &plimsoll.FreezeAction{For: plimsoll.MaxFreeze},
		Evict:             &plimsoll.EvictAction{Grace: plimsoll.MaxEvictGrace, Reclaim: true},
	}}}
}

func longReport(i int) *engine.ReportNode {
	r := &engine.ReportNode{Node: long(128, i), Incarnation: 1 << 26, Sequence: plimsoll.MaxSequence}
	r.Report.SchedulingDisabled, r.Report.SchedulingReason = true, long(plimsoll.MaxQOSMessage, i)
	r.Report.Occupied = &plimsoll.NodeUse{CPU: plimsoll.MaxNodeCPU, Memory: plimsoll.MaxNodeMemory}
	for k := range plimsoll.MaxQOSEvents {
		e := plimsoll.QOSEvent{
			At: 1, Kind: plimsoll.QOSRuleTriggered, Attempt: 1 << 30, Rule: long(plimsoll.MaxQOSText, k),
			Metric: long(plimsoll.MaxQOSText, k),
			Before: long(plimsoll.MaxQOSText, k), After: long(plimsoll.MaxQOSText, k),
			Message: long(plimsoll.MaxQOSMessage, k),
		}
		if k%2 == 0 {
			e.Task = long(200, k)
		}
		r.Report.Events = append(r.Report.Events, e)
	}
	return r
}

func longNode(i int) *engine.RegisterNode {
	n := plimsoll.Node{
		ID: long(128, i), Address: long(256, i), Incarnation: 1 << 26, Capacity: resources(plimsoll.MaxNodeOther),
		Attributes: map[string]string{},
	}
	n.Key, n.Session, n.Peer = long(plimsoll.MaxNodeKey, i), long(plimsoll.MaxNodeKey, i), long(plimsoll.MaxNodeKey, i)
	for k := range 256 {
		n.Attributes[long(128, k)] = long(1024, k)
	}
	return &engine.RegisterNode{Node: n, Gateway: "gw"}
}
