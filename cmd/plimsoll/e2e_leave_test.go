package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// supervisor returns the process of the agent's supervisor.
func (r *roles) supervisor() (pid int) {
	r.t.Helper()
	var caps struct{ PID int }
	data, err := os.ReadFile(r.path("agent", "supervisor.json"))
	if err := errors.Join(err, json.Unmarshal(data, &caps)); err != nil || caps.PID < 2 {
		r.t.Fatalf("which process the supervisor is: %s, %v", data, err)
	}
	return caps.PID
}

// The cluster does not wait for an agent that is told to stop: its node takes no new tasks at once.
// A running task goes on under the supervisor. If no task runs, no process of the node is left.
func TestAnAgentThatIsStoppedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := &roles{site: newSite(t)}
	r.startCoordinator()
	r.startGateway()
	r.startAgent()
	r.nodeReady("n1")
	r.gate("gated.main.0")
	r.submit("gated", 1, gatedTask(r.dir), "")
	task := r.pid("gated.main.0")
	r.running("gated", 1)
	pid := r.supervisor()

	r.agent.stop()
	stdout, stderr, code := r.cli("events", "--words", "yunikorn", "--object", "n1")
	const told = "ready: false (its agent was stopped; attempts that go on without it: 1)"
	if code != 0 || !strings.Contains(stdout, told) {
		t.Errorf("events: exit code %d, %s%s", code, stdout, stderr)
	}
	r.alive("gated.main.0", task)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the supervisor does not go on: %v", err)
	}

	r.startAgent()
	r.nodeReady("n1")
	r.open("gated.main.0", 0)
	r.exits("gated.main.0", 0)
	eventually(t, "wait until the end is put away", func() error {
		_, err := os.Stat(r.ofTask(r.path("agent"), "gated.main.0", "1", "forgotten"))
		return err
	})
	r.agent.stop()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		eventually(t, "wait for the end of the supervisor", func() error { // it is nobody's child any more
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && !strings.Contains(string(stat), ") Z ") {
				return fmt.Errorf("process %d goes on", pid)
			}
			return nil
		})
	}
	if stdout, stderr, code := r.cli("node", "remove", "n1"); code != 0 {
		t.Errorf("the node cannot be removed at once: exit code %d, %s%s", code, stdout, stderr)
	}
	r.gateway.stop()
	r.coordinator.stop()
}
