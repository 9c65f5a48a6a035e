package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

func TestSupervisorIsKilledAndTasksRunOn(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone, bare}, func(_ *testing.T, n *node) {
		n.run(request("job.done.0", "exit 5"))
		run := n.start(request("job.run.0", "while [ ! -e go ]; do sleep 0.01; done; exit 6"))
		meanwhile := n.start(request("job.meanwhile.0", "while [ ! -e go ]; do sleep 0.01; done; exit 7"))
		stopped := n.start(request("job.stopped.0", "trap '' TERM; sleep 1000; sleep 1000"))
		limited := request("job.limited.0", "while [ ! -e never ]; do sleep 0.01; done")
		limited.Spec.MaxRuntime = time.Second
		n.start(limited)

		n.endSupervisor(syscall.SIGKILL)
		for _, s := range []Status{run, meanwhile, stopped} {
			if !n.running(s.PID) {
				n.Errorf("%s died with the supervisor", s.Task)
			}
		}
		n.touch(meanwhile.Task, "go")
		n.eventually("the end of a task without supervisor", func() bool { return !n.running(meanwhile.PID) })
		n.connect()

		again := n.waitFor(run.Task, 1, func(s *Status) bool { return s.State == plimsoll.TaskRunning })
		if again.PID != run.PID || again.Started != run.Started {
			n.Errorf("found again as %+v; it was %+v", again, run)
		}
		n.wantEnd(n.waitFor("job.done.0", 1, (*Status).Ended), plimsoll.ResultFailed, 5, "exit code 5")
		n.wantEnd(
			n.waitFor(meanwhile.Task, 1, (*Status).Ended), plimsoll.ResultUnknownExit, -1, "exit code is not known",
		)
		n.touch(run.Task, "go")
		n.wantEnd(n.waitFor(run.Task, 1, (*Status).Ended), plimsoll.ResultUnknownExit, -1, "exit code is not known")
		if err := n.Stop(
			n.limit(),
			StopRequest{
				Task: stopped.Task, Attempt: 1, Grace: time.Millisecond, Result: plimsoll.ResultKilled,
				Message: "asked",
			},
		); err != nil {
			n.Fatal(err)
		}
		n.wantEnd(n.waitFor(stopped.Task, 1, (*Status).Ended), plimsoll.ResultKilled, -1, "asked")
		n.wantEnd(n.waitFor(limited.Task, 1, (*Status).Ended), plimsoll.ResultTimedOut, -1, "maxRuntime")
	})
}

func (n *node) touch(task, file string) {
	n.Helper()
	if err := os.WriteFile(filepath.Join(TaskDir(n.dir, task), file), nil, 0o644); err != nil {
		n.Fatal(err)
	}
}

func TestSupervisorIsAskedToEndAndTasksRunOn(t *testing.T) {
	t.Parallel()
	n := newNode(t, inGroups)
	s := n.start(request("job.g.0", "sleep 1000"))
	n.endSupervisor(syscall.SIGTERM)
	if !n.running(s.PID) {
		t.Error("the task died with the supervisor")
	}
	n.connect()
	if again := n.waitFor(
		s.Task, 1, func(s *Status) bool { return s.State == plimsoll.TaskRunning },
	); again.PID != s.PID {
		t.Errorf("found again as %+v; it was %+v", again, s)
	}
}

// Retire ends the supervisor only if no attempt runs.
func TestRetire(t *testing.T) {
	t.Parallel()
	n := newNode(t, inGroups)
	s := n.start(request("job.g.0", "sleep 1000"))
	pid := n.supervisorPID()
	if running, err := n.Retire(n.limit()); running != 1 || err != nil {
		t.Errorf("with a task: %d run, %v", running, err)
	}
	if !n.running(pid) || !n.running(s.PID) {
		t.Error("the supervisor or its task is gone")
	}
	if err := n.Stop(
		n.limit(), StopRequest{Task: s.Task, Attempt: 1, Grace: time.Millisecond, Result: plimsoll.ResultKilled},
	); err != nil {
		t.Fatal(err)
	}
	n.waitFor(s.Task, 1, (*Status).Ended)
	if running, err := n.Retire(n.limit()); running != 0 || err != nil {
		t.Errorf("without: %d run, %v", running, err)
	}
	n.eventually("the end of the supervisor", func() bool {
		reaped(pid)
		return !n.running(pid)
	})
}

func TestSupervisorWithoutTasksLeavesNoControlGroups(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone}, func(_ *testing.T, n *node) {
		n.run(request("job.g.0", "exit 0"))
		n.endSupervisor(syscall.SIGTERM)
		own := n.subtree().Path() + ownGroup
		for _, root := range []string{"", "freezer"} { // the only root of v2, and one of v1
			if _, err := os.Stat(filepath.Join(n.mode.cgroups, root, own)); !errors.Is(err, os.ErrNotExist) {
				n.Errorf("the supervisor's control group is left: %v", err)
			}
		}
	})
}

func TestDirectoriesOfAttemptsThatNeverRan(t *testing.T) {
	eachMode(t, []mode{inGroups, bare}, func(_ *testing.T, n *node) {
		n.endSupervisor(syscall.SIGKILL)
		prepare := func(task, file string, record any) {
			dir := AttemptDir(n.dir, task, 1)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				n.Fatal(err)
			}
			if file != "" {
				if err := writeJSON(filepath.Join(dir, file), record); err != nil {
					n.Fatal(err)
				}
			}
		}
		boot, err := bootID()
		if err != nil {
			n.Fatal(err)
		}
		prepare("job.empty.0", "", nil)
		prepare("job.boot.0", attemptFile, attemptRecord{PID: os.Getpid(), Boot: "another boot"})
		prepare("job.reused.0", attemptFile, attemptRecord{PID: os.Getpid(), Start: 1, Boot: boot})
		prepare("job.corrupt.0", attemptFile, "not a record")
		n.connect()
		for task, want := range map[string]struct {
			result  plimsoll.TaskResult
			message string
		}{
			"job.empty.0":   {plimsoll.ResultLost, "while it started this attempt"},
			"job.boot.0":    {plimsoll.ResultLost, "the machine was restarted"},
			"job.reused.0":  {plimsoll.ResultUnknownExit, "exit code is not known"},
			"job.corrupt.0": {plimsoll.ResultLost, "cannot be read"},
		} {
			n.wantEnd(n.waitFor(task, 1, (*Status).Ended), want.result, -1, want.message)
			// The attempt cannot start in that directory any more.
			n.wantEnd(n.start(request(task, "echo ran > ran")), want.result, -1, want.message)
			if _, err := os.Stat(filepath.Join(TaskDir(n.dir, task), "ran")); err == nil {
				n.Errorf("%s ran", task)
			}
		}
	})
}

// A process that was forked for an attempt without record is killed before the attempt is lost.
func TestUnrecordedProcessIsKilled(t *testing.T) {
	eachMode(t, []mode{inGroups, bare}, func(_ *testing.T, n *node) {
		s := n.start(request("job.g.0", "echo $$ >> pids; exec sleep 1000"))
		n.pids(s.Task, "pids", 1)
		n.endSupervisor(syscall.SIGKILL)
		if err := os.Remove(filepath.Join(s.Dir, attemptFile)); err != nil {
			n.Fatal(err)
		}
		n.connect()
		n.wantEnd(
			n.waitFor(s.Task, 1, (*Status).Ended), plimsoll.ResultLost, -1, "if the program ran at all, it was killed",
		)
		n.eventually("the end of the process", func() bool { return !n.running(s.PID) })
	})
}

// The supervisor can die between the record of an end and the kill of the remaining processes.
func TestRestOfAnEndedAttemptIsKilled(t *testing.T) {
	eachMode(t, []mode{inGroups, bare}, func(_ *testing.T, n *node) {
		s := n.start(request("job.g.0", "echo $$ >> pids; exec sleep 1000"))
		n.pids(s.Task, "pids", 1)
		n.endSupervisor(syscall.SIGKILL)
		if err := writeExit(
			s.Dir, exitRecord{Result: plimsoll.ResultSucceeded, Started: s.Started, Finished: s.Started, PID: s.PID},
		); err != nil {
			n.Fatal(err)
		}
		n.connect()
		n.wantEnd(n.waitFor(s.Task, 1, (*Status).Ended), plimsoll.ResultSucceeded, 0, "")
		n.eventually("the end of the process", func() bool { return !n.running(s.PID) })
	})
}

// A signal to the process 0 would reach the caller's own process group.
func TestRetireNeedsToKnowTheSupervisor(t *testing.T) {
	t.Parallel()
	n := newNode(t, bare)
	path := filepath.Join(n.dir, supervisorFile)
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Retire(n.limit()); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, saved, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOneSupervisorADirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t, bare)
	s, err := New(SupervisorConfig{Dir: n.dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); plimsoll.CodeOf(err) != plimsoll.CodeAlreadyRunning {
		t.Errorf("a second supervisor ended with %v", err)
	}
	// Clients that connect at once to a directory without supervisor get the same one.
	n.endSupervisor(syscall.SIGKILL)
	results := make(chan error, 4)
	for range cap(results) {
		go func() {
			c, err := Connect(n.limit(), n.config())
			if err == nil {
				c.Close()
			}
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestConnectSaysWhyItCannot(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		cfg  ClientConfig
		code plimsoll.Code
		want string
	}{
		"relative directory": {ClientConfig{Dir: "x"}, plimsoll.CodeInvalid, "not an absolute path"},
		"socket path is long": {
			ClientConfig{Dir: "/" + strings.Repeat("x", 120)}, plimsoll.CodeInvalid, "choose a shorter path",
		},
		"nobody there": {ClientConfig{Dir: dir}, plimsoll.CodeUnavailable, "no supervisor runs for"},
		"ends at once": {
			ClientConfig{Dir: dir, Command: []string{"/bin/sh", "-c", "echo oh no >&2; exit 1"}},
			plimsoll.CodeUnavailable, "oh no",
		},
		"does not exist": {
			ClientConfig{Dir: dir, Command: []string{"/no/such"}}, plimsoll.CodeInternal, "start the supervisor",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Connect(t.Context(), c.cfg)
			if plimsoll.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %v %q", err, c.code, c.want)
			}
		})
	}
}

func TestWatchSendsASnapshotThenChanges(t *testing.T) {
	t.Parallel()
	n := newNode(t, bare)
	n.run(request("job.a.0", "exit 0"))
	n.start(request("job.b.0", "sleep 1000"))
	errDone := errors.New("done")
	var snapshot []string
	ended := false
	err := n.Watch(n.limit(), func(all []Status, end bool) error {
		for _, s := range all {
			if ended && s.Task == "job.b.0" && s.Ended() {
				return errDone
			}
			snapshot = append(snapshot, s.Task+" "+s.State.String())
		}
		if end {
			ended = true
			return n.Stop(n.limit(), StopRequest{Task: "job.b.0", Attempt: 1, Result: plimsoll.ResultKilled})
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		t.Fatal(err)
	}
	if len(snapshot) < 2 || snapshot[0] != "job.a.0 Finished" || snapshot[1] != "job.b.0 Running" {
		t.Errorf("the snapshot is %q", snapshot)
	}
}

func TestSupervisorLeavesTheAgentsGroupsAndSession(t *testing.T) {
	t.Parallel()
	n := newNode(t, inGroups)
	pid := n.supervisorPID()
	p, ok, err := readProcess(pid)
	if err != nil || !ok || p.session != pid {
		t.Errorf("the supervisor is %+v, %v; want its own session %d", p, err, pid)
	}
	if pids, err := n.ownGroup().Pids(); err != nil || len(pids) != 1 || pids[0] != pid {
		t.Errorf("its control group holds %v, %v; want %d", pids, err, pid)
	}
}

// The supervisor is killed at any instant while attempts start. Each attempt has run at most once,
// and a lost attempt does not run.
func TestSupervisorIsKilledWhileItStarts(t *testing.T) {
	eachMode(t, []mode{inGroups, bare, gated}, func(t *testing.T, n *node) {
		random := rand.New(rand.NewPCG(testrun.Seed(t), 0))
		var tasks []string
		for round := range 5 {
			var group errgroup.Group
			for i := range 12 {
				task := fmt.Sprintf("job.r%d.%d", round, i)
				tasks = append(tasks, task)
				group.Go(func() error {
					// The start may fail, because the supervisor is killed meanwhile.
					_, err := n.Start(n.limit(), request(task, "echo $$ >> runs; exec sleep 1000"))
					return ignoreUnavailable(err)
				})
			}
			// The instant is random.
			<-time.After(time.Duration(random.IntN(30_000)) * time.Microsecond)
			n.endSupervisor(syscall.SIGKILL)
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			n.connect()
		}
		ran := 0
		for _, task := range tasks {
			// A second start returns the end of the first, or is the first.
			n.start(request(task, "echo $$ >> runs; exec sleep 1000"))
			s := n.waitFor(task, 1, func(s *Status) bool { return s.State != plimsoll.TaskStarting })
			data, err := os.ReadFile(filepath.Join(TaskDir(n.dir, task), "runs"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			runs := strings.Fields(string(data))
			if len(runs) > 1 {
				t.Errorf("%s ran as %v", task, runs)
			}
			for _, run := range runs {
				pid, err := strconv.Atoi(run)
				if err != nil {
					t.Fatal(err)
				}
				ran++
				if s.Ended() && n.running(pid) {
					t.Errorf("%s is %q, but process %d runs", task, s.Result, pid)
				}
			}
		}
		t.Logf("%d of %d tasks had written that they ran", ran, len(tasks))
	})
}

func ignoreUnavailable(err error) error {
	if plimsoll.CodeOf(err) == plimsoll.CodeUnavailable {
		return nil
	}
	return err
}
