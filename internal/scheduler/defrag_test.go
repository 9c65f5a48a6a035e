package scheduler_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// apart returns a cluster with one task of one core on each of two nodes of four cores.
func apart(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("n1", 4000)
	c.submit("first", "root.a", 1, 1000)
	if err := c.s.SetNodeMode("n1", plimsoll.NodeCordoned); err != nil {
		t.Fatal(err)
	}
	c.node("n2", 4000)
	c.submit("second", "root.a", 1, 1000)
	if err := c.s.SetNodeMode("n1", plimsoll.NodeActive); err != nil {
		t.Fatal(err)
	}
	return c
}

// A plan moves a task so that a node becomes empty. It changes nothing, so a second plan is the
// same.
func TestPlanMovesEmptiesNodes(t *testing.T) {
	c := apart(t)
	plan, err := c.sched.PlanMoves(c.s, nil, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Moves) != 1 || len(plan.Emptied) != 1 || plan.Moves[0].From != plan.Emptied[0] ||
		!strings.HasSuffix(plan.Moves[0].Name, ".0") || plan.Stopped {
		t.Errorf("the plan is %+v", plan)
	}
	again, err := c.sched.PlanMoves(c.s, nil, "", 10)
	if err != nil || !reflect.DeepEqual(plan, again) {
		t.Errorf("%v: asked again the plan is %+v, it was %+v", err, again, plan)
	}
	if err := c.s.Check(); err != nil {
		t.Error(err)
	}
}

// A plan makes room for a task of a job. A task too large for every node is reported as such.
func TestPlanMovesMakesRoom(t *testing.T) {
	c := apart(t)
	plan, err := c.sched.PlanMoves(c.s, trialJob(trialGroup("map", 1, 100), trialGroup("reduce", 1, 4000)), "reduce", 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Moves) != 1 || plan.Room != plan.Moves[0].From || plan.Refusal != "" {
		t.Errorf("the plan is %+v", plan)
	}
	plan, err = c.sched.PlanMoves(c.s, trialJob(trialGroup("map", 1, 5000)), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Moves) != 0 || plan.Room != "" || !strings.HasPrefix(plan.Refusal, "too large for every node") {
		t.Errorf("the plan is %+v", plan)
	}
	if bound := c.submit("real", "root.a", 1, 3000); len(bound) != 1 {
		t.Errorf("after the plans %v are bound", bound)
	}
}

// A request that cannot be understood is refused with an explanation.
func TestPlanMovesTellsWhatIsWrong(t *testing.T) {
	c := apart(t)
	two := trialJob(trialGroup("map", 1, 100), trialGroup("reduce", 1, 4000))
	for want, call := range map[string]func() error{
		"limit: is 0":                   func() error { _, err := c.sched.PlanMoves(c.s, nil, "", 0); return err },
		"limit: is 1001":                func() error { _, err := c.sched.PlanMoves(c.s, nil, "", 1001); return err },
		"it has map, reduce":            func() error { _, err := c.sched.PlanMoves(c.s, two, "x", 1); return err },
		"name the one whose task needs": func() error { _, err := c.sched.PlanMoves(c.s, two, "", 1); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
