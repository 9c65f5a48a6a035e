package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// roles starts the three roles as processes of their own.
type roles struct {
	*site
	coordinator, gateway, agent *daemon
}

func (r *roles) startCoordinator() {
	r.coordinator = start(r.t, "coordinator", "--data", r.path("store"), "--listen", "unix:"+r.path("leader.sock"))
}

func (r *roles) startGateway() {
	r.gateway = start(r.t, "gateway", "--id", "g1", "--leader", "unix:"+r.path("leader.sock"), "--listen", r.address,
		"--archive", r.path("archive", "jobs.db"))
}

func (r *roles) startAgent() {
	r.agent = start(
		r.t, "agent", "--data", r.path("agent"), "--gateways", r.address, "--node", "n1", "--capacity",
		"cpu=64;memory=64Gi",
	)
}

// gatedTask is the script of a task that writes its pid and waits for a line in a pipe. It exits
// with the number on that line.
func gatedTask(dir string) string {
	return fmt.Sprintf(`echo $$ > %[1]s/$PLIMSOLL_TASK_ID.pid.new; mv %[1]s/$PLIMSOLL_TASK_ID.pid.new %[1]s/$PLIMSOLL_TASK_ID.pid
read code < %[1]s/$PLIMSOLL_TASK_ID.gate; echo over; exit $code`, dir)
}

// gate makes the pipe that a task waits for.
func (s *site) gate(task string) {
	s.t.Helper()
	path := s.path(task + ".gate")
	// tasks of any user must be able to open it
	if err := errors.Join(unix.Mkfifo(path, 0o600), os.Chmod(path, 0o666)); err != nil {
		s.t.Fatal(err)
	}
}

// pid waits until a gated task runs and returns its process.
func (s *site) pid(task string) (pid int) {
	s.t.Helper()
	eventually(s.t, "wait for the start of "+task, func() error {
		data, err := os.ReadFile(s.path(task + ".pid"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		}
		return err
	})
	return pid
}

// open lets a gated task end.
func (s *site) open(task string, code int) {
	s.t.Helper()
	f, err := os.OpenFile(s.path(task+".gate"), os.O_RDWR, 0) // both, so as not to wait for a reader
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fprintln(f, code); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = f.Close() }) // nothing is read after the test
}

// alive wants a task to run in its first process still.
func (s *site) alive(task string, pid int) {
	s.t.Helper()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !strings.Contains(string(env), "PLIMSOLL_TASK_ID="+task+"\x00") {
		s.t.Errorf("%s no longer runs as pid %d: %v", task, pid, err)
	}
}

// TestAgentRestart kills each role in turn under running tasks. The same processes go on, their
// exit codes arrive, and a read never returns an old state.
func TestAgentRestart(t *testing.T) {
	t.Parallel()
	r := &roles{site: newSite(t)}
	r.startCoordinator()
	r.startGateway()
	r.startAgent()
	r.nodeReady("n1")
	pids := map[string]int{}
	for i := range 4 {
		r.gate(plimsoll.TaskID("gated", "main", int32(i)))
	}
	r.submit("gated", 4, gatedTask(r.dir), "")
	for i := range 4 {
		id := plimsoll.TaskID("gated", "main", int32(i))
		pids[id] = r.pid(id)
	}
	r.running("gated", 4)

	// One task ends while there is no agent, and one after its restart.
	r.agent.kill()
	r.open("gated.main.0", 5)
	r.gone(pids["gated.main.0"])
	r.startAgent()
	r.exits("gated.main.0", 5)
	r.open("gated.main.1", 6)
	r.exits("gated.main.1", 6)

	r.coordinator.kill()
	r.refusesReads()
	r.startCoordinator()
	r.open("gated.main.2", 7)
	r.exits("gated.main.2", 7)

	r.gateway.kill()
	r.startGateway()
	r.open("gated.main.3", 0)
	r.exits("gated.main.3", 0)

	job, tasks := r.ended("gated")
	for _, task := range tasks {
		if task.Attempt != 1 {
			t.Errorf("%+v", task)
		}
		if stdout, stderr, code := r.cli("job", "logs", task.ID); code != 0 || stdout != "over\n" {
			t.Errorf("logs of %s: exit code %d, %q, %s", task.ID, code, stdout, stderr)
		}
	}
	if job.State != "Failed" || job.Counts.Succeeded != 1 || job.Counts.Failed != 3 {
		t.Errorf("%+v", job)
	}
	for id, pid := range pids {
		data, err := os.ReadFile(r.ofTask(r.path("agent"), id, "1", "exit.json"))
		if err != nil || !strings.Contains(string(data), fmt.Sprintf(`"pid": %d`, pid)) {
			t.Errorf("%s ran as pid %d, and its record is %s (%v)", id, pid, data, err)
		}
	}
	for _, d := range []*daemon{r.agent, r.gateway, r.coordinator} {
		d.stop()
	}
}

// running wants a job to have so many running tasks.
func (s *site) running(id string, n int32) {
	s.t.Helper()
	eventually(s.t, "wait until "+id+" runs", func() error {
		if job, _ := s.job(id); job.Counts.Running != n {
			return fmt.Errorf("%+v", job.Counts)
		}
		return nil
	})
}

// exits wants a task to end with an exit code. The other tasks of its job go on meanwhile.
func (s *site) exits(id string, code int32) {
	s.t.Helper()
	c := s.client()
	eventually(s.t, "wait for the end of "+id, func() error {
		task, err := c.Task(s.t.Context(), id)
		if err != nil || task.State != plimsoll.TaskFinished {
			return errors.Join(err, fmt.Errorf("%+v", task))
		}
		if task.ExitCode != code || task.Attempt != 1 {
			s.t.Fatalf("want exit code %d: %+v", code, task)
		}
		return nil
	})
}

// gone waits until a process has ended.
func (s *site) gone(pid int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("wait for the end of pid %d", pid), func() error {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			return errors.New("it runs")
		}
		return nil
	})
}

// refusesReads wants every read to fail as long as there is no leader: the gateway's copy of the
// state may be old.
func (r *roles) refusesReads() {
	r.t.Helper()
	c, err := client.New(client.Config{Server: r.address, RetryBudget: -1})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	_, jobErr := c.Job(ctx, "gated")
	_, queuesErr := c.Queues(ctx)
	_, eventsErr := c.Events(ctx, client.EventFilter{})
	for _, err := range []error{jobErr, queuesErr, eventsErr} {
		if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			r.t.Errorf("a read without a leader: %v", err)
		}
	}
	for i := range 3 {
		id := plimsoll.TaskID("gated", "main", int32(i+1))
		if i > 0 {
			r.alive(id, r.pid(id))
		}
	}
}

// TestLimits: the limits of a running task are those of its control group, and a task that needs
// more memory than it asked for ends.
func TestLimits(t *testing.T) {
	t.Parallel()
	hierarchy, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		t.Skipf("control groups cannot be used here: %v", err)
	}
	if missing := hierarchy.Missing(); missing != "" {
		t.Skipf("not everything can be limited here: %s", missing)
	}
	s := newSite(t)
	s.dev()
	s.gate("limited.main.0")
	s.submit("limited", 1, gatedTask(s.dir), `, "resources": {"cpu": "1500m", "memory": "48Mi"}`)
	group := groupFiles(t, s.pid("limited.main.0"))
	memory := firstOf(t, group["memory"], "memory.max", "memory.limit_in_bytes")
	if memory != strconv.Itoa(48<<20) {
		t.Errorf("memory limit %q, want 48Mi", memory)
	}
	switch quota := firstOf(t, group["cpu"], "cpu.max", "cpu.cfs_quota_us"); quota {
	case "150000 100000": // v2
	case "150000":
		if period := firstOf(t, group["cpu"], "cpu.cfs_period_us"); period != "100000" {
			t.Errorf("cpu limit %s of %s, want 1.5", quota, period)
		}
	default:
		t.Errorf("cpu limit %q, want 1.5", quota)
	}
	s.open("limited.main.0", 0)
	s.exits("limited.main.0", 0)

	stdout, stderr, code := s.cli("run", "--id", "greedy", "--memory", "24Mi", "--", "tail", "/dev/zero")
	_, tasks := s.job("greedy")
	if code != 137 || stdout != "" ||
		!strings.Contains(stderr, "out of memory: it went over its memory limit of 24Mi") ||
		tasks[0].Reason != "out of memory" {
		t.Errorf("exit code %d, %s%s%+v", code, stdout, stderr, tasks)
	}
}

// groupFiles returns the directory of a process's control group for each controller.
func groupFiles(t *testing.T, pid int) map[string]string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	groups := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3)
		for _, controller := range []string{"cpu", "memory"} {
			for _, name := range strings.Split(parts[1], ",") {
				if name == controller {
					groups[controller] = filepath.Join(cgroup.DefaultRoot, controller, parts[2])
				}
			}
			if parts[0] == "0" && groups[controller] == "" {
				groups[controller] = filepath.Join(cgroup.DefaultRoot, parts[2])
			}
		}
	}
	return groups
}

// firstOf reads the first of the files that exists.
func firstOf(t *testing.T, dir string, names ...string) string {
	t.Helper()
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	t.Errorf("%s holds none of %v", dir, names)
	return ""
}

// TestExplain: the reason is the true one, and names a remedy if there is one.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dev()
	queues := s.write("queues.yaml", "partitions: [{name: default, queues: [{name: root, queues: [{name: default}, "+
		"{name: small, resources: {max: {vcore: 1, memory: 128Mi}}}]}]}]\n")
	if _, stderr, code := s.cli("config", "apply", queues); code != 0 {
		t.Fatal(stderr)
	}
	s.submit("too-large", 1, "true", `, "resources": {"cpu": 100}`)
	s.explains(
		"too-large.main.0", "too_large", "too large for every node: it asks for cpu 100; 1 of 1 nodes: not enough cpu",
	)

	s.submitTo("root.small", "max", 2, "sleep 600", `{"memory": "100Mi"}`)
	s.running("max", 1)
	s.explains("max.main.1", "queue_max", "root.small is at its max: memory 100Mi of 128Mi")
	s.submitTo("root.small", "over-max", 1, "true", `{"cpu": 2}`)
	s.explains("over-max.main.0", "queue_max", "root.small")

	if _, stderr, code := s.cli("node", "drain", "n1"); code != 0 {
		t.Fatal(stderr)
	}
	s.submit("drained", 1, "true", "")
	s.explains("drained.main.0", "no_nodes", "1 of 1 nodes: draining")
	if _, stderr, code := s.cli("node", "uncordon", "n1"); code != 0 {
		t.Fatal(stderr)
	}
	if job, _ := s.ended("drained"); job.State != "Completed" {
		t.Errorf("%+v", job)
	}
	s.explains("drained.main.0", "", "")
}

func (s *site) submitTo(queue, id string, count int, script, resources string) {
	s.t.Helper()
	s.submitFile(id, fmt.Sprintf(`{"job": %q, "queue": %q, "groups": [{"name": "main", "count": %d, "command": ["sh", "-c", %q], "resources": %s}]}`,
		id, queue, count, script, resources))
}

// explains wants a code and a summary of explain for a task, and the same code in its job. It waits
// for the turn that finds them.
func (s *site) explains(id, waitCode, summary string) {
	s.t.Helper()
	var x explainView
	s.read(&x, "explain", id)
	if x.WaitCode != waitCode || !strings.Contains(x.Summary, summary) {
		s.t.Errorf("explain %s: %s, %q; want %s, %q", id, x.WaitCode, x.Summary, waitCode, summary)
	}
	job, _, _ := strings.Cut(id, ".")
	eventually(s.t, "wait for the reason in job get", func() error {
		if v, _ := s.job(job); v.Groups[0].WaitCode != waitCode || (v.Groups[0].WaitReason == "") != (waitCode == "") {
			return fmt.Errorf("%+v", v.Groups[0])
		}
		return nil
	})
}
