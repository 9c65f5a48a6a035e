package attacks

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// attack is an action of a user, a web page or a machine of the network against a fleet.
type attack struct {
	line string // of the table in docs/security.md
	name string
	run  func(t *testing.T, f *fleet)
}

// attacks are in the order of docs/security.md.
var attacks = []attack{
	{"A1", "millions of groups in a small gzip body", gzipOfGroups},
	{"A1", "millions of objects in a JSON body", jsonOfObjects},
	{"A1", "gzip that inflates to a gigabyte", gzipBomb},
	{"A1", "millions of groups on the replication port", replicationOfGroups},
	{"A1", "many large requests at once", largeRequests},
	{"A2", "millions of tasks", millionsOfTasks},
	{"A2", "jobs of a megabyte", largeJobs},
	{"A3", "requests that are never finished", halfRequests},
	{"A3", "connections that say nothing", silentConnections},
	{"A3", "streams that are never read", unreadStreams},
	{"A3", "streams of events, and all history over and over", eventStreams},
	{"A5", "names of resources that nothing has", madeUpResources},
	{"A6", "dry runs from many callers", dryRuns},
	{"A7", "registrations of a stranger", strangeRegistrations},
	{"B8", "requests of a page in a browser", foreignPages},
	{"B9", "a task that looks around", reach},
	{"B10", "requests without a token", noToken},
	{"B11", "a fork bomb", forkBomb},
	{"B11", "three hundred tasks without resources", tasksWithoutResources},
	{"B11", "a task that fills the disk", tooMuchDisk},
	{"B12", "text that steers a terminal", controlCharacters},
	{"B12", "a log that is a pipe, and one full of holes", strangeLogs},
}

// TestAttacks makes every attack on one fleet.
func TestAttacks(t *testing.T) {
	f := newFleet(t)
	f.sleepers()
	var doing atomic.Value
	doing.Store("the start")
	canary := f.startCanary(func() string { return doing.Load().(string) })
	for _, a := range attacks {
		t.Run(a.line+" "+a.name, func(t *testing.T) {
			doing.Store(a.line + " " + a.name)
			began := time.Now()
			f.as(t, func() { a.run(t, f); f.stands() })
			t.Logf("%s; most memory so far in MiB: %s", time.Since(began).Round(time.Millisecond), f.peaks())
		})
		if t.Failed() {
			break // later attacks would be blamed for this failure
		}
	}
	doing.Store("the end")
	canary.check(t, testrun.Soak())
	f.stillFirstAttempts()
	f.restarts()
}

// as lets the fleet report to another test while do runs.
func (f *fleet) as(t *testing.T, do func()) {
	before := f.t
	f.t = t
	defer func() { f.t = before }()
	do()
}

const sleepers = 4

// sleepers starts the sleeping tasks.
func (f *fleet) sleepers() {
	f.t.Helper()
	c := f.client(patience)
	_, err := c.SubmitJob(f.t.Context(), plimsoll.JobSpec{
		ID: "sleepers", Owner: "sleepers", Queue: "root.sleepers", Groups: []plimsoll.GroupSpec{{
			Name: "main", Count: sleepers, Command: []string{"sleep", "1000000"},
			Resources: plimsoll.Resources{"cpu": 100, "memory": 16 << 20},
		}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.eventually("start the tasks that sleep", f.asleep)
}

// asleep returns an error unless all sleeping tasks run in their first attempt.
func (f *fleet) asleep() error {
	c := f.client(patience)
	for i := range sleepers {
		task, err := c.Task(f.t.Context(), fmt.Sprintf("sleepers.main.%d", i))
		if err != nil {
			return err
		}
		if task.State != plimsoll.TaskRunning || task.Attempt != 1 {
			return fmt.Errorf("task %s is %s in attempt %d", task.ID, task.State, task.Attempt)
		}
	}
	return nil
}

// stillFirstAttempts wants the sleeping tasks to be unaffected.
func (f *fleet) stillFirstAttempts() {
	f.t.Helper()
	if err := f.asleep(); err != nil {
		f.t.Error(err)
	}
}

// peaks returns the peak memory of each process.
func (f *fleet) peaks() (text string) {
	for _, name := range []string{"coordinator", "gateway", "agent"} {
		text += fmt.Sprintf(" %s %d", name, f.processes[name].peak())
	}
	return text[1:]
}

// readyAgain bounds the time until the fleet is ready after everything was killed.
const readyAgain = 30 * time.Second

// restarts kills the processes and starts them again on the store that the attacks have filled.
func (f *fleet) restarts() {
	f.t.Helper()
	for _, p := range f.processes {
		p.kill()
	}
	began := time.Now()
	f.startAll()
	took := time.Since(began)
	f.t.Logf("ready again %s after kill -9", took.Round(time.Millisecond))
	if testrun.Soak() && took > readyAgain {
		f.t.Errorf("ready again after %s; less than %s is wanted", took, readyAgain)
	}
	f.eventually("find the tasks that sleep again", f.asleep)
}
