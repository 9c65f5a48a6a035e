package state

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Amounts are kept in small vectors, so there are few slots for names of resources, and only what
// has a name keeps its slot: a node's capacity, a limit of a queue, a task on a node. Jobs bring no
// names. A group that asks for one without a slot waits with WaitNoResource, and is counted
// nowhere with what it asks of that, until a node or a queue brings the name. So which names have a
// slot follows from nodes, queues and tasks on nodes alone, and is the same after a load.

// resourceNames says who has the names that have a slot, by their indexes in State.Names.
type resourceNames struct {
	nodes  [plimsoll.MaxResourceNames]int32 // how many nodes have the name in their capacity
	queues uint32                           // a limit of a queue has it
	tasks  uint32                           // nobody else has it, but a task on a node asks for it
	known  uint32                           // the groups are made ready for these names
	had    uint32                           // of these, those of which nodes have some
	stale  bool                             // queues or tasks on nodes may have let a name go

	unknown map[string]*unknownName
}

// unknownName is a name without a slot that jobs that have not ended ask for.
type unknownName struct {
	asked  int64 // by all their tasks together
	groups int
}

const standardNames = uint32(1)<<(placement.IndexDisk+1) - 1

// index returns the index of a name that has a slot, or -1.
func (s *State) index(name string) int {
	if k := s.Names.Index(name); k >= 0 && (standardNames|s.names.known)&(1<<k) != 0 {
		return k
	}
	return -1
}

// onlyStandard reports whether all names are those that every node has.
func onlyStandard(r plimsoll.Resources) bool {
	n := 0
	for _, name := range plimsoll.StandardResources {
		if _, ok := r[name]; ok {
			n++
		}
	}
	return n == len(r)
}

// placeable returns the amounts of which the names have slots.
func (s *State) placeable(r plimsoll.Resources) plimsoll.Resources {
	return keep(r, func(name string) bool { return s.index(name) >= 0 })
}

// keep returns the amounts of which the names have slots.
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

// missing returns the names without a slot of which r has some.
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

// Lacks returns the first name of which some is asked for and no node has any; empty if there is
// none.
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

// lacking reports whether no node has anything of a resource that not every node has.
func (s *State) lacking(k int) bool { return k > placement.IndexDisk && s.total[k] == 0 }

// KnownNames are the names of resources at one revision, for questions that are answered beside the
// state. They never change.
type KnownNames struct {
	slots map[string]bool // names with a slot
	nodes []string        // names that nodes have
}

// KnownNames returns the names of now. It costs O(names).
func (s *State) KnownNames() KnownNames {
	n := KnownNames{slots: map[string]bool{}, nodes: s.NodeResources()}
	for k := range s.Names.Len() {
		if name := s.Names.Name(k); s.index(name) >= 0 {
			n.slots[name] = true
		}
	}
	return n
}

// Lacks is State.Lacks.
func (n KnownNames) Lacks(r plimsoll.Resources) string {
	return lacks(r, func(name string) bool { return slices.Contains(n.nodes, name) })
}

// NodeResources is State.NodeResources.
func (n KnownNames) NodeResources() []string { return n.nodes }

// Placeable returns the amounts of which the names have slots.
func (n KnownNames) Placeable(r plimsoll.Resources) plimsoll.Resources {
	return keep(r, func(name string) bool { return n.slots[name] })
}

// NodeResources returns the names of resources that nodes have.
func (s *State) NodeResources() []string {
	names := slices.Clone(plimsoll.StandardResources[:])
	for k := len(names); k < s.Names.Len(); k++ {
		if s.total[k] > 0 {
			names = append(names, s.Names.Name(k))
		}
	}
	return names
}

// checkUnknown reports whether a job has few enough names that have no slot.
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

// ask adds what a group asks for to the sums, or with sign -1 subtracts it.
func (s *State) ask(g *Group, sign int64) {
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

// askAll is ask for the groups of a job.
func (s *State) askAll(j *Job, sign int64) {
	for i := range j.Groups {
		s.ask(&j.Groups[i], sign)
	}
}

// fit makes ready how the tasks of a group are booked, with the names that have slots now.
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

// nameNode counts a node more, or fewer, that has the names of a capacity.
func (s *State) nameNode(capacity plimsoll.Resources, n int32) {
	for _, name := range capacity.Names() {
		if k := s.Names.Index(name); k >= 0 {
			s.names.nodes[k] += n
		}
	}
}

// nameQueues looks anew which names the limits of queues have.
func (s *State) nameQueues() {
	s.names.queues = 0
	s.tree.Root.Walk(func(q *queue.Queue) { s.names.queues |= q.MaxSet | q.GuaranteedSet })
	s.names.queues &^= standardNames
}

// nameTasks gives slots to the names that only tasks on nodes have. It is for a load, before the
// jobs are there.
func (s *State) nameTasks(r plimsoll.Resources) {
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

// nameStale is reviseNames if queues or tasks may have let a name go.
func (s *State) nameStale() {
	if !s.names.stale {
		return
	}
	s.names.stale = false
	s.nameQueues()
	s.names.tasks = 0 // reviseNames finds them again
	s.reviseNames()
}

// reviseNames is called after nodes or queues have become others. It makes the groups ready for
// names that have come, frees the slots of those that nobody has any more, and lets all be judged
// anew that ask for what nodes have now and had not before, or the other way round.
func (s *State) reviseNames() {
	var known, had, gone uint32
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
			had |= bit
		}
	}
	if changed := known ^ s.names.known | had ^ s.names.had | gone; changed != 0 {
		s.refit(changed, known, had, gone)
	}
}

// refit makes the groups ready that ask for names that have changed: for those that are known now,
// of which nodes have some, and after those that are gone have lost their slots. It costs a look at
// each group that has not ended, and is done seldom: when the first node with a name comes, or the
// last one goes.
func (s *State) refit(changed, known, had, gone uint32) {
	groups, classes := s.asking(changed)
	for _, g := range groups {
		s.tree.Pend(&g.lane, -g.Counts.Pending)
		s.ask(g, -1)
	}
	s.names.known, s.names.had = known, had
	for set := gone; set != 0; set &= set - 1 {
		s.Fleet.ForgetName(bits.TrailingZeros32(set))
	}
	made := make(map[*Class]*Class, len(classes))
	for _, c := range classes {
		made[c] = s.remake(c)
	}
	for _, g := range groups {
		g.class = made[g.class]
		s.fit(g)
		s.tree.Pend(&g.lane, g.Counts.Pending)
		s.ask(g, 1)
	}
	for _, c := range classes {
		s.tree.Open(c.Class)
	}
}

// asking returns the groups that have not ended and ask for names of a set, and their classes.
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

// remake makes a class ready anew: another Class, so that nothing that was found out about the old
// one is held to be true, of the same queue.Class, so that what waits stays where it is.
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
