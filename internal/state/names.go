package state

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Amounts are kept in small vectors, so there are few slots for resource names. A name has a slot
// while a node's capacity, a limit of a queue or a task on a node uses it; jobs bring no names. A
// group that asks for a name without a slot waits with WaitNoResource until a node or a queue
// brings the name. Until then its amount of that resource is in no sum of nodes and queues. The
// slots follow from nodes, queues and tasks on nodes alone, so they are the same after a load.

// resourceNames counts the users of the names with a slot, by their indexes in State.Names. Each
// uint32 is a set of names, with a bit for each index.
type resourceNames struct {
	nodes   [plimsoll.MaxResourceNames]int32 // number of nodes with the name in their capacity
	queues  uint32                           // names in limits of queues
	tasks   uint32                           // names that only tasks on nodes use
	known   uint32                           // names for which the groups are prepared
	onNodes uint32                           // names of known with a positive sum over the nodes
	stale   bool                             // a queue or a task on a node may have released a name

	unknown map[string]*unknownName
}

// unknownName is a name without a slot that jobs ask for. Only jobs that have not ended count.
type unknownName struct {
	asked  int64 // sum over all tasks of the groups
	groups int   // number of groups that ask for the name; never 0
}

const standardNames = uint32(1)<<(placement.IndexDisk+1) - 1

// index returns the index of a name that has a slot, or -1.
func (s *State) index(name string) int {
	if k := s.Names.Index(name); k >= 0 && (standardNames|s.names.known)&(1<<k) != 0 {
		return k
	}
	return -1
}

// onlyStandard reports whether r has no names but those that every node has.
func onlyStandard(r plimsoll.Resources) bool {
	n := 0
	for _, name := range plimsoll.StandardResources {
		if _, ok := r[name]; ok {
			n++
		}
	}
	return n == len(r)
}

// placeable returns the amounts whose names have slots.
func (s *State) placeable(r plimsoll.Resources) plimsoll.Resources {
	return keep(r, func(name string) bool { return s.index(name) >= 0 })
}

// keep returns the amounts whose names have slots.
func keep(r plimsoll.Resources, slot func(name string) bool) plimsoll.Resources {
	if onlyStandard(r) {
		return r
	}
	out := plimsoll.Resources{}
	for _, name := range r.Names() {
		if slot(name) {
			out[name] = r[name]
		}
	}
	return out
}

// missing returns the names without a slot of the positive amounts of r.
func (s *State) missing(r plimsoll.Resources) (names []string) {
	if onlyStandard(r) {
		return nil
	}
	for _, name := range r.Names() {
		if r[name] > 0 && s.index(name) < 0 {
			names = append(names, name)
		}
	}
	return names
}

// Lacks returns the first requested resource that no node has; empty if there is none.
func (s *State) Lacks(r plimsoll.Resources) string {
	return lacks(r, func(name string) bool {
		k := s.index(name)
		return k >= 0 && !s.lacking(k)
	})
}

func lacks(r plimsoll.Resources, have func(name string) bool) string {
	if onlyStandard(r) {
		return ""
	}
	for _, name := range r.Names() {
		if r[name] > 0 && !have(name) {
			return name
		}
	}
	return ""
}

// lacking reports whether a resource is not a standard one and no node has any of it.
func (s *State) lacking(k int) bool { return k > placement.IndexDisk && s.total[k] == 0 }

// KnownNames are the resource names at one revision, for questions that are answered from a copy.
// The value never changes.
type KnownNames struct {
	slots map[string]bool // names with a slot
	nodes []string        // names that nodes have
}

// KnownNames returns the present names. It costs O(names).
func (s *State) KnownNames() KnownNames {
	n := KnownNames{slots: map[string]bool{}, nodes: s.NodeResources()}
	for k := range s.Names.Len() {
		if name := s.Names.Name(k); s.index(name) >= 0 {
			n.slots[name] = true
		}
	}
	return n
}

// Lacks is State.Lacks at the revision of n.
func (n KnownNames) Lacks(r plimsoll.Resources) string {
	return lacks(r, func(name string) bool { return slices.Contains(n.nodes, name) })
}

// NodeResources is State.NodeResources at the revision of n.
func (n KnownNames) NodeResources() []string { return n.nodes }

// Placeable returns the amounts whose names have slots.
func (n KnownNames) Placeable(r plimsoll.Resources) plimsoll.Resources {
	return keep(r, func(name string) bool { return n.slots[name] })
}

// NodeResources returns the names of the resources that nodes have.
func (s *State) NodeResources() []string {
	names := slices.Clone(plimsoll.StandardResources[:])
	for k := len(names); k < s.Names.Len(); k++ {
		if s.total[k] > 0 {
			names = append(names, s.Names.Name(k))
		}
	}
	return names
}

// checkUnknown reports whether a job has at most plimsoll.MaxUnknownNames names without a slot.
func (s *State) checkUnknown(spec *plimsoll.JobSpec) error {
	found := map[string]bool{}
	for i := range spec.Groups {
		if onlyStandard(spec.Groups[i].Resources) {
			continue
		}
		for _, name := range spec.Groups[i].Resources.Names() {
			if s.index(name) >= 0 || found[name] {
				continue
			}
			if found[name] = true; len(found) > plimsoll.MaxUnknownNames {
				return plimsoll.Invalid(fmt.Sprintf("groups[%d].resources.%s", i, name),
					"is one more name that no node and no queue has; a job may have %d of them, and this is the next; %s; use names that exist, or make several jobs",
					plimsoll.MaxUnknownNames, plimsoll.KnownResources(name, s.NodeResources()))
			}
		}
	}
	return nil
}

// addAsked adds the request of a group to the sums; with sign -1 it subtracts the request.
func (s *State) addAsked(g *Group, sign int64) {
	s.asked.AddTimes(g.Amounts(), sign*int64(g.Spec.Count))
	for _, name := range g.missing {
		u := s.names.unknown[name]
		if u == nil {
			u = &unknownName{}
			s.names.unknown[name] = u
		}
		u.asked += sign * int64(g.Spec.Count) * g.Spec.Resources[name]
		if u.groups += int(sign); u.groups == 0 {
			delete(s.names.unknown, name)
		}
	}
}

// addAllAsked calls addAsked for each group of a job.
func (s *State) addAllAsked(j *Job, sign int64) {
	for i := range j.Groups {
		s.addAsked(&j.Groups[i], sign)
	}
}

// fit sets the amounts that the fleet books for a task of a group, with the names that have slots.
func (s *State) fit(g *Group) {
	resources := s.placeable(g.Spec.Resources)
	g.missing = s.missing(g.Spec.Resources)
	if g.kind == nil {
		in := instance(g.Job.Spec, g.Spec)
		in.Resources = resources
		g.kind = s.Fleet.Kind(in)
		return
	}
	s.Fleet.Resize(g.kind, resources)
}

// countNodeNames adds n nodes to the counts of the names of a capacity; n is 1 or -1.
func (s *State) countNodeNames(capacity plimsoll.Resources, n int32) {
	for _, name := range capacity.Names() {
		if k := s.Names.Index(name); k >= 0 {
			s.names.nodes[k] += n
		}
	}
}

// findQueueNames finds the names in the limits of queues, and in templates, anew.
func (s *State) findQueueNames() {
	s.names.queues = 0
	s.tree.Root.Walk(func(q *queue.Queue) { s.names.queues |= q.ResourcesNamed() })
	s.names.queues |= s.templateNames()
	s.names.queues &^= standardNames
}

// addTaskNames gives slots to names that only tasks on nodes use. A load calls it before it adds
// the jobs.
func (s *State) addTaskNames(r plimsoll.Resources) {
	for _, name := range s.missing(r) {
		one := plimsoll.Resources{name: r[name]}
		if s.Names.Check("", one) == nil {
			s.Names.Amounts(one)
			s.names.tasks |= 1 << s.Names.Index(name)
			s.names.known |= 1 << s.Names.Index(name)
		}
	}
}

// usedOnNodes reports whether a task on a node asks for a resource.
func (s *State) usedOnNodes(k int) bool {
	for _, n := range s.slots {
		if n != nil && s.Fleet.Used(n.Slot)[k] > 0 {
			return true
		}
	}
	return false
}

// reviseStaleNames calls reviseNames if a queue or a task on a node may have released a name.
func (s *State) reviseStaleNames() {
	if !s.names.stale {
		return
	}
	s.names.stale = false
	s.findQueueNames()
	s.names.tasks = 0 // reviseNames finds them again
	s.reviseNames()
}

// reviseNames finds the names in use anew, after nodes or queues have changed. Names without a user
// lose their slots. Groups that ask for a changed name are prepared again: one that has come or
// gone, or whose resource the nodes have now and had not before, or the other way round.
func (s *State) reviseNames() {
	var known, onNodes, gone uint32
	for k := placement.IndexDisk + 1; k < s.Names.Len(); k++ {
		bit := uint32(1) << k
		if s.Names.Name(k) == "" {
			continue
		}
		if s.names.nodes[k] == 0 && (s.names.queues|s.names.tasks)&bit == 0 {
			if !s.usedOnNodes(k) {
				gone |= bit
				continue
			}
			s.names.tasks |= bit
		}
		known |= bit
		if !s.lacking(k) {
			onNodes |= bit
		}
	}
	if changed := known ^ s.names.known | onNodes ^ s.names.onNodes | gone; changed != 0 {
		s.refit(changed, known, onNodes, gone)
	}
}

// refit prepares the groups again that ask for changed names. known, onNodes and gone are the new
// sets of names; gone names lose their slots. The cost is a look at each group that has not ended.
// It is rare: the first node with a name has come, or the last one has gone.
func (s *State) refit(changed, known, onNodes, gone uint32) {
	groups, classes := s.asking(changed)
	for _, g := range groups {
		s.tree.Pend(&g.lane, -g.Counts.Pending)
		s.addAsked(g, -1)
	}
	s.names.known, s.names.onNodes = known, onNodes
	for set := gone; set != 0; set &= set - 1 {
		s.Fleet.ForgetName(bits.TrailingZeros32(set))
		s.tree.ForgetResource(bits.TrailingZeros32(set))
	}
	made := make(map[*Class]*Class, len(classes))
	for _, c := range classes {
		made[c] = s.remake(c)
	}
	for _, g := range groups {
		g.class = made[g.class]
		s.fit(g)
		s.tree.Pend(&g.lane, g.Counts.Pending)
		s.addAsked(g, 1)
	}
	for _, c := range classes {
		s.tree.Open(c.Class)
	}
}

// asking returns the groups that ask for names of a set, and their classes. Groups of ended jobs
// are left out.
func (s *State) asking(set uint32) (groups []*Group, classes []*Class) {
	var names []string
	for ; set != 0; set &= set - 1 {
		names = append(names, s.Names.Name(bits.TrailingZeros32(set)))
	}
	asks := map[*Class]bool{}
	for _, g := range s.lanes.rows {
		if g == nil {
			continue
		}
		does, seen := asks[g.class]
		if !seen {
			for _, name := range names {
				does = does || g.Spec.Resources[name] > 0
			}
			if asks[g.class] = does; does {
				g.class.example = g
				classes = append(classes, g.class)
			}
		}
		if does {
			groups = append(groups, g)
		}
	}
	return groups, classes
}

// remake replaces a class by a new one with the same key, prepared for the present names. The new
// Class makes the scheduler drop its findings about the old one. Both have the same queue.Class, so
// waiting tasks keep their places.
func (s *State) remake(old *Class) *Class {
	g := old.example
	c := &Class{
		Class: old.Class, Prepared: s.prepareGroup(g), Refused: old.Refused, Lacks: s.Lacks(g.Spec.Resources),
		key: old.key, groups: old.groups,
	}
	s.classes[c.key] = c
	s.tree.Restate(c.Class, c.Prepared.Amounts(), c.Lacks != old.Lacks)
	old.groups, old.example = 0, nil
	old.Prepared.Release()
	return c
}
