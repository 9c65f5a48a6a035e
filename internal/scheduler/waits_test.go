package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// By a rule of an owner, a node may become the owner's when a task runs there. That wakes tasks
// that wait for such a node.
func TestTasksThatComeWakeThoseWhoseNodesTheyMake(t *testing.T) {
	settings := placement.DefaultSettings()
	settings.OwnerRules = map[string]string{"bob": "node.instances == 1"}
	chain, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
	if err != nil {
		t.Fatal(err)
	}
	s := state.New(state.Config{Chain: chain}, leaves(plimsoll.QueueConfig{Name: "a"}))
	c := &cluster{t: t, s: s, sched: scheduler.New(s, 1)}
	submit := func(owner string, cpu int64) []string {
		return c.turn(func() error {
			_, err := s.Submit(&plimsoll.JobSpec{ID: owner, Owner: owner, Queue: "root.a", Groups: []plimsoll.GroupSpec{
				{Name: "g", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": cpu}},
			}}, false)
			return err
		})
	}
	c.node("n", 1000)
	if bound := submit("bob", 100); bound != nil {
		t.Fatalf("%v were bound to a node that is not bob's", bound)
	}
	if bound := submit("alice", 500); fmt.Sprint(bound) != "[alice.g.0 bob.g.0]" {
		t.Fatalf("%v were bound, want alice's task, and bob's beside it", bound)
	}
}

// A node that offers less causes no evaluation of all nodes, for any kind of waiting task. A task
// whose cause has changed is told.
func TestLostNodesOpenNobody(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("small", 500)
	c.node("large", 1000)
	c.submit("busy", "root.a", 1, 900)
	c.turn(func() error {
		g := plimsoll.GroupSpec{
			Name: "g", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 800},
		}
		g.Constraints.Far = []plimsoll.Selector{{Job: "nobody"}}
		_, err := c.s.Submit(&plimsoll.JobSpec{ID: "far", Queue: "root.a", Groups: []plimsoll.GroupSpec{g}}, false)
		return err
	})
	resize := func(id string, cpu int64) {
		c.turn(func() error {
			_, err := c.s.Register(
				&plimsoll.Node{ID: id, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": cpu}}, "gw",
			)
			return err
		})
		c.s.RecordCauses(state.Budget{})
	}
	want := func(code plimsoll.WaitCode) {
		t.Helper()
		if got := c.s.Job("far").Groups[0].Wait.Code; got != code {
			t.Errorf("far waits for %s, want %s", got, code)
		}
	}
	resize("small", 400)
	want(plimsoll.WaitNoNode)
	resize("large", 700)
	want(plimsoll.WaitTooLarge)
	resize("large", 1700)
	if got := c.s.Job("far").Groups[0].Counts.Bound; got != 1 {
		t.Errorf("%d tasks are bound, and there is room for one", got)
	}
}

// Two classes are too large for the only node that is eligible for them. When the node is gone,
// both get the new cause.
func TestTooLargeAlikeLearnThatTheirNodeIsGone(t *testing.T) {
	c := newCluster(t, leaves(plimsoll.QueueConfig{Name: "a"}))
	c.node("other", 1000)
	c.node("only", 1000)
	ids := []string{"large", "larger"}
	for i, id := range ids {
		c.turn(func() error {
			g := plimsoll.GroupSpec{
				Name: "g", Count: 1, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": int64(2000 + i)},
			}
			g.Constraints.Nodes = []string{"only"}
			_, err := c.s.Submit(&plimsoll.JobSpec{ID: id, Queue: "root.a", Groups: []plimsoll.GroupSpec{g}}, false)
			return err
		})
	}
	want := func(code plimsoll.WaitCode) {
		t.Helper()
		c.s.RecordCauses(state.Budget{})
		for _, id := range ids {
			if got := c.s.Job(id).Groups[0].Wait.Code; got != code {
				t.Errorf("%s waits for %s, want %s", id, got, code)
			}
		}
	}
	want(plimsoll.WaitTooLarge)
	c.turn(func() error {
		c.s.Silent("only", c.s.Node("only").Registration)
		return c.s.RemoveNode("only")
	})
	want(plimsoll.WaitNotEligible)
}
