package rehearsal_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/rehearsal"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// slow is an action that halves quotas, down to a tenth, and stop one that evicts.
var (
	slow = plimsoll.Policy{
		Action: &plimsoll.Action{Name: "slow", Throttle: &plimsoll.ThrottleAction{MinRatio: 10, Step: 50}},
	}
	stop = plimsoll.Policy{Action: &plimsoll.Action{Name: "stop", Evict: &plimsoll.EvictAction{}}}
)

// allow lets tasks of class best-effort be acted on.
func allow(actions ...string) plimsoll.Policy {
	match := plimsoll.Requirement{Scope: plimsoll.ScopeClass, Values: []string{"best-effort"}}
	return plimsoll.Policy{
		TaskQOS: &plimsoll.TaskQOS{Name: "batch", Match: []plimsoll.Requirement{match}, Allowed: actions},
	}
}

// rule is a NodeQOS with one rule that would act only after a minute, and is previewed.
func rule(metric, line, action string) plimsoll.Policy {
	return plimsoll.Policy{NodeQOS: &plimsoll.NodeQOS{Name: "nodes", Rules: []plimsoll.Rule{{
		Name: "r", Metric: metric, Waterline: line, Action: action, TriggerAfter: 60, RestoreAfter: 60, Preview: true,
	}}}}
}

// busy is a machine of 4 cores. A service uses one core. Two tasks of class best-effort, each
// limited to one core, use one core together.
func busy() *qos.Snapshot {
	task := func(id string, class plimsoll.Class, cores float64) qos.Task {
		cpu := int64(cores * float64(qos.Core))
		return qos.Task{
			ID: id, Class: class, CPU: cpu, CPUKnown: true, MemoryKnown: true, Memory: 1 << 30,
			Groups: []qos.Group{{Name: "task", CPU: cpu, Quota: qos.Core, Limit: qos.Core, Shares: 1024}},
		}
	}
	return &qos.Snapshot{
		Sequence: 1, At: 1e18, Cores: 4 * qos.Core, Memory: 16 << 30,
		Values: map[string]int64{qos.CPUTotalUsage: 2 * qos.Core},
		Tasks: []qos.Task{
			task("web", plimsoll.ClassGuaranteed, 1), task("a", plimsoll.ClassBestEffort, 0.5),
			task("b", plimsoll.ClassBestEffort, 0.5),
		},
	}
}

func run(t *testing.T, c rehearsal.Config) (*rehearsal.Result, error) {
	t.Helper()
	var err error
	if c.Registry, err = qos.NewRegistry(); err != nil {
		t.Fatal(err)
	}
	if c.Samples == 0 {
		c.Samples = 20
	}
	return rehearsal.Run(&c)
}

func mustRun(t *testing.T, c rehearsal.Config) *rehearsal.Result {
	t.Helper()
	r, err := run(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// done lists the steps of each sample.
func done(r *rehearsal.Result) []string {
	out := []string{}
	for i := range r.Samples {
		words := []string{}
		for _, s := range r.Samples[i].Steps {
			words = append(words, s.Verb+" "+s.Task)
		}
		out = append(out, strings.Join(words, ", "))
	}
	return out
}

// Policies without a node are only checked.
func TestWithoutANodePoliciesAreChecked(t *testing.T) {
	r := mustRun(
		t, rehearsal.Config{Policies: []plimsoll.Policy{slow, allow("slow"), rule(qos.CPUTotalUsage, "1", "slow")}},
	)
	if diff := cmp.Diff(&rehearsal.Result{}, r); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The error names everything that is wrong. An action that is not in the files may be on the
// server.
func TestReferencesLeadSomewhere(t *testing.T) {
	c := rehearsal.Config{Policies: []plimsoll.Policy{allow("slow"), rule("no_such_metric", "1", "slow")}}
	_, err := run(t, c)
	for _, want := range []string{
		`TaskQOS batch: allowed[0]: there is no Action "slow" in these files`,
		`NodeQOS nodes: rules[0].action: there is no Action "slow" in these files`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	c.Others = []plimsoll.Policy{}
	if _, err := run(t, c); err == nil || !strings.Contains(err.Error(), "in these files or on the server") {
		t.Errorf("with a server that has no actions: %v", err)
	}
	c.Others = []plimsoll.Policy{slow}
	unregistered := `rules[0].metric: nobody has registered "no_such_metric"`
	if _, err := run(t, c); err == nil || !strings.Contains(err.Error(), unregistered) {
		t.Errorf("with a metric that nobody knows: %v", err)
	}
	c.Node.Announced = []string{"no_such_metric"}
	r := mustRun(t, c)
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "is defined on the node, and the rule is left out") {
		t.Errorf("with a metric of the node's agent: %q", r.Notes)
	}
}

// Policies that can never act are noted, though they are valid.
func TestNotes(t *testing.T) {
	c := rehearsal.Config{
		Policies: []plimsoll.Policy{slow, stop, rule(qos.MemoryTotalUsage, "64Gi", "slow")},
		Node:     rehearsal.Node{Snapshot: busy()},
	}
	c.Policies[2].NodeQOS.Selector = map[string]string{"pool": "batch"}
	elsewhere := mustRun(t, c)
	c.Node.Attributes = map[string]string{"pool": "batch"}
	here := mustRun(t, c)
	unused, nobody := "Action stop is named by no rule of these files", "NodeQOS nodes, rule r: no TaskQOS allows slow, so no task is acted on"
	never := "NodeQOS nodes, rule r: the line, 64.0 GiB, is never crossed on this node: memory_total_usage is at most 16.0 GiB"
	notSelected := []string{unused, nobody, "NodeQOS nodes does not select this node"}
	if diff := cmp.Diff(notSelected, elsewhere.Notes); diff != "" {
		t.Errorf("elsewhere, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{unused, nobody, never}, here.Notes); diff != "" {
		t.Errorf("here, -want +got:\n%s", diff)
	}
}

// A rule acts at the first sample, although it has a minute before it triggers and is only
// previewed. Quotas go down until the line is reached, and nothing is given back after that.
func TestQuotasGoDownUntilTheLineIsReached(t *testing.T) {
	policies := []plimsoll.Policy{slow, allow("slow"), rule(qos.CPUTotalUsage, "1500m", "slow")}
	snapshot := busy()
	r := mustRun(t, rehearsal.Config{Policies: policies, Node: rehearsal.Node{Snapshot: snapshot}})
	if diff := cmp.Diff([]string{"throttle a, throttle b", "throttle a, throttle b"}, done(r)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(r.Outcomes) != 1 || !r.Outcomes[0].Reached || r.Outcomes[0].Before != 2*qos.Core ||
		r.Outcomes[0].After != qos.Core*3/2 {
		t.Errorf("it comes to %+v", r.Outcomes)
	}
	if diff := cmp.Diff(busy(), snapshot); diff != "" {
		t.Errorf("the snapshot was changed, -before +after:\n%s", diff)
	}
}

// A task that is evicted uses nothing in the next sample. When nobody is left the line is not
// reached; when the samples are over more is to be done.
func TestWhereARuleComesTo(t *testing.T) {
	for _, test := range []struct {
		line string
		want rehearsal.Outcome
	}{
		{"1500m", rehearsal.Outcome{After: qos.Core * 3 / 2, Release: qos.Core * 3 / 2, Reached: true}},
		{"500m", rehearsal.Outcome{After: qos.Core, Release: qos.Core / 2}},
	} {
		policies := []plimsoll.Policy{stop, allow("stop"), rule(qos.CPUTotalUsage, test.line, "stop")}
		r := mustRun(t, rehearsal.Config{Policies: policies, Node: rehearsal.Node{Snapshot: busy()}})
		want := test.want
		want.Rule, want.Metric, want.Unit, want.Scale = "nodes/r", qos.CPUTotalUsage, "cores", qos.Core
		want.Before, want.Told = 2*qos.Core, true
		if diff := cmp.Diff([]rehearsal.Outcome{want}, r.Outcomes); diff != "" {
			t.Errorf("%s: -want +got:\n%s", test.line, diff)
		}
	}
	policies := []plimsoll.Policy{slow, allow("slow"), rule(qos.CPUTotalUsage, "1100m", "slow")}
	r := mustRun(t, rehearsal.Config{Policies: policies, Node: rehearsal.Node{Snapshot: busy()}, Samples: 1})
	if len(r.Samples) != 1 || len(r.Outcomes) != 1 || r.Outcomes[0].Reached || !r.Outcomes[0].More {
		t.Errorf("after one sample: %d samples, %+v", len(r.Samples), r.Outcomes)
	}
}

// A node is rehearsed from its agent's report, with the original quotas: a task is not throttled
// below the floor that its original quota allows.
func TestFromAgent(t *testing.T) {
	q := client.NodeQOS{
		Sequence: 7, At: 1e18, CPU: 4 * qos.Core, Memory: 16 << 30,
		Values: map[string]int64{qos.CPUTotalUsage: 2 * qos.Core},
	}
	for i, quota := range []int64{qos.Core / 10, qos.Core} {
		task := client.QOSTask{
			Task: fmt.Sprint("t", i), Class: plimsoll.ClassBestEffort, CPU: quota, CPUKnown: true, Memory: 1 << 30,
			MemoryKnown: true, Quota: quota, Shares: 1024,
			Limit: qos.Core,
		}
		if quota < qos.Core {
			task.Rung, task.OriginalQuota, task.OriginalShares = qos.Throttle.String(), qos.Core, 1024
		}
		q.Tasks = append(q.Tasks, task)
	}
	snapshot, ledger := rehearsal.FromAgent(&q)
	policies := []plimsoll.Policy{slow, allow("slow"), rule(qos.CPUTotalUsage, "1900m", "slow")}
	r := mustRun(t, rehearsal.Config{Policies: policies, Node: rehearsal.Node{Snapshot: snapshot, Ledger: ledger}})
	if diff := cmp.Diff([]string{"throttle t1"}, done(r)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
