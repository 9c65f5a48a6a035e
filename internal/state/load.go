package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Loader rebuilds a State from stored records, which may come in any order.
type Loader struct {
	cfg      Config
	queues   plimsoll.QueueConfig
	found    bool // a configuration was stored
	specs    map[string]*plimsoll.JobSpec
	statuses []plimsoll.JobStatus
	tasks    []plimsoll.Task
	nodes    []plimsoll.Node
}

// NewLoader returns a Loader that uses the given queues if none are stored.
func NewLoader(cfg Config, queues plimsoll.QueueConfig) *Loader {
	return &Loader{cfg: cfg, queues: queues, specs: map[string]*plimsoll.JobSpec{}}
}

// QueueConfig takes the stored configuration of the queues.
func (l *Loader) QueueConfig(c plimsoll.QueueConfig) { l.queues, l.found = c, true }

// JobSpec takes a stored specification.
func (l *Loader) JobSpec(spec plimsoll.JobSpec) { l.specs[spec.ID] = &spec }

// JobStatus takes a stored status.
func (l *Loader) JobStatus(st plimsoll.JobStatus) { l.statuses = append(l.statuses, st) }

// Task takes a stored task.
func (l *Loader) Task(t plimsoll.Task) { l.tasks = append(l.tasks, t) }

// Node takes a stored node.
func (l *Loader) Node(n plimsoll.Node) { l.nodes = append(l.nodes, n) }

// End builds the state as it is at the given time. Records that do not belong together are a CodeCorrupt error. A store that
// was never used gives the state with the given queues, their events included.
func (l *Loader) End(at int64) (*State, error) {
	if err := l.queues.Validate(); err != nil {
		return nil, err
	}
	s := New(l.cfg, l.queues)
	s.at = at
	if !l.found && len(l.specs)+len(l.nodes) == 0 {
		s.EmitTree()
		return s, nil
	}
	for _, n := range l.nodes {
		s.loadNode(n)
	}
	slices.SortFunc(l.statuses, func(a, b plimsoll.JobStatus) int {
		return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), strings.Compare(a.ID, b.ID))
	})
	for i := range l.statuses {
		if err := s.loadJob(l.specs[l.statuses[i].ID], &l.statuses[i]); err != nil {
			return nil, err
		}
	}
	if len(l.specs) != len(l.statuses) {
		return nil, plimsoll.Errorf(plimsoll.CodeCorrupt, "the store holds %d job specifications but %d job statuses", len(l.specs), len(l.statuses))
	}
	slices.SortStableFunc(l.tasks, func(a, b plimsoll.Task) int {
		return cmp.Or(strings.Compare(a.Job, b.Job), strings.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index))
	})
	for i := range l.tasks {
		if err := s.loadTask(&l.tasks[i]); err != nil {
			return nil, err
		}
	}
	s.resume(l.statuses)
	s.dirty.forget()
	return s, nil
}

func (s *State) loadNode(node plimsoll.Node) {
	n := s.addNode(node)
	n.dirty, n.dirtyStatus = false, false
	if n.Ready {
		s.suspect(n)
	} else {
		n.lostAt = s.at + s.cfg.LostAfter
		s.timers.push(timer{at: n.lostAt, node: n})
	}
	if n.Mode == plimsoll.NodeDraining {
		s.empty(n)
	}
}

func (s *State) loadJob(spec *plimsoll.JobSpec, st *plimsoll.JobStatus) error {
	if spec == nil {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "the store holds the status of job %q but not its specification", st.ID)
	}
	for i := range spec.Groups {
		if err := s.Names.Check("resources", spec.Groups[i].Resources); err != nil {
			return plimsoll.Errorf(plimsoll.CodeCorrupt, "job %q: %v", st.ID, err)
		}
	}
	q := s.queues[st.Queue]
	if q == nil || !q.Leaf {
		q = s.lostQueue(st.Queue, st.State.Ended())
	}
	j := s.addJob(spec, q, st.Submitted)
	j.State, j.Reason, j.Killed, j.Started, j.Finished, j.revision = st.State, st.Reason, st.Killed, st.Started, st.Finished, st.Revision
	s.lastSubmitted = max(s.lastSubmitted, st.Submitted)
	return nil
}

// lostQueue stands for a queue that is out of the configuration: one that drains, or for an ended job just its name.
func (s *State) lostQueue(path string, ended bool) *Queue {
	if ended {
		return &Queue{Path: path, Leaf: true, byShape: map[placement.Amounts]*Shape{}}
	}
	at := s.Root
	for _, name := range strings.Split(path, ".")[1:] {
		next := at.child(name)
		if next == nil {
			next = s.addQueue(at, &plimsoll.QueueConfig{Name: name, Parent: true, Draining: true})
		}
		at = next
	}
	at.Leaf = true
	at.byShape = map[placement.Amounts]*Shape{}
	return at
}

func (s *State) loadTask(t *plimsoll.Task) error {
	j := s.jobs[t.Job]
	var g *Group
	if j != nil {
		g = j.group(t.Group)
	}
	if g == nil {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "the store holds task %s but not its job or group", plimsoll.TaskID(t.Job, t.Group, t.Index))
	}
	if int(t.Index) != len(g.Tasks) && !j.State.Ended() && j.State != plimsoll.JobNew {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "the store misses task %s", plimsoll.TaskID(t.Job, t.Group, int32(len(g.Tasks))))
	}
	for int(t.Index) > len(g.Tasks) { // the job is being forgotten: the lower ones go last, so this cannot be seen; be safe
		g.Tasks = append(g.Tasks, Task{State: plimsoll.TaskFinished, Result: plimsoll.ResultLost, slot: -1})
	}
	g.Tasks = append(g.Tasks, Task{
		ID: taskID(t.Job, t.Group, t.Index), State: t.State, Result: t.Result, Attempt: t.Attempt, Failures: t.Failures,
		ExitCode: t.ExitCode, slot: -1, Node: t.Node, Message: t.Message, Created: t.Created, Bound: t.Bound, Started: t.Started,
		Finished: t.Finished, NotBefore: t.NotBefore, revision: t.Revision,
	})
	if !t.State.OnNode() {
		return nil
	}
	n := s.nodes[t.Node]
	if n == nil {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "task %s is on node %q, which is not in the store", taskID(t.Job, t.Group, t.Index), t.Node)
	}
	ref := Ref{g, t.Index}
	ref.Task().slot = n.Slot
	s.occupy(ref, n, &g.Shape.Request.Amounts)
	return nil
}

// resume takes up everything that was going on, in the order of submission.
func (s *State) resume(statuses []plimsoll.JobStatus) {
	var live []*Job
	for i := range statuses {
		j := s.jobs[statuses[i].ID]
		s.recount(j)
		switch {
		case j.State == plimsoll.JobExpired:
			j.forgetting = true
			s.forgetting = append(s.forgetting, j)
		case j.State == plimsoll.JobNew:
			s.addJobs(j.Queue, 1)
			s.abandon(j)
		case j.State.Ended():
			s.ended.push(j)
			for g := range j.Groups {
				s.dropShape(j.Groups[g].Shape)
			}
		default:
			s.addJobs(j.Queue, 1)
			live = append(live, j)
		}
	}
	slices.SortStableFunc(s.ended.items, func(a, b *Job) int { return cmp.Compare(a.Finished, b.Finished) })
	for _, j := range live {
		s.resumeJob(j)
	}
	for _, j := range live { // those that run had been admitted before
		if j.Started != 0 || j.State != plimsoll.JobAccepted {
			s.admit(j)
		}
	}
	for _, j := range live {
		if !j.admitted && !j.parked {
			s.admit(j)
		}
	}
}

// abandon drops a job whose submit was never acknowledged.
func (s *State) abandon(j *Job) {
	s.addJobs(j.Queue, -1)
	j.forgetting = true
	s.forgetting = append(s.forgetting, j)
}

func (s *State) resumeJob(j *Job) {
	for i := range j.Groups {
		g := &j.Groups[i]
		for index := range g.Tasks {
			ref := Ref{g, int32(index)}
			t := ref.Task()
			if t.State != plimsoll.TaskPending {
				continue
			}
			s.addPending(j.Queue, &g.Shape.Request.Amounts, 1)
			if t.NotBefore > s.at {
				s.timers.push(timer{at: t.NotBefore, ref: ref})
			} else {
				s.enqueue(g, ref.Index)
			}
		}
	}
	s.grow(j) // also ends the job if a crash came between its last task's end and its own
	s.stop(j)
}

// All fills c with every object, as a turn that changed everything would. It does not touch what is dirty.
func (s *State) All(c *Changes) {
	c.reset()
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		c.JobSpecs = append(c.JobSpecs, j.Spec)
		c.JobStatuses = append(c.JobStatuses, Status{s.JobStatus(j), false})
		for i := range j.Groups {
			for index := range j.Groups[i].Tasks {
				c.Tasks = append(c.Tasks, s.TaskRecord(Ref{&j.Groups[i], int32(index)}))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		c.Nodes = append(c.Nodes, s.nodes[id].Node)
		c.NodeStatuses = append(c.NodeStatuses, s.NodeStatus(s.nodes[id]))
	}
	config := s.QueueConfig()
	c.QueueConfig = &config
	s.Root.Walk(func(q *Queue) { c.QueueStatuses = append(c.QueueStatuses, s.QueueStatus(q)) })
}
