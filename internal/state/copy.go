package state

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Records gives the records of one revision to questions that are answered from a copy. Several
// goroutines may read at a time.
//
//nolint:interfacebloat // one method for each list that questions walk
type Records interface {
	// Job returns the specification of a job, and nil if there is none or it is being forgotten.
	Job(id string) *plimsoll.JobSpec
	// Task returns a task of a job for which Job is not nil.
	Task(job, group string, index int32) (plimsoll.Task, bool)
	// JobStatus returns the status of a job; ok is false if there is none.
	JobStatus(id string) (status plimsoll.JobStatus, ok bool)
	// JobStatuses yields the jobs of a queue and of all below it that have not ended, in the same
	// order each time.
	JobStatuses(queue string) iter.Seq[plimsoll.JobStatus]
	// Nodes yields all nodes, in the same order each time.
	Nodes() iter.Seq[plimsoll.Node]
	// NodeTasks yields the tasks on a node, in the same order each time.
	NodeTasks(node string) iter.Seq[plimsoll.Task]
}

// Request returns the request of the group's tasks.
func (g *Group) Request() placement.Request { return *g.request() }

// Lookups returns the loader with which a fleet finds single tasks in records.
func Lookups(r Records) placement.Loader {
	find := func(id string) (t plimsoll.Task, spec *plimsoll.JobSpec) {
		job, group, index, ok := splitID(id)
		if !ok {
			return t, nil
		}
		if spec = r.Job(job); spec == nil {
			return t, nil
		}
		if t, ok = r.Task(job, group, index); !ok {
			return t, nil
		}
		return t, spec
	}
	return placement.Loader{
		Instance: func(id string) (node, owner string, err error) {
			if t, spec := find(id); spec != nil && t.State.OnNode() {
				return t.Node, spec.Owner, nil
			}
			return "", "", nil
		},
		Volumes: func(id string) (node string, err error) {
			t, spec := find(id)
			if spec == nil {
				return "", plimsoll.Errorf(plimsoll.CodeNotFound, "there is no task %q", id)
			}
			return t.Node, nil
		},
	}
}

// RecordedMovables is State.Movables for a fork of the fleet. It reads the records of the fork's
// revision. The caller calls release when it is done with the list.
func RecordedMovables(
	r Records, fleet *placement.Fleet, chain *placement.Chain, most int,
) (list []placement.Movable, all bool, release func()) {
	b := recordReader{
		records: r, fleet: fleet, chain: chain, groups: map[groupName]*recordedGroup{},
		classes: map[string]*placement.Prepared{}, specs: map[string]*plimsoll.JobSpec{},
	}
	nodes := b.readNodes()
	all = true
	for _, n := range nodes {
		if len(list) >= most {
			all = false
			break
		}
		slot := fleet.Slot(n.id)
		for t := range r.NodeTasks(n.id) {
			g := b.group(t.Job, t.Group)
			if g == nil {
				continue // the job is being forgotten
			}
			m := placement.Movable{
				Name: taskID(t.Job, t.Group, t.Index), Slot: slot, Kind: g.kind, Prepared: g.prepared,
			}
			switch {
			case t.State == plimsoll.TaskStopping:
				m.Fixed = "is being stopped"
			case g.refused != "":
				m.Fixed = g.refused
			}
			list = append(list, m)
		}
	}
	return list, all, b.release
}

// recordReader finds the prepared requests of groups in records.
type recordReader struct {
	records    Records
	fleet      *placement.Fleet
	chain      *placement.Chain
	exclusions map[groupName][]recordedExclusion
	groups     map[groupName]*recordedGroup
	specs      map[string]*plimsoll.JobSpec
	made       []*recordedGroup
	classes    map[string]*placement.Prepared // by key of the class
	ready      []*placement.Prepared
	scratch    []byte
}

type groupName struct{ job, group string }

// recordedExclusion is a node that a group avoids until a time.
type recordedExclusion struct {
	node  string
	index int32
	until int64
}

type recordedGroup struct {
	kind     *placement.Kind
	prepared *placement.Prepared
	refused  string
}

type usedNode struct {
	id    string
	tasks int
}

// readNodes returns the nodes that have tasks, with the fewest first, and notes the exclusions of
// all groups.
func (b *recordReader) readNodes() (used []usedNode) {
	b.exclusions = map[groupName][]recordedExclusion{}
	for n := range b.records.Nodes() {
		if slot := b.fleet.Slot(n.ID); slot >= 0 && b.fleet.Count(slot) > 0 {
			used = append(used, usedNode{n.ID, b.fleet.Count(slot)})
		}
		for _, e := range n.Evictions {
			name := groupName{e.Job, e.Group}
			b.exclusions[name] = append(b.exclusions[name], recordedExclusion{n.ID, e.Index, e.Until})
		}
	}
	slices.SortFunc(
		used, func(x, y usedNode) int { return cmp.Or(cmp.Compare(x.tasks, y.tasks), strings.Compare(x.id, y.id)) },
	)
	return used
}

func (b *recordReader) group(job, group string) *recordedGroup {
	name := groupName{job, group}
	if g, known := b.groups[name]; known {
		return g
	}
	b.groups[name] = nil
	spec, known := b.specs[job]
	if !known {
		spec = b.records.Job(job)
		b.specs[job] = spec
	}
	if spec == nil {
		return nil
	}
	for i := range spec.Groups {
		if spec.Groups[i].Name == group {
			g := b.prepare(spec, i)
			b.groups[name], b.made = g, append(b.made, g)
			return g
		}
	}
	return nil
}

func (b *recordReader) prepare(spec *plimsoll.JobSpec, index int) *recordedGroup {
	g := &spec.Groups[index]
	out := &recordedGroup{kind: b.fleet.Kind(instance(spec, g))}
	r := request(spec, g)
	list := b.exclusions[groupName{spec.ID, g.Name}]
	slices.SortFunc(
		list, func(x, y recordedExclusion) int {
			return cmp.Or(cmp.Compare(x.until, y.until), strings.Compare(x.node, y.node))
		},
	)
	for _, e := range list[max(0, len(list)-placement.MaxExclusions):] {
		r.Except = append(
			r.Except, placement.Exclusion{Server: e.node, Why: exclusionReason(spec.ID, g.Name, e.index, e.until)},
		)
	}
	b.scratch = classKey(b.scratch[:0], b.chain, r)
	if out.prepared = b.classes[string(b.scratch)]; out.prepared != nil {
		return out
	}
	p, err := b.chain.Prepare(b.fleet, r)
	if err != nil {
		out.refused = refusal(index, err)
		if p, err = b.chain.Prepare(
			b.fleet, &placement.Request{Owner: spec.Owner, Resources: g.Resources},
		); err != nil {
			return out
		}
	} else {
		b.classes[string(b.scratch)] = p
	}
	out.prepared, b.ready = p, append(b.ready, p)
	return out
}

func (b *recordReader) release() {
	for _, g := range b.made {
		b.fleet.Forget(g.kind)
	}
	for _, p := range b.ready {
		p.Release()
	}
}

// classKey appends the key of the class of a request.
func classKey(b []byte, chain *placement.Chain, r *placement.Request) []byte {
	if !chain.OwnerMatters() {
		anybodys := *r
		anybodys.Owner = ""
		r = &anybodys
	}
	return r.AppendKey(b)
}
