package state

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// A node is counted once: at the first reason why it takes no tasks, or as ready.
func TestNodesAreCountedByCondition(t *testing.T) {
	s := New(Config{}, plimsoll.DefaultQueues())
	s.Begin(1000, 1)
	var registration uint64
	want := func(what string, condition NodeCondition) {
		t.Helper()
		counts := [NumNodeConditions]int64{}
		if condition != 0 {
			counts[condition] = 1
		}
		if got := s.Totals().Nodes; got != counts {
			t.Errorf("%s: the nodes are counted as %v, want %v", what, got, counts)
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	registration, err = s.Register(
		&plimsoll.Node{ID: "n", Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 10}}, "gateway",
	)
	must(err)
	want("it has registered", NodeTakesTasks)
	s.setSick(s.Node("n"), 1e12)
	want("it could not start its last tasks", NodeSick)
	must(s.ReportNode("n", 1, 1, &plimsoll.NodeReport{SchedulingDisabled: true, SchedulingReason: "busy"}))
	want("its agent keeps new tasks away too", NodeGated)
	must(s.SetNodeMode("n", plimsoll.NodeCordoned))
	want("an operator does so too", NodeCordoned)
	must(s.SetNodeMode("n", plimsoll.NodeDraining))
	want("and has its tasks stopped", NodeDrained)
	s.Silent("n", registration)
	want("it is not heard", NodeNotReady)
	must(s.RemoveNode("n"))
	want("it was removed", 0)
}

// The conditions have the words that lists of nodes use.
func TestConditionsHaveWords(t *testing.T) {
	for c := NodeNotReady; c < numNodeConditions; c++ {
		if c.String() == "" {
			t.Errorf("condition %d has no word", c)
		}
	}
	cordoned, draining := plimsoll.NodeCordoned.String(), plimsoll.NodeDraining.String()
	if NodeCordoned.String() != cordoned || NodeDrained.String() != draining {
		t.Errorf("%s and %s are other words than those of modes", NodeCordoned, NodeDrained)
	}
}
