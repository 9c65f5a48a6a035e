package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Chain returns what chooses nodes.
func (s *State) Chain() *placement.Chain { return s.cfg.Chain }

// Ask returns what so many tasks of a group ask of the fleet, for a trial, without what no node and
// no queue has a name for: see Lacks.
func (n KnownNames) Ask(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec, count int) placement.Ask {
	ask := placement.Ask{Request: *request(spec, g), Labels: spec.Labels, Count: count}
	ask.Request.Resources = n.Placeable(g.Resources)
	return ask
}

// Movables returns the tasks on nodes as instances that may be moved, of the nodes with the fewest
// tasks first and of not many more than most, and whether those are all.
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
