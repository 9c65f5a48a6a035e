package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// Tasks without room may depend on tasks that come and go all the time: to be near to them, or to
// have their volumes. Such waiting tasks do not keep the tasks behind them in the queue from being
// tried.
func TestRelationsThatChangeHoldUpNobody(t *testing.T) {
	for name, constrain := range map[string]func(*plimsoll.Constraints){
		"near a job":  func(c *plimsoll.Constraints) { c.Near = []plimsoll.Selector{{Job: "busy"}} },
		"near a task": func(c *plimsoll.Constraints) { c.Near = []plimsoll.Selector{{Task: "still.g.0"}} },
		"volumes":     func(c *plimsoll.Constraints) { c.VolumesFrom = []string{"still.g.0"} },
	} {
		c := newCluster(t, plimsoll.DefaultQueues())
		c.turn(func() error {
			for i := range 1000 {
				id := fmt.Sprintf("n%d", i)
				node := &plimsoll.Node{ID: id, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 1000}}
				if _, err := c.s.Register(node, "gw"); err != nil {
					return err
				}
			}
			return nil
		})
		submit := func(id string, count int32, cpu int64, change func(*plimsoll.Constraints)) error {
			g := plimsoll.GroupSpec{
				Name: "g", Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": cpu},
			}
			change(&g.Constraints)
			spec := &plimsoll.JobSpec{ID: id, Queue: "root.default", Groups: []plimsoll.GroupSpec{g}}
			_, err := c.s.Submit(spec, false)
			return err
		}
		free := func(*plimsoll.Constraints) {}
		c.turn(func() error { return submit("still", 1, 500, free) })
		c.turn(func() error { return submit("busy", 10, 600, free) })
		const waiting = 300
		for i := range waiting {
			c.turn(func() error { return submit(fmt.Sprint("w", i), 1, int64(700+i%290), constrain) })
		}
		for turn := range 5 {
			bound := c.churn("busy", func() {
				if err := submit(fmt.Sprint("late", turn), 1, 1, free); err != nil {
					t.Fatal(err)
				}
			})
			if want := fmt.Sprintf("late%d.g.0", turn); !bound[want] {
				t.Errorf("%s: turn %d: %s is not placed; %d are", name, turn, want, len(bound))
			}
		}
	}
}

// churn ends all tasks of a job and lets them be tried again, calls do, and runs one cycle with
// the bound of a turn.
func (c *cluster) churn(job string, do func()) map[string]bool {
	c.t.Helper()
	c.at += 2e9
	c.s.Begin(c.at, uint64(c.at))
	c.s.Due(state.Budget{})
	for i := range c.s.Job(job).Groups[0].Tasks {
		c.report(job, int32(i), plimsoll.TaskReport{State: plimsoll.TaskFinished, Result: plimsoll.ResultEvicted})
	}
	do()
	c.s.Continue(state.Budget{})
	c.sched.Cycle(c.s, state.Budget{})
	var changes state.Changes
	c.s.Take(&changes)
	bound := map[string]bool{}
	for i := range changes.Events {
		if e := &changes.Events[i]; e.Detail == plimsoll.AppAlloc && e.Change == plimsoll.ChangeAdd {
			bound[e.Reference] = true
		}
	}
	return bound
}

func (c *cluster) report(job string, index int32, r plimsoll.TaskReport) {
	c.t.Helper()
	ref, ok := c.s.FindTask(job, "g", index)
	if !ok {
		c.t.Fatalf("there is no task %s.g.%d", job, index)
	}
	if !ref.Task().State.OnNode() {
		return
	}
	node, err := c.s.CheckReporter(ref.Task().Node, 1)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Attempt = ref.Task().Attempt
	c.s.Report(node, job, "g", index, &r)
}
