package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// node starts an agent of its own beside dev, and waits until its node takes tasks.
func (s *site) node(id string, flags ...string) *daemon {
	s.t.Helper()
	d := start(
		s.t,
		append([]string{"agent", "--data", s.path("agent-" + id), "--gateways", s.address, "--node", id}, flags...)...,
	)
	s.nodeReady(id)
	return d
}

// placedOn wants the tasks of a job to run, so many on each node.
func (s *site) placedOn(id string, want map[string]int) {
	s.t.Helper()
	eventually(s.t, "wait for "+id+" on its nodes", func() error {
		got := map[string]int{}
		_, tasks := s.job(id)
		for i := range tasks {
			if tasks[i].State == "Running" {
				got[tasks[i].Node]++
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// TestConstraints: tasks land on nodes that satisfy their constraints, and waiting tasks say why
// they wait.
func TestConstraints(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dev("--attributes", "rack=a")
	s.node(
		"n2", "--attributes", "rack=b", "--capacity", "cpu=4;memory=8Gi", "--trait", "ssd", "--trait", "gpu=a100,h100",
	)
	s.node("n3", "--attributes", "rack=b", "--capacity", "cpu=4;memory=8Gi", "--overprovision", "cpu=2")
	s.node("n4", "--attributes", "rack=b", "--capacity", "cpu=4;memory=8Gi", "--reserve", "memory=75%")
	const sleeps = "sleep 600"
	with := func(resources, constraints string) string {
		return fmt.Sprintf(`, "resources": {%s}, "constraints": {%s}`, resources, constraints)
	}

	// Traits keep a node for groups that ask for exactly these traits. Over-provisioning keeps it
	// for groups of its class.
	s.submit("traits", 2, sleeps, with("", `"traits": {"ssd": true, "gpu": "h100"}`))
	s.placedOn("traits", map[string]int{"n2": 2})
	s.submit("trait-missing", 1, sleeps, with("", `"traits": {"ssd": true}`))
	s.explains("trait-missing.main.0", "not_eligible", "1 of 4 nodes: has trait gpu, which is not asked for")
	s.submit("class", 9, sleeps, with(`"cpu": 1`, `"class": {"cpu": 2}`))
	s.placedOn("class", map[string]int{"n3": 8})
	s.explains("class.main.8", "no_node", "1 of 4 nodes: not enough cpu")
	s.submit("plain", 40, sleeps, `, "resources": {"cpu": "10m"}`)
	eventually(t, "wait for the plain tasks", func() error {
		_, tasks := s.job("plain")
		for i := range tasks {
			if n := tasks[i].Node; n != "" && n != "n1" && n != "n4" {
				t.Fatalf("a task without constraints is on %s", n)
			}
			if tasks[i].State != "Running" {
				return fmt.Errorf("%+v", tasks[i])
			}
		}
		return nil
	})

	// No task gets the reserved part of a node, and waiting does not make a node larger.
	s.submit("kept-back", 1, sleeps, with(`"memory": "3Gi"`, `"nodes": ["n4"]`))
	s.explains("kept-back.main.0", "too_large", "1 of 4 nodes: not enough memory")
	s.submit("reservoir", 1, sleeps, with("", `"reservoir": "only"`))
	s.explains("reservoir.main.0", "not_eligible", "is not a reservoir node")

	// Constraints on other tasks: by job, by task, by label, and evenly over racks.
	s.submitFile(
		"base",
		`{"job": "base", "labels": {"app": "db"}, "groups": [{"name": "main", "command": ["sleep", "600"], "constraints": {"nodes": ["n4"]}}]}`,
	)
	s.placedOn("base", map[string]int{"n4": 1})
	s.submit("apart", 2, sleeps, with("", `"far": [{"job": "base"}]`))
	s.placedOn("apart", map[string]int{"n1": 2})
	s.submit("beside", 2, sleeps, with("", `"near": [{"task": "base.main.0"}, {"label": "app=db"}]`))
	s.placedOn("beside", map[string]int{"n4": 2})
	s.submit("nowhere", 1, sleeps, with("", `"near": [{"job": "base"}], "nodes": ["n1"]`))
	s.explains("nowhere.main.0", "no_node", "1 of 4 nodes: does not hold the instances that it must be near")
	s.submit("spread", 4, sleeps, with("", `"spread": [{"by": "rack", "maxSkew": 1}]`))
	s.placedOn("spread", map[string]int{"n1": 2, "n4": 2})

	// A constraint by an expression; an expression that cannot be parsed is refused.
	s.submit("where", 1, sleeps, with("", `"where": "node.labels.rack == \"a\" && node.capacity.cpu >= 64000"`))
	s.placedOn("where", map[string]int{"n1": 1})
	wrong := s.write(
		"wrong.json",
		`{"job": "wrong", "groups": [{"name": "main", "command": ["true"], "constraints": {"where": "node.rack == 1"}}]}`,
	)
	if _, stderr, code := s.cli("submit", wrong); code == 0 || !strings.Contains(
		stderr, "groups[0].constraints.where: the expression is not understood: the node has no field rack",
	) {
		t.Errorf("submit: exit code %d, %s", code, stderr)
	}

	// With the files of another task.
	s.submit("made", 1, "echo from $PLIMSOLL_NODE > made", with("", `"nodes": ["n4"]`))
	s.ended("made")
	s.submit("uses", 1, "cat $PLIMSOLL_VOLUMES_FROM/made", with("", `"volumesFrom": ["made.main.0"]`))
	if job, _ := s.ended("uses"); job.State != "Completed" {
		t.Errorf("%+v", job)
	}
	if stdout, stderr, code := s.cli("job", "logs", "uses"); !strings.Contains(stdout, "from n4") {
		t.Errorf("logs: exit code %d, %q, %s", code, stdout, stderr)
	}
}

// TestNodeFault: a node that cannot start tasks is left out after two failed starts, which do not
// count against the tasks. The tasks go elsewhere, or wait until the node is repaired, or until the
// time in the placement file is over.
func TestNodeFault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hour := s.write("hour.yaml", "sickFor: 1h\n")
	dev := s.dev("--placement", hour, "--attributes", "disk=broken")
	const broken = `, "constraints": {"where": "node.labels.disk == \"broken\""}`

	breakNode := func() (repair func()) {
		tasks, aside := filepath.Join(s.data(), "agent", "tasks"), s.path("aside")
		if err := os.Rename(tasks, aside); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(tasks, nil, 0o600); err != nil { // root cannot make a directory in a file either
			t.Fatal(err)
		}
		return func() {
			if err := os.Remove(tasks); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(aside, tasks); err != nil {
				t.Fatal(err)
			}
		}
	}
	isSick := func(id string) {
		t.Helper()
		eventually(t, "wait for the node to be sick", func() error {
			var x explainView
			s.read(&x, "explain", id)
			if x.WaitCode != "no_node" || !strings.Contains(x.Summary, "the last two instances failed on it") {
				return fmt.Errorf("%+v", x)
			}
			return nil
		})
	}

	// The only node is sick; then another one is added.
	repair := breakNode()
	s.submit("elsewhere", 1, "true", "")
	isSick("elsewhere.main.0")
	_, tasks := s.job("elsewhere")
	if task := tasks[0]; task.Attempt != 2 || task.Failures != 0 ||
		!strings.Contains(task.Message, "cannot be made: ") {
		t.Errorf("%+v", task)
	}
	if stdout, stderr, _ := run(
		t, "--server", s.address, "node", "list",
	); !strings.Contains(stdout, "ready, sick for another 59m") {
		t.Errorf("node list: %s%s", stdout, stderr)
	}
	s.node("n2", "--capacity", "cpu=4;memory=8Gi")
	if job, tasks := s.ended("elsewhere"); job.State != "Completed" || tasks[0].Node != "n2" || tasks[0].Attempt != 3 {
		t.Errorf("%+v, %+v", job, tasks)
	}

	// The node is repaired, and its operator says so.
	s.submit("repaired", 1, "true", broken)
	isSick("repaired.main.0")
	repair()
	for _, verb := range []string{"cordon", "uncordon"} {
		if _, stderr, code := s.cli("node", verb, "n1"); code != 0 {
			t.Fatal(stderr)
		}
	}
	if job, tasks := s.ended("repaired"); job.State != "Completed" || tasks[0].Node != "n1" {
		t.Errorf("%+v, %+v", job, tasks)
	}

	// Another placement file applies to waiting jobs too: sick nodes are soon tried again, without
	// an operator.
	s.submit("too-large", 1, "true", `, "resources": {"cpu": 100}`)
	dev.stop()
	soon := s.write("soon.yaml", "sickFor: 3s\nmaxInstances: 4\n")
	s.dev("--placement", soon, "--attributes", "disk=broken")
	s.submit("again", 1, "true", broken)
	s.ended("again") // so its supervisor is there
	s.explains("too-large.main.0", "too_large", "too large for every node")
	repair = breakNode()
	s.submit("later", 1, "true", broken)
	isSick("later.main.0")
	repair()
	if job, tasks := s.ended("later"); job.State != "Completed" || tasks[0].Failures != 0 {
		t.Errorf("%+v, %+v", job, tasks)
	}
	s.submit("few", 9, "sleep 600", `, "resources": {"cpu": "100m"}`)
	s.placedOn("few", map[string]int{"n1": 4, "n2": 4})
	s.explains("few.main.8", "no_node", "has 4 instances or more")

	// A bad file is refused before any file is changed.
	bad := s.write("bad.yaml", "chain: [pipe, running]\n")
	stdout, stderr, code := run(
		t,
		slices.Concat(
			[]string{"dev", "--data", s.path("other"), "--listen", "unix:" + s.path("other.sock")},
			[]string{"--placement", bad},
		)...,
	)
	if code == 0 || !strings.Contains(stderr, `bad.yaml:1: chain: "reserved" does not stand on every way through it`) {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}
