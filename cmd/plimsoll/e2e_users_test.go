package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// aUser is a uid that no user of the machine has.
const aUser = 54321

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start programs as another user")
	}
}

// sh runs a script as a job, and returns its output.
func (s *site) sh(script string) (stdout, stderr string, code int) {
	s.t.Helper()
	return run(s.t, "--server", s.address, "run", "--", "sh", "-c", script)
}

// A task can read nothing of a dev but its own directory, neither by a known path nor by a search.
func TestTaskCannotReadTheStore(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := newSite(t)
	s.dev()
	var attacks strings.Builder
	secret := []string{
		"store", "agent", "agent/tasks", "agent/reports", "agent/qos", "agent/node.json", "agent/supervisor.lock",
		"agent/lock",
	}
	for _, name := range secret {
		attacks.WriteString("head -c 1 " + s.path("data", name) + " && echo read " + name + "\n")
	}
	for _, name := range []string{"", "store", "agent", "agent/tasks"} {
		attacks.WriteString("touch " + s.path("data", name, "new") + " && echo made " + name + "\n")
	}
	stdout, stderr, code := s.sh(attacks.String() + "echo over")
	if code != 0 || stdout != "over\n" {
		t.Errorf("the task got in: exit code %d\n%s\n%s", code, stdout, stderr)
	}
	if got, want := strings.Count(stderr, "ermission denied"), len(secret)+4; got != want {
		t.Errorf("%d of its %d attempts were denied:\n%s", got, want, stderr)
	}
	for _, name := range []string{"coordinator.sock", "agent/agent.sock", "agent/supervisor.sock"} {
		info, err := os.Stat(s.path("data", name))
		if err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%s is %v, %v; want a socket of mode 0600", name, info, err)
		}
	}
	for name, want := range map[string]os.FileMode{"": 0o711, "store": 0o700, "agent": 0o711, "agent/tasks": 0o711} {
		if info, err := os.Stat(s.path("data", name)); err != nil || info.Mode() != os.ModeDir|want {
			t.Errorf("%s/%s is %v, %v; want %v", s.data(), name, info.Mode(), err, want)
		}
	}
}

func throughSudo(cmd *exec.Cmd) {
	cmd.Env = append(cmd.Env, "SUDO_UID=54321", "SUDO_GID=54321", "SUDO_USER=somebody")
}

func TestDevThroughSudoRunsTasksAsTheCaller(t *testing.T) {
	needRoot(t)
	t.Parallel()
	for _, test := range []struct {
		name  string
		flags []string
		want  string // what id prints
	}{
		{"by default", nil, `^54321 54321 \n$`},
		{"with uids of their own", []string{"--task-uids", "620000-620255"}, `^(620\d\d\d) 620\d\d\d \n$`},
		{"as root", []string{"--task-user", "root", "--allow-root-tasks"}, `^0 0 \n$`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			startWith(t, throughSudo, s.devArgs(test.flags...)...).says(readyLine)
			s.nodeReady("n1")
			stdout, stderr, code := s.sh(`echo "$(id -u) $(id -g) "; echo kept > made; echo $PLIMSOLL_TASK_DIR >&2`)
			if code != 0 || !regexp.MustCompile(test.want).MatchString(stdout) {
				t.Errorf("it ran as %q, exit code %d, %s", stdout, code, stderr)
			}
			if test.flags != nil {
				return
			}
			var st syscall.Stat_t
			if err := syscall.Stat(
				filepath.Join(strings.TrimSpace(stderr), "made"), &st,
			); err != nil || st.Uid != aUser {
				t.Errorf("what it has left belongs to uid %d, %v", st.Uid, err)
			}
			read := exec.CommandContext(t.Context(), "cat", filepath.Join(strings.TrimSpace(stderr), "made"))
			read.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: aUser, Gid: aUser}}
			if out, err := read.CombinedOutput(); err != nil || string(out) != "kept\n" {
				t.Errorf("the caller reads %q, %v", out, err)
			}
		})
	}
}

// A node says at its start as which user its tasks run. The node of an ordinary user warns that
// tasks can do everything that the user can, and takes tasks.
func TestAnOrdinaryUsersDevRunsTasksAsThatUser(t *testing.T) {
	needRoot(t)
	t.Parallel()
	s := newSite(t)
	program := public(t, s.path("plimsoll"))
	asUser := func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = program, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: aUser, Gid: aUser}}
	}
	for _, flag := range []string{
		"--task-uids=7-8", "--task-user=nobody", "--allow-users=nobody", "--allow-root-tasks",
	} {
		if d := startWith(t, asUser, s.devArgs(flag)...); d.exit() == 0 || !strings.Contains(d.stderr(), "needs root") {
			t.Errorf("%s: %s", flag, d.stderr())
		}
	}
	d := startWith(t, asUser, s.devArgs()...)
	d.says(readyLine)
	d.says("tasks run as uid 54321, as this agent does, and can do whatever it can; see docs/security.md")
	s.nodeReady("n1")
	if stdout, stderr, code := s.sh("id -u"); code != 0 || stdout != "54321\n" {
		t.Errorf("it ran as %q, exit code %d, %s", stdout, code, stderr)
	}
}

// public copies this program to a place where every user may execute it.
func public(t *testing.T, to string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
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

func TestDataThatTasksCannotReachIsRefused(t *testing.T) {
	needRoot(t)
	s := newSite(t)
	if err := os.Mkdir(s.path("home"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"dev", "--listen", "unix:" + s.path("s")}, {"agent"}} {
		_, stderr, code := run(t, append(args, "--data", s.path("home", "data"))...)
		if code == 0 || !strings.Contains(stderr, "may not enter "+s.path("home")) ||
			!strings.Contains(stderr, "choose a directory such as") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	for flag, want := range map[string]string{
		"--task-uids=5": "is not a range of uids", "--allow-users=root": "--allow-root-tasks",
		"--task-user=nobody-at-all": "there is no user",
	} {
		if _, stderr, code := run(
			t, "agent", "--data", s.path("agent"), flag,
		); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s; want %q", flag, code, stderr, want)
		}
	}
}
