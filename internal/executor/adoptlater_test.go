package executor

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// An attempt whose lock another process holds cannot be taken over. The supervisor starts all the
// same, takes over the others and starts new ones. It claims no end of that attempt. Once taken
// over, the attempt is stopped as requested meanwhile.
func TestAnAttemptThatCannotBeTakenOverKeepsNobodyFromStarting(t *testing.T) {
	eachMode(t, []mode{inGroups, bare}, func(_ *testing.T, n *node) {
		stuck := n.start(request("job.stuck.0", "exec sleep 1000"))
		other := n.start(request("job.other.0", "exec sleep 1000"))
		n.endSupervisor(syscall.SIGKILL)
		var lock *os.File
		// Threads of the supervisor may be ending.
		n.eventually("the lock of the attempt", func() (ok bool) {
			var err error
			if lock, ok, err = lockPath(filepath.Join(stuck.Dir, lockFile)); err != nil {
				n.Fatal(err)
			}
			return ok
		})
		n.connect()
		s := n.waitFor("job.other.0", 1, func(*Status) bool { return true })
		if s.State != plimsoll.TaskRunning || s.PID != other.PID {
			n.Errorf("another attempt is %+v", s)
		}
		n.wantEnd(n.run(request("job.new.0", "exit 0")), plimsoll.ResultSucceeded, 0, "")
		if s := n.start(request("job.stuck.0", "echo again > again")); s.State != plimsoll.TaskStarting {
			n.Errorf("it is said to be %+v", s)
		}
		if !n.running(stuck.PID) {
			n.Error("its process was killed")
		}
		stop := StopRequest{Task: "job.stuck.0", Attempt: 1, Result: plimsoll.ResultEvicted, Message: "make room"}
		if err := n.Stop(n.limit(), stop); err != nil {
			n.Error(err)
		}
		if err := lock.Close(); err != nil {
			n.Fatal(err)
		}
		n.wantEnd(n.waitFor("job.stuck.0", 1, (*Status).Ended), plimsoll.ResultEvicted, -1, "make room")
		_, err := os.Stat(filepath.Join(TaskDir(n.dir, "job.stuck.0"), "again"))
		if err == nil || n.running(stuck.PID) {
			n.Errorf("it was started again (%v), or goes on", err)
		}
	})
}

// An attempt that is lost but cannot be recorded ends as lost, and does not block other starts.
func TestALostAttemptThatCannotBeRecordedKeepsNobodyFromStarting(t *testing.T) {
	n := newNode(t, bare)
	n.endSupervisor(syscall.SIGKILL)
	dir := AttemptDir(n.dir, "job.bad.0", 1)
	if err := os.MkdirAll(filepath.Join(dir, exitFile+".new"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.connect()
	n.wantEnd(n.run(request("job.new.0", "exit 0")), plimsoll.ResultSucceeded, 0, "")
	n.wantEnd(n.waitFor("job.bad.0", 1, (*Status).Ended), plimsoll.ResultLost, -1, "while it started this attempt")
}

// Without root's rights a task runs as the agent's user, and can forbid the agent to list the
// task's directory. The supervisor restores its mode.
func TestATaskThatLocksItsDirectoryKeepsNobodyFromStarting(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may look into every directory")
	}
	n := newNode(t, bare)
	s := n.start(request("job.g.0", "chmod 0 .. ../1; echo $$ > pid; exec sleep 1000"))
	n.eventually("the directory is locked", func() bool {
		_, err := os.ReadDir(filepath.Dir(s.Dir))
		return errors.Is(err, os.ErrPermission)
	})
	n.endSupervisor(syscall.SIGKILL)
	n.connect()
	n.wantEnd(n.run(request("job.new.0", "exit 0")), plimsoll.ResultSucceeded, 0, "")
	got := n.waitFor("job.g.0", 1, func(*Status) bool { return true })
	if got.State != plimsoll.TaskRunning || got.PID != s.PID {
		t.Errorf("it is said to be %+v", got)
	}
}
