package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/client"
)

// The e2e tests start processes of the real binary: this test binary acts as plimsoll when it is
// called so. They kill the processes, feed them junk, and check the state that is left.

// patience bounds the wait for an event that must happen. It is reached only if the event does not
// happen.
const patience = 3 * time.Minute

// eventually calls ask until it returns nil.
func eventually(t testing.TB, what string, ask func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// daemon is a process of the binary that serves until it is told to stop.
type daemon struct {
	t     testing.TB
	cmd   *exec.Cmd
	ended chan struct{}
	said  struct {
		sync.Mutex
		text bytes.Buffer
	}
}

// Write takes the standard error of the process.
func (d *daemon) Write(data []byte) (int, error) {
	d.said.Lock()
	defer d.said.Unlock()
	return d.said.text.Write(data)
}

func (d *daemon) stderr() string {
	d.said.Lock()
	defer d.said.Unlock()
	return d.said.text.String()
}

// raceOptions keeps a binary with the race detector from sleeping for a second before it exits.
const raceOptions = "atexit_sleep_ms=0"

// environment is the environment of the tests without the variables of plimsoll.
func environment() []string {
	env := []string{"GORACE=" + raceOptions}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PLIMSOLL_") && !strings.HasPrefix(v, "SUDO_") &&
			!strings.HasPrefix(v, "GORACE=") || strings.HasPrefix(v, "PLIMSOLL_CGROUP_ROOT=") {
			env = append(env, v)
		}
	}
	return env
}

// start starts a process, which is killed at the end of the test if it still runs.
func start(t testing.TB, args ...string) *daemon {
	t.Helper()
	return startCommand(t, exec.Command("plimsoll", args...))
}

// startWith starts a process. change may set further fields of the command.
func startWith(t testing.TB, change func(*exec.Cmd), args ...string) *daemon {
	t.Helper()
	cmd := exec.Command("plimsoll", args...)
	cmd.Env = environment()
	change(cmd)
	return startCommand(t, cmd)
}

// workDir makes a working directory for a role, which writes there without --data. All users may
// pass through it, because the process may belong to another user.
func workDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// startCommand starts a command that becomes plimsoll.
func startCommand(t testing.TB, cmd *exec.Cmd) *daemon {
	t.Helper()
	d := &daemon{t: t, cmd: cmd, ended: make(chan struct{})}
	if d.cmd.Env == nil {
		d.cmd.Env = environment()
	}
	d.cmd.Stderr, d.cmd.WaitDelay = d, 10*time.Second
	d.cmd.Dir = workDir(t)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is in ProcessState
		close(d.ended)
	}()
	t.Cleanup(func() {
		d.kill()
		said := regexp.MustCompile(readyLine+".*\n").ReplaceAllString(d.stderr(), "")
		if t.Failed() && said != "" || strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic:") {
			t.Errorf("what %v said at the end:\n%s", cmd.Args, said[max(0, len(said)-8<<10):])
		}
	})
	return d
}

// kill kills the process without warning and waits until it is gone.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // it may have ended
	<-d.ended
}

// stop asks the process to end, and wants it to end well.
func (d *daemon) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	if code := d.exit(); code != 0 {
		d.t.Errorf("%v ended with exit code %d", d.cmd.Args, code)
	}
}

// exit waits for the end of the process.
func (d *daemon) exit() int {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.t.Fatalf("%v does not end", d.cmd.Args)
	}
	return d.cmd.ProcessState.ExitCode()
}

// says waits until the process has written a match of the expression, and returns its groups.
func (d *daemon) says(expression string) (parts []string) {
	d.t.Helper()
	re := regexp.MustCompile(expression)
	eventually(d.t, "wait for "+expression, func() error {
		over := false
		select {
		case <-d.ended:
			over = true
		default:
		}
		if parts = re.FindStringSubmatch(d.stderr()); parts != nil {
			return nil
		}
		if over {
			d.t.Fatalf("%v ended: %v", d.cmd.Args, d.cmd.ProcessState)
		}
		return errors.New("not said")
	})
	return parts
}

// run runs one command line of the binary to its end.
func run(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, "plimsoll", args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environment(), &out, &notes
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), notes.String(), cmd.ProcessState.ExitCode()
}

// site is a data directory with the processes that work in it.
type site struct {
	t       testing.TB
	dir     string // short enough for sockets
	address string // of the gateway
}

// newSite makes a directory. At the end of the test all its processes are ended, tasks and
// supervisor too. The directory and its control groups are removed.
func newSite(t testing.TB) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // tasks run as users of their own, and leave files in it
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, address: "unix:" + filepath.Join(dir, "gateway.sock")}
	t.Cleanup(s.clean)
	return s
}

func (s *site) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// data is the data directory of dev.
func (s *site) data() string { return s.path("data") }

// devArgs is the command line of dev, on a socket: no other test can take its address between two
// starts.
func (s *site) devArgs(more ...string) []string {
	return append([]string{
		"dev", "--data", s.data(), "--listen", s.address, "--node", "n1", "--capacity", "cpu=64;memory=64Gi",
	}, more...)
}

const readyLine = `plimsoll is ready at (\S+) after`

// dev starts dev and waits until its node takes tasks.
func (s *site) dev(more ...string) *daemon {
	s.t.Helper()
	d := start(s.t, s.devArgs(more...)...)
	d.says(readyLine)
	s.nodeReady("n1")
	return d
}

// devOnPort starts dev on a TCP port, and returns it with its address.
func (s *site) devOnPort(flags ...string) (d *daemon, address string) {
	s.t.Helper()
	s.address = "127.0.0.1:0"
	d = start(s.t, s.devArgs(flags...)...)
	s.address = d.says(readyLine)[1]
	s.nodeReady("n1")
	return d, s.address
}

func (s *site) nodeReady(id string) {
	s.t.Helper()
	c := s.client()
	eventually(s.t, "wait for node "+id, func() error {
		nodes, err := c.Nodes(s.t.Context())
		for i := range nodes {
			if nodes[i].Node.ID == id && nodes[i].Node.Ready {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("not ready: %v", nodes))
	})
}

// client is a client of the gateway that waits for it while it is away.
func (s *site) client() *client.Client {
	s.t.Helper()
	c, err := client.New(client.Config{Server: s.address, RetryBudget: patience})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// cli runs a command line against the gateway, in this process.
func (s *site) cli(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	return plimsollAt(s.t.Context(), s.address, args...)
}

// read reads the JSON that a command prints.
func (s *site) read(v any, args ...string) {
	s.t.Helper()
	stdout, stderr, code := s.cli(append(args, "-o", "json")...)
	if code != 0 {
		s.t.Fatalf("%v: exit code %d, %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), v); err != nil {
		s.t.Fatalf("%v: %v in %s", args, err, stdout)
	}
}

// job reads a job with its tasks.
func (s *site) job(id string) (job jobView, tasks []taskView) {
	s.t.Helper()
	job.Tasks = &tasks
	s.read(&job, "job", "get", id)
	return job, tasks
}

// submit submits a job of the default queue with one group of count shells. more is the rest of the
// group's fields.
func (s *site) submit(id string, count int, script, more string) {
	s.t.Helper()
	s.submitFile(
		id,
		fmt.Sprintf(
			`{"job": %q, "groups": [{"name": "main", "count": %d, "command": ["sh", "-c", %q]%s}]}`, id, count, script,
			more,
		),
	)
}

// submitFile submits a job file.
func (s *site) submitFile(id, text string) {
	s.t.Helper()
	file := s.write(id+".json", text)
	if _, stderr, code := s.cli("submit", file); code != 0 {
		s.t.Fatalf("submit %s: exit code %d, %s", id, code, stderr)
	}
}

// write makes a file and returns its path.
func (s *site) write(name, text string) string {
	s.t.Helper()
	file := s.path(name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// ended waits until a job has ended.
func (s *site) ended(id string) (job jobView, tasks []taskView) {
	s.t.Helper()
	eventually(s.t, "wait for the end of "+id, func() error {
		job, tasks = s.job(id)
		if job.Finished == nil {
			return fmt.Errorf("%+v", tasks)
		}
		return nil
	})
	return job, tasks
}

// works wants a task to run from beginning to end.
func (s *site) works(id string) {
	s.t.Helper()
	stdout, stderr, code := s.cli("run", "--id", id, "--", "echo", "it works")
	if stdout != "it works\n" || code != 0 {
		s.t.Errorf("run: exit code %d, %q, %s", code, stdout, stderr)
	}
}

// supervisor is the pid of the node's supervisor, 0 if none runs.
func (s *site) supervisor(agent string) int {
	for pid, words := range cmdlines() {
		if strings.Contains(words, "supervisor\x00--dir\x00"+agent+"\x00") {
			return pid
		}
	}
	return 0
}

// ofTask returns a path in the directory that an agent has for a task of one job. Before the task
// has a directory nothing is there.
func (s *site) ofTask(agent, task string, names ...string) string {
	s.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(agent, "tasks", task+"~*"))
	if err != nil || len(dirs) > 1 {
		s.t.Fatalf("the directory of %s is one of %v, %v", task, dirs, err)
	}
	if len(dirs) == 0 {
		dirs = []string{filepath.Join(agent, "tasks", task)}
	}
	return filepath.Join(append(dirs, names...)...)
}

// cmdlines returns the command lines of all processes, with a zero byte after each word.
func cmdlines() map[int]string { return processes("cmdline") }

func processes(file string) map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc") // without it nothing is found, and the tests say so
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if data, err := os.ReadFile(filepath.Join("/proc", e.Name(), file)); err == nil && len(data) > 0 {
			found[pid] = string(data)
		}
	}
	return found
}

// left returns the processes that belong to the site. Roles and supervisors name its directory in
// their command lines, tasks in their environment.
func (s *site) left() (pids []int) {
	for pid, words := range cmdlines() {
		if name, _, _ := strings.Cut(words, "\x00"); filepath.Base(name) == "plimsoll" &&
			strings.Contains(words, s.dir+"/") {
			pids = append(pids, pid)
		}
	}
	for pid, env := range processes("environ") {
		if strings.Contains(env, "PLIMSOLL_TASK_DIR="+s.dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// clean ends the remaining processes and removes the directory.
func (s *site) clean() {
	if said, err := os.ReadFile(filepath.Join(s.data(), "agent", "supervisor.log")); err == nil && s.t.Failed() {
		s.t.Logf("what the supervisor said at the end:\n%s", said[max(0, len(said)-8<<10):])
	}
	eventually(s.t, "end all processes of "+s.dir, s.killLeft)
	agents, err := filepath.Glob(s.path("agent*"))
	if err != nil {
		s.t.Error(err)
	}
	ofData, err := filepath.Glob(filepath.Join(s.data(), "agent*"))
	if err != nil {
		s.t.Error(err)
	}
	for _, agent := range append(agents, append(ofData, filepath.Join(s.data(), "agent"))...) {
		sum := sha256.Sum256([]byte(agent))
		trees, err := filepath.Glob("/sys/fs/cgroup/*/plimsoll/*" + hex.EncodeToString(sum[:4]) + "*")
		unified, err2 := filepath.Glob("/sys/fs/cgroup/plimsoll/*" + hex.EncodeToString(sum[:4]) + "*")
		if err := errors.Join(err, err2); err != nil {
			s.t.Error(err)
		}
		for _, tree := range append(trees, unified...) {
			eventually(s.t, "remove "+tree, func() error { return removeGroups(tree) })
		}
	}
	eventually(s.t, "remove "+s.dir, func() error { // one look at /proc may miss a process that was just being started
		return errors.Join(s.killLeft(), os.RemoveAll(s.dir))
	})
}

// killLeft kills the remaining processes, and returns an error if there were any.
func (s *site) killLeft() error {
	pids := s.left()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	if len(pids) > 0 {
		return fmt.Errorf("%v are left", pids)
	}
	return nil
}

// removeGroups removes a control group with those below it.
func removeGroups(tree string) error {
	entries, err := os.ReadDir(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(tree, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(tree); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
