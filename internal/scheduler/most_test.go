package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// A node holds at most as many tasks as its agent reports, even if they need no resources. The
// wait cause of the others says so, and the next task is placed when one has ended. A dry run and
// the node's capacity agree.
func TestNodeTakesAtMostItsMaxTasks(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	register := func(most int32) []string {
		return c.turn(func() error {
			n := &plimsoll.Node{ID: "n", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 2000}}
			n.Facts.MaxTasks = most
			_, err := c.s.Register(n, "gw")
			return err
		})
	}
	register(3)
	if bound := c.submit("j", "root.a", 300, 0); fmt.Sprint(bound) != "[j.g.0 j.g.1 j.g.2]" {
		t.Fatalf("%d tasks were bound: %v", len(bound), bound)
	}
	c.s.RecordCauses(state.Budget{})
	if wait := c.s.Job("j").Groups[0].Wait; wait.Code != plimsoll.WaitNoNode {
		t.Errorf("the others wait for %s", wait.Code)
	}
	trial, err := c.sched.Try(c.s, trialJob(trialGroup("g", 1, 0)), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := "1 of 1 nodes: has as many instances as it takes, 3"; trial.Groups[0].Summary != want {
		t.Errorf("a dry run says %q, want %q", trial.Groups[0].Summary, want)
	}
	rooms, err := c.sched.Capacities(c.s, []string{"n"})
	if err != nil || rooms[0].Instances != 3 || rooms[0].Most != 3 {
		t.Errorf("its capacity is %+v, %v", rooms, err)
	}
	ended := c.turn(func() error {
		c.report("j", 1, plimsoll.TaskReport{State: plimsoll.TaskFinished, Result: plimsoll.ResultSucceeded})
		return nil
	})
	if fmt.Sprint(ended) != "[j.g.3]" {
		t.Errorf("when one has ended %v are bound", ended)
	}
	if raised := register(5); fmt.Sprint(raised) != "[j.g.4 j.g.5]" {
		t.Errorf("when it takes two more %v are bound", raised)
	}
	if lowered := register(2); len(lowered) != 0 {
		t.Errorf("when it takes fewer than it has %v are bound", lowered)
	}
	if unbounded := register(0); len(unbounded) != 300-6 {
		t.Errorf("without a bound %d more are bound, want all", len(unbounded))
	}
}
