package executor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// attackMain is a hostile task. Each argument is an attack and its target. For each it prints a
// line that ends with the error, or with "done".
func attackMain(args []string) int {
	for _, arg := range args {
		kind, aim, _ := strings.Cut(arg, "=")
		if err := attack(kind, aim); err != nil {
			fmt.Printf("%s: %v\n", arg, err)
			continue
		}
		fmt.Printf("%s: done\n", arg)
	}
	return 0
}

func attack(kind, aim string) error {
	switch kind {
	case "dial":
		c, err := net.Dial("unix", aim)
		if err != nil {
			return err
		}
		return c.Close()
	case "read":
		_, err := os.ReadFile(aim)
		return err
	case "list":
		_, err := os.ReadDir(aim)
		return err
	case "write":
		f, err := os.OpenFile(aim, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	case "remove":
		return os.RemoveAll(aim)
	case "kill":
		return syscall.Kill(number(aim), syscall.Signal(0))
	case "trace":
		return syscall.PtraceAttach(number(aim))
	case "key":
		_, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", aim, 0)
		return err
	case "setuid":
		return syscall.Setuid(number(aim))
	}
	return errors.New("no such attack")
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // the test is wrong
	}
	return n
}

// needRoot skips a test that needs a supervisor with root's rights.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start programs as another user")
	}
}

// public copies this program to a directory where every user can execute it.
func public(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	mayPass(t, dir)
	to := filepath.Join(dir, "attacker")
	if os.Link(os.Args[0], to) == nil {
		return to
	}
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, from)
	if err := errors.Join(err, f.Close(), from.Close()); err != nil {
		t.Fatal(err)
	}
	return to
}

// attack runs a task that tries all attacks.
func (n *node) attack(task string, change func(*StartRequest), attacks ...string) string {
	n.Helper()
	req := request(task, "")
	req.Spec.Command = append([]string{public(n), "attack"}, attacks...)
	if change != nil {
		change(&req)
	}
	n.wantEnd(n.run(req), plimsoll.ResultSucceeded, 0, "")
	return n.output(task, Stdout)
}

// repelled wants every attack to have failed for lack of permission.
func (n *node) repelled(said string, attacks []string) {
	n.Helper()
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) != len(attacks) {
		n.Fatalf("of %d attacks it says:\n%s", len(attacks), said)
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, "permission denied") && !strings.HasSuffix(line, "operation not permitted") {
			n.Errorf("it was let in: %s", line)
		}
	}
}

func TestTaskCannotReachTheSupervisorsSocket(t *testing.T) {
	needRoot(t)
	eachMode(t, []mode{inGroups, bare, gated}, func(_ *testing.T, n *node) {
		supervisor := strconv.Itoa(n.supervisorPID())
		attacks := []string{
			"dial=" + filepath.Join(n.dir, socketFile), "read=" + filepath.Join(n.dir, supervisorFile),
			"read=" + filepath.Join(n.dir, supervisorLock),
			"write=" + filepath.Join(n.dir, supervisorLog), "list=" + n.dir, "write=" + filepath.Join(n.dir, "new"),
			"write=" + filepath.Join(n.dir, tasksDir, "new"), "kill=" + supervisor, "trace=" + supervisor,
			"read=/proc/" + supervisor + "/environ", "list=/proc/" + supervisor + "/fd", "setuid=0",
		}
		n.repelled(n.attack("job.g.0", nil, attacks...), attacks)
	})
}

func TestTaskCannotReadAnotherTasksDirectory(t *testing.T) {
	needRoot(t)
	eachMode(t, []mode{bare}, func(_ *testing.T, n *node) {
		victim := request("victim.g.0", "echo secret > made; echo secret; echo $$ > pid; sleep 1000")
		s := n.start(victim)
		n.pids(victim.Task, "pid", 1)
		work := TaskDir(n.dir, victim.Task)
		attacks := []string{
			"list=" + work, "read=" + filepath.Join(work, "made"), "write=" + filepath.Join(work, "made"),
			"write=" + filepath.Join(work, "new"),
			"list=" + filepath.Dir(work), "list=" + s.Dir, "read=" + filepath.Join(s.Dir, Stdout),
			"read=" + filepath.Join(s.Dir, attemptFile),
			"remove=" + filepath.Join(work, "made"), "kill=" + strconv.Itoa(s.PID), "trace=" + strconv.Itoa(s.PID),
			fmt.Sprintf("read=/proc/%d/environ", s.PID), fmt.Sprintf("list=/proc/%d/cwd", s.PID),
			fmt.Sprintf("list=/proc/%d/fd", s.PID),
		}
		n.repelled(n.attack("thief.g.0", nil, attacks...), attacks)
	})
}

// A task that shares the files of another can enter that task's directory, and no other one. Tasks
// of other owners cannot, whatever they name.
func TestVolumesFromAreSharedWithinAnOwner(t *testing.T) {
	needRoot(t)
	eachMode(t, []mode{bare}, func(_ *testing.T, n *node) {
		for _, task := range []string{"a.g.0", "b.g.0"} {
			req := request(task, "echo $PLIMSOLL_TASK_ID > made; mkdir sub; echo more > sub/made")
			req.Owner = "alice"
			n.wantEnd(n.run(req), plimsoll.ResultSucceeded, 0, "")
		}
		uses := request(
			"uses.g.0",
			`d=$PLIMSOLL_VOLUMES_FROM; cat $d/made && echo mine >> $d/made && echo mine > $d/sub/new && cat $d/sub/made; ls $d/../../b.g.0/work`,
		)
		uses.Owner, uses.Spec.Constraints.VolumesFrom = "alice", []string{"a.g.0"}
		n.wantEnd(n.run(uses), plimsoll.ResultFailed, 2, "")
		if got := n.output(uses.Task, Stdout); got != "a.g.0\nmore\n" {
			n.Errorf("it read %q", got)
		}
		if got := n.output(uses.Task, Stderr); !strings.Contains(got, "ermission denied") {
			n.Errorf("of the directory that it did not name it says %q", got)
		}
		again := request("a.g.0", "cat made sub/new && echo again >> made && echo again >> sub/new")
		again.Owner, again.Attempt = "alice", 2
		n.wantEnd(n.run(again), plimsoll.ResultSucceeded, 0, "")
		for _, owner := range []string{"bob", ""} {
			thief := request("thief"+owner+".g.0", "cat $PLIMSOLL_VOLUMES_FROM/made")
			thief.Owner, thief.Spec.Constraints.VolumesFrom = owner, []string{"a.g.0"}
			n.wantEnd(n.run(thief), plimsoll.ResultNeverStarted, -1, "volumesFrom[0]: a.g.0 is a task of another owner")
		}
	})
}

// A job with the same name as another owner's job does not get the other's files.
func TestWhatAnotherOwnerHasLeftIsRemoved(t *testing.T) {
	needRoot(t)
	n := newNode(t, bare)
	first := request("job.g.0", "echo secret > made")
	first.Owner = "alice"
	n.wantEnd(n.run(first), plimsoll.ResultSucceeded, 0, "")
	second := request("job.g.0", "test ! -e made")
	second.Owner, second.Attempt = "bob", 2
	n.wantEnd(n.run(second), plimsoll.ResultSucceeded, 0, "")
}

func TestDescriptorsAreClosedBeforeExec(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range []mode{inGroups, bare, gated} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, m)
			n.endSupervisor(syscall.SIGTERM)
			// The supervisor inherits an open file, as from a careless shell or service manager.
			n.wrap = []string{"/bin/sh", "-c", `exec 9<` + secret + `; exec "$@"`, "sh"}
			n.connect()
			if open, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/9", n.supervisorPID())); err != nil || open != secret {
				t.Fatalf("the supervisor was to have %s open, and has %q, %v", secret, open, err)
			}
			n.wantEnd(
				n.run(request("job.g.0", "for fd in /proc/$$/fd/*; do readlink $fd; done; exit 0")),
				plimsoll.ResultSucceeded, 0, "",
			)
			// The shell's own descriptor for the list is closed by then.
			dir := AttemptDir(n.dir, "job.g.0", 1)
			want := strings.Join([]string{os.DevNull, filepath.Join(dir, Stdout), filepath.Join(dir, Stderr), ""}, "\n")
			if got := n.output("job.g.0", Stdout); got != want {
				t.Errorf("the task has open %q; want %q", got, want)
			}
		})
	}
}

// keyringMain becomes another program in a session that has a key, as one of root may have.
func keyringMain(argv []string) int {
	runtime.LockOSThread()                                                 // a session belongs to a thread until exec
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) // without a name
	if err == nil {
		_, err = unix.AddKey("user", "secret", []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
	}
	if err == nil {
		err = syscall.Exec(argv[0], argv, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "keyring:", err)
	return 1
}

// A process may read the keys of the session that it inherits, whatever its uid.
func TestTaskHasNotTheKeysOfTheAgentsSession(t *testing.T) {
	needRoot(t)
	if _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true); err != nil {
		t.Skip("this kernel keeps no keys: ", err)
	}
	eachMode(t, []mode{bare, gated}, func(t *testing.T, n *node) {
		n.endSupervisor(syscall.SIGTERM)
		n.wrap = []string{os.Args[0], "keyring"}
		n.connectAs(Users{Allowed: []string{"54321"}})
		for i, user := range []string{"", "54321"} {
			said := n.attack(fmt.Sprintf("job.g.%d", i), func(req *StartRequest) { req.Spec.User = user }, "key=secret")
			if !strings.Contains(said, unix.ENOKEY.Error()) {
				t.Errorf("a task as user %q says: %s", user, said)
			}
		}
	})
}

func TestNoNewPrivsForAllButRoot(t *testing.T) {
	const look = `while read -r name value; do
		case $name in NoNewPrivs: | CapBnd: | CapEff: | CapPrm:) echo "$name $value" ;; esac
	done < /proc/self/status`
	const confined = "NoNewPrivs: 1\n"
	for _, m := range []mode{inGroups, bare, gated} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, m)
			n.connectAs(Users{Allowed: []string{"54321"}, AllowRoot: true})
			n.wantEnd(n.run(request("job.g.0", look)), plimsoll.ResultSucceeded, 0, "")
			if got := n.output("job.g.0", Stdout); !strings.Contains(got, confined) {
				t.Errorf("a task has %q", got)
			}
			if os.Geteuid() != 0 {
				return
			}
			if got := n.output("job.g.0", Stdout); strings.Count(got, ": 0000000000000000\n") != 3 {
				t.Errorf("a task has %q; want no capabilities", got)
			}
			req := request("job.g.1", look)
			req.Spec.User = "54321"
			n.wantEnd(n.run(req), plimsoll.ResultSucceeded, 0, "")
			if got := n.output("job.g.1", Stdout); !strings.Contains(got, confined) {
				t.Errorf("a task of a user has %q", got)
			}
			req = request("job.g.2", look)
			req.Spec.User = "root"
			n.wantEnd(n.run(req), plimsoll.ResultSucceeded, 0, "")
			if got := n.output("job.g.2", Stdout); strings.Contains(got, confined) {
				t.Errorf("a task of root has %q", got)
			}
		})
	}
}

// The agent's token is neither in a task's environment nor in the supervisor's, which a task of the
// same user could read.
func TestTokensAreNotPassedOn(t *testing.T) {
	t.Setenv("PLIMSOLL_TOKEN", "s3cret")
	t.Setenv("PLIMSOLL_TOKEN_FILE", "/s3cret")
	n := newNode(t, bare)
	n.wantEnd(n.run(request("job.g.0", "env")), plimsoll.ResultSucceeded, 0, "")
	if got := n.output("job.g.0", Stdout); strings.Contains(got, "s3cret") || strings.Contains(got, "TOKEN") {
		t.Errorf("a task has the environment %q", got)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", n.supervisorPID()))
	if err != nil || bytes.Contains(data, []byte("s3cret")) {
		t.Errorf("the supervisor has the environment %q, %v", data, err)
	}
}
