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

// Ask returns what so many tasks of a group ask of the fleet, for a trial.
func Ask(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec, count int) placement.Ask {
	return placement.Ask{Request: *request(spec, g), Labels: spec.Labels, Count: count}
}

// Leaf returns the queue that a job would go to, or why it would not be taken.
func (s *State) Leaf(path string) (*Queue, error) { return s.leafFor(path) }

// Movables returns the tasks on nodes as instances that may be moved, of the nodes with the fewest tasks first and of not many more than
// most, and whether those are all. The caller calls release when it is done with them.
func (s *State) Movables(most int) (list []placement.Movable, all bool, release func()) {
	var nodes []*Node
	for _, n := range s.slots {
		if n != nil && len(n.tasks) > 0 {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(len(a.tasks), len(b.tasks)), strings.Compare(a.ID, b.ID))
	})
	prepared, alike := map[*Group]*placement.Prepared{}, map[string]*placement.Prepared{}
	var releases []func()
	all = true
	for _, n := range nodes {
		if len(list) >= most {
			all = false
			break
		}
		for _, ref := range n.tasks {
			p := prepared[ref.Group]
			if p == nil {
				p = s.preparedLike(ref.Group, alike, &releases)
				prepared[ref.Group] = p
			}
			m := placement.Movable{Name: ref.Task().ID, Slot: n.Slot, Kind: ref.Group.kind, Prepared: p}
			switch {
			case ref.Task().State == plimsoll.TaskStopping:
				m.Fixed = "is being stopped"
			case ref.Group.Refused != "":
				m.Fixed = ref.Group.Refused
			}
			list = append(list, m)
		}
	}
	return list, all, func() {
		for _, release := range releases {
			release()
		}
	}
}

// preparedLike is Prepared that makes requests that are alike ready once: of many jobs that have their tasks on nodes, and wait for nothing, no
// shape is kept.
func (s *State) preparedLike(g *Group, alike map[string]*placement.Prepared, releases *[]func()) *placement.Prepared {
	if g.Shape.kept() {
		return g.Shape.Prepared
	}
	s.scratch = g.key(s.scratch[:0])
	p := alike[string(s.scratch)]
	if p == nil {
		p = s.prepare(g.request())
		alike[string(s.scratch)] = p
		*releases = append(*releases, p.Release)
	}
	return p
}
