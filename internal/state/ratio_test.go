package state

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// A ratio of 1 is the same as no ratio: a node with it takes tasks without a class, and a class of
// 1 allows any such node.
func TestRatioOfOneIsNone(t *testing.T) {
	s := New(Config{}, plimsoll.DefaultQueues())
	s.Begin(1, 1)
	capacity := plimsoll.Resources{"cpu": 1000}
	for id, ratios := range map[string]map[string]float64{"one": {"cpu": 1}, "about": {"cpu": 1.001}, "none": nil} {
		node := &plimsoll.Node{
			ID: id, Capacity: capacity, Incarnation: 1, Facts: plimsoll.NodeFacts{Overprovision: ratios},
		}
		if _, err := s.Register(node, "g"); err != nil {
			t.Fatal(err)
		}
		if got := server(s.Node(id)).Overprovision; len(got) != 0 {
			t.Errorf("%s: placement sees %v", id, got)
		}
		if got := s.Node(id).Facts.Overprovision; len(got) != len(ratios) {
			t.Errorf("%s: what the agent said became %v", id, got)
		}
	}
	g := &plimsoll.GroupSpec{
		Name: "g", Constraints: plimsoll.Constraints{Class: map[string]float64{"cpu": 1, "memory": 2}},
	}
	if got := request(
		&plimsoll.JobSpec{ID: "j"}, g,
	).Constraints.Class; len(got) != 1 || got["memory"] != 2 || len(g.Constraints.Class) != 2 {
		t.Errorf("the request has the class %v", got)
	}
}
