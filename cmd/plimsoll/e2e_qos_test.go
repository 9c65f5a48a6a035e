package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// burner keeps one processor busy.
const burner = "while :; do :; done"

// bestEffort is the rest of a burner's group: half a processor at the most, and the class that
// actions choose first.
const bestEffort = `, "class": "best-effort", "resources": {"cpu": "500m"}`

// policies returns a policy file with one rule: above a twentieth of a processor, where a burner
// always is, an action is taken on best-effort tasks.
func policies(action string) string { return policiesOf("cpu_total_usage", "50m", action) }

func policiesOf(metric, line, action string) string {
	return fmt.Sprintf(`
kind: Action
name: shed
coolDown: 1s
%s
---
kind: TaskQOS
name: batch
match: [{scope: class, operator: In, values: [best-effort]}]
allowed: [shed]
---
kind: NodeQOS
name: busy
rules: [{name: cpu, metric: %s, waterline: %s, action: shed}]
`, action, metric, line)
}

func (s *site) policy(args ...string) {
	s.t.Helper()
	if _, stderr, code := s.cli(append([]string{"policy"}, args...)...); code != 0 {
		s.t.Fatalf("policy %v: exit code %d, %s", args, code, stderr)
	}
}

// awaits runs a command until its output has all the words.
func (s *site) awaits(args []string, words ...string) string {
	s.t.Helper()
	var stdout string
	eventually(s.t, fmt.Sprintf("wait for %q in %v", words, args), func() error {
		out, stderr, code := s.cli(args...)
		for _, w := range words {
			if code != 0 || !strings.Contains(out, w) {
				return fmt.Errorf("exit code %d, %s%s", code, out, stderr)
			}
		}
		stdout = out
		return nil
	})
	return stdout
}

// held is the set of limits that a control group is held to.
type held struct {
	Quota  cgroup.Quota
	Weight cgroup.Scheduling
}

func needGroups(t *testing.T) {
	t.Helper()
	if h, err := cgroup.Detect(cgroup.DefaultRoot); err != nil || h.Missing() != "" {
		t.Skipf("no control groups that can be written: %v", err)
	}
}

// group is the control group of the first attempt of a task.
func (s *site) group(task string) (*cgroup.Group, error) {
	var caps executor.Capabilities
	agent := filepath.Join(s.data(), "agent")
	if _, err := os.Stat(agent); errors.Is(err, fs.ErrNotExist) { // each role is a process of its own
		agent = s.path("agent")
	}
	data, err := os.ReadFile(filepath.Join(agent, "supervisor.json"))
	if err == nil {
		err = json.Unmarshal(data, &caps)
	}
	if err != nil {
		return nil, err
	}
	tree, err := caps.OpenSubtree()
	if err != nil {
		return nil, err
	}
	return tree.Open(executor.CgroupName(filepath.Base(s.ofTask(agent, task)), 1))
}

// held reads the limits of the first attempt of a task.
func (s *site) held(task string) (held, error) {
	g, err := s.group(task)
	if err != nil {
		return held{}, err
	}
	control, err := g.Control()
	if err != nil {
		return held{}, err
	}
	quota, err := control.Quota()
	weight, err2 := control.Scheduling()
	return held{quota, weight}, errors.Join(err, err2, control.Close())
}

// awaitHeld waits until a task is held to the wanted limits.
func (s *site) awaitHeld(task, what string, so func(held) bool) (h held) {
	s.t.Helper()
	eventually(s.t, "wait until "+task+" is "+what, func() (err error) {
		if h, err = s.held(task); err == nil && !so(h) {
			err = fmt.Errorf("it is held to %+v", h)
		}
		return err
	})
	return h
}

// TestThrottledAndGivenBack: a node over its line takes quota from its best-effort tasks, down to
// the floor. Everybody can see it and why. An agent that was killed still knows the quota that it
// took. When the rule is gone the task has exactly its old quota.
func TestThrottledAndGivenBack(t *testing.T) {
	t.Parallel()
	needGroups(t)
	s := newSite(t)
	dev := s.dev("--qos-interval", "100ms")
	s.submit("burn", 1, burner, bestEffort)
	s.running("burn", 1)
	before, err := s.held("burn.main.0")
	if err != nil || before.Quota.Unlimited() {
		t.Fatalf("at first it is held to %+v, %v", before, err)
	}
	floor := before.Quota.Micros / 10

	s.policy(
		"apply", "-f", s.write("throttle.yaml", policies("throttle: {minRatio: 10, step: 50}\nweight: {idle: true}")),
	)
	s.awaitHeld("burn.main.0", "throttled", func(h held) bool { return h.Quota.Micros == floor })
	s.awaits(
		[]string{"events", "--words", "yunikorn", "--object", "burn.main.0"}, "ALLOC_QOS",
		"throttled by busy/cpu (cpu_total_usage): quota 0.5 cores", "line 0.05 cores",
	)
	s.awaits([]string{"events", "--words", "yunikorn", "--object", "n1"}, "NODE_QOS", "rule triggered by busy/cpu")
	s.awaits([]string{"node", "top", "n1", "--once"}, "busy/cpu", "throttled", "50m of 500m")

	dev.kill() // without warning: the quota that it took is on record
	if h, err := s.held("burn.main.0"); err != nil || h.Quota.Micros != floor {
		t.Errorf("without an agent it is held to %+v, %v", h, err)
	}
	s.dev("--qos-interval", "100ms")
	s.policy("delete", "NodeQOS", "busy")
	s.awaitHeld("burn.main.0", "given all back", func(h held) bool { return h == before })
	s.awaits([]string{"events", "--words", "yunikorn", "--object", "burn.main.0"}, "restored", "→ quota 0.5 cores")
	if _, tasks := s.job("burn"); len(tasks) != 1 || tasks[0].Attempt != 1 {
		t.Errorf("the task was not left to run: %+v", tasks)
	}
}

// TestEvictedGoesBackToItsQueue: an evicted task goes back to its queue with the reason, and not to
// the same node at once. A node over its line takes no new tasks until the cool-down is over.
func TestEvictedGoesBackToItsQueue(t *testing.T) {
	t.Parallel()
	needGroups(t)
	s := newSite(t)
	s.dev("--qos-interval", "100ms")
	s.submit("burn", 1, burner, bestEffort)
	s.running("burn", 1)
	s.policy("apply", "-f", s.write("evict.yaml", policies("evict: {grace: 1s}\ndisableScheduling: true")))
	s.awaits([]string{"node", "list"}, "no new tasks: busy/cpu is above its line")
	s.awaits(
		[]string{"task", "list", "--job", "burn"}, "Pending  evicted  143",
		"attempt 1: busy/cpu: cpu_total_usage is", "line 0.05 cores",
	)
	s.awaits(
		[]string{"events", "--words", "yunikorn", "--object", "burn.main.0"}, "evicting by busy/cpu (cpu_total_usage)",
		"APP      REMOVE  ALLOC_CANCEL",
	)
	s.policy("delete", "NodeQOS", "busy")
	s.awaits(
		[]string{
			"events",
			"--words",
			"yunikorn",
			"--object",
			"n1",
		},
		"scheduling disabled: busy/cpu is above its line",
		"scheduling enabled",
		"schedulable: true",
	)
	s.works("after")
	s.awaits([]string{"node", "show", "n1"}, "keeps away", "burn.main for another")
	s.awaits([]string{"explain", "burn.main.0"}, "burn.main.0 is Pending", "was evicted from it")
	if _, tasks := s.job("burn"); len(tasks) != 1 || tasks[0].Attempt != 1 {
		t.Errorf("it was started again: %+v", tasks)
	}
}

// TestAFrozenTaskCanBeStopped: a frozen task is told to end, and ends by itself. The same holds if
// the agent that froze it was killed since.
func TestAFrozenTaskCanBeStopped(t *testing.T) {
	t.Parallel()
	needGroups(t)
	s := newSite(t)
	dev := s.dev("--qos-interval", "100ms")
	s.submit("burn", 1, "trap 'exit 7' TERM; "+burner, bestEffort)
	s.running("burn", 1)
	s.policy("apply", "-f", s.write("freeze.yaml", policies("freeze: {for: 10m}")))
	s.awaits([]string{"events", "--words", "yunikorn", "--object", "burn.main.0"}, "frozen by busy/cpu")
	frozen := func() (still bool, err error) {
		g, err := s.group("burn.main.0")
		if err != nil {
			return false, err
		}
		control, err := g.Control()
		if err != nil {
			return false, err
		}
		still, err = control.Frozen()
		return still, errors.Join(err, control.Close())
	}
	dev.kill()
	if still, err := frozen(); err != nil || !still {
		t.Errorf("without an agent it runs: %v", err)
	}
	s.dev("--qos-interval", "100ms")
	if _, stderr, code := s.cli("job", "kill", "burn"); code != 0 {
		t.Fatalf("kill: exit code %d, %s", code, stderr)
	}
	if _, tasks := s.ended("burn"); len(tasks) != 1 || tasks[0].ExitCode == nil || *tasks[0].ExitCode != 7 {
		t.Errorf("it did not end by itself: %+v", tasks)
	}
}

// TestUnusedMemoryIsLent: a node offers the memory that nobody uses, and a task that takes some has
// it as its limit. The unused processor time is not checked: it depends on the load of this
// machine.
func TestUnusedMemoryIsLent(t *testing.T) {
	t.Parallel()
	needGroups(t)
	s := newSite(t)
	s.dev("--qos-interval", "100ms", "--extended", "--extended-memory-reserve", "0%", "--extended-warm-up", "1s")
	s.awaits([]string{"node", "list"}, "OFFERED", "ext-memory")
	s.submit("lent", 1, "sleep 1000", `, "resources": {"ext-memory": "16Mi"}`)
	s.running("lent", 1)
	g, err := s.group("lent.main.0")
	if err != nil {
		t.Fatal(err)
	}
	if l, err := g.Limits(); err != nil || l != (cgroup.Limits{MemoryBytes: 16 << 20, Pids: 4096}) {
		t.Errorf("its limits are %+v, %v", l, err)
	}
}

// gauged are roles whose agent measures a metric of its own: gauge, which is in a file.
type gauged struct{ *roles }

func newGauged(t *testing.T) *gauged {
	t.Helper()
	g := &gauged{&roles{site: newSite(t)}}
	g.write(
		"metrics.yaml",
		fmt.Sprintf(
			`[{name: gauge, command: [/bin/cat, %s], every: 200ms, evictable: true, throttleable: true}]`,
			g.write("gauge", "1\n"),
		),
	)
	g.startCoordinator()
	g.startGateway()
	g.startGauged()
	g.nodeReady("n1")
	return g
}

func (g *gauged) startGauged() {
	g.agent = start(g.t, "agent", "--data", g.path(
		"agent",
	), "--gateways", g.address, "--node", "n1", "--capacity", "cpu=64;memory=64Gi",
		"--qos-interval", "100ms", "--metrics", g.path("metrics.yaml"))
}

// killAll kills all roles as soon as the agent has the policies on disk.
func (g *gauged) killAll() {
	g.t.Helper()
	eventually(g.t, "wait until the agent has the policies", func() error {
		data, err := os.ReadFile(g.path("agent", "policies.pb"))
		if err == nil && !strings.Contains(string(data), "busy") {
			err = errors.New("they are not there")
		}
		return err
	})
	g.coordinator.kill()
	g.gateway.kill()
	g.agent.kill()
}

// shows waits until the agent's own /metrics has a line.
func (g *gauged) shows(line string) {
	g.t.Helper()
	client, base, err := transport.Client("unix:" + g.path("agent", "agent.sock"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	eventually(g.t, "wait for "+line, func() error {
		res, err := client.Get(base + "/metrics")
		if err != nil {
			return err
		}
		page, err := io.ReadAll(res.Body)
		if err == nil && !strings.Contains(string(page), line+"\n") {
			err = errors.New("it is not there")
		}
		return errors.Join(err, res.Body.Close())
	})
}

// TestATaskOfUnknownWorthIsLeftAlone: an agent that has lost the class of a task does not act on
// it, although its node is over the line. It acts as soon as a gateway tells the class again.
func TestATaskOfUnknownWorthIsLeftAlone(t *testing.T) {
	t.Parallel()
	needGroups(t)
	g := newGauged(t)
	g.submit("burn", 1, burner, bestEffort)
	g.running("burn", 1)
	before, err := g.held("burn.main.0")
	if err != nil {
		t.Fatal(err)
	}
	g.policy("apply", "-f", g.write("throttle.yaml", policiesOf("gauge", "5", "throttle: {minRatio: 10, step: 50}")))
	noted := g.ofTask(g.path("agent"), "burn.main.0", "1", "worth.json")
	g.exists(noted)
	g.killAll()
	if err := os.Remove(noted); err != nil {
		t.Fatal(err)
	}
	g.write("gauge", "10\n")
	g.startGauged()
	g.shows(`plimsoll_agent_qos_line_triggered{metric="gauge",rule="busy/cpu"} 1`)
	if h, err := g.held("burn.main.0"); err != nil || h != before {
		t.Errorf("it is held to %+v, %v; it was %+v", h, err, before)
	}
	g.startCoordinator()
	g.startGateway()
	g.awaitHeld("burn.main.0", "throttled", func(h held) bool { return h.Quota.Micros == before.Quota.Micros/10 })
	g.exists(noted)
}

// TestTheCoordinatorIsAway: the coordinator and all gateways are gone, and an agent was restarted
// meanwhile. The agent still keeps its node at the line of a metric of its own. Its actions are
// reported when a gateway is back.
func TestTheCoordinatorIsAway(t *testing.T) {
	t.Parallel()
	r := newGauged(t)
	r.gate(plimsoll.TaskID("gated", "main", 0))
	r.submitFile("gated", fmt.Sprintf(`{"job": "gated", "groups": [
		{"name": "main", "count": 1, "class": "best-effort", "command": ["sh", "-c", %[1]q]},
		{"name": "kept", "count": 1, "class": "guaranteed", "command": ["sleep", "1000"]}]}`, gatedTask(r.dir)))
	pid := r.pid("gated.main.0")
	r.running("gated", 2)
	r.policy("apply", "-f", r.write("evict.yaml", policiesOf("gauge", "5", "evict: {grace: 1s}")))
	for _, task := range []string{"gated.main.0", "gated.kept.0"} {
		r.exists(r.ofTask(r.path("agent"), task, "1", "worth.json"))
	}
	r.killAll()
	r.startGauged()
	r.write("gauge", "10\n")
	r.gone(pid)
	r.exists(r.ofTask(r.path("agent"), "gated.main.0", "1", "exit.json"))

	r.startCoordinator()
	r.startGateway()
	r.awaits([]string{"task", "list", "--job", "gated"}, "Pending  evicted  143", "attempt 1: busy/cpu: gauge is 10")
	r.awaits([]string{"events", "--words", "yunikorn", "--object", "gated.main.0"}, "evicting by busy/cpu (gauge)")
	_, tasks := r.job("gated")
	for _, task := range tasks {
		if task.Attempt != 1 || task.ID == "gated.kept.0" && task.State != "Running" {
			t.Errorf("%+v", task)
		}
	}
}

// exists waits for a file.
func (s *site) exists(path string) {
	s.t.Helper()
	eventually(s.t, "wait for "+path, func() error {
		_, err := os.Stat(path)
		return err
	})
}
