package executor

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func TestEachAttemptHasAUIDOfItsOwn(t *testing.T) {
	needRoot(t)
	eachMode(t, []mode{inGroups, bare, gated}, func(_ *testing.T, n *node) {
		seen := map[string]bool{}
		for i := range 3 {
			req := request(
				"job.g.0",
				"id -u; id -g; echo $HOME; stat -c %u .; echo $PLIMSOLL_ATTEMPT >> kept; chmod 600 kept; cat kept",
			)
			req.Attempt = int32(i + 1)
			s := n.run(req)
			n.wantEnd(s, plimsoll.ResultSucceeded, 0, "")
			data, err := os.ReadFile(filepath.Join(s.Dir, Stdout))
			if err != nil {
				n.Fatal(err)
			}
			got := strings.Split(string(data), "\n")
			uid := number(got[0])
			if uid < DefaultFirstUID || uid > DefaultLastUID || got[1] != got[0] || seen[got[0]] {
				n.Errorf("attempt %d ran as uid %s and gid %s, after %v", req.Attempt, got[0], got[1], seen)
			}
			seen[got[0]] = true
			if dir := TaskDir(n.dir, req.Task); got[2] != dir || got[3] != got[0] {
				n.Errorf("its home is %s and %s belongs to %s; want %s to be its own home", got[2], dir, got[3], dir)
			}
			if kept := got[4 : len(got)-1]; len(kept) != i+1 {
				n.Errorf("attempt %d finds %v of the attempts before", req.Attempt, kept)
			}
			var r attemptRecord
			if _, err := readJSON(filepath.Join(s.Dir, attemptFile), &r); err != nil || int(r.UID) != uid {
				n.Errorf("the record has uid %d, %v; want %d", r.UID, err, uid)
			}
		}
	})
}

// Running attempts have different uids, and a new supervisor does not reuse a uid in use.
func TestUIDsSurviveARestartOfTheSupervisor(t *testing.T) {
	needRoot(t)
	n := newNode(t, bare)
	n.connectAs(Users{UIDs: UIDRange{610000, 610003}})
	uids := map[string]bool{}
	for i := range 4 {
		task := fmt.Sprintf("job.g.%d", i)
		n.start(request(task, "id -u > uid; sleep 1000"))
		uids[n.lines(task, "uid", 1)[0]] = true
		if i == 1 {
			n.endSupervisor(syscall.SIGKILL)
			n.connect()
		}
	}
	if len(uids) != 4 {
		t.Errorf("four attempts ran as %v", uids)
	}
	s := n.start(request("job.g.4", "exit 0"))
	n.wantEnd(s, plimsoll.ResultNodeFault, -1, "none of the uids 610000-610003 is free")
	if !strings.Contains(s.Message, "--task-uids") {
		t.Errorf("it does not say what to do: %s", s.Message)
	}
}

// taken returns the uids of two rounds through a range. None stays in use, because path does not
// exist.
func taken(t *testing.T, u *uids, all UIDRange) (ids []uint32) {
	t.Helper()
	for range 2 * all.size() {
		id, err := u.take(all, filepath.Join(u.dir, "gone"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestUIDIsNotReusedWhileAProcessOfItLives(t *testing.T) {
	needRoot(t)
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 611001, Gid: 611001}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all := UIDRange{611000, 611002}
	u := newUIDs(t.TempDir())
	if got := taken(t, u, all); !slices.Equal(got, []uint32{611000, 611002}) {
		t.Errorf("got %v while a process of 611001 runs", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process ended by itself")
	}
	taken(t, u, all) // uids that were checked before
	if got := taken(t, u, all); len(got) != 3 {
		t.Errorf("got %v after its end", got)
	}
}

func TestUIDIsNotReusedWhileFilesOfItRemain(t *testing.T) {
	needRoot(t)
	all := UIDRange{612000, 612003}
	u := newUIDs(t.TempDir())
	u.shared = []string{t.TempDir()}
	file := filepath.Join(u.shared[0], "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chown(file, 612001, 0)); err != nil {
		t.Fatal(err)
	}
	attempt := filepath.Join(u.dir, "attempt")
	if err := os.Mkdir(attempt, 0o700); err != nil {
		t.Fatal(err)
	}
	u.hold(612003, attempt)
	if got := taken(t, u, all); !slices.Equal(got, []uint32{612000, 612002}) {
		t.Errorf("got %v while files of 612001 and the directory of 612003 are there", got)
	}
	if err := errors.Join(os.Remove(file), os.Remove(attempt)); err != nil {
		t.Fatal(err)
	}
	taken(t, u, all) // uids that were checked before
	if got := taken(t, u, all); len(got) != 4 {
		t.Errorf("got %v after they are gone", got)
	}
}

// Each attempt of a task that fails and is retried held a uid more. Its directories have the same
// name, and in the end the node had no uid left.
func TestATaskThatComesBackHoldsNotTheUIDsThatItHad(t *testing.T) {
	needRoot(t)
	all := UIDRange{614000, 614003}
	u := newUIDs(t.TempDir())
	u.shared = nil
	task := filepath.Join(u.dir, "task")
	for i := range 3 * all.size() {
		old := fmt.Sprint(task, ".", i) // beside it, so that the next has another inode
		if err := os.Mkdir(task, 0o700); err != nil {
			t.Fatal(err)
		}
		id, err := u.take(all, task)
		if err != nil {
			t.Fatalf("the attempt after %d others: %v", i, err)
		}
		u.hold(id, task)
		if err := os.Rename(task, old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUIDsOfUsersAreNotGivenOut(t *testing.T) {
	etc := t.TempDir()
	for name, text := range map[string]string{
		"passwd": "alice:x:616001:100::/home/alice:/bin/sh\n", "group": "staff:x:616003:alice\n",
		"subuid": "alice:616005:2\nbob:1:5\n", "subgid": "junk\n\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	used := map[uint32]bool{}
	if err := markUsers(etc, UIDRange{616000, 616005}, used); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, []uint32{616001, 616003, 616005}) {
		t.Errorf("in use are %v", got)
	}
}

// A uid is reused as late as possible, also when the supervisor was started anew meanwhile.
func TestUIDsGoRoundThroughTheRange(t *testing.T) {
	all := UIDRange{613000, 613000 + 4*uidBlock - 1}
	dir := t.TempDir()
	seen := map[uint32]bool{}
	for range 3 {
		u := newUIDs(dir)
		for range uidBlock {
			id, err := u.take(all, filepath.Join(dir, "gone"))
			if err != nil {
				t.Fatal(err)
			}
			if seen[id] || !all.holds(id) {
				t.Fatalf("%d is given out again, or not of the range, after %d others", id, len(seen))
			}
			seen[id] = true
		}
	}
}

func TestRootTaskNeedsItsFlag(t *testing.T) {
	needRoot(t)
	eachMode(t, []mode{bare}, func(_ *testing.T, n *node) {
		for i, name := range []string{"root", "0"} {
			req := request(fmt.Sprintf("job.g.%d", i), "id -u; id -g")
			req.Spec.User = name
			n.connectAs(Users{Allowed: []string{"54321"}})
			n.wantEnd(
				n.run(req), plimsoll.ResultNeverStarted, -1,
				"is root, and the agent of this node runs no tasks as root; it does with --allow-root-tasks",
			)
			n.connectAs(Users{AllowRoot: true})
			req.Attempt = 2
			s := n.run(req)
			n.wantEnd(s, plimsoll.ResultSucceeded, 0, "")
			if data, err := os.ReadFile(filepath.Join(s.Dir, Stdout)); err != nil || string(data) != "0\n0\n" {
				n.Errorf("it ran as %q, %v", data, err)
			}
		}
	})
}

func TestUserMustBeAllowed(t *testing.T) {
	needRoot(t)
	n := newNode(t, bare)
	n.connectAs(Users{Allowed: []string{"54321", "nobody", "54323:54324"}})
	for i, test := range []struct {
		user, group string
		message     string // empty: it runs
	}{
		{user: "54321"},
		{user: "nobody"},
		{user: "65534"},
		{user: "nobody", group: "65534"},
		{user: "54322", message: `runs no tasks as user "54322"; it does for users named in its --allow-users`},
		{user: "daemon-of-nobody", message: "there is no user"},
		{user: "54321", group: "0", message: `user "54321" is not in the group "0"`},
		{user: "nobody", group: "root", message: `user "nobody" is not in the group "root"`},
		{user: "54321:54321"},
		{user: "54323"},
		{user: "54321:0", message: `runs no tasks as user "54321:0"`},
		{user: "54321:42", message: `runs no tasks as user "54321:42"`},
		{user: "54323:54323", message: `runs no tasks as user "54323:54323"`},
		{group: "root", message: `it names the group "root" and no user`},
	} {
		req := request(fmt.Sprintf("job.g.%d", i), "id -u")
		req.Spec.User, req.Spec.UserGroup = test.user, test.group
		s := n.run(req)
		if test.message != "" {
			n.wantEnd(s, plimsoll.ResultNeverStarted, -1, test.message)
			continue
		}
		n.wantEnd(s, plimsoll.ResultSucceeded, 0, "")
	}
}

// A supervisor that is not root runs tasks as itself, and as no other user.
func TestOrdinaryUserRunsTasksAsItself(t *testing.T) {
	if os.Geteuid() != 0 {
		_, err := identify(&plimsoll.GroupSpec{User: "54322"}, &Users{Allowed: []string{"54322"}})
		if err == nil || !strings.Contains(err.Error(), "without root's rights") {
			t.Errorf("got %v", err)
		}
		return
	}
	cmd := exec.CommandContext(
		t.Context(), public(t),
		"-test.run=^TestOrdinaryUserRunsTasksAsItself$|^TestNoNewPrivs|^TestEnvironmentAndDirectory$",
	)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as uid 54321: %v\n%s", err, out)
	}
}

// A handover gives a task's files to its next attempt, and no other file, wherever links lead.
func TestHandoverFollowsNoLink(t *testing.T) {
	needRoot(t)
	const from, to, group = 614001, 614002, 614000
	outside := filepath.Join(t.TempDir(), "outside")
	work := filepath.Join(t.TempDir(), "work")
	all := UIDRange{614000, 614009}
	if err := errors.Join(os.Mkdir(work, 0o700), giveTaskDir(t.Context(), work, from, group, all)); err != nil {
		t.Fatal(err)
	}
	file, link, second, inner := filepath.Join(work, "file"), filepath.Join(work, "link"), filepath.Join(
		work, "second",
	), filepath.Join(work, "sub", "inner")
	dirLink := filepath.Join(work, "dir")
	if err := errors.Join(
		os.WriteFile(outside, nil, 0o600), os.WriteFile(file, nil, 0o600), os.Symlink(outside, link),
		os.Link(outside, second),
		os.Symlink(filepath.Dir(outside), dirLink), os.Mkdir(filepath.Dir(inner), 0o700),
		os.WriteFile(inner, nil, 0o600),
		os.Lchown(file, from, from), os.Lchown(link, from, from), os.Lchown(inner, from, from),
		os.Lchown(filepath.Dir(inner), from, from),
	); err != nil {
		t.Fatal(err)
	}
	if err := giveTaskDir(t.Context(), work, to, group, all); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{
		work: to, file: to, link: to, inner: to, filepath.Dir(inner): to, outside: 0, second: 0,
	} {
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil || st.Uid != want {
			t.Errorf("%s belongs to %d, %v; want %d", path, st.Uid, err, want)
		}
	}
}

// A user may have given a file of its own a second name in its task's directory. The file stays the
// user's when the directory is handed over.
func TestHandoverLeavesFilesOfManyNames(t *testing.T) {
	needRoot(t)
	const from, to, group = 54321, 615002, 615000
	all := UIDRange{615000, 615009}
	home, work := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "work")
	if err := errors.Join(os.Mkdir(work, 0o700), giveTaskDir(t.Context(), work, from, group, all)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(home, nil, 0o600), os.Chown(home, from, from), os.Link(home, filepath.Join(work, "second")),
	); err != nil {
		t.Fatal(err)
	}
	if err := giveTaskDir(t.Context(), work, to, group, all); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(home, &st); err != nil || st.Uid != from {
		t.Errorf("the user's file belongs to %d now, %v", st.Uid, err)
	}
}

// The error names the directory that a task's user may not enter, for a program and for the data
// directory.
func TestUnreachableDirectoriesAreExplained(t *testing.T) {
	needRoot(t)
	hidden := t.TempDir()
	mayPass(t, hidden)
	program := filepath.Join(hidden, "home", "program")
	if err := errors.Join(
		os.Mkdir(filepath.Dir(program), 0o700), os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, bare)
	req := request("job.g.0", "")
	req.Spec.Command = []string{program}
	n.wantEnd(n.run(req), plimsoll.ResultNeverStarted, exitNotExecutable, "may not enter "+filepath.Dir(program))
	req = request("job.g.1", "")
	req.Spec.Command, req.Spec.Env = []string{"program"}, map[string]string{
		"PATH": filepath.Dir(program) + ":/usr/bin:/bin",
	}
	n.wantEnd(n.run(req), plimsoll.ResultNeverStarted, exitNotExecutable, "may not enter "+filepath.Dir(program))
	err := CheckUsers(filepath.Join(filepath.Dir(program), "data"), Users{})
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), filepath.Dir(program)) ||
		!strings.Contains(err.Error(), "choose") {
		t.Errorf("got %v", err)
	}
	if err := CheckUsers(
		filepath.Join(filepath.Dir(program), "data"), Users{Default: "root", AllowRoot: true},
	); err != nil {
		t.Errorf("for root: %v", err)
	}
	if err := CheckUsers(filepath.Join(hidden, "data", "agent"), Users{}); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestUIDRange(t *testing.T) {
	for text, want := range map[string]UIDRange{"600000-665535": {600000, 665535}, "7-7": {7, 7}} {
		if got, err := ParseUIDRange(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1000", "0-5", "9-3", "1-4294967295", "a-b", "-1-5", "1-2-3"} {
		if _, err := ParseUIDRange(text); plimsoll.CodeOf(err) != plimsoll.CodeInvalid ||
			!strings.Contains(err.Error(), "600000-665535") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if !covers("0 0 4294967295\n", UIDRange{1, 665535}) || covers("0 100000 65536\n", UIDRange{60000, 65536}) ||
		covers("", UIDRange{1, 2}) {
		t.Error("what a user namespace has is read wrongly")
	}
}

func TestUsersAreChecked(t *testing.T) {
	for _, u := range []Users{
		{Allowed: []string{"root"}},
		{Allowed: []string{"a", "0"}},
		{Allowed: []string{""}},
		{UIDs: UIDRange{0, 1}},
		{UIDs: UIDRange{5, 4}},
	} {
		if err := u.Validate(); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%+v: %v", u, err)
		}
	}
}

// An attempt that an older supervisor started is adopted and runs on as root. Its files become
// private to its user all the same.
func TestAttemptsOfAnOlderVersionAreAdopted(t *testing.T) {
	needRoot(t)
	n := newNode(t, bare)
	n.connectAs(Users{Default: "root", AllowRoot: true})
	s := n.start(request("job.g.0", "echo secret > made; echo ready > here; until [ -e go ]; do sleep 0.02; done"))
	n.lines("job.g.0", "here", 1)
	work := TaskDir(n.dir, "job.g.0")
	for _, dir := range []string{n.dir, filepath.Join(n.dir, tasksDir), filepath.Dir(work), s.Dir, work} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.endSupervisor(syscall.SIGKILL)
	n.connectAs(Users{})
	attacks := []string{
		"list=" + n.dir, "list=" + filepath.Dir(work), "list=" + s.Dir, "list=" + work,
		"read=" + filepath.Join(work, "made"),
	}
	n.repelled(n.attack("thief.g.0", nil, attacks...), attacks)
	if !n.running(s.PID) {
		t.Fatal("the task did not go on")
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.wantEnd(n.waitFor("job.g.0", 1, (*Status).Ended), plimsoll.ResultUnknownExit, -1, "")
	again := request("job.g.0", "id -u; cat made; echo more >> made")
	again.Attempt = 2
	s = n.run(again)
	n.wantEnd(s, plimsoll.ResultSucceeded, 0, "")
	if data, err := os.ReadFile(
		filepath.Join(s.Dir, Stdout),
	); err != nil || strings.HasPrefix(string(data), "0\n") || !strings.HasSuffix(string(data), "secret\n") {
		t.Errorf("the next attempt says %q, %v", data, err)
	}
}
