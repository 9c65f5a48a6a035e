package state

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Class is a request that groups have in common, prepared for the placement once. The groups may be
// in any queue, and of any owner unless a filter of the chain looks at owners.
type Class struct {
	*queue.Class
	Prepared *placement.Prepared
	Refused  bool   // the chain does not understand the request; Prepared leaves out its constraints
	Lacks    string // first requested resource that no node has; empty: there is none

	key     string // key in State.classes
	groups  int    // number of groups with this class; at 0 it leaves State.classes
	example *Group // a group of the class, while refit runs
}

// Gone reports whether the class has no group any more. Prepared is released then.
func (c *Class) Gone() bool { return c.groups == 0 }

// Classes returns how many classes there are.
func (s *State) Classes() int { return len(s.classes) }

// request returns the request of the tasks of a group.
func request(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) *placement.Request {
	r := &placement.Request{
		Owner: spec.Owner, Job: spec.ID, Group: g.Name, Resources: g.Resources, Constraints: g.Constraints,
		Preferences: g.Preferences,
	}
	r.Constraints.Class = realRatios(g.Constraints.Class)
	return r
}

// instance returns a task of a group as the fleet counts it.
func instance(spec *plimsoll.JobSpec, g *plimsoll.GroupSpec) *placement.Instance {
	in := &placement.Instance{Owner: spec.Owner, Job: spec.ID, Labels: spec.Labels, Resources: g.Resources}
	if len(g.Constraints.Spread)+len(g.Preferences.Spread) > 0 {
		in.Group = g.Name
	}
	return in
}

// request returns the request of the group's tasks, with its exclusions. The request of a refused
// group has no constraints.
func (g *Group) request() *placement.Request {
	if g.Refused != "" {
		return &placement.Request{Owner: g.Job.Spec.Owner, Resources: g.Spec.Resources}
	}
	r := request(g.Job.Spec, g.Spec)
	list := g.exclusions[max(0, len(g.exclusions)-placement.MaxExclusions):]
	for i := range list {
		r.Except = append(
			r.Except,
			placement.Exclusion{
				Server: list[i].node.ID, Why: exclusionReason(g.Job.Spec.ID, g.Spec.Name, list[i].index, list[i].until),
			},
		)
	}
	return r
}

// exclusionReason says why a group avoids the node that evicted one of its tasks.
func exclusionReason(job, group string, index int32, until int64) string {
	return fmt.Sprintf("its task %s was evicted from it, so no task of %s goes there until %s", taskID(
		job, group, index,
	),
		group, time.Unix(0, until).UTC().Format(time.RFC3339))
}

// appendKey appends the key of the group's class: its request and the reason of its refusal. The
// owner is part of the key only if a filter of the chain looks at owners.
func (s *State) appendKey(b []byte, g *Group) []byte {
	return append(classKey(b, s.cfg.Chain, g.request()), g.Refused...)
}

// classFor returns the class of a group's request and counts the group in it. prepareGroups has
// accepted the request. p, unless nil, is the prepared request: a new class keeps it, otherwise it
// is released.
func (s *State) classFor(g *Group, p *placement.Prepared) *Class {
	s.scratch = s.appendKey(s.scratch[:0], g)
	c := s.classes[string(s.scratch)]
	switch {
	case c == nil && p == nil:
		p = s.prepareGroup(g)
	case c != nil && p != nil:
		p.Release()
	}
	if c == nil {
		c = &Class{
			Class: s.tree.NewClass(p.Amounts()), Prepared: p, Refused: g.Refused != "",
			Lacks: s.Lacks(g.Spec.Resources), key: string(s.scratch),
		}
		s.classes[c.key] = c
	}
	c.groups++
	return c
}

// leaveClass takes a group out of a class. The class is released with its last group.
func (s *State) leaveClass(c *Class) {
	if c.groups--; c.groups == 0 {
		delete(s.classes, c.key)
		c.Prepared.Release()
	}
}

// reclass moves a group to the class of its present request, after its exclusions have changed.
func (s *State) reclass(g *Group) {
	old := g.class
	if old == nil { // its job has ended
		return
	}
	g.class = s.classFor(g, nil)
	s.tree.SetClass(&g.lane, g.class.Class)
	if g.Job.account.Admitted() && g.lane.Ready() > 0 {
		s.setWait(g, g.firstCause())
	}
	s.leaveClass(old)
}

// refusals returns for each group of a stored job why the chain does not understand its request;
// empty if it does. Expressions may have had other rules when the job was submitted.
func (s *State) refusals(spec *plimsoll.JobSpec) []string {
	out := make([]string, len(spec.Groups))
	for i := range spec.Groups {
		r := request(spec, &spec.Groups[i])
		r.Resources = s.placeable(r.Resources)
		p, err := s.cfg.Chain.Prepare(s.Fleet, r)
		if err != nil {
			out[i] = refusal(i, err)
			continue
		}
		p.Release()
	}
	return out
}

func refusal(group int, err error) string {
	return fmt.Sprintf("the stored request is not understood any more; submit the job anew: groups[%d].%s", group, err)
}

// Prepared returns the prepared request of a group, set to its owner. The caller calls release when
// it is done with the request.
func (s *State) Prepared(g *Group) (p *placement.Prepared, release func()) {
	if g.class != nil {
		g.class.Prepared.SetOwner(g.Job.Spec.Owner, g.kind)
		return g.class.Prepared, func() {}
	}
	p = s.prepareGroup(g)
	return p, p.Release
}

// prepareGroup prepares the request of a group, without resources that have no slot. prepareGroups
// has accepted the request.
func (s *State) prepareGroup(g *Group) *placement.Prepared {
	r := g.request()
	r.Resources = s.placeable(r.Resources)
	p, err := s.cfg.Chain.Prepare(s.Fleet, r)
	if err != nil {
		panic(fmt.Sprintf("a request that was checked is refused: %v", err))
	}
	return p
}
