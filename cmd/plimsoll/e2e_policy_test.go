package main

import (
	"strings"
	"testing"
)

// TestPolicies: a set of policies is applied whole or not at all, and is there after a restart.
// Applying it again changes it. An Action that other policies name is not deleted.
func TestPolicies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dev := s.dev()
	cli := func(want int, says string, args ...string) string {
		t.Helper()
		stdout, stderr, code := s.cli(append([]string{"policy"}, args...)...)
		if code != want || !strings.Contains(stdout+stderr, says) {
			t.Fatalf("policy %v: exit code %d, want %d and %q\n%s%s", args, code, want, says, stdout, stderr)
		}
		return stdout
	}
	const file = `
kind: Action
name: shed
throttle: {minRatio: 10, step: 20}
---
kind: TaskQOS
name: batch
match: [{scope: class, operator: In, values: [best-effort]}]
allowed: [shed]
---
kind: NodeQOS
name: busy
rules: [{name: cpu, metric: cpu_total_utilization, waterline: 80, release: 70, action: shed}]
`
	good := s.write("good.yaml", file)

	// A dry run and a bad file change nothing; the error names the problem.
	cli(0, "Action shed: created (dry run: nothing was changed)", "apply", "-f", good, "--dry-run")
	for _, bad := range []struct{ from, to, says string }{
		{
			"cpu_total_utilization", "queue_length",
			`bad.yaml:13: NodeQOS busy: rules[0].metric: "queue_length" is measured by no node; there are cpu_pressure, `,
		},
		{"action: shed", "action: drop", `bad.yaml:13: NodeQOS busy: rules[0].action: there is no Action "drop"`},
		{"[shed]", "[drop]", `bad.yaml:9: TaskQOS batch: allowed[0]: there is no Action "drop"`},
		{"waterline: 80", "waterline: 180", `bad.yaml:13: NodeQOS busy: rules[0].waterline: 180 is above 100 percent`},
		{"step: 20", "step: 0", `bad.yaml:4: throttle.step: is 0`},
		{
			"allowed: [shed]", "allowed: [shed]\nprefers: true",
			`bad.yaml:10: prefers: unknown field; did you mean "prefer"?`,
		},
	} {
		cli(exitUsage, bad.says, "apply", "-f", s.write("bad.yaml", strings.Replace(file, bad.from, bad.to, 1)))
	}
	if list := cli(0, "KIND", "list"); strings.Contains(list, "shed") {
		t.Fatalf("a refused file left something behind:\n%s", list)
	}

	// The policies are applied, listed, and printed as a file. Applying that file changes nothing.
	cli(0, "NodeQOS busy: created", "apply", "-f", good)
	cli(0, "every node: cpu_total_utilization > 80: shed", "list")
	printed := cli(0, "release: 70", "list", "-o", "yaml")
	cli(0, "NodeQOS busy: unchanged", "apply", "-f", s.write("printed.yaml", printed))
	cli(0, `"waterline": 80`, "get", "NodeQOS", "busy", "-o", "json")
	cli(1, `there is no NodeQOS nothing`, "get", "NodeQOS", "nothing")

	// An update is checked as a creation is, and survives the coordinator.
	cli(
		exitUsage, "is above the waterline", "apply", "-f",
		s.write("release.yaml", strings.Replace(file, "release: 70", "release: 90", 1)),
	)
	cli(
		0, "Action shed: changed", "apply", "-f",
		s.write("step.yaml", strings.Replace(file, "step: 20", "step: 30", 1)),
	)
	dev.stop()
	s.dev()
	cli(0, "step: 30", "get", "Action", "shed")

	// The options by which nodes plan are changed and read in the same way.
	lagging := strings.Replace(printed, "rules:", "options: {excess: 10, lag: 2s}\nrules:", 1)
	cli(0, "NodeQOS busy: changed", "apply", "-f", s.write("lagging.yaml", lagging))
	cli(0, "lag: 2s", "get", "NodeQOS", "busy")

	// An Action that other policies name is not deleted.
	cli(
		1, "Action shed is in use by TaskQOS batch, NodeQOS busy (rule cpu); change or delete them first", "delete",
		"Action", "shed",
	)
	cli(0, "deleted", "delete", "NodeQOS", "busy")
	cli(0, "deleted", "delete", "TaskQOS", "batch")
	cli(0, "deleted", "delete", "Action", "shed")
	if list := cli(0, "KIND", "list"); strings.Contains(list, "shed") {
		t.Fatalf("deleted, and still there:\n%s", list)
	}
}

// TestExtendedResourcesAreForBestEffort: only best-effort tasks may ask for extended resources, and
// they wait until these are offered.
func TestExtendedResourcesAreForBestEffort(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dev()
	file := func(class string) string {
		return `{"job": "lent", "groups": [{"name": "main", "command": ["true"], "resources": {"ext-cpu": "500m"}, "class": "` + class + `"}]}`
	}
	_, stderr, code := s.cli("submit", s.write("wrong.json", file("guaranteed")))
	if code == 0 || !strings.Contains(stderr, "groups[0].resources.ext-cpu: is only for tasks of class best-effort") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	s.submitFile("lent", file("best-effort"))
	s.explains("lent.main.0", "no_resource", "no node lends ext-cpu now")
	if _, stderr, code := run(
		t, "agent", "--data", s.path("other"), "--node", "n2", "--gateways", s.address, "--capacity", "ext-cpu=4",
	); code == 0 ||
		!strings.Contains(stderr, "the node's QoS agent offers it") {
		t.Errorf("an agent set its extended resources: exit code %d, %s", code, stderr)
	}
}
