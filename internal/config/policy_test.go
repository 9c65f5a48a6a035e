package config_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

const policyFile = `kind: NodeQOS
name: busy
selector:
  pool: shared
options:
  excess: 10
  overdue: 1m
  stale: 8s
  backoff: 3s
  settle: 20s
  lag: 2s
rules:
  - {name: cpu, metric: cpu_total_utilization, waterline: 80, release: 70, action: shed}
  - name: mem
    metric: memory_total_usage
    waterline: 48Gi
    triggerAfter: 3
    restoreAfter: 5
    action: shed
    strategy: Preview
    onMissing: hold
---
kind: Action
name: shed
coolDown: 10m
weight:
  idle: true
throttle:
  minRatio: 10
  step: 20
freeze:
  for: 5s
evict:
  grace: 30s
  reclaim: true
disableScheduling: true
---
kind: TaskQOS
name: batch
labels:
  tier: batch
match:
  - scope: priority
    operator: NotIn
    values: ["1000", "2000-3000"]
  - scope: queue
    operator: In
    values: [root.batch]
allowed:
  - shed
prefer: true
`

func policies() []plimsoll.Policy {
	return []plimsoll.Policy{
		{NodeQOS: &plimsoll.NodeQOS{Name: "busy", Selector: map[string]string{
			"pool": "shared",
		}, Options: plimsoll.QOSOptions{
			Excess: 10, Overdue: time.Minute, Stale: 8 * time.Second, Backoff: 3 * time.Second,
			Settle: 20 * time.Second, Lag: 2 * time.Second,
		}, Rules: []plimsoll.Rule{
			{Name: "cpu", Metric: "cpu_total_utilization", Waterline: "80", Release: "70", Action: "shed"},
			{
				Name: "mem", Metric: "memory_total_usage", Waterline: "48Gi", TriggerAfter: 3, RestoreAfter: 5,
				Action: "shed", Preview: true, Hold: true,
			},
		}}},
		{Action: &plimsoll.Action{
			Name: "shed", CoolDown: 10 * time.Minute, Weight: &plimsoll.WeightAction{Idle: true},
			Throttle: &plimsoll.ThrottleAction{MinRatio: 10, Step: 20},
			Freeze:   &plimsoll.FreezeAction{For: 5 * time.Second},
			Evict:    &plimsoll.EvictAction{Grace: 30 * time.Second, Reclaim: true}, DisableScheduling: true,
		}},
		{TaskQOS: &plimsoll.TaskQOS{
			Name: "batch", Labels: map[string]string{"tier": "batch"}, Allowed: []string{"shed"}, Prefer: true,
			Match: []plimsoll.Requirement{
				{Scope: plimsoll.ScopePriority, Not: true, Values: []string{"1000", "2000-3000"}},
				{Scope: plimsoll.ScopeQueue, Values: []string{"root.batch"}},
			},
		}},
	}
}

// Every field of the three kinds is read.
func TestParsePoliciesReadsEveryField(t *testing.T) {
	got, err := config.ParsePolicies("qos.yaml", []byte(policyFile))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(policies(), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Missing fields have defaults: a cool-down of five minutes; no preview; all candidates are acted
// on when the metric is missing.
func TestPolicyDefaults(t *testing.T) {
	got, err := config.ParsePolicies("qos.yaml", []byte("kind: Action\nname: off\ndisableScheduling: true\n---\n"+
		"kind: NodeQOS\nname: n\nrules: [{name: r, metric: load, waterline: 14, action: off, strategy: None, onMissing: all}]\n---\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []plimsoll.Policy{
		{Action: &plimsoll.Action{Name: "off", CoolDown: 5 * time.Minute, DisableScheduling: true}},
		{
			NodeQOS: &plimsoll.NodeQOS{
				Name: "n", Rules: []plimsoll.Rule{{Name: "r", Metric: "load", Waterline: "14", Action: "off"}},
			},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Policies are printed as they are read. A line that is not a plain number keeps its text.
func TestPoliciesArePrintedAsTheyAreRead(t *testing.T) {
	text, err := config.FormatPolicies(policies())
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(policyFile, "  - {name: cpu, metric: cpu_total_utilization, waterline: 80, release: 70, action: shed}\n",
		"  - name: cpu\n    metric: cpu_total_utilization\n    waterline: 80\n    release: 70\n    action: shed\n")
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// The example of docs/reference/policy-file.md is a valid file, and refers only to policies of the
// same file.
func TestExamplePolicies(t *testing.T) {
	data, err := os.ReadFile("../../examples/qos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list, err := config.ParsePolicies("examples/qos.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[plimsoll.PolicyKind]int{}
	for i := range list {
		kinds[list[i].Kind()]++
	}
	if len(kinds) != 3 {
		t.Errorf("the example shows %d of three kinds", len(kinds))
	}
	if kind, err := config.Detect("qos.yaml", data); err != nil || kind != config.PolicyFileKind {
		t.Errorf("the example is taken as %d, %v", kind, err)
	}
}

// A job's class, priority and extended resources are read and printed.
func TestJobClassAndPriority(t *testing.T) {
	const file = `job: a
queue: root.default
groups:
  - name: g
    count: 1
    command: [ls]
    resources: {ext-cpu: 500m, ext-memory: 64Mi}
    class: best-effort
    priority: -5
`
	spec, err := config.ParseJob("a.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	g := &spec.Groups[0]
	if g.Class != plimsoll.ClassBestEffort || g.Priority != -5 ||
		g.Resources[plimsoll.ExtCPU] != 500 || g.Resources[plimsoll.ExtMemory] != 64<<20 {
		t.Errorf("got %+v", g)
	}
	text, err := config.FormatJob(&spec)
	if err != nil || string(text) != file {
		t.Errorf("printed as\n%s%v", text, err)
	}
}
