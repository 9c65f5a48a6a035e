package executor

import (
	"errors"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	exited0    = syscall.WaitStatus(0)
	exited137  = syscall.WaitStatus(137 << 8)
	killed9    = syscall.WaitStatus(syscall.SIGKILL)
	terminated = syscall.WaitStatus(syscall.SIGTERM)
	trapped    = syscall.WaitStatus(int(syscall.SIGTRAP)<<8 | 0x7f)
)

func TestWhatAnEndMeans(t *testing.T) {
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
		{"exit 0 after a stop is what the stop asked for", outcome{status: exited0, known: true}, asked, plimsoll.ResultPreempted, 0, "make room"},
		{"a signal is 128+n", outcome{status: terminated, known: true}, nil, plimsoll.ResultFailed, 143, "signal 15 (terminated)"},
		{"killed after an OOM kill", outcome{status: killed9, known: true, oomKills: 1}, nil, plimsoll.ResultOutOfMemory, 137, "it went over its memory limit of 64Mi"},
		{"a shell whose child was", outcome{status: exited137, known: true, oomKills: 1}, nil, plimsoll.ResultOutOfMemory, 137, "it went over its memory limit of 64Mi"},
		{"killed without one", outcome{status: killed9, known: true}, nil, plimsoll.ResultFailed, 137, "signal 9 (killed)"},
		{"another end after one", outcome{status: terminated, known: true, oomKills: 2}, nil, plimsoll.ResultFailed, 143, "signal 15 (terminated); 2 of its processes were killed for lack of memory"},
		{"not our child", outcome{}, nil, plimsoll.ResultUnknownExit, -1, "the supervisor was restarted while it ran, so its exit code is not known"},
		{"not our child, stopped", outcome{}, asked, plimsoll.ResultPreempted, -1, "make room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := classify(c.outcome, c.stop, attemptLimits{Memory: 64 << 20})
			if r.Result != c.result || r.ExitCode != c.code || r.Message != c.message {
				t.Errorf("got %q with code %d, %q; want %q with code %d, %q", r.Result, r.ExitCode, r.Message, c.result, c.code, c.message)
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

// What is seen of a pid before its launcher knows the pid belongs to that launch, unless it is of an earlier process with that pid.
func TestReaperKeepsEarlyEventsForTheLaunch(t *testing.T) {
	r := newReaper()
	deliver := func(pid int, ws syscall.WaitStatus) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if call := r.deliver(pid, ws); call != nil {
			t.Error("something is called for a process that nobody follows")
		}
	}
	deliver(7, exited0) // an orphan while nothing is being started
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

func TestConfigNamesWhatIsWrong(t *testing.T) {
	for field, cfg := range map[string]SupervisorConfig{"dir": {Dir: "relative"}, "socket": {Dir: "/x", Socket: "/" + string(make([]byte, 200))}} {
		_, err := New(cfg)
		var e *plimsoll.Error
		if !errors.As(err, &e) || e.Field != field || e.Code != plimsoll.CodeInvalid {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	cfg := SupervisorConfig{Dir: "/x"}
	if err := cfg.Validate(); err != nil || cfg.Socket != "/x/supervisor.sock" || cfg.CgroupRoot == "" || cfg.Logger == nil {
		t.Errorf("defaults are %+v, %v", cfg, err)
	}
}
