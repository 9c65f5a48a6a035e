package scheduler_test

import (
	"slices"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// strictCluster has a strict leaf, root.a, and a node of 8 CPUs of which 5 are in use.
func strictCluster(t *testing.T) *cluster {
	c := newCluster(t, leaves(plimsoll.QueueConfig{
		Name: "a", Properties: map[string]string{plimsoll.PropertyOrder: "strict"},
	}))
	c.node("n1", 8000)
	c.submit("first", "root.a", 1, 5000)
	return c
}

// nodeOn adds a node on a network.
func (c *cluster) nodeOn(network, id string, cpu int64) []string {
	c.t.Helper()
	return c.turn(func() error {
		_, err := c.s.Register(&plimsoll.Node{
			ID: id, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": cpu},
			Facts: plimsoll.NodeFacts{Networks: map[string]bool{network: true}},
		}, "gw")
		return err
	})
}

// submitOn submits a job of one task that needs a network.
func (c *cluster) submitOn(network, id string, cpu int64) []string {
	c.t.Helper()
	return c.turn(func() error {
		_, err := c.s.Submit(&plimsoll.JobSpec{ID: id, Queue: "root.a", Groups: []plimsoll.GroupSpec{{
			Name: "g", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": cpu},
			Constraints: plimsoll.Constraints{Networks: [][]string{{network}}},
		}}}, false)
		return err
	})
}

// In a strict leaf a job that waits for nodes holds back the jobs that could use the nodes that it
// needs, and no others.
func TestStrictLeafHoldsBackWhoUsesTheSameNodes(t *testing.T) {
	c := strictCluster(t)
	c.nodeOn("blue", "n2", 4000)
	if got := c.submit("large", "root.a", 1, 8000); len(got) != 0 {
		t.Fatalf("bound %v", got)
	}
	if got := c.submit("anywhere", "root.a", 1, 500); len(got) != 0 {
		t.Errorf("%v passed the job that waits for a node", got)
	}
	if got := c.submitOn("blue", "small", 1000); !slices.Equal(got, []string{"small.g.0"}) {
		t.Errorf("bound %v; its only node is too small for the job that waits", got)
	}
	if got := c.node("n3", 8000); len(got) != 2 || !slices.Contains(got, "large.g.0") {
		t.Errorf("bound %v, want the large job on the new node, and the one behind it", got)
	}
}

// A node that comes may make a job compete with the one that waits.
func TestStrictLeafSeesThatNodesChange(t *testing.T) {
	c := strictCluster(t)
	c.submitOn("green", "early", 5000)
	c.submit("large", "root.a", 1, 8000)
	if got := c.submitOn("green", "late", 1000); len(got) != 0 {
		t.Fatalf("bound %v without a node", got)
	}
	if got := c.nodeOn("green", "n2", 8000); !slices.Equal(got, []string{"early.g.0"}) {
		t.Errorf("bound %v; the new node is also one for the large job, which goes before the late one", got)
	}
}
