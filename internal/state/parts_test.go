package state

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// All hands out jobs with many tasks, and jobs with large specifications, in parts of a bounded
// size.
func TestAllHandsOutPartsOfABoundedSize(t *testing.T) {
	const large, many = 12, 10_000
	l := NewLoader(Config{}, plimsoll.DefaultQueues())
	l.QueueConfig(plimsoll.DefaultQueues())
	add := func(id string, tasks int, command ...string) {
		l.JobSpec(plimsoll.JobSpec{ID: id, Queue: "root.default", Groups: []plimsoll.GroupSpec{
			{Name: "g", Count: int32(tasks), Command: command, Resources: plimsoll.Resources{"cpu": 1}},
		}})
		l.JobStatus(plimsoll.JobStatus{
			ID: id, UID: plimsoll.MakeUID(1, 0), State: plimsoll.JobAccepted, Queue: "root.default", Submitted: 1,
		})
		for i := range tasks {
			l.Task(plimsoll.Task{Job: id, Group: "g", Index: int32(i), State: plimsoll.TaskPending, Attempt: 1})
		}
	}
	for i := range large {
		add(fmt.Sprint("large-", i), 1, "echo", strings.Repeat("x", 900_000))
	}
	add("many", many, "true")
	s, err := l.End(1000)
	if err != nil {
		t.Fatal(err)
	}
	var c Changes
	jobs, tasks := 0, 0
	check := func() error {
		bytes := 0
		for _, spec := range c.JobSpecs {
			bytes += specBytes(spec)
		}
		if bytes > partSpecBytes+1<<20 || len(c.Tasks) > partTasks {
			t.Errorf("a part has %d bytes of specifications and %d tasks", bytes, len(c.Tasks))
		}
		jobs, tasks = jobs+len(c.JobSpecs), tasks+len(c.Tasks)
		return nil
	}
	if err := s.All(&c, check); err != nil {
		t.Fatal(err)
	}
	if err := check(); err != nil || jobs != large+1 || tasks != large+many {
		t.Errorf("%v; %d jobs and %d tasks were handed out", err, jobs, tasks)
	}
}
