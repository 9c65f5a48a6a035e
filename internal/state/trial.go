package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Chain returns the chain of filters and scorers that chooses nodes.
func (s *State) Chain() *placement.Chain { return s.cfg.Chain }

// Ask returns the request for count tasks of a group, for a trial placement. Resources whose names
// no node and no queue has are left out; see Lacks.
func (n KnownNames) Ask(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec, count int) placement.Ask {
	ask := placement.Ask{Request: *request(spec, g), Labels: spec.Labels, Count: count}
	ask.Request.Resources = n.Placeable(g.Resources)
	return ask
}

// Movables returns the tasks on nodes, for a plan of moves. Tasks of nodes with the fewest tasks
// come first. No further node is added once the list has most tasks; all is false then.
func (s *State) Movables(most int) (list []placement.Movable, all bool) {
	var nodes []*Node
	for _, n := range s.slots {
		if n != nil && len(n.tasks) > 0 {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(len(a.tasks), len(b.tasks)), strings.Compare(a.ID, b.ID))
	})
	all = true
	for _, n := range nodes {
		if len(list) >= most {
			all = false
			break
		}
		for _, ref := range n.tasks {
			m := placement.Movable{
				Name: ref.Task().ID, Slot: n.Slot, Kind: ref.Group.kind, Prepared: ref.Group.class.Prepared,
			}
			switch {
			case ref.Task().State == plimsoll.TaskStopping:
				m.Fixed = "is being stopped"
			case ref.Group.Refused != "":
				m.Fixed = ref.Group.Refused
			}
			list = append(list, m)
		}
	}
	return list, all
}
