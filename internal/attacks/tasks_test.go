package attacks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// shell runs a script as a job of one task, and returns its output after its end.
func (f *fleet) shell(t *testing.T, id, script string, resources plimsoll.Resources) (said string, task plimsoll.Task) {
	t.Helper()
	if err := f.submit(t, plimsoll.JobSpec{
		ID: id, Owner: "mallory", Queue: "root.mallory", Groups: []plimsoll.GroupSpec{{
			Name: "main", Count: 1, Command: []string{"sh", "-c", script}, Resources: resources,
			Retry: plimsoll.RetryPolicy{},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	c := f.client(patience)
	f.eventually("wait for the end of "+id, func() (err error) {
		if task, err = c.Task(t.Context(), id+".main.0"); err == nil && task.State != plimsoll.TaskFinished {
			err = errNotYet(task.State)
		}
		return err
	})
	var text strings.Builder
	for chunk, err := range c.Logs(t.Context(), id+".main.0", client.LogOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		text.Write(chunk.Data)
	}
	return text.String(), task
}

type errNotYet plimsoll.TaskState

func (e errNotYet) Error() string { return "it is " + plimsoll.TaskState(e).String() }

// forkBomb starts processes without end. They stay in their task, and end with it.
func forkBomb(t *testing.T, f *fleet) {
	f.submitOrFail(t, "bomb", `b() { b | b & b; }; b`, 1)
	pause(t.Context(), holdTime()/3+1e9)
	f.killAndWait(t, "bomb")
}

func (f *fleet) submitOrFail(t *testing.T, id, script string, count int32) {
	t.Helper()
	if err := f.submit(t, plimsoll.JobSpec{
		ID: id, Owner: "mallory", Queue: "root.mallory", Groups: []plimsoll.GroupSpec{{
			Name: "main", Count: count, Command: []string{"sh", "-c", script},
		}},
	}); err != nil {
		t.Fatal(err)
	}
}

// killAndWait kills a job and waits until it has ended.
func (f *fleet) killAndWait(t *testing.T, id string) {
	t.Helper()
	c := f.client(patience)
	if _, err := c.KillJob(t.Context(), id, ""); err != nil && plimsoll.CodeOf(err) != plimsoll.CodeConflict {
		t.Fatal(err) // a job that has ended by itself is as good
	}
	f.eventually("end "+id, func() error {
		job, err := c.Job(t.Context(), id)
		if err == nil && job.Status.Finished == 0 {
			err = errNotYet(plimsoll.TaskStopping)
		}
		return err
	})
}

// tasksWithoutResources submits three hundred tasks that request nothing. The node takes as many
// as it has processors for.
func tasksWithoutResources(t *testing.T, f *fleet) {
	f.submitOrFail(t, "nothing-asked", "sleep 1000", 1000)
	c := f.client(patience)
	f.eventually("start some tasks", func() error {
		nodes, err := c.Nodes(t.Context())
		if err != nil {
			return err
		}
		if n := nodes[0].Status.Tasks; n > 256 {
			t.Fatalf("the node has %d tasks; at most 256 are wanted", n)
		} else if n < 200 {
			return errNotYet(plimsoll.TaskBound)
		}
		return nil
	})
	f.killAndWait(t, "nothing-asked")
}

// strangeLogs replaces its output by a pipe, and writes a log that is nearly all a hole.
func strangeLogs(t *testing.T, f *fleet) {
	f.submitOrFail(
		t, "pipe",
		`cd "$PLIMSOLL_TASK_DIR/.." ; for d in . ..; do (cd $d; for n in stdout stderr; do rm -f $n && mkfifo $n; done) ; done; sleep 1000`,
		1,
	)
	f.submitOrFail(t, "hole", `truncate -s 4T /proc/self/fd/1; echo end; sleep 1000`, 1)
	pause(t.Context(), 1e9)
	c := f.client(once)
	atOnce(times(500), 64, func(n int) {
		task := []string{"pipe.main.0", "hole.main.0"}[n%2]
		read := 0
		for chunk, err := range c.Logs(t.Context(), task, client.LogOptions{}) {
			if read += len(chunk.Data); err != nil || read > 64<<20 {
				break
			}
		}
		if read > 64<<20 {
			t.Errorf("the log of %s has more than 64 MiB", task)
		}
	})
	f.killAndWait(t, "pipe")
	f.killAndWait(t, "hole")
}

// reach lists everything of the fleet that a stranger's task can read or write.
func reach(t *testing.T, f *fleet) {
	if os.Geteuid() != 0 {
		t.Skip("an agent of an ordinary user runs tasks as that user: docs/security.md")
	}
	// The sleeping tasks have directories too.
	said, task := f.shell(t, "reach", fmt.Sprintf(`
		echo "uid $(id -u)"
		{
			find %[1]s -mindepth 1 \( -type f -readable -o -type d -readable -o -writable \)
			env | grep -i token
			ls -l /proc/self/fd
		} 2>/dev/null | grep -e %[1]s -ie token | grep -v /reach.main.0/
		true`, f.dir), nil)
	if task.Result != plimsoll.ResultSucceeded {
		t.Fatalf("the task ended with %s: %s", task.Result, task.Message)
	}
	first, rest, _ := strings.Cut(said, "\n")
	if first == "uid 0" || !strings.HasPrefix(first, "uid ") {
		t.Errorf("the task ran as %s", first)
	}
	if rest != "" {
		t.Errorf("the task reached\n%s", rest)
	}
}

// controlCharacters writes characters that would control a terminal, in a log and in a reason.
func controlCharacters(t *testing.T, f *fleet) {
	const hostile = "\x1b]52;c;ZXZpbA==\a\x1b[2J\u202etxt.exe\u0085"
	said, _ := f.shell(t, "hostile", `printf '\033]52;c;ZXZpbA==\007\033[2Jend\n'`, nil)
	if want := "\x1b]52;c;ZXZpbA==\a\x1b[2Jend\n"; said != want {
		t.Errorf("the log is %q; %q was written", said, want)
	}
	f.submitOrFail(t, "reason", "sleep 1000", 1)
	f.cli(t, "job", "kill", "reason", "--reason", hostile)
	printed := f.cli(t, "job", "get", "reason") + f.cli(t, "events") + f.cli(t, "job", "get", hostile)
	if i := strings.IndexAny(printed, "\x1b\a\u202e\u0085"); i >= 0 {
		t.Errorf("the program prints %q", printed[max(0, i-40):min(len(printed), i+40)])
	}
}

// cli runs a command of the program as a user does, and returns its output.
func (f *fleet) cli(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	cmd := exec.CommandContext(
		ctx, program,
		append([]string{"--server", f.gateway, "--token-file", f.path("gateway", "user.token")}, args...)...,
	)
	cmd.Env = f.environment()
	said, _ := cmd.CombinedOutput() // the output matters, not the exit code
	return string(said)
}

// tooMuchDisk writes more than the task requested, and leaves its session to hide.
func tooMuchDisk(t *testing.T, f *fleet) {
	_, task := f.shell(t, "disk", `setsid sh -c 'sleep 1000 & sleep 1000' & head -c 64M /dev/zero >fill; sleep 1000`,
		plimsoll.Resources{"cpu": 10, "disk": 16 << 20})
	if task.Result == plimsoll.ResultSucceeded || !strings.Contains(task.Message, "disk") {
		t.Errorf("the task ended with %s, %q; a message about its disk is wanted", task.Result, task.Message)
	}
}
