package config_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/qos"
)

var snapshotNow = time.Date(2025, 3, 4, 12, 0, 0, 0, time.UTC)

func parseSnapshot(t *testing.T, text string) (config.QOSSnapshot, error) {
	t.Helper()
	registry, err := qos.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return config.ParseQOSSnapshot("node.yaml", []byte(text), registry, snapshotNow)
}

// TestASnapshotIsReadWhole: each field is read into the planner's field, in its units.
func TestASnapshotIsReadWhole(t *testing.T) {
	got, err := parseSnapshot(t, `
node:
  cpu: 3500m
  memory: 8Gi
  attributes: {pool: shared}
  extCpu: 1500m
  extMemory: 1Gi
  values: {cpu_total_usage: 2.5, memory_total_utilization: 50%, load: 7.25, queue_depth: 12, cpu_pressure: missing}
tasks:
  - {id: a, class: guaranteed, priority: -3, owner: alice, queue: root.x, labels: {tier: web},
     cpu: 700m, memory: 1Gi, limit: 2, running: 90s,
     pressure: {cpu: 12.5}, values: {queue_depth: 9}}
  - {id: b, quota: 250m, request: 100m, shares: 512, idle: true, extCpu: 1, extMemory: 64Mi, stopping: true}
  - {id: c, limit: 1}
`)
	if err != nil {
		t.Fatal(err)
	}
	const core, milli = qos.Core, qos.Core / 1000
	want := config.QOSSnapshot{Attributes: map[string]string{"pool": "shared"}, Snapshot: qos.Snapshot{
		Sequence: 1, At: snapshotNow.UnixNano(), Cores: 3500 * milli, Memory: 8 << 30, ExtCPU: 1500 * milli,
		ExtMemory: 1 << 30,
		Values: map[string]int64{
			qos.CPUTotalUsage: 2500 * milli, qos.CPUTotalUtilization: 71_429, qos.MemoryTotalUtilization: 50_000,
			qos.MemoryTotalUsage: 4 << 30,
			qos.Load:             7_250, "queue_depth": 12_000,
		},
		Tasks: []qos.Task{
			{
				ID: "a", Attempt: 1, Class: plimsoll.ClassGuaranteed, Priority: -3, Owner: "alice", Queue: "root.x",
				Labels:  map[string]string{"tier": "web"},
				Started: snapshotNow.Add(-90 * time.Second).UnixNano(), CPU: 700 * milli, CPUKnown: true,
				Memory: 1 << 30, MemoryKnown: true,
				CPUPressure: 12_500, PressureKnown: true, Values: map[string]int64{"queue_depth": 9_000},
				Groups: []qos.Group{
					{Name: "task", CPU: 700 * milli, Quota: 2 * core, Limit: 2 * core, Request: 2 * core, Shares: 1024},
				},
			},
			{
				ID: "b", Attempt: 1, Class: plimsoll.ClassBestEffort, ExtCPU: core, ExtMemory: 64 << 20, Stopping: true,
				Groups: []qos.Group{
					{Name: "task", Quota: 250 * milli, Request: 100 * milli, Ext: core, Shares: 512, Idle: true},
				},
			},
			{
				ID: "c", Attempt: 1, Class: plimsoll.ClassBurstable,
				Groups: []qos.Group{{Name: "task", Quota: core, Limit: core, Shares: 1024}},
			},
		},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestWhatASnapshotLeavesOut: usage and utilization follow from each other or from the tasks. A
// value marked as missing is missing in both forms.
func TestWhatASnapshotLeavesOut(t *testing.T) {
	const percent, milli = plimsoll.LineScale, qos.Core / 1000
	for values, want := range map[string]map[string]int64{
		"{}": {
			qos.CPUTotalUsage: 1500 * milli, qos.CPUTotalUtilization: 75 * percent, qos.MemoryTotalUsage: 1 << 30,
			qos.MemoryTotalUtilization: 25 * percent,
		},
		"{cpu_total_utilization: 90, memory_total_usage: 3Gi}": {
			qos.CPUTotalUsage: 1800 * milli, qos.CPUTotalUtilization: 90 * percent, qos.MemoryTotalUsage: 3 << 30,
			qos.MemoryTotalUtilization: 75 * percent,
		},
		"{cpu_total_usage: missing, memory_total_usage: 1, memory_total_utilization: missing}": {
			qos.MemoryTotalUsage: 1,
		},
		"{cpu_total_usage: missing, cpu_total_utilization: missing, memory_total_usage: missing}": {},
	} {
		got, err := parseSnapshot(
			t,
			"node: {cpu: 2, memory: 4Gi, values: "+values+"}\n"+
				"tasks: [{id: a, cpu: 1}, {id: b, cpu: 500m, memory: 1Gi}]\n",
		)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got.Values); d != "" && len(want)+len(got.Values) > 0 {
			t.Errorf("%s (-want +got)\n%s", values, d)
		}
	}
}

// TestAnImpossibleSnapshotIsRefused with the line, the field and the correct form.
func TestAnImpossibleSnapshotIsRefused(t *testing.T) {
	const node = "node: {cpu: 2, memory: 4Gi}\n"
	for _, test := range []struct{ text, want string }{
		{
			"tasks: []\n",
			"node.yaml:1: node.cpu: is missing; say how much the machine has\n" +
				"node.yaml:1: node.memory: is missing; say how much the machine has",
		},
		{"node: {cpu: 0, memory: 4Gi}\n", "node.yaml:1: node.cpu: is missing; say how much the machine has"},
		{"node: {cores: 2}\n", "node.yaml:1: node.cores: unknown field; "},
		{node + "tasks: [{cpu: 1}]\n", "node.yaml:2: tasks[0].id: is missing; name the task, such as batch.main.0"},
		{
			node + "tasks: [{id: a}, {id: a}]\n",
			`node.yaml:2: tasks[1].id: "a" is already the id of the task on line 2; give each task its own`,
		},
		{node + "tasks: [{id: a, class: gold}]", `tasks[0].class: "gold" is not known; `},
		{node + "tasks: [{id: a, cpu: lots}]", "tasks[0].cpu: "},
		{node + "tasks: [{id: a, cpu: 9000000}]\ntasks: []", "stands twice"},
		{node + "tasks: [{id: a, cpu: 2000000000}]", "tasks[0].cpu: is 2000000000; no machine has so many processors"},
		{node + "tasks: [{id: a, pressure: high}]", "tasks[0].pressure: "},
		{
			node + "tasks: [{id: a, pressure: {cpu: -1}}]",
			`tasks[0].pressure.cpu: "-1" is negative; give a line above zero`,
		},
		{
			node + "tasks: [{id: a, values: {7up: 1}}]",
			"tasks[0].values.7up: is not the name of a metric; there are cpu_pressure, ",
		},
		{node + "tasks: [{id: a, values: {x: missing}}]", `tasks[0].values.x: "missing" cannot be read; `},
		{
			"node: {cpu: 2, memory: 4Gi, values: {cpu_total_usage: [1]}}",
			"node.values.cpu_total_usage: is a list; a number is expected, such as 65",
		},
		{
			"node: {cpu: 2, memory: 4Gi, values: {cpu_total_usage: 1000000Ei}}\n",
			`node.values.cpu_total_usage: "1000000Ei" is absurdly large`,
		},
	} {
		_, err := parseSnapshot(t, test.text)
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\n%v, want %s", test.text, err, test.want)
		}
	}
}

// TestTheExampleOfASnapshot can be read.
func TestTheExampleOfASnapshot(t *testing.T) {
	data, err := os.ReadFile("../../examples/qos-snapshot.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseSnapshot(t, string(data))
	if err != nil || len(s.Tasks) != 4 {
		t.Error(len(s.Tasks), err)
	}
}

// FuzzQOSSnapshot: every snapshot file is read or refused, and a plan can be made for every
// snapshot that was read.
func FuzzQOSSnapshot(f *testing.F) {
	data, err := os.ReadFile("../../examples/qos-snapshot.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(
		[]byte(
			"node: {cpu: 9, memory: 8Ei, values: {load: missing}}\ntasks: [{id: a, memory: 7Ei}, {id: b, memory: 7Ei, cpu: 1000000000}]\n",
		),
	)
	registry, err := qos.NewRegistry()
	if err != nil {
		f.Fatal(err)
	}
	policies := qos.Compile(qos.ExtendedPolicies(), registry, nil, qos.Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := config.ParseQOSSnapshot("node.yaml", data, registry, snapshotNow)
		if err != nil {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
				t.Error(err)
			}
			return
		}
		for name, value := range s.Values {
			if value < 0 {
				t.Errorf("%s is %d", name, value)
			}
		}
		qos.Plan(&s.Snapshot, policies, qos.NewLedger(), s.At)
	})
}
