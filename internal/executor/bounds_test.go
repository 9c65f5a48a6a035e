package executor

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// needsController skips the test where the machine lacks a controller.
func needsController(t *testing.T, n *node, name string) {
	t.Helper()
	if missing := n.hierarchy().Missing(); strings.Contains(missing, name) {
		t.Skip("the machine cannot limit it: " + missing)
	}
}

// A task that forks without end gets no more processes than allowed, while another task of the node
// starts processes of its own. Killing it leaves no process behind. The bomb stops at a number, so
// that it does no harm without a limit.
func TestForkBombStaysInItsTask(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone}, func(t *testing.T, n *node) {
		needsController(t, n, "pids")
		const most = 50
		other := request("job.other.0", "trap 'exit 0' TERM; while :; do /bin/sleep 0.01 || exit 9; echo on; done")
		other.Pids = most
		n.start(other)
		bomb := request("job.bomb.0", `trap "" TERM; fork() { /bin/sleep 1000 & }
			( i=0; while [ $i -lt 200 ]; do ( fork; fork ) & i=$((i+1)); done; echo all of them )
			exec /bin/sleep 1000`)
		bomb.Pids = most
		n.start(bomb)
		n.eventually("a bomb that finds no room for more processes", func() bool {
			return strings.Contains(n.output(bomb.Task, Stderr), "ork") || n.output(bomb.Task, Stdout) != ""
		})
		fewest := math.MaxInt // of some lists: one may have a process that ended and the next in its place
		for range 10 {
			pids, err := n.group(bomb.Task).Pids()
			if err != nil {
				t.Fatal(err)
			}
			fewest = min(fewest, len(pids))
		}
		if fewest > most {
			t.Errorf("the bomb has %d processes; it may have %d", fewest, most)
		}
		lines := len(n.output(other.Task, Stdout))
		n.eventually("progress of the other task", func() bool { return len(n.output(other.Task, Stdout)) > lines })
		if err := n.Stop(
			n.limit(), StopRequest{Task: bomb.Task, Attempt: 1, Grace: 1, Result: plimsoll.ResultKilled},
		); err != nil {
			t.Fatal(err)
		}
		n.wantEnd(n.waitFor(bomb.Task, 1, (*Status).Ended), plimsoll.ResultKilled, 137, "")
		if pids, err := n.group(bomb.Task).Pids(); err != nil || len(pids) > 0 {
			t.Errorf("after the kill %v are left, %v", pids, err)
		}
	})
}

// All tasks of a node together use no more memory than their common limit. A task that asked for
// none is ended first, and a task within its request runs on.
func TestTasksWithoutMemoryShareALimit(t *testing.T) {
	eachMode(t, []mode{inGroups, inV1Alone}, func(t *testing.T, n *node) {
		needsController(t, n, "memory")
		const all = 96 << 20
		modest := request(
			"job.modest.0", "x=$(head -c 16777216 /dev/zero | tr '\\0' a); echo on; while :; do /bin/sleep 0.05; done",
		)
		modest.Spec.Resources = plimsoll.Resources{plimsoll.Memory: 64 << 20}
		modest.TasksMemory = all
		n.start(modest)
		n.eventually("the modest task's memory", func() bool { return n.output(modest.Task, Stdout) != "" })
		greedy := request("job.greedy.0", "head -c 300000000 /dev/zero | tail")
		greedy.TasksMemory = all
		end := n.run(greedy)
		n.wantEnd(
			end, plimsoll.ResultOutOfMemory, 137, "it asked for no memory, and the tasks of its node had used all",
		)
		if pids, err := n.group(modest.Task).Pids(); err != nil || len(pids) == 0 {
			t.Errorf("the task that kept to what it asked for has ended: %v", err)
		}
		if pids, err := n.ownGroup().Pids(); err != nil || len(pids) != 1 {
			t.Errorf("the supervisor's own group holds %v, %v", pids, err)
		}
	})
}

// A machine without controllers reports, at the start, the limits that it lacks.
func TestMissingControllersAreReported(t *testing.T) {
	if h, err := cgroup.Detect(cgroup.DefaultRoot); err != nil || h.Version() == cgroup.V2 {
		t.Skip("the machine has no v1 control groups beside v2")
	}
	root := t.TempDir()
	for _, name := range []string{"cpu", "memory"} {
		if err := os.Symlink(filepath.Join(cgroup.DefaultRoot, name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(errors.Unwrap(err))
	}
	if got := h.Missing(); !strings.Contains(got, "no controller for pids, which stays without limit") {
		t.Errorf("it says %q", got)
	}
}

// The supervisor cuts the file that the program writes to. A task may put another file or a link in
// the place of its log. That file is not cut, and the task gets no more room.
func TestTrimKeepsToTheHeldDescriptor(t *testing.T) {
	t.Parallel()
	n := newNode(t, bare)
	if os.Geteuid() == 0 { // other users cannot touch their logs at all
		n.connectAs(Users{Default: "root", AllowRoot: true})
	}
	victim := filepath.Join(t.TempDir(), "victim")
	whole := []byte(strings.Repeat("precious", 1<<16))
	if err := os.WriteFile(victim, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	const limit = 64 << 10
	req := request("job.g.0", `log=../1/stdout; mv $log $log.mine; ln -s `+victim+` $log
		rm ../1/stderr; ln `+victim+` ../1/stderr
		i=0; while [ $i -lt 40 ]; do i=$((i+1)); printf '%065535d\n' $i; done
		until [ -e go ]; do /bin/sleep 0.02; done`)
	req.Spec.LogLimit = limit
	s := n.start(req)
	mine := filepath.Join(s.Dir, Stdout+".mine")
	blocks := func(path string) int64 {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			return 0 // not there yet
		}
		return st.Blocks * 512
	}
	n.eventually(
		"a log that was written",
		func() bool { info, err := os.Stat(mine); return err == nil && info.Size() >= 40<<16 },
	)
	n.eventually("a log that was cut", func() bool { return blocks(mine) <= limit+4*blockSize })
	if err := os.WriteFile(filepath.Join(TaskDir(n.dir, req.Task), "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.wantEnd(n.waitFor(req.Task, 1, (*Status).Ended), plimsoll.ResultSucceeded, 0, "")
	if got, err := os.ReadFile(victim); err != nil || string(got) != string(whole) {
		t.Errorf("the file in the place of the log was cut to %d bytes, %v", len(got), err)
	}
	if got := blocks(victim); got < int64(len(whole)) {
		t.Errorf("the file in the place of the log has %d bytes of its %d left", got, len(whole))
	}
}

// Blocks that a task has reserved beyond the end of its log are given back.
func TestRoomReservedBehindALogIsGivenBack(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), Stdout))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // no written data matters
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 8<<20); err != nil {
		t.Skipf("the file system reserves nothing: %v", err)
	}
	if cut, err := trimLog(f, 1<<20); !cut || err != nil {
		t.Fatalf("cut: %v, %v", cut, err)
	}
	if cut, err := trimLog(f, 1<<20); cut || err != nil {
		t.Errorf("it is still too large: %v, %v", cut, err)
	}
	if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "text" {
		t.Errorf("it holds %q, %v", text, err)
	}
}

// A replaced log is refused at once: a FIFO without writer, a link, a directory, a device.
func TestLogOfAFIFOIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, put := range map[string]func(path string) error{
		"FIFO":      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"link":      func(path string) error { return os.Symlink("/etc/hostname", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"device":    func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))) },
		"socket":    func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			if err := put(path); err != nil {
				t.Skipf("the machine makes none: %v", err)
			}
			for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
				_, err := openRegular(path, flag)
				if name == "directory" && flag == os.O_WRONLY {
					if err == nil {
						t.Error("it was opened")
					}
					continue
				}
				if plimsoll.CodeOf(err) != plimsoll.CodeConflict {
					t.Errorf("opened with %d: %v", flag, err)
				}
			}
		})
	}
}

// Without control groups, too, no process of a task remains after its end. Such a process may have
// its own session, no parent, an empty environment, closed files and another directory. Processes
// of another task run on.
func TestKillFindsWhatLeftItsSession(t *testing.T) {
	const escape = `env -i /bin/setsid /bin/sh -c '
			PATH=/usr/bin:/bin; cd /; exec </dev/null >/dev/null 2>&1
			setsid sh -c "echo \$\$ >> $1/pids; while :; do sleep 1000; done" & exit' sh $PLIMSOLL_TASK_DIR
		until [ -s pids ]; do /bin/sleep 0.01; done; `
	eachMode(t, []mode{bare, gated}, func(t *testing.T, n *node) {
		n.start(request("job.other.0", escape+"/bin/sleep 1000"))
		other := n.pids("job.other.0", "pids", 1)
		n.start(request("job.killed.0", escape+"/bin/sleep 1000"))
		killed := n.pids("job.killed.0", "pids", 1)
		for _, pid := range killed {
			p, ok, err := readProcess(pid)
			if env, envErr := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); !ok ||
				errors.Join(err, envErr) != nil ||
				p.session != pid || bytes.Contains(env, []byte("PLIMSOLL")) {
				t.Errorf("the process %+v has left nothing behind: %v, %q", p, errors.Join(err, envErr), env)
			}
		}
		if err := n.Stop(
			n.limit(), StopRequest{Task: "job.killed.0", Attempt: 1, Grace: time.Minute, Result: plimsoll.ResultKilled},
		); err != nil {
			t.Fatal(err)
		}
		n.wantEnd(n.waitFor("job.killed.0", 1, (*Status).Ended), plimsoll.ResultKilled, 143, "")
		n.wantEnd(n.run(request("job.ended.0", escape+"exit 0")), plimsoll.ResultSucceeded, 0, "")
		for _, pid := range append(killed, n.pids("job.ended.0", "pids", 1)...) {
			if n.running(pid) {
				t.Errorf("process %d is left", pid)
			}
		}
		for _, pid := range other {
			if !n.running(pid) {
				t.Errorf("process %d of the other task was killed too", pid)
			}
		}
	})
}
