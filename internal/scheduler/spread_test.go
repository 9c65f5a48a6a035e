package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// rackNode registers a node of a rack, with a number of GPUs.
func (c *cluster) rackNode(id, rack string, gpus int64) []string {
	c.t.Helper()
	return c.turn(func() error {
		n := &plimsoll.Node{ID: id, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 100_000, "gpu": gpus}}
		if gpus == 0 {
			delete(n.Capacity, "gpu")
		}
		n.Attributes = map[string]string{"rack": rack}
		_, err := c.s.Register(n, "gw")
		return err
	})
}

// submitSpread submits a group that is spread by rack. Each of its tasks needs one GPU.
func (c *cluster) submitSpread(id string, count int32, change ...func(*plimsoll.GroupSpec)) []string {
	c.t.Helper()
	return c.turn(func() error {
		g := plimsoll.GroupSpec{
			Name: "g", Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 1, "gpu": 1},
			Constraints: plimsoll.Constraints{Spread: []plimsoll.Spread{{By: "rack", MaxSkew: 1}}},
		}
		for _, f := range change {
			f(&g)
		}
		_, err := c.s.Submit(&plimsoll.JobSpec{ID: id, Queue: "root.a", Groups: []plimsoll.GroupSpec{g}}, false)
		return err
	})
}

// byNode counts the tasks of a job by node.
func (c *cluster) byNode(id string) map[string]int {
	out := map[string]int{}
	for i := range c.s.Job(id).Groups[0].Tasks {
		if t := &c.s.Job(id).Groups[0].Tasks[i]; t.State.OnNode() {
			out[t.Node]++
		}
	}
	return out
}

// withoutGPUs registers eight racks without GPUs.
func (c *cluster) withoutGPUs() {
	for i := range 8 {
		c.rackNode(fmt.Sprint("plain", i), fmt.Sprint("p", i), 0)
	}
}

// A hundred tasks that need a GPU are spread evenly over the two racks of ten that have GPUs.
func TestSpreadTasksGoEvenlyToTheRacksThatTheyAreFor(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.withoutGPUs()
	c.rackNode("n0", "a", 100)
	c.rackNode("n1", "b", 100)
	c.submitSpread("j", 100)
	if got := c.byNode("j"); got["n0"] != 50 || got["n1"] != 50 {
		t.Errorf("%v, want 50 on each of n0 and n1", got)
	}
}

// A group of three is placed at once on the two eligible racks, however many other racks there
// are.
func TestThreeOfAGroupWaitForNoRackThatIsNotForThem(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.withoutGPUs()
	c.rackNode("n0", "a", 2)
	c.rackNode("n1", "b", 2)
	if bound := c.submitSpread("j", 3); len(bound) != 3 {
		t.Errorf("%v were bound, want all three", bound)
	}
}

// A node of a new rack wakes waiting tasks of a spread group if it is eligible for them. A rack
// that no longer counts wakes them too.
func TestRacksThatComeAndGoWakeWhatIsSpread(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.withoutGPUs()
	c.rackNode("n0", "a", 2)
	c.rackNode("n1", "b", 1)
	if bound := c.submitSpread("j", 6); len(bound) != 3 { // n1 is full, and its rack has the fewest
		t.Fatalf("%v were bound, want three", bound)
	}
	if bound := c.rackNode("plain8", "p8", 0); len(bound) != 0 {
		t.Fatalf("%v were bound because of a rack without GPUs", bound)
	}
	if bound := c.rackNode("n2", "c", 9); len(bound) != 2 {
		t.Fatalf("%v were bound, want two in the new rack, one more than there is in b", bound)
	}
	cordon := func() error { return c.s.SetNodeMode("n1", plimsoll.NodeCordoned) }
	if bound := c.turn(cordon); len(bound) != 1 {
		t.Fatalf("%v were bound, want the last, because b does not count any more", bound)
	}
}

// A task that a group must be far from is placed on a rack, which then no longer counts. The group
// continues in the same turn.
func TestNeighboursThatComeWakeWhatIsSpread(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.rackNode("n0", "a", 9)
	c.rackNode("n1", "b", 1)
	far := func(g *plimsoll.GroupSpec) { g.Constraints.Far = []plimsoll.Selector{{Job: "loud"}} }
	if bound := c.submitSpread("j", 5, far); len(bound) != 3 {
		t.Fatalf("%v were bound, want two in a and one in b, which is full", bound)
	}
	bound := c.turn(func() error {
		g := plimsoll.GroupSpec{Name: "g", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 1}}
		g.Constraints.Nodes = []string{"n1"}
		_, err := c.s.Submit(&plimsoll.JobSpec{ID: "loud", Queue: "root.a", Groups: []plimsoll.GroupSpec{g}}, false)
		return err
	})
	if fmt.Sprint(bound) != "[loud.g.0 j.g.3 j.g.4]" {
		t.Errorf("%v were bound, want the loud task, and then the rest of the group in a", bound)
	}
}

// For a task that waits for its spread, Explain names the rack that it waits for, and the number
// of racks that do not count.
func TestExplainOfASpreadTask(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.withoutGPUs()
	c.rackNode("n0", "a", 9)
	c.rackNode("n1", "b", 1)
	c.submitSpread("j", 4)
	ref, ok := c.s.FindTask("j", "g", 3)
	if !ok {
		t.Fatal("there is no task j.g.3")
	}
	c.s.RecordCauses(state.Budget{})
	x, err := c.sched.Explain(c.s, ref, "")
	if err != nil {
		t.Fatal(err)
	}
	const want = "1 of 10 nodes: too many of the group in its rack: rack b has the fewest, 1; " +
		"spread by rack: b has the fewest, 1, of 2 that count; 8 others have no node that the other constraints allow"
	if x.Code != plimsoll.WaitNoNode || !strings.HasSuffix(x.Summary, want) {
		t.Errorf("%s: %s\nwant at its end\n%s", x.Code, x.Summary, want)
	}
}
