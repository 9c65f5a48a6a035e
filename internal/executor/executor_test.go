package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

func TestHowAttemptsEnd(t *testing.T) {
	cases := []struct {
		name, script string
		result       plimsoll.TaskResult
		code         int32
		message      string
	}{
		{"exit 0", "exit 0", plimsoll.ResultSucceeded, 0, ""},
		{"exit 3", "exit 3", plimsoll.ResultFailed, 3, "exit code 3"},
		{"signal 11", "kill -SEGV $$", plimsoll.ResultFailed, 139, "signal 11 (segmentation fault)"},
		{"kill 9 without OOM", "kill -KILL $$", plimsoll.ResultFailed, 137, "signal 9 (killed)"},
	}
	eachMode(t, []mode{inGroups, inV1Alone, bare, gated}, func(_ *testing.T, n *node) {
		for i, c := range cases {
			s := n.run(request(fmt.Sprintf("job.g.%d", i), c.script))
			n.wantEnd(s, c.result, c.code, c.message)
		}
	})
}

func TestCommandsThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	mayPass(t, dir)
	write := func(name, text string, perm os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), perm); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	junk := write("junk", "\x01\x02\x03", 0o755)
	lost := write("lost", "#!/no/such/interpreter\n", 0o755)
	cases := []struct {
		change  func(*plimsoll.GroupSpec)
		message string
		code    int32
	}{
		{
			func(g *plimsoll.GroupSpec) { g.Command = []string{"no-such-command"} },
			`the command "no-such-command" was not found in PATH`, 127,
		},
		{func(
			g *plimsoll.GroupSpec,
		) {
			g.Command = []string{"echo hi; exit"}
		}, `no shell takes it apart: write sh -c before it`, 127},
		{func(g *plimsoll.GroupSpec) { g.Command = []string{"/no/such"} }, "the command /no/such was not found", 127},
		{func(g *plimsoll.GroupSpec) { g.Command = []string{"/"} }, "is a directory", 126},
		{func(g *plimsoll.GroupSpec) { g.Command = []string{plain} }, "is not executable; chmod +x", 126},
		{func(g *plimsoll.GroupSpec) { g.Command = []string{junk} }, "is not a program", 126},
		{func(g *plimsoll.GroupSpec) { g.Command = []string{lost} }, "interpreter", 126},
		{
			func(g *plimsoll.GroupSpec) { g.WorkDir = "/no/such" },
			"the working directory /no/such cannot be used: no such file", -1,
		},
		{func(g *plimsoll.GroupSpec) { g.WorkDir = plain }, "is not a directory", -1},
		{func(g *plimsoll.GroupSpec) { g.User = "no-such-user" }, `there is no user "no-such-user" on this node`, -1},
		{
			func(g *plimsoll.GroupSpec) { g.User, g.UserGroup = "54320", "no-such-group" },
			`there is no group "no-such-group" on this node`, -1,
		},
		{func(g *plimsoll.GroupSpec) { g.User = "54321" }, `as user "54321"`, -1},
	}
	eachMode(t, []mode{inGroups, bare}, func(_ *testing.T, n *node) {
		n.connectAs(Users{Allowed: []string{"54320"}})
		for i, c := range cases {
			req := request(fmt.Sprintf("job.g.%d", i), "exit 0")
			c.change(&req.Spec)
			s := n.start(req)
			n.wantEnd(s, plimsoll.ResultNeverStarted, c.code, c.message)
			var r exitRecord
			if ok, err := readJSON(filepath.Join(s.Dir, exitFile), &r); !ok || err != nil || r.Word != "never started" {
				n.Errorf("%s holds %+v, %v", exitFile, r, err)
			}
		}
	})
}

// A reason for not starting that lies with the node is a node fault, with its message. Without the
// reason, the next attempt starts.
func TestNodeFaultsAtTheStart(t *testing.T) {
	eachMode(t, []mode{inGroups, bare}, func(_ *testing.T, n *node) {
		inTheWay := func(path string) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
				n.Fatal(err)
			}
		}
		work := request("job.work.0", "exit 0")
		inTheWay(TaskDir(n.dir, work.Task))
		s := n.start(work)
		n.wantEnd(s, plimsoll.ResultNodeFault, -1, "make the task's own directory")
		var r exitRecord
		if ok, err := readJSON(filepath.Join(s.Dir, exitFile), &r); !ok || err != nil || r.Word != "node fault" {
			n.Errorf("%s holds %+v, %v", exitFile, r, err)
		}
		if err := os.Remove(TaskDir(n.dir, work.Task)); err != nil {
			n.Fatal(err)
		}
		work.Attempt = 2
		n.wantEnd(n.run(work), plimsoll.ResultSucceeded, 0, "")

		// Without a directory there is no record of the attempt, so the start itself is refused.
		whole := request("job.whole.0", "exit 0")
		inTheWay(filepath.Dir(AttemptDir(n.dir, whole.Task, 1)))
		if _, err := n.Start(n.limit(), whole); plimsoll.CodeOf(err) != plimsoll.CodeConflict ||
			!strings.Contains(err.Error(), "not a directory") {
			n.Errorf("start: %v", err)
		}
		if err := os.Remove(filepath.Dir(AttemptDir(n.dir, whole.Task, 1))); err != nil {
			n.Fatal(err)
		}
		n.wantEnd(n.run(whole), plimsoll.ResultSucceeded, 0, "")
	})
}

// An error of exec for lack of resources is the node's fault; an error about the program is the
// task's.
func TestAFailedExecIsTheTasksOrTheNodesFault(t *testing.T) {
	c := &command{path: "/bin/x", dir: "/"}
	for err, node := range map[error]bool{
		syscall.EAGAIN: true, syscall.ENOMEM: true, syscall.EMFILE: true, syscall.EIO: true, syscall.ENOSPC: true,
		syscall.ENOENT: false, syscall.ENOEXEC: false, syscall.EACCES: false, syscall.E2BIG: false,
		syscall.ETXTBSY: false, syscall.EPERM: false,
	} {
		var task *neverStarted
		if got := !errors.As(c.explain(err), &task); got != node {
			t.Errorf("%v is the node's fault: %v, want %v", err, got, node)
		}
	}
}

// A task that shares files finds the other tasks' directories in its environment, in the order of
// volumesFrom. Other tasks have no such variable.
func TestVolumesFromOtherTasks(t *testing.T) {
	eachMode(t, []mode{bare}, func(_ *testing.T, n *node) {
		for _, task := range []string{"a.g.0", "b.g.7"} {
			n.run(request(task, "echo $PLIMSOLL_TASK_ID > made"))
		}
		req := request("job.g.0", `IFS=:; for d in $PLIMSOLL_VOLUMES_FROM; do cat "$d/made"; done`)
		req.Spec.Constraints.VolumesFrom = []string{"b.g.7", "a.g.0"}
		n.wantEnd(n.run(req), plimsoll.ResultSucceeded, 0, "")
		if got := n.output(req.Task, "stdout"); got != "b.g.7\na.g.0\n" {
			n.Errorf("it read %q", got)
		}
		n.wantEnd(n.run(request("job.g.1", `exit ${PLIMSOLL_VOLUMES_FROM:+1}`)), plimsoll.ResultSucceeded, 0, "")
	})
}

func TestLimitsAreSeenInTheControlGroup(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone}, func(_ *testing.T, n *node) {
		req := request("job.g.0", "sleep 1000")
		req.Spec.Resources = plimsoll.Resources{plimsoll.CPU: 500, plimsoll.Memory: 64 << 20}
		s := n.start(req)
		g := n.group(req.Task)
		if l, err := g.Limits(); err != nil || l != (cgroup.Limits{CPUMilli: 500, MemoryBytes: 64 << 20}) {
			n.Errorf("limits are %+v, %v", l, err)
		}
		if pids, err := g.Pids(); err != nil || !slices.Contains(pids, s.PID) {
			n.Errorf("the group holds %v, %v; want %d in it", pids, err, s.PID)
		}
		if c := n.Capabilities(); c.Cgroups == "" || c.Limits != "" {
			n.Errorf("capabilities are %+v", c)
		}
	})
}

func TestOverItsMemoryLimit(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone}, func(_ *testing.T, n *node) {
		hog := "dd if=/dev/zero of=/dev/null bs=200M count=1"
		// Itself, and as a child of the shell.
		for i, script := range []string{"exec " + hog, hog} {
			req := request(fmt.Sprintf("job.g.%d", i), script)
			req.Spec.Resources = plimsoll.Resources{plimsoll.Memory: 16 << 20}
			n.wantEnd(n.run(req), plimsoll.ResultOutOfMemory, 137, "went over its memory limit of 16Mi")
		}
		// With v1 the kernel kills only the child, and the shell continues; with v2 it kills the
		// whole task.
		req := request("job.g.2", hog+"; exit 0")
		req.Spec.Resources = plimsoll.Resources{plimsoll.Memory: 16 << 20}
		if n.hierarchy().Version() == cgroup.V2 {
			n.wantEnd(n.run(req), plimsoll.ResultOutOfMemory, 137, "went over its memory limit of 16Mi")
		} else {
			n.wantEnd(n.run(req), plimsoll.ResultSucceeded, 0, "one of its processes was killed for lack of memory")
		}
	})
}

func TestWithoutControlGroupsItSaysSo(t *testing.T) {
	n := newNode(t, bare)
	if c := n.Capabilities(); c.Cgroups != "" || !strings.Contains(c.Limits, "turned off") ||
		c.PID != n.supervisorPID() {
		t.Errorf("capabilities are %+v", c)
	}
}

func TestEnvironmentAndDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t, bare)
	req := request(
		"job.g.7",
		`echo "$PLIMSOLL_JOB_ID $PLIMSOLL_TASK_ID $PLIMSOLL_ATTEMPT $PLIMSOLL_NODE $WORD"; echo "$PLIMSOLL_TASK_DIR"; pwd; echo bad >&2; cat; ps -o pid=,sid= $$`,
	)
	req.Spec.Env = map[string]string{"WORD": "two words"}
	s := n.run(req)
	n.wantEnd(s, plimsoll.ResultSucceeded, 0, "")
	dir := TaskDir(n.dir, "job.g.7")
	lines := strings.Split(n.output("job.g.7", Stdout), "\n")
	if want := []string{"job job.g.7 1 n1 two words", dir, dir}; !slices.Equal(lines[:3], want) {
		t.Errorf("output is %q; want %q", lines, want)
	}
	if ids := strings.Fields(lines[3]); len(ids) != 2 || ids[0] != ids[1] || ids[0] != fmt.Sprint(s.PID) {
		t.Errorf("pid and session are %v; want its own session %d", ids, s.PID)
	}
	if got := n.output("job.g.7", Stderr); got != "bad\n" {
		t.Errorf("stderr is %q", got)
	}
}

func TestRunsAsTheUserAskedFor(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can start programs as another user")
	}
	n := newNode(t, bare)
	n.connectAs(Users{Allowed: []string{"54321:54322"}})
	req := request("job.g.0", "id -u; id -g; touch mine; echo $HOME; echo more > /dev/stderr")
	req.Spec.User = "54321"
	n.wantEnd(n.run(req), plimsoll.ResultSucceeded, 0, "")
	// With the group of the agent's entry.
	if got := n.output("job.g.0", Stdout); got != "54321\n54322\n/\n" {
		t.Errorf("output is %q", got)
	}
}

func TestStartTwiceRunsOnce(t *testing.T) {
	eachMode(t, []mode{inGroups, bare, gated}, func(_ *testing.T, n *node) {
		req := request("job.g.0", "echo $$ >> runs; sleep 1000")
		const starts = 8
		got := make(chan Status, starts)
		for range starts {
			go func() {
				s, err := n.Start(n.limit(), req)
				if err != nil {
					n.Error(err)
				}
				got <- s
			}()
		}
		first := <-got
		for range starts - 1 {
			if s := <-got; s.PID != first.PID || s.PID == 0 {
				n.Errorf("a repeated start answers %+v; want %+v", s, first)
			}
		}
		// The end of a second task proves that everything before it was done.
		n.run(request("job.g.1", "exit 0"))
		if runs := n.pids("job.g.0", "runs", 1); !slices.Equal(runs, []int{first.PID}) {
			n.Errorf("it ran as %v; want %d", runs, first.PID)
		}
	})
}

func TestForgottenAttemptIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, bare)
	req := request("job.g.0", "echo ran >> runs; exit 4")
	n.run(req)
	if err := n.Forget(n.limit(), req.Task, 1); err != nil {
		t.Fatal(err)
	}
	if err := n.Forget(n.limit(), req.Task, 1); err != nil {
		t.Errorf("forgetting again: %v", err)
	}
	n.wantEnd(n.start(req), plimsoll.ResultFailed, 4, "exit code 4")
	n.endSupervisor(syscall.SIGKILL)
	n.connect()
	n.wantEnd(n.start(req), plimsoll.ResultFailed, 4, "exit code 4")
	if runs := n.lines(req.Task, "runs", 1); len(runs) != 1 {
		t.Errorf("it ran %d times", len(runs))
	}
	running := n.start(request("job.g.1", "sleep 1000"))
	if err := n.Forget(n.limit(), running.Task, 1); plimsoll.CodeOf(err) != plimsoll.CodeConflict {
		t.Errorf("forgetting a running attempt: %v", err)
	}
}

func TestKillReachesEverything(t *testing.T) {
	const daemon = "setsid sh -c 'echo $$ >> pids; setsid sh -c \"echo \\$\\$ >> pids; sleep 1000; :\" & sleep 1000; :' &"
	cases := []struct {
		name, script string
		pids         int
	}{
		{"obeys", "echo $$ >> pids; exec sleep 1000", 1},
		{"ignores TERM", "trap '' TERM; echo $$ >> pids; sleep 1000; sleep 1000", 1},
		{"is stopped", "echo $$ >> pids; kill -STOP $$; sleep 1000", 1},
		{"forks on", "f() { while :; do (sleep 1000 & echo $! >> pids); sleep 0.01; done; }; trap '' TERM; f & f & wait", 20},
		{"daemonizes twice", "trap '' TERM; " + daemon + " echo $$ >> pids; wait", 3},
	}
	eachMode(t, []mode{inGroups, inV1Alone, bare}, func(_ *testing.T, n *node) {
		for i, c := range cases {
			task := fmt.Sprintf("job.g.%d", i)
			n.start(request(task, c.script))
			pids := n.pids(task, "pids", c.pids)
			stop := StopRequest{
				Task: task, Attempt: 1, Grace: 50 * time.Millisecond, Result: plimsoll.ResultEvicted,
				Message: "drained",
			}
			if err := n.Stop(n.limit(), stop); err != nil {
				n.Fatal(err)
			}
			s := n.waitFor(task, 1, (*Status).Ended)
			if s.Result != plimsoll.ResultEvicted || s.Message != "drained" {
				n.Errorf("%s: ended as %q, %q", c.name, s.Result, s.Message)
			}
			for _, pid := range pids {
				if n.running(pid) {
					n.Errorf("%s: process %d runs after the end", c.name, pid)
				}
			}
			if err := n.Stop(n.limit(), stop); err != nil {
				n.Errorf("%s: stopping what has ended: %v", c.name, err)
			}
		}
	})
}

func TestChildrenDieWithTheMainProcess(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone, bare}, func(_ *testing.T, n *node) {
		s := n.run(
			request(
				"job.g.0", "(trap '' TERM; sleep 1000) & echo $! >> pids; setsid sleep 1000 & echo $! >> pids; exit 0",
			),
		)
		n.wantEnd(s, plimsoll.ResultSucceeded, 0, "")
		for _, pid := range n.pids("job.g.0", "pids", 2) {
			if n.running(pid) {
				n.Errorf("process %d runs after the end", pid)
			}
		}
	})
}

func TestStopIsRefusedWhenItMakesNoSense(t *testing.T) {
	t.Parallel()
	n := newNode(t, bare)
	for _, c := range []struct {
		req  StopRequest
		code plimsoll.Code
	}{
		{StopRequest{Task: "job.g.9", Attempt: 1, Result: plimsoll.ResultKilled}, plimsoll.CodeNotFound},
		{StopRequest{Task: "job.g.9", Attempt: 1, Result: plimsoll.ResultSucceeded}, plimsoll.CodeInvalid},
		{StopRequest{Task: "job.g.9", Attempt: 1}, plimsoll.CodeInvalid},
	} {
		if err := n.Stop(n.limit(), c.req); plimsoll.CodeOf(err) != c.code {
			t.Errorf("%+v: %v; want %v", c.req, err, c.code)
		}
	}
	for _, task := range []string{"", "..", "a/b", strings.Repeat("x", 300)} {
		if _, err := n.Start(n.limit(), request(task, "exit 0")); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("task %q: %v", task, err)
		}
	}
}

func TestMaxRuntime(t *testing.T) {
	eachMode(t, []mode{inGroups, bare}, func(_ *testing.T, n *node) {
		req := request("job.g.0", "trap '' TERM; sleep 1000; sleep 1000")
		req.Spec.MaxRuntime, req.Spec.KillGrace = time.Second, 50*time.Millisecond
		n.wantEnd(n.run(req), plimsoll.ResultTimedOut, 137, "longer than its maxRuntime of 1s")
	})
}

func TestLogsKeepTheirNewestBytes(t *testing.T) {
	t.Parallel()
	n := newNode(t, bare)
	const limit = 256 << 10
	req := request(
		"job.g.0", "i=0; while [ $i -lt 100 ]; do i=$((i+1)); printf '%065535d\\n' $i; done; echo end; echo short >&2",
	)
	req.Spec.LogLimit = limit
	n.wantEnd(n.run(req), plimsoll.ResultSucceeded, 0, "")
	path := filepath.Join(AttemptDir(n.dir, req.Task, 1), Stdout)
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > limit+limit/8 {
		t.Errorf("the log takes %d bytes; the limit is %d", st.Blocks*512, limit)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	start, _, err := LogData(f, 0)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	data := n.output(req.Task, Stdout)
	if err != nil || int64(len(data))-start > limit+blockSize || int64(len(data))-start < limit {
		t.Fatalf("the log of %d bytes begins at %d, %v", len(data), start, err)
	}
	if !strings.HasSuffix(data, "00100\nend\n") || strings.ContainsRune(data[start:], 0) {
		t.Error("the log's newest bytes are not there")
	}
	if got := n.output(req.Task, Stderr); got != "short\n" {
		t.Errorf("stderr is %q", got)
	}
}
