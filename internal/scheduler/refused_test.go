package scheduler_test

import (
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// A stored job whose expression is no longer understood keeps nobody from leading. Its running
// tasks go on, its waiting ones have that cause, and other jobs with the same amounts are placed.
func TestStoredJobThatIsNotUnderstoodAnyMore(t *testing.T) {
	group := plimsoll.GroupSpec{
		Name: "g", Count: 2, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 100},
	}
	old := group
	old.Constraints.Where = `node.colour == "red"`
	l := state.NewLoader(state.Config{}, plimsoll.DefaultQueues())
	l.QueueConfig(plimsoll.DefaultQueues())
	l.Node(
		plimsoll.Node{
			ID: "n", Mode: plimsoll.NodeActive, Ready: true, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 1000},
		},
	)
	for id, g := range map[string]plimsoll.GroupSpec{"old": old, "other": group} {
		l.JobSpec(plimsoll.JobSpec{ID: id, Queue: "root.default", Groups: []plimsoll.GroupSpec{g}})
		l.JobStatus(
			plimsoll.JobStatus{ID: id, Queue: "root.default", State: plimsoll.JobRunning, Submitted: 1, Started: 2},
		)
		l.Task(plimsoll.Task{Job: id, Group: "g", Index: 0, State: plimsoll.TaskRunning, Attempt: 1, Node: "n"})
		l.Task(plimsoll.Task{Job: id, Group: "g", Index: 1, State: plimsoll.TaskPending})
	}
	s, err := l.End(1000)
	if err != nil {
		t.Fatal(err)
	}
	s.Begin(2000, 1)
	sched := scheduler.New(s, 1)
	for range 3 {
		sched.Cycle(s, state.Budget{})
	}
	s.RecordCauses(state.Budget{})
	if c := s.Job("other").Groups[0].Counts; c.Pending != 0 {
		t.Errorf("the other job: %+v", c)
	}
	g := &s.Job("old").Groups[0]
	if g.Counts.Pending != 1 || g.Counts.Running != 1 || g.Wait.Code != plimsoll.WaitNotUnderstood {
		t.Errorf("%+v waits for %s: %s", g.Counts, g.Wait.Code, g.Wait)
	}
	ref, _ := s.FindTask("old", "g", 1)
	if x, err := sched.Explain(s, ref, ""); err != nil || x.Code != plimsoll.WaitNotUnderstood ||
		!strings.Contains(x.Summary, "groups[0].constraints.where") {
		t.Errorf("explained: %+v, %v", x.Summary, err)
	}
	if err := s.Kill("old", ""); err != nil {
		t.Error(err)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
