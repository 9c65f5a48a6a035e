package executor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	exited0    = syscall.WaitStatus(0)
	exited137  = syscall.WaitStatus(137 << 8)
	killed9    = syscall.WaitStatus(syscall.SIGKILL)
	terminated = syscall.WaitStatus(syscall.SIGTERM)
	trapped    = syscall.WaitStatus(int(syscall.SIGTRAP)<<8 | 0x7f)
)

func TestClassify(t *testing.T) {
	asked := &stopRequest{result: plimsoll.ResultPreempted, message: "make room"}
	for _, c := range []struct {
		name    string
		outcome outcome
		stop    *stopRequest
		result  plimsoll.TaskResult
		code    int32
		message string
	}{
		{"exit 0 is success", outcome{status: exited0, known: true}, nil, plimsoll.ResultSucceeded, 0, ""},
		{
			"exit 0 after a stop is what the stop asked for",
			outcome{status: exited0, known: true},
			asked,
			plimsoll.ResultPreempted, 0, "make room",
		},
		{
			"a signal is 128+n",
			outcome{status: terminated, known: true},
			nil, plimsoll.ResultFailed, 143,
			"signal 15 (terminated)",
		},
		{
			"killed after an OOM kill",
			outcome{status: killed9, known: true, oomKills: 1},
			nil,
			plimsoll.ResultOutOfMemory, 137, "it went over its memory limit of 64Mi",
		},
		{
			"a shell whose child was",
			outcome{status: exited137, known: true, oomKills: 1},
			nil,
			plimsoll.ResultOutOfMemory, 137, "it went over its memory limit of 64Mi",
		},
		{
			"killed without one",
			outcome{status: killed9, known: true},
			nil, plimsoll.ResultFailed, 137,
			"signal 9 (killed)",
		},
		{"another end after one", outcome{status: terminated, known: true, oomKills: 2}, nil, plimsoll.ResultFailed, 143, "signal 15 (terminated); 2 of its processes were killed for lack of memory"},
		{
			"not our child",
			outcome{},
			nil, plimsoll.ResultUnknownExit, -1,
			"the supervisor was restarted while it ran, so its exit code is not known",
		},
		{"not our child, stopped", outcome{}, asked, plimsoll.ResultPreempted, -1, "make room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := classify(c.outcome, c.stop, attemptLimits{Memory: 64 << 20})
			if r.Result != c.result || r.ExitCode != c.code || r.Message != c.message {
				t.Errorf(
					"got %q with code %d, %q; want %q with code %d, %q", r.Result, r.ExitCode, r.Message, c.result,
					c.code, c.message,
				)
			}
		})
	}
}

func TestProcessNameMayHoldAnything(t *testing.T) {
	line := "42 (a) R 1 2 (b) S 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 4711 26"
	p, err := parseStat(42, []byte(line))
	if want := (process{pid: 42, ppid: 7, session: 9, state: 'S', start: 4711}); err != nil || p != want {
		t.Errorf("got %+v, %v; want %+v", p, err, want)
	}
	for _, bad := range []string{"", "42 (x) S 1", "42 (x) S a b c d e f g h i j k l m n o p q r s t"} {
		if _, err := parseStat(42, []byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Events of a pid that arrive before its launcher knows the pid belong to that launch, unless an
// earlier process had the pid.
func TestReaperKeepsEarlyEventsForTheLaunch(t *testing.T) {
	r := newReaper()
	deliver := func(pid int, ws syscall.WaitStatus) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if call := r.deliver(pid, ws); call != nil {
			t.Error("something is called for a process that nobody follows")
		}
	}
	deliver(7, exited0) // an orphan without any launch
	first := r.begin()
	deliver(7, exited0) // an orphan during another launch; its pid is used again
	second := r.begin()
	deliver(7, trapped)
	deliver(7, killed9)
	c := r.claim(7, second)
	r.end()
	r.end()
	if len(c.events) != 2 || c.events[0] != trapped || c.events[1] != killed9 {
		t.Errorf("the launch sees %v", c.events)
	}
	var got []syscall.WaitStatus
	r.follow(c, func(ws syscall.WaitStatus) { got = append(got, ws) })
	if len(got) != 1 || got[0] != killed9 {
		t.Errorf("the follower is told %v", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first == second || len(r.mu.unclaimed) != 0 || len(r.mu.children) != 0 {
		t.Errorf("kept after all launches: %v, %v", r.mu.unclaimed, r.mu.children)
	}
}

func TestConfigNamesTheWrongField(t *testing.T) {
	for field, cfg := range map[string]SupervisorConfig{
		"dir": {Dir: "relative"}, "socket": {Dir: "/x", Socket: "/" + string(make([]byte, 200))},
	} {
		_, err := New(cfg)
		var e *plimsoll.Error
		if !errors.As(err, &e) || e.Field != field || e.Code != plimsoll.CodeInvalid {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	cfg := SupervisorConfig{Dir: "/x"}
	if err := cfg.Validate(); err != nil || cfg.Socket != "/x/supervisor.sock" ||
		cfg.CgroupRoot == "" || cfg.Events.Trouble == nil {
		t.Errorf("defaults are %+v, %v", cfg, err)
	}
}

// A supervisor that is ending still reaps, because these exit codes would be lost otherwise.
func TestEndWhileTheSupervisorStopsIsRecorded(t *testing.T) {
	dir := t.TempDir()
	s, err := New(SupervisorConfig{Dir: dir}) // the state when Run has begun to end
	if err != nil {
		t.Fatal(err)
	}
	key := attemptKey{"job.g.0", 1}
	a, _ := s.reserve(key)
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.exited(a, syscall.WaitStatus(5<<8), true)
	var exit exitRecord
	if ok, err := readJSON(
		filepath.Join(a.dir, exitFile), &exit,
	); err != nil || !ok || exit.ExitCode != 5 || exit.Result != plimsoll.ResultFailed {
		t.Errorf("recorded is %+v, %v, %v", exit, ok, err)
	}
	if status := s.statusOf(a); !status.Ended() || status.ExitCode != 5 {
		t.Errorf("the status is %+v", status)
	}
}

func TestStrayFilesAmongTheTasksAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s, err := New(SupervisorConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, tasksDir, "job.g.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, tasksDir, "README"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.adoptAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// On a full disk there is no room for the mark. The agent does not ask again, so the attempt must
// not stay in memory. A watcher that saw it would wait for its end.
func TestNoWatcherHearsOfAStartThatIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	s, err := New(SupervisorConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	early := s.watch()
	a, _ := s.reserve(attemptKey{"job.group.0", 1})
	late := s.watch()
	for name, w := range map[string]*watcher{"early": early, "late": late} {
		if got := s.take(w); len(got) != 0 {
			t.Errorf("the %s watcher hears %v", name, got)
		}
	}
	s.show(a)
	for name, w := range map[string]*watcher{"early": early, "late": late} {
		if got := s.take(w); len(got) != 1 {
			t.Errorf("when it has its directory, the %s watcher hears %v", name, got)
		}
	}
}

func TestForgetNeedsNoRoomOnTheDisk(t *testing.T) {
	s, err := New(SupervisorConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := s.reserve(attemptKey{"job.g.0", 1})
	// In the way of the mark.
	if err := os.MkdirAll(filepath.Join(a.dir, forgotten), 0o755); err != nil {
		t.Fatal(err)
	}
	s.publishEnd(a, exitRecord{Result: plimsoll.ResultSucceeded})
	if err := s.forget(a.key); err != nil || len(s.attempts) != 0 {
		t.Errorf("%d attempts are held, %v", len(s.attempts), err)
	}
}

// withoutKill runs f without root's right to signal every process, on a thread that is thrown away.
func withoutKill(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&header, &caps[0])
		if err == nil {
			caps[0].Effective &^= 1 << unix.CAP_KILL
			err = unix.Capset(&header, &caps[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("capabilities cannot be given up: %v", err)
	}
}

// A set-uid program that may not be signaled without root's rights does not save the rest of its
// task.
func TestASetUIDProgramDoesNotSaveTheRest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process as somebody else")
	}
	s, err := New(SupervisorConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := s.reserve(attemptKey{"job.g.0", 1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	start := func(cred *syscall.Credential) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "/bin/sleep", "1000")
		cmd.Env, cmd.Dir, cmd.SysProcAttr = a.environmentMarks(), "/", &syscall.SysProcAttr{Credential: cred}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	// Has the lower pid, and so is found first.
	foreign := start(&syscall.Credential{Uid: 65534, Gid: 65534})
	ours := start(nil)
	withoutKill(t, func() {
		if err := s.killTree(ctx, a, 0); err == nil || !strings.Contains(err.Error(), "not permitted") {
			t.Errorf("got %v", err)
		}
	})
	if err := ours.Wait(); ctx.Err() != nil {
		t.Errorf("the process that may be killed was not: %v", err)
	}
	if err := foreign.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := foreign.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
}
