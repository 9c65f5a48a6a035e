package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// A relative working directory exists at the first attempt and belongs to each attempt. The attempt
// can write there, also to files of earlier attempts.
func TestRelativeWorkDirIsMadeForEachAttempt(t *testing.T) {
	eachMode(t, []mode{inGroups, bare}, func(_ *testing.T, n *node) {
		for attempt := range 3 {
			req := request("job.g.0", "echo $PLIMSOLL_ATTEMPT >> kept && chmod 600 kept && cat kept && pwd")
			req.Attempt, req.Spec.WorkDir = int32(attempt+1), "build/./out"
			if attempt == 2 { // the first attempt has removed one of the two
				if err := os.RemoveAll(filepath.Join(TaskDir(n.dir, req.Task), "build", "out")); err != nil {
					n.Fatal(err)
				}
			}
			s := n.run(req)
			n.wantEnd(s, plimsoll.ResultSucceeded, 0, "")
			dir := filepath.Join(TaskDir(n.dir, req.Task), "build", "out")
			want := []string{"1\n", "1\n2\n", "3\n"}[attempt] + dir + "\n"
			if data, err := os.ReadFile(filepath.Join(s.Dir, Stdout)); err != nil || string(data) != want {
				n.Errorf("attempt %d wrote %q (%v), want %q", req.Attempt, data, err, want)
			}
		}
	})
}

// A task that shares the directory may put a link in the place of the working directory. The
// supervisor does not follow it. A path out of the task's own directory is not made.
func TestWorkDirIsMadeInTheTasksOwnDirectoryOnly(t *testing.T) {
	n := newNode(t, bare)
	n.wantEnd(n.run(request("job.g.0", "ln -s "+n.dir+" link && touch file")), plimsoll.ResultSucceeded, 0, "")
	for i, dir := range []string{"link/made", "../made", "file/made", strings.Repeat("x", 300)} {
		req := request("job.g.0", "exit 0")
		req.Attempt, req.Spec.WorkDir = int32(i+2), dir
		n.wantEnd(n.run(req), plimsoll.ResultNeverStarted, -1, "working directory")
	}
	for _, path := range []string{n.dir, filepath.Dir(TaskDir(n.dir, "job.g.0"))} {
		if _, err := os.Lstat(filepath.Join(path, "made")); err == nil {
			t.Errorf("a directory was made in %s", path)
		}
	}
}

// The working directory has the owner, the group and the mode of the task's own directory.
func TestRelativeWorkDirBelongsToTheAttempt(t *testing.T) {
	needRoot(t)
	n := newNode(t, bare)
	req := request("job.g.0", "id -u; stat -c %u . ..; stat -c '%g %a' .; stat -c '%g %a' $PLIMSOLL_TASK_DIR")
	req.Spec.WorkDir = "a/b"
	s := n.run(req)
	n.wantEnd(s, plimsoll.ResultSucceeded, 0, "")
	data, err := os.ReadFile(filepath.Join(s.Dir, Stdout))
	got := strings.Split(string(data), "\n")
	if err != nil || len(got) != 6 || got[1] != got[0] || got[2] != got[0] || got[3] != got[4] {
		t.Errorf("uid, owners, group and mode, and those of the task's own directory are %s (%v)", fmt.Sprint(got), err)
	}
}
