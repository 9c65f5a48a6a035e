package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// attemptID names an attempt.
type attemptID struct {
	task string
	n    int32
}

// attemptLine is a line that an attempt appends to its own file when it begins and when it ends.
type attemptLine struct {
	pid int
	at  int64
}

// killing is the moment at which dev, and maybe its supervisor, was killed.
type killing struct {
	at         int64
	supervisor bool
}

// exitFile is the supervisor's record of an attempt.
type exitFile struct {
	Word     string `json:"resultWord"`
	ExitCode int32  `json:"exitCode"`
	Finished int64  `json:"finishedUnixNanos"`
	PID      int    `json:"pid"`
}

// killTest is a run of dev that is killed again and again under load.
type killTest struct {
	*site
	log   string // the file that the attempts append to
	draw  *rand.Rand
	jobs  int // submitted so far
	load  *errgroup.Group
	kills []killing
	exits map[attemptID]exitFile
	mu    struct {
		sync.Mutex
		acknowledged map[string]plimsoll.JobSpec
	}
}

// TestKillDev kills dev with SIGKILL at random moments under load, sometimes with its supervisor,
// and starts it again on the same directory. Every acknowledged job is still there and nothing ran
// twice. No attempt began before the end or the loss of the one before. Running tasks went on, and
// the accounts are even.
func TestKillDev(t *testing.T) {
	t.Parallel()
	o := &killTest{
		site: newSite(t), draw: rand.New(rand.NewPCG(testrun.Seed(t), 1)), load: new(errgroup.Group),
		exits: map[attemptID]exitFile{},
	}
	o.log = o.path("log")
	// tasks of any user must be able to append to it
	if err := errors.Join(os.WriteFile(o.log, nil, 0o600), os.Chmod(o.log, 0o666)); err != nil {
		t.Fatal(err)
	}
	o.mu.acknowledged = map[string]plimsoll.JobSpec{}
	submitter, reader := o.client(), o.followStream()
	o.outlive(submitter)
	for range testrun.Count(3, 6, 200) {
		d := start(t, o.devArgs("--log-level", "warn")...)
		for range 2 + o.draw.IntN(4) {
			o.submit(t.Context(), submitter, o.nextJob())
		}
		o.pass()
		o.strike(d)
		o.collectExits()
	}
	d := o.dev("--log-level", "warn")
	if err := o.load.Wait(); err != nil {
		t.Fatal(err)
	}
	jobs, tasks := o.settled()
	o.collectExits()
	o.checkJobs(jobs, tasks)
	o.checkAttempts(tasks)
	o.checkAccounts()
	o.checkEvents()
	reader.check()
	d.stop()
	o.dev()
	again, tasksAgain := o.settled()
	if diff := cmp.Diff(jobs, again) + cmp.Diff(tasks, tasksAgain); diff != "" {
		t.Errorf("what was loaded is not what was there (-before +after):\n%s", diff)
	}
}

// outlive kills dev while a task certainly runs, and lets the task end before dev is back.
func (o *killTest) outlive(c *client.Client) {
	d := start(o.t, o.devArgs("--log-level", "warn")...)
	job := o.nextJob()
	gate, task := o.path("gate"), plimsoll.TaskID(job.ID, "main", 0)
	job.Groups[0].Count, job.Groups[0].Retry = 1, plimsoll.RetryPolicy{}
	job.Groups[0].Command[2] = o.script(fmt.Sprintf("until [ -e %s ]; do sleep 0.02; done", gate), 0)
	o.submit(o.t.Context(), c, job)
	o.wrote("begin " + task)
	o.killDev(d)
	o.write("gate", "")
	o.wrote("end " + task)
}

// wrote waits until an attempt has written a line.
func (o *killTest) wrote(line string) {
	eventually(o.t, "wait for "+line, func() error {
		data, err := os.ReadFile(o.log)
		if err == nil && !strings.Contains(string(data), line+" ") {
			err = errors.New("not written")
		}
		return err
	})
}

// script is the command of a task. It writes a line, works, writes another line, and fails in the
// given number of attempts.
func (o *killTest) script(work string, failures int) string {
	return fmt.Sprintf(`
line() { echo "$1 $PLIMSOLL_TASK_ID $PLIMSOLL_ATTEMPT $$ $(date +%%s%%N)" >> %s; }
line begin; %s; line end; [ $PLIMSOLL_ATTEMPT -gt %d ]`, o.log, work, failures)
}

// nextJob draws a job: one task, several, or several that fail at first and are tried again.
func (o *killTest) nextJob() plimsoll.JobSpec {
	o.jobs++
	count, failures := int32(1), 0
	retry := plimsoll.RetryPolicy{}
	if kind := o.draw.IntN(3); kind > 0 {
		count = 5 + o.draw.Int32N(6)
		if kind == 2 {
			failures = 1 + o.draw.IntN(2)
			retry = plimsoll.RetryPolicy{Kind: plimsoll.RetryBackoff, Limit: 4, InitialDelay: 50 * time.Millisecond}
		}
	}
	script := o.script(fmt.Sprintf("sleep %.2f", 0.8*o.draw.Float64()*o.draw.Float64()), failures)
	return plimsoll.JobSpec{
		ID: fmt.Sprintf("job-%d", o.jobs), Owner: "test", Queue: []string{"root.default", "root.batch"}[o.draw.IntN(2)],
		Token: fmt.Sprintf("token-%d", o.jobs),
		Groups: []plimsoll.GroupSpec{{
			Name: "main", Count: count, Command: []string{"sh", "-c", script}, Retry: retry,
			Resources: plimsoll.Resources{plimsoll.CPU: 500, plimsoll.Memory: 64 << 20},
		}},
	}
}

// submit submits a job, trying again over restarts until it is acknowledged.
func (o *killTest) submit(ctx context.Context, c *client.Client, spec plimsoll.JobSpec) {
	o.load.Go(func() error {
		if _, err := c.SubmitJob(ctx, spec); err != nil {
			return fmt.Errorf("submit %s: %w", spec.ID, err)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mu.acknowledged[spec.ID] = spec
		return nil
	})
}

// pass lets a random time pass: the next kill may hit the start, the submits, the tasks or nothing.
func (o *killTest) pass() { <-time.After(time.Duration(o.draw.Int64N(int64(900 * time.Millisecond)))) }

// strike kills dev; sometimes its supervisor too, before it or right after.
func (o *killTest) strike(d *daemon) {
	how := o.draw.IntN(6)
	if how == 0 {
		o.killSupervisor()
		o.pass()
	}
	o.killDev(d)
	if how == 1 {
		o.killSupervisor()
	}
}

func (o *killTest) killDev(d *daemon) {
	d.kill()
	o.kills = append(o.kills, killing{at: time.Now().UnixNano()})
}

func (o *killTest) killSupervisor() {
	pid := o.supervisor(filepath.Join(o.data(), "agent"))
	if pid == 0 {
		return
	}
	// The kill is noted before it happens. Attempts that ended before are known to be safe;
	// attempts that began a little later may still be hit.
	o.kills = append(o.kills, killing{time.Now().UnixNano(), true})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		o.t.Error(err)
	}
}

// collectExits reads the supervisor's records of attempts; old records are removed after a while.
func (o *killTest) collectExits() {
	paths, err := filepath.Glob(filepath.Join(o.data(), "agent", "tasks", "*", "*", "exit.json"))
	if err != nil {
		o.t.Fatal(err)
	}
	for _, path := range paths {
		dir := filepath.Dir(path)
		n, err := strconv.ParseInt(filepath.Base(dir), 10, 32)
		if err != nil {
			continue // a file of the task's own
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // just removed
		}
		var exit exitFile
		if err := errors.Join(err, json.Unmarshal(data, &exit)); err != nil {
			o.t.Errorf("%s: %v", path, err)
		}
		o.exits[attemptID{executor.TaskOf(filepath.Base(filepath.Dir(dir))), int32(n)}] = exit
	}
}

// settled waits until every job has ended, and returns all jobs and tasks. It gives up when no
// further job ends.
func (o *killTest) settled() (jobs map[string]plimsoll.JobStatus, tasks map[string]plimsoll.Task) {
	o.t.Helper()
	c := o.client()
	for last := -1; ; {
		ended, open := 0, plimsoll.JobStatus{}
		eventually(o.t, "wait for the end of a job", func() error {
			jobs, ended = map[string]plimsoll.JobStatus{}, 0
			for s, err := range c.Jobs(o.t.Context(), client.JobFilter{}) {
				if err != nil {
					return err
				}
				if jobs[s.ID] = s; s.State.Ended() {
					ended++
				} else {
					open = s
				}
			}
			if ended == last {
				return fmt.Errorf("%d of %d have ended, and not %+v", ended, len(jobs), open)
			}
			return nil
		})
		if ended == len(jobs) {
			break
		}
		last = ended
		o.collectExits()
	}
	tasks = map[string]plimsoll.Task{}
	for task, err := range c.Tasks(o.t.Context(), client.TaskFilter{}) {
		if err != nil {
			o.t.Fatal(err)
		}
		tasks[task.ID] = task
	}
	return jobs, tasks
}

// checkJobs: every acknowledged job is there, and no other.
func (o *killTest) checkJobs(jobs map[string]plimsoll.JobStatus, tasks map[string]plimsoll.Task) {
	if len(jobs) != o.jobs || len(o.mu.acknowledged) != o.jobs {
		o.t.Errorf(
			"%d jobs were submitted, %d acknowledged, and %d are there", o.jobs, len(o.mu.acknowledged), len(jobs),
		)
	}
	total := 0
	for id, spec := range o.mu.acknowledged {
		if _, ok := jobs[id]; !ok {
			o.t.Errorf("%s was acknowledged and is not there", id)
		}
		for i := range spec.Groups[0].Count {
			total++
			if task := tasks[plimsoll.TaskID(id, "main", i)]; task.State != plimsoll.TaskFinished {
				o.t.Errorf("%s is over, but not its task %d: %+v", id, i, task)
			}
		}
	}
	if total != len(tasks) {
		o.t.Errorf("%d tasks were asked for and %d are there", total, len(tasks))
	}
}

// lines reads the file of the attempts. Each attempt may begin and end once.
func (o *killTest) lines() (begun, ended map[attemptID]attemptLine) {
	data, err := os.ReadFile(o.log)
	if err != nil {
		o.t.Fatal(err)
	}
	both := map[string]map[attemptID]attemptLine{"begin": {}, "end": {}}
	for line := range strings.Lines(string(data)) {
		var word string
		var id attemptID
		var l attemptLine
		if _, err := fmt.Sscanf(
			line, "%s %s %d %d %d", &word, &id.task, &id.n, &l.pid, &l.at,
		); err != nil || both[word] == nil {
			o.t.Errorf("%q: %v", line, err)
			continue
		}
		if first, ok := both[word][id]; ok {
			o.t.Errorf("%v: a second %s by pid %d, the first was by %d", id, word, l.pid, first.pid)
		}
		both[word][id] = l
	}
	return both["begin"], both["end"]
}

// checkAttempts: no attempt ran twice, and none began before the end or the loss of the one before.
// The attempts that ran when dev was killed went on.
func (o *killTest) checkAttempts(tasks map[string]plimsoll.Task) {
	begun, ended := o.lines()
	outlived, lost := 0, 0
	for id, b := range begun {
		task, exit, recorded := tasks[id.task], o.exits[id], o.exits[id].Word != ""
		e, complete := ended[id]
		if exit.Word == "lost" {
			lost++
		}
		switch {
		case task.Attempt < id.n:
			o.t.Errorf("%v began, and the coordinator knows only of %d attempts", id, task.Attempt)
		case !complete && exit.Word != "lost":
			o.t.Errorf("%v began and did not end, and its record says %+v", id, exit)
		case complete && e.pid != b.pid:
			o.t.Errorf("%v began as pid %d and ended as %d", id, b.pid, e.pid)
		case recorded && exit.PID != b.pid && exit.Word != "lost":
			o.t.Errorf("%v ran as pid %d, and its record says %+v", id, b.pid, exit)
		}
		if before, ok := begun[attemptID{id.task, id.n - 1}]; ok {
			last, loss := ended[attemptID{id.task, id.n - 1}], o.exits[attemptID{id.task, id.n - 1}]
			if before.at > b.at || last.at > b.at || loss.Finished > b.at {
				o.t.Errorf(
					"%v began at %d, before the end of the one before: %+v %+v %+v", id, b.at, before, last, loss,
				)
			}
		}
		if complete && recorded && exit.PID == b.pid {
			outlived += o.checkExit(id, b, exit)
		}
	}
	o.checkReasons(tasks, begun)
	o.t.Logf("%d jobs, %d tasks, %d attempts; %d of these outlived dev and %d were lost, %d kills",
		o.jobs, len(tasks), len(begun), outlived, lost, len(o.kills))
	if outlived == 0 {
		o.t.Error("no task ran while dev was killed: this run proves nothing about that")
	}
}

// checkExit: an attempt whose supervisor lived has its true exit code. It returns 1 if dev was
// killed meanwhile.
func (o *killTest) checkExit(id attemptID, b attemptLine, exit exitFile) (outlived int) {
	for _, k := range o.kills {
		if k.at < b.at-int64(time.Second) || k.at > exit.Finished {
			continue
		}
		if k.supervisor {
			return outlived // then "exit code unknown" is the truth
		}
		if k.at > b.at && k.at < exit.Finished {
			outlived = 1
		}
	}
	if exit.Word != "succeeded" && exit.Word != "failed" || (exit.Word == "succeeded") != (exit.ExitCode == 0) {
		o.t.Errorf("%v was supervised all the time, and its record says %+v", id, exit)
	}
	return outlived
}

// checkReasons: every attempt of a task but the last ended without success. The last ended as the
// task says.
func (o *killTest) checkReasons(tasks map[string]plimsoll.Task, begun map[attemptID]attemptLine) {
	for _, task := range tasks {
		for n := int32(1); n < task.Attempt; n++ {
			exit, recorded := o.exits[attemptID{task.ID, n}]
			_, ran := begun[attemptID{task.ID, n}]
			if recorded && exit.Word == "succeeded" || !recorded && ran {
				o.t.Errorf("%s had attempt %d, after one whose record says %+v", task.ID, n+1, exit)
			}
		}
		exit, recorded := o.exits[attemptID{task.ID, task.Attempt}]
		if recorded && (exit.Word != task.Result.String() || exit.ExitCode != task.ExitCode) {
			o.t.Errorf("the node recorded %+v and the coordinator %+v", exit, task)
		}
		if _, ran := begun[attemptID{task.ID, task.Attempt}]; !ran && task.Result == plimsoll.ResultSucceeded {
			o.t.Errorf("%s never ran its attempt %d, which succeeded", task.ID, task.Attempt)
		}
	}
}

// checkAccounts: no resources are held when no task runs.
func (o *killTest) checkAccounts() {
	eventually(o.t, "wait for even accounts", func() error {
		var queues []queueView
		o.read(&queues, "queue", "list")
		var nodes []nodeView
		o.read(&nodes, "node", "list")
		if len(queues) != 3 || len(nodes) != 1 {
			o.t.Fatalf("%+v %+v", queues, nodes)
		}
		for _, q := range queues {
			if holds(q.Allocated) || holds(q.Pending) || q.Jobs+q.Running+q.Waiting != 0 {
				return fmt.Errorf("%+v", q)
			}
		}
		if n := nodes[0]; holds(n.Allocated) || n.Tasks != 0 {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
}

// holds reports whether an amount is not zero.
func holds(r plimsoll.Resources) bool {
	for _, amount := range r {
		if amount != 0 {
			return true
		}
	}
	return false
}

// checkEvents: the ids of events have no gaps.
func (o *killTest) checkEvents() {
	c := o.client()
	page, err := c.Events(o.t.Context(), client.EventFilter{})
	if err != nil {
		o.t.Fatal(err)
	}
	next, uuid, high := page.Lowest, page.InstanceUUID, page.Highest
	for next <= high {
		from := next
		if page, err = c.Events(o.t.Context(), client.EventFilter{Start: &from, Count: 100}); err != nil {
			o.t.Fatal(err)
		}
		if len(page.Records) == 0 || page.InstanceUUID != uuid {
			o.t.Fatalf("no events from %d of %d on, or another leader: %+v", next, high, page)
		}
		for _, r := range page.Records {
			if r.ID != next {
				o.t.Fatalf("event %d comes where %d should", r.ID, next)
			}
			next++
		}
	}
}
