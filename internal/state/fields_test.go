package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

func always(value any) func(int) any { return func(int) any { return value } }

// possible holds valid values of fields. The job is "j", its leaf root.default and its node "n".
func possible(more map[string]func(int) any, leave ...string) fill.Options {
	values := map[string]func(int) any{
		"Where":         always("true"),
		"Class":         always(plimsoll.ClassBurstable),
		"Resources":     always(plimsoll.Resources{"cpu": 1, "memory": 2}),
		"Capacity":      always(plimsoll.Resources{"cpu": 1000, "memory": 2000}),
		"Platform":      func(n int) any { return fmt.Sprintf("2%03d0101T000000Z", n) },
		"Reserve":       always(map[string]float64{"cpu": 0.5}),
		"Overprovision": always(map[string]float64{"cpu": 2}),

		"Constraints.Class":    always(map[string]float64{"cpu": 2}),
		"Constraints.Platform": always(plimsoll.PlatformRange{Min: map[string]string{"": "20260101T000000Z"}}),
	}
	maps.Copy(values, more)
	return fill.Options{Leave: leave, Values: values, OneOf: []string{"Near[]", "Far[]"}}
}

// records holds a job with two groups of one task, and a policy of each kind. One task is on the
// node, the other waits.
type records struct {
	spec     plimsoll.JobSpec
	status   plimsoll.JobStatus
	tasks    [2]plimsoll.Task
	node     plimsoll.Node
	policies [3]plimsoll.Policy
}

// filledRecords returns records in which every field is set.
func filledRecords() (r records) {
	fill.Fill(&r.spec, possible(map[string]func(int) any{
		".ID": always("j"), ".Queue": always("root.default"), "Count": always(int32(1)),
	}))
	fill.Fill(&r.status, possible(map[string]func(int) any{
		".ID": always("j"), ".Owner": always(r.spec.Owner), ".Queue": always("root.default"),
		".State": always(plimsoll.JobRunning),
	}, ".Killed"))
	fill.Fill(&r.node, possible(map[string]func(int) any{
		".ID": always("n"), "Until": always(int64(1) << 60),
		"Evictions[].Job": always("j"), "Evictions[].Group": always(r.spec.Groups[0].Name),
	}))
	r.node.Evictions = r.node.Evictions[:1]
	for i := range r.tasks {
		state := []plimsoll.TaskState{plimsoll.TaskRunning, plimsoll.TaskPending}[i]
		fill.Fill(&r.tasks[i], possible(map[string]func(int) any{
			".Job": always("j"), ".Group": always(r.spec.Groups[i].Name), ".Index": always(int32(0)),
			".State": always(state), ".Node": always("n"),
		}, ".ID"))
	}
	for i, leave := range [][]string{{".TaskQOS", ".NodeQOS"}, {".Action", ".NodeQOS"}, {".Action", ".TaskQOS"}} {
		fill.Fill(&r.policies[i], fill.Options{Leave: leave})
	}
	return r
}

// compared reports the fields that differ between two values.
func compared(t *testing.T, where string, want, got any, lost map[string]string) {
	t.Helper()
	found, stale := fill.Unexpected(fill.Differences(want, got), lost)
	for _, d := range found {
		t.Errorf("%s.%s is lost (%s: %s). It belongs into: %s", d.Type, d.Field, d.Path, d, where)
	}
	for _, rule := range stale {
		t.Errorf("%s comes back, although this test says that it does not; take that out", rule)
	}
}

// derived names the fields of a job's status that are not loaded.
var derived = map[string]string{
	"Groups[].Name":             "it is that of the specification",
	"Groups[].Count":            "it is that of the specification",
	"Groups[].Wait.Code":        "a new leader finds it out anew",
	"Groups[].Wait.Queue":       "a new leader finds it out anew",
	"Groups[].Wait.Resource":    "a new leader finds it out anew",
	"Groups[].Wait.Asked":       "a new leader finds it out anew",
	"Groups[].Wait.UserOrGroup": "a new leader finds it out anew",
	"Groups[].Wait.Known":       "a gateway adds it",
	"Groups[].Counts.Pending":   "counted anew",
	"Groups[].Counts.Bound":     "counted anew",
	"Groups[].Counts.Starting":  "counted anew",
	"Groups[].Counts.Running":   "counted anew",
	"Groups[].Counts.Stopping":  "counted anew",
	"Groups[].Counts.Succeeded": "counted anew",
	"Groups[].Counts.Failed":    "counted anew",
}

// TestEveryFieldIsLoaded loads records and compares them with the records that the state hands out.
// A field that a row does not keep would be lost when a new leader loads the store.
func TestEveryFieldIsLoaded(t *testing.T) {
	in := filledRecords()
	l := NewLoader(Config{}, plimsoll.DefaultQueues())
	l.QueueConfig(plimsoll.DefaultQueues())
	l.JobSpec(in.spec)
	l.JobStatus(in.status)
	l.Node(in.node)
	for i := range in.tasks {
		l.Task(in.tasks[i])
	}
	for i := range in.policies {
		l.Policy(in.policies[i])
	}
	s, err := l.End(1000)
	if err != nil {
		t.Fatal(err)
	}
	var out Changes
	if err := s.All(&out, nil); err != nil {
		t.Fatal(err)
	}
	compared(t, "nothing: a specification is kept whole", &in.spec, out.JobSpecs[0], nil)
	compared(t, "type Job in tables.go, loadJob in load.go, State.JobStatus in changes.go",
		&in.status, &out.JobStatuses[0].JobStatus, derived)
	slices.SortFunc(in.tasks[:], func(a, b plimsoll.Task) int { return strings.Compare(a.Group, b.Group) })
	for i := range in.tasks {
		compared(t, "type Task in tables.go, loadTask in load.go, State.TaskRecord in changes.go",
			&in.tasks[i], &out.Tasks[i], nil)
	}
	compared(t, "nothing: a node is kept whole", &in.node, &out.Nodes[0], nil)
	for i := range in.policies { // by kind
		compared(t, "loadPolicy in policy.go", &in.policies[i], &out.Policies[i], nil)
	}
}

// TestEveryFieldOfANodeIsTakenIn registers a node twice, with another value in every field.
func TestEveryFieldOfANodeIsTakenIn(t *testing.T) {
	mine := map[string]string{
		"Mode": "an operator's", "Ready": "the state's", "Registered": "the state's",
		"Gate.Sequence": "its QoS agent's",
		"Gate.Closed":   "its QoS agent's", "Gate.Reason": "its QoS agent's", "Evictions": "the state's",
		"Occupied.CPU": "its agent's reports", "Occupied.Memory": "its agent's reports",
		"OccupiedAt": "the state's",
	}
	first := filledRecords().node
	first.Mode, first.Ready = plimsoll.NodeDraining, false // others than those of a new node
	first.Facts.Metrics = []string{"a", "b"}
	s := New(Config{}, plimsoll.DefaultQueues())
	s.Begin(int64(first.Incarnation)*1e6, 1)
	if _, err := s.Register(&first, "g"); err != nil {
		t.Fatal(err)
	}
	compared(t, "Register in node.go", &first, &s.Node("n").Node, mine)
	s.setReady(s.Node("n"), false)
	s.Node("n").lost = true // so that another key may come

	others := possible(map[string]func(int) any{
		".ID": always("n"), "Capacity": always(plimsoll.Resources{"cpu": 7}), "Metrics": always([]string{"c"}),
		"Reserve": always(map[string]float64{"cpu": 0.25}), "Overprovision": always(map[string]float64{"cpu": 3}),
	})
	others.After = 500
	var second plimsoll.Node
	fill.Fill(&second, others)
	second.Revision, second.Ready = first.Revision, false
	s.Begin(int64(second.Incarnation)*1e6, first.Revision)
	if _, err := s.Register(&second, "g"); err != nil {
		t.Fatal(err)
	}
	compared(t, "update in node.go", &second, &s.Node("n").Node, mine)
}

// TestEveryFieldOfAQueueIsTakenIn configures a tree and hands it out.
func TestEveryFieldOfAQueueIsTakenIn(t *testing.T) {
	in := plimsoll.QueueConfig{Name: plimsoll.RootQueue, Parent: true, Queues: make([]plimsoll.QueueConfig, 1)}
	fill.Fill(&in.Queues[0], fill.Options{Values: map[string]func(int) any{
		"Name":       func(n int) any { return fmt.Sprintf("q%03d", n) }, // they come back by name
		"Guaranteed": always(plimsoll.Resources{"cpu": 4}), "Queues[].Guaranteed": always(plimsoll.Resources{"cpu": 1}),
		"Max": always(plimsoll.Resources{"cpu": 9}), "Queues[].Max": always(plimsoll.Resources{"cpu": 8}),
		"Limits[].Max": always(plimsoll.Resources{"cpu": 7}), "MaxJobs": always(int32(7)),
		// A leaf holds jobs, the state sets Draining and Dynamic, and only root has a partition.
	}, Leave: []string{"Queues[].Parent", "Draining", "Dynamic", "Partition"}})
	in.Partition = &plimsoll.PartitionConfig{}
	fill.Fill(in.Partition, fill.Options{Leave: []string{"Parent.Parent"}})
	s := New(Config{TrustOwner: true}, plimsoll.DefaultQueues())
	s.Begin(1000, 1)
	if err := s.SetQueueConfig(&in); err != nil {
		t.Fatal(err)
	}
	out := s.QueueConfig()
	compared(t, "type Queue, build, configure and configOf in queue.go", &in.Queues[0], &out.Queues[0], nil)
	compared(t, "type Queue, build, configure and configOf in queue.go", in.Partition, out.Partition, nil)
}

// TestEveryFieldOfAPolicyIsTakenIn applies one policy of each kind and hands them out.
func TestEveryFieldOfAPolicyIsTakenIn(t *testing.T) {
	in := filledRecords().policies
	in[0].Action.Weight.Idle = false
	in[0].Action.Weight.Shares, in[0].Action.Throttle.Step, in[0].Action.Throttle.MinRatio = 100, 10, 10
	in[1].TaskQOS.Avoid, in[1].TaskQOS.Critical, in[1].TaskQOS.Allowed = false, false, []string{in[0].Name()}
	for i := range in[1].TaskQOS.Match {
		in[1].TaskQOS.Match[i].Scope = plimsoll.ScopeOwner
	}
	for i := range in[2].NodeQOS.Rules {
		r := &in[2].NodeQOS.Rules[i]
		r.Metric, r.Waterline, r.Release, r.Action = "cpu_total_utilization", "65", "60", in[0].Name()
	}
	s := New(Config{}, plimsoll.DefaultQueues())
	s.Begin(1000, 1)
	if _, err := s.ApplyPolicies(in[:], false); err != nil {
		t.Fatal(err)
	}
	for i, p := range s.Policies() {
		compared(t, "put in policy.go", &in[i], p, map[string]string{"Revision": "the state's"})
	}
}

// unplaced names the fields of a specification that the placement ignores.
var unplaced = map[string]string{
	"Queue": "the queues'", "Token": "a repeated submit's", "AgainOf": "what was done before",
	"Indexes": "the program's", "OwnerGroups": "the queues'", "Tags": "the placement rules'",
	"Completing": "the state's",

	"Count": "tasks are placed one by one", "Class": "the QoS agent's", "Priority": "the queues'",
	"NodePriority": "the QoS agent's",
	"Retry.Kind":   "the state's", "Retry.Limit": "the state's", "Retry.InitialDelay": "the state's",
	"Retry.MaxDelay": "the state's",
	"Command":        "the node's", "Env": "the node's", "WorkDir": "the node's", "User": "the node's",
	"UserGroup":  "the node's",
	"MaxRuntime": "the node's", "KillGrace": "the node's", "LogLimit": "the node's",
	"Outputs": "the node's",
}

// TestEveryFieldOfASpecificationIsPlaced finds each field in the request or in the table of
// unplaced fields. A new field belongs into one of them.
func TestEveryFieldOfASpecificationIsPlaced(t *testing.T) {
	image := func(s *plimsoll.JobSpec, g *plimsoll.GroupSpec) string {
		return fmt.Sprintf("%+v %+v", *request(s, g), *instance(s, g))
	}
	o := fill.Options{Leave: []string{".Groups"}, Values: map[string]func(int) any{
		"Constraints.Class": func(n int) any { return map[string]float64{"cpu": float64(n)} },
	}}
	ignored := fill.Ignored(o, func(s *plimsoll.JobSpec) string { return image(s, &plimsoll.GroupSpec{}) })
	ignored = append(
		ignored, fill.Ignored(o, func(g *plimsoll.GroupSpec) string { return image(&plimsoll.JobSpec{}, g) })...,
	)
	for _, field := range ignored {
		if unplaced[field] == "" {
			t.Errorf("%s of a job or group makes no difference to placement; add it to request and instance in "+
				"waiting.go, or to unplaced",
				field)
		}
	}
	if len(ignored) != len(unplaced) {
		t.Errorf("placement does not look at %v; unplaced has others", ignored)
	}
}

// TestEveryFieldOfAStatusIsDerived derives the status of a node and of queues in a state in which
// no field of them is zero.
func TestEveryFieldOfAStatusIsDerived(t *testing.T) {
	past := map[string]string{plimsoll.PropertyHalfLife: "1m"}
	leaf := plimsoll.QueueConfig{
		Name: "leaf", Guaranteed: plimsoll.Resources{"cpu": 1}, Max: plimsoll.Resources{"cpu": 100}, MaxTasks: 5,
		MaxJobs: 1,
	}
	s := New(Config{}, plimsoll.QueueConfig{
		Name: plimsoll.RootQueue, Parent: true, Properties: past, Queues: []plimsoll.QueueConfig{leaf},
	})
	s.Begin(1000, 1)
	n := &plimsoll.Node{ID: "n", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 10}}
	if _, err := s.Register(n, "g"); err != nil {
		t.Fatal(err)
	}
	submit := func(id string) *Job {
		j, err := s.Submit(&plimsoll.JobSpec{ID: id, Queue: "root.leaf", Groups: []plimsoll.GroupSpec{
			{Name: "g", Count: 2, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 1}},
		}}, false)
		if err != nil {
			t.Fatal(err)
		}
		s.Continue(Budget{})
		return j
	}
	j := submit("j")
	submit("waits")
	s.Bind(j.Groups[0].Next(), s.Node("n").Slot)
	s.setSick(s.Node("n"), 1e12)
	s.Begin(int64(time.Minute), 2)
	node, queue := s.NodeStatus(s.Node("n")), s.QueueStatus(s.Queue("root.leaf"))
	if zero := fill.Zero(&node); len(zero) > 0 {
		t.Errorf("State.NodeStatus leaves out %v; set them in node.go", zero)
	}
	for _, field := range fill.Zero(&queue) {
		if field != "Draining" {
			t.Errorf("State.QueueStatus leaves out %s; set it in queue.go", field)
		}
	}
}
