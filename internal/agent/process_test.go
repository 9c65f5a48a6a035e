package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// TestMain makes the test binary a supervisor when it is called as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervisor" {
		os.Exit(supervisorMain(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func supervisorMain(args []string) int {
	flags := flag.NewFlagSet("supervisor", flag.ContinueOnError)
	complain := func(t executor.Trouble) { fmt.Fprintf(os.Stderr, "%+v\n", t) }
	cfg := executor.SupervisorConfig{Events: executor.Events{Trouble: complain}, CgroupRoot: executor.NoCgroups}
	flags.StringVar(&cfg.Dir, "dir", "", "")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := executor.New(cfg)
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the supervisor has ended:", err)
		return 1
	}
	return 0
}

// newProcessWorld is a world with a real supervisor, which is ended with the test.
func newProcessWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w.executor, err = NewSupervised(
		executor.ClientConfig{Dir: w.dir, Command: []string{binary, "supervisor", "--dir", w.dir}},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.endSupervisor)
	return w
}

// endSupervisor ends the supervisor, which is a child of this process, and waits for it.
func (w *world) endSupervisor() {
	var caps executor.Capabilities
	data, err := os.ReadFile(filepath.Join(w.dir, "supervisor.json"))
	if err == nil {
		err = json.Unmarshal(data, &caps)
	}
	if err != nil {
		w.Errorf("which process the supervisor is: %v", err)
		return
	}
	if err := syscall.Kill(caps.PID, syscall.SIGTERM); err != nil {
		w.Errorf("end the supervisor: %v", err)
		return
	}
	if _, err := syscall.Wait4(caps.PID, nil, 0, nil); err != nil {
		w.Errorf("wait for the supervisor: %v", err)
	}
}

// waiter is a program that writes its pid, and ends with a code when a file named go appears.
func waiter(code int) []string {
	return []string{"sh", "-c", "echo $$ >> pids; echo began; until [ -e go ]; do sleep 0.02; done; echo ends; exit " + strconv.Itoa(code)}
}

func (w *world) taskFile(task, name string) string {
	return filepath.Join(w.dir, "tasks", task, workDir, name)
}

// pids returns the pids of the attempts of a task.
func (w *world) pids(task string) []string {
	w.Helper()
	data, err := os.ReadFile(w.taskFile(task, "pids"))
	if err != nil {
		w.Fatal(err)
	}
	return strings.Fields(string(data))
}

// TestAgentRestartsOverRealProcesses restarts the agent under running tasks. Their pids stay the
// same, and their exit codes arrive.
func TestAgentRestartsOverRealProcesses(t *testing.T) {
	w := newProcessWorld(t)
	tasks := []string{"j.g.0", "j.g.1", "j.g.2"}
	for i, task := range tasks {
		w.cluster.assign(task, 1, plimsoll.TaskBound, waiter(5+i)...)
	}
	w.cluster.assign("j.bad.0", 1, plimsoll.TaskBound, "/no/such/program")
	stop, _ := w.run(w.config())
	w.awaitEnd("j.bad.0", 1, plimsoll.ResultNeverStarted, 127)
	for _, task := range tasks {
		w.await(task+" runs", func() bool { return w.cluster.has(task, 1, plimsoll.TaskRunning) > 0 })
		w.awaitLog(task, "began\n")
	}
	before := map[string]string{}
	for _, task := range tasks {
		before[task] = w.pids(task)[0]
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	write(t, w.taskFile("j.g.0", "go"), nil) // ends while no agent lives
	w.awaitExit(before["j.g.0"])
	w.run(w.config())
	w.awaitEnd("j.g.0", 1, plimsoll.ResultFailed, 5)
	write(t, w.taskFile("j.g.1", "go"), nil) // ends under the new agent
	w.awaitEnd("j.g.1", 1, plimsoll.ResultFailed, 6)
	w.cluster.assign("j.g.2", 1, plimsoll.TaskStopping) // is stopped by the new agent
	w.awaitEnd("j.g.2", 1, plimsoll.ResultKilled, 128+int32(syscall.SIGTERM))
	for _, task := range tasks {
		if got := w.pids(task); len(got) != 1 || got[0] != before[task] {
			t.Errorf("%s ran as %v, want only %s", task, got, before[task])
		}
	}
}

// awaitLog follows a task's log until it holds text.
func (w *world) awaitLog(task, text string) {
	w.Helper()
	path := filepath.Join(w.dir, "tasks", task, "1", "stdout")
	ticker := time.NewTicker(logPoll / 10)
	defer ticker.Stop()
	for {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), text) {
			return
		}
		select {
		case <-w.ctx.Done():
			w.Fatalf("%s wrote %q (%v), want %q", task, data, err, text)
		case <-ticker.C:
		}
	}
}

// awaitExit waits until a process has ended.
func (w *world) awaitExit(pid string) {
	w.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		w.Fatal(err)
	}
	fd, err := unix.PidfdOpen(n, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	for {
		got, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if got != 1 {
			w.Fatalf("process %s goes on: %v", pid, err)
		}
		return
	}
}

// A real supervisor that cannot make a task's directory reports a node fault, with the reason. Once
// the obstacle is gone, the next attempt runs.
func TestANodeThatCannotMakeDirectories(t *testing.T) {
	w := newProcessWorld(t)
	inTheWay := filepath.Join(w.dir, "tasks", "j.g.0")
	if err := errors.Join(os.MkdirAll(filepath.Dir(inTheWay), 0o755), os.WriteFile(inTheWay, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound, "true")
	w.run(w.config())
	w.awaitEnd("j.g.0", 1, plimsoll.ResultNodeFault, -1)
	w.cluster.look(func() {
		if r, _ := w.cluster.end("j.g.0", 1); !strings.Contains(r.Message, "cannot be made") {
			t.Errorf("message %q does not say why", r.Message)
		}
	})
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	w.cluster.assign("j.g.0", 2, plimsoll.TaskBound, "true")
	w.awaitEnd("j.g.0", 2, plimsoll.ResultSucceeded, 0)
}
