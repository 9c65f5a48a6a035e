package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/queuerule"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// Loader rebuilds a State from stored records, which may come in any order:
//
//	l := state.NewLoader(cfg, queues)
//	l.JobSpec(spec) // and so on, for each stored record
//	s, err := l.End(now)
type Loader struct {
	cfg      Config
	queues   plimsoll.QueueConfig
	found    bool // a configuration was stored
	specs    map[string]*plimsoll.JobSpec
	statuses []plimsoll.JobStatus
	tasks    []*plimsoll.Task // of blocks, which are not copied when more tasks come
	block    []plimsoll.Task  // the last block; its capacity is taskBlock
	nodes    []plimsoll.Node
	policies []plimsoll.Policy
	outcomes []Outcome
	archive  plimsoll.ArchiveStatus
	events   *plimsoll.EventSettings // nil: none were stored

	historians []plimsoll.Historian
	pasts      []QueuePast
}

// NewLoader returns a Loader that uses the given queues if none are stored.
func NewLoader(cfg Config, queues plimsoll.QueueConfig) *Loader {
	return &Loader{cfg: cfg, queues: queues, specs: map[string]*plimsoll.JobSpec{}}
}

// QueueConfig sets the stored configuration of the queues.
func (l *Loader) QueueConfig(c plimsoll.QueueConfig) { l.queues, l.found = c, true }

// JobSpec adds a stored specification.
func (l *Loader) JobSpec(spec plimsoll.JobSpec) { l.specs[spec.ID] = &spec }

// JobStatus adds a stored status.
func (l *Loader) JobStatus(st plimsoll.JobStatus) { l.statuses = append(l.statuses, st) }

// Task adds a stored task.
func (l *Loader) Task(t plimsoll.Task) {
	if len(l.block) == cap(l.block) {
		l.block = make([]plimsoll.Task, 0, taskBlock)
	}
	l.block = append(l.block, t)
	l.tasks = append(l.tasks, &l.block[len(l.block)-1])
}

// taskBlock is the number of tasks of a block: 250 KiB or so.
const taskBlock = 1024

// Node adds a stored node.
func (l *Loader) Node(n plimsoll.Node) { l.nodes = append(l.nodes, n) }

// Policy adds a stored policy.
func (l *Loader) Policy(p plimsoll.Policy) { l.policies = append(l.policies, p) }

// Archive sets the stored status of the archive.
func (l *Loader) Archive(st plimsoll.ArchiveStatus) { l.archive = st }

// EventSettings sets the stored settings of the events.
func (l *Loader) EventSettings(st plimsoll.EventSettings) { l.events = &st }

// Historian adds a stored registration of a historian.
func (l *Loader) Historian(h plimsoll.Historian) { l.historians = append(l.historians, h) }

// QueuePast adds what a queue used in the past.
func (l *Loader) QueuePast(p QueuePast) { l.pasts = append(l.pasts, p) }

// End builds the state at the given time. Records that contradict each other give a CodeCorrupt
// error. An empty store gives a state with the queues of NewLoader, and with the events that add
// them.
func (l *Loader) End(at int64) (*State, error) {
	if err := l.checkQueues(); err != nil {
		return nil, err
	}
	s := New(l.cfg, l.queues)
	s.at = at
	s.loadEventSettings(l.events)
	for i := range l.historians {
		if err := s.loadHistorian(&l.historians[i]); err != nil {
			return nil, err
		}
	}
	if !l.found && len(l.specs)+len(l.statuses)+len(l.tasks)+len(l.nodes)+len(l.policies) == 0 {
		if err := s.CheckOwners(); err != nil {
			return nil, err
		}
		if _, err := s.treeFits(&l.queues, addedBytes("", &l.queues)); err != nil {
			return nil, err
		}
		if err := s.giveEventSettings(); err != nil {
			return nil, err
		}
		s.EmitTree()
		s.loadArchive(l.archive)
		return s, nil
	}
	slices.SortFunc(l.nodes, func(a, b plimsoll.Node) int { return strings.Compare(a.ID, b.ID) })
	for i := range l.nodes {
		if err := s.loadNode(&l.nodes[i]); err != nil {
			return nil, err
		}
	}
	byID := func(a, b *plimsoll.Task) int {
		return cmp.Or(strings.Compare(a.Job, b.Job), strings.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index))
	}
	if !slices.IsSortedFunc(l.tasks, byID) { // a store yields them in this order
		slices.SortStableFunc(l.tasks, byID)
	}
	l.addTaskNames(s)
	if err := l.loadJobs(s); err != nil {
		return nil, err
	}
	for _, t := range l.tasks {
		if err := s.loadTask(t); err != nil {
			return nil, err
		}
	}
	for i := range l.policies {
		if err := s.loadPolicy(&l.policies[i]); err != nil {
			return nil, err
		}
	}
	if err := l.loadOutcomes(s); err != nil {
		return nil, err
	}
	s.loadExclusions()
	s.resume(l.statuses)
	for i := range l.pasts {
		s.loadPast(&l.pasts[i])
	}
	s.dirty.forget()
	s.tree.Changed(func(*queue.Queue) {})
	s.loadArchive(l.archive)
	if err := s.giveEventSettings(); err != nil {
		return nil, err
	}
	return s, nil
}

// addTaskNames gives slots to the resource names that only tasks on nodes use.
func (l *Loader) addTaskNames(s *State) {
	var job, group string
	for _, t := range l.tasks {
		if spec := l.specs[t.Job]; spec != nil && t.State.OnNode() && (t.Job != job || t.Group != group) {
			job, group = t.Job, t.Group
			for k := range spec.Groups {
				if spec.Groups[k].Name == group {
					s.addTaskNames(spec.Groups[k].Resources)
				}
			}
		}
	}
}

// checkQueues checks the configured queues as SetQueueConfig does. Stored queues may be those of an
// earlier version with fewer rules, and draining queues keep their old limits; so they are not
// compared with each other.
func (l *Loader) checkQueues() error {
	wanted := configured(&l.queues)
	err := wanted.ValidateStored()
	if !l.found {
		err = wanted.Validate()
	}
	if err == nil {
		_, err = queuerule.Compile(&wanted)
	}
	if err == nil {
		err = checkTreeNames(placement.NewNames(), &l.queues, l.queues.Name, plimsoll.Resources{})
	}
	if err == nil {
		err = checkStoredQueue(&l.queues, l.queues.Name, 1)
	}
	if err != nil && l.found {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "the stored configuration of the queues cannot be used: %v", err)
	}
	return err
}

func checkStoredQueue(c *plimsoll.QueueConfig, path string, depth int) error {
	if depth > plimsoll.MaxQueueDepth {
		return plimsoll.Invalid(path, "is deeper than %d levels", plimsoll.MaxQueueDepth)
	}
	for _, r := range []plimsoll.Resources{c.Guaranteed, c.Max} {
		if err := r.Validate(path + ".resources"); err != nil {
			return err
		}
	}
	names := map[string]bool{}
	for i := range c.Queues {
		name := c.Queues[i].Name
		if names[name] || name == "" || strings.Contains(name, ".") {
			return plimsoll.Invalid(path+".queues", "%q stands twice or is no name", name)
		}
		names[name] = true
		if err := checkStoredQueue(&c.Queues[i], path+"."+name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func corrupt(format string, args ...any) error {
	return plimsoll.Errorf(plimsoll.CodeCorrupt, "the store holds "+format, args...)
}

func (s *State) loadNode(node *plimsoll.Node) error {
	if s.nodes[node.ID] != nil || node.ID == "" {
		return corrupt("node %q twice, or without an id", node.ID)
	}
	if !node.Mode.Known() {
		return corrupt("node %s in an unknown mode (%d)", node.ID, node.Mode)
	}
	err := node.Capacity.Validate("capacity")
	if err == nil {
		err = s.Names.Check("capacity", node.Capacity)
	}
	if err != nil {
		return corrupt("node %s, which cannot be used: %v", node.ID, err)
	}
	n := s.addNode(*node)
	if n.Ready {
		s.grantGrace(n)
	} else {
		s.scheduleLoss(n)
	}
	if n.Mode == plimsoll.NodeDraining {
		s.scheduleEmptying(n)
	}
	return nil
}

func (l *Loader) loadJobs(s *State) error {
	slices.SortFunc(l.statuses, func(a, b plimsoll.JobStatus) int {
		return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), strings.Compare(a.ID, b.ID))
	})
	for i := range l.statuses {
		st := &l.statuses[i]
		if s.jobs[st.ID] != nil {
			return corrupt("the status of job %q twice", st.ID)
		}
		if st.State == plimsoll.JobRejected {
			if err := s.loadRejected(l.specs[st.ID], st); err != nil {
				return err
			}
			continue
		}
		if s.rejected.byID[st.ID] != nil {
			return corrupt("the status of job %q twice", st.ID)
		}
		if err := s.loadJob(l.specs[st.ID], st); err != nil {
			return err
		}
	}
	if len(l.specs) != len(l.statuses) {
		for _, id := range slices.Sorted(maps.Keys(l.specs)) {
			if s.jobs[id] == nil && s.rejected.byID[id] == nil {
				return corrupt("the specification of job %q but not its status", id)
			}
		}
	}
	l.statuses = slices.DeleteFunc(l.statuses, func(st plimsoll.JobStatus) bool {
		return st.State == plimsoll.JobRejected // it has no row to go on with
	})
	return nil
}

func (s *State) loadJob(spec *plimsoll.JobSpec, st *plimsoll.JobStatus) error {
	if spec == nil {
		return corrupt("the status of job %q but not its specification", st.ID)
	}
	if st.State == plimsoll.JobCompleting && len(st.History) == 0 {
		return corrupt("job %q in the state %s, but not since when", st.ID, st.State)
	}
	if !st.State.Known() {
		return corrupt("job %q in an unknown state (%d)", st.ID, st.State)
	}
	if !jobRests(st.State) || st.State == plimsoll.JobFailing && !st.Killed ||
		st.State == plimsoll.JobCompleting && spec.Completing <= 0 {
		return corrupt("job %q in the state %s, in which none is stored", st.ID, st.State)
	}
	if err := s.checkStoredSpec(spec); err != nil {
		return corrupt("the specification of job %q, which cannot be used: %v", st.ID, err)
	}
	q := s.tree.Find(st.Queue)
	// An older version dropped a submit that a crash had interrupted, perhaps after its queue.
	dropped := st.State == plimsoll.JobNew && q == nil && st.Queue != ""
	live := !st.State.Ended() && !dropped
	if q == nil && !live { // the job never waits again, and its queue may be gone
		q = &queue.Queue{Path: st.Queue, Leaf: true}
	}
	if q == nil || live && !q.Leaf {
		return corrupt("job %q in queue %q, which is not a leaf of the stored configuration", st.ID, st.Queue)
	}
	j := s.addJob(spec, q, st.Submitted, live, nil, s.refusals(spec))
	j.memory = memoryOf(spec, j.specSize())
	j.State, j.Reason, j.Killed, j.revision = st.State, st.Reason, st.Killed, st.Revision
	s.countJob(j.State, 1)
	j.Started, j.Finished = st.Started, st.Finished
	j.UID, j.history, j.deleted = st.UID, st.History, st.Deleted
	if j.UID.IsZero() { // of an older version
		j.UID = plimsoll.MakeUID(st.Submitted, 0)
	}
	j.limited = queue.LimitedBy{User: st.UserLimits, Group: st.LimitGroup}
	j.forgetting = dropped
	s.lastSubmitted = max(s.lastSubmitted, st.Submitted)
	return nil
}

// checkStoredSpec checks the facts of a specification on which the tables rely. A submit checks
// more, but its rules may have changed since.
func (s *State) checkStoredSpec(spec *plimsoll.JobSpec) error {
	names := map[string]bool{}
	for i := range spec.Groups {
		g := &spec.Groups[i]
		field := fmt.Sprintf("groups[%d]", i)
		if err := g.Resources.Validate(field + ".resources"); err != nil {
			return err
		}
		if names[g.Name] || g.Count < 0 || g.Count > plimsoll.MaxTasksPerJob {
			return plimsoll.Invalid(field, "the name %q stands twice, or the count %d is impossible", g.Name, g.Count)
		}
		names[g.Name] = true
	}
	return nil
}

func (s *State) loadTask(t *plimsoll.Task) error {
	id := taskID(t.Job, t.Group, t.Index)
	j := s.jobs[t.Job]
	var g *Group
	if j != nil {
		g = j.group(t.Group)
	}
	switch {
	case g == nil:
		return corrupt("task %s but not its job or group", id)
	case int(t.Index) < len(g.Tasks):
		return corrupt("task %s twice, or with an impossible index", id)
	case int(t.Index) > len(g.Tasks):
		return corrupt("task %s but not the one before it, %s", id, taskID(t.Job, t.Group, int32(len(g.Tasks))))
	case !t.State.Known():
		return corrupt("task %s in an unknown state (%d)", id, t.State)
	case j.State.Ended() && t.State != plimsoll.TaskFinished, j.State == plimsoll.JobNew &&
		t.State != plimsoll.TaskPending:
		return corrupt("task %s, which is %s, of a job that is %s", id, t.State, j.State)
	}
	if g.Tasks == nil {
		g.Tasks = make([]Task, 0, min(max(g.Spec.Count, 0), taskBlock))
	}
	g.Tasks = append(g.Tasks, Task{
		ID: id, State: t.State, Result: t.Result, Attempt: t.Attempt, Failures: t.Failures,
		ExitCode: t.ExitCode, slot: -1, Node: t.Node, Message: t.Message, Created: t.Created, Bound: t.Bound,
		Started:  t.Started,
		Finished: t.Finished, NotBefore: t.NotBefore, revision: t.Revision, Starting: t.Starting, Stopping: t.Stopping,
	})
	s.taskCount++
	s.countTask(t.State, 1)
	s.countTexts(j, len(t.Message))
	s.setFormer(Ref{g, t.Index}, former{t.Attempts, t.Earlier})
	if !t.State.OnNode() {
		return nil
	}
	n := s.nodes[t.Node]
	if n == nil {
		return corrupt("task %s on node %q, but not the node", id, t.Node)
	}
	ref := Ref{g, t.Index}
	ref.Task().slot = n.Slot
	s.occupy(ref, n)
	s.tree.Book(&g.lane)
	n.shrunk = !s.Fleet.Holds(n.Slot)
	return nil
}

// resume goes on with the work that the last leader left over, in the order of submission.
func (s *State) resume(statuses []plimsoll.JobStatus) {
	var live []*Job
	var ended []*Job
	for i := range statuses {
		j := s.jobs[statuses[i].ID]
		s.recount(j)
		s.countUsage(j)
		switch {
		case j.State == plimsoll.JobExpired, j.forgetting:
			j.forgetting = true
			s.countUsage(j)
			s.forgetting = append(s.forgetting, j)
		case j.State.Ended():
			ended = append(ended, j)
			s.scheduleExclusionDrop(j)
		default:
			s.addAllAsked(j, 1)
			s.checkLimited(j)
			live = append(live, j)
		}
	}
	slices.SortStableFunc(ended, func(a, b *Job) int { return cmp.Compare(a.Finished, b.Finished) })
	for _, j := range ended {
		s.noteEnd(j)
	}
	for _, j := range live {
		s.resumeJob(j)
	}
	for _, j := range live {
		if j.State == plimsoll.JobCompleting {
			s.tree.Dismiss(&j.account)
			s.completeAt(j, j.history[len(j.history)-1].At)
		} else if j.wasAdmitted() {
			s.tree.AdmitAnyway(&j.account)
			s.tellAdmission(j)
		}
	}
	for _, j := range live { // createTasks admits a new job, and a completing one that goes on
		if !j.account.Admitted() && j.State != plimsoll.JobNew && j.State != plimsoll.JobCompleting {
			s.admit(j)
		}
	}
}

// wasAdmitted reports whether a stored live job was certainly admitted before. That is so for a job
// that has begun, unless it has gone on since, which it may have done without a place.
func (j *Job) wasAdmitted() bool {
	for i := range j.Groups {
		if j.Groups[i].Counts.OnNodes() > 0 {
			return true
		}
	}
	if slices.ContainsFunc(j.history, func(s plimsoll.JobStep) bool { return s.State == plimsoll.JobCompleting }) {
		return false
	}
	return j.Started != 0 || j.State != plimsoll.JobAccepted && j.State != plimsoll.JobNew
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
			s.tree.Pend(&g.lane, 1)
			switch {
			case ref.Unwanted(), j.State == plimsoll.JobNew:
			case t.NotBefore > s.at:
				s.wakeAt(timer{at: t.NotBefore, ref: ref})
			default:
				s.enqueue(g, ref.Index)
			}
		}
		if g.lane.Ready() == 0 {
			s.clearWait(g)
		}
	}
	s.scheduleGrowth(j) // ends the job if a crash came between the end of its last task and its own
	s.scheduleStop(j)
}

// All ends a part behind so many tasks, or so many bytes of specifications, of which one may have a
// megabyte.
const (
	partTasks     = 4096
	partSpecBytes = 4 << 20
)

// All fills c with every object, like a turn that has changed all of them. Dirty rows stay dirty.
// Whenever c holds some thousand tasks, or some megabytes of specifications, it calls part and
// empties c: to hold all of them would take the memory of a second state. The last part is in c at
// the end; it has everything else. Jobs come in the order of their ids, and tasks in that of their
// names. An error of part is the end of All.
func (s *State) All(c *Changes, part func() error) error {
	c.reset()
	specs := 0 // bytes
	makeRoom := func() error {
		if len(c.Tasks) < partTasks && specs < partSpecBytes {
			return nil
		}
		err := part()
		c.reset()
		specs = 0
		return err
	}
	for _, id := range s.jobIDs() {
		if err := makeRoom(); err != nil {
			return err
		}
		if r, rejected := s.rejected.byID[id]; rejected {
			specs += specBytes(r.spec)
			c.JobSpecs = append(c.JobSpecs, r.spec)
			c.JobStatuses = append(c.JobStatuses, Status{r.status, false})
			continue
		}
		j := s.jobs[id]
		specs += j.specSize()
		c.JobSpecs = append(c.JobSpecs, j.Spec)
		c.JobStatuses = append(c.JobStatuses, Status{s.JobStatus(j), false})
		for _, g := range j.groupsByName() {
			for index := range g.Tasks {
				if err := makeRoom(); err != nil {
					return err
				}
				c.Tasks = append(c.Tasks, s.TaskRecord(Ref{g, int32(index)}))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		c.Nodes = append(c.Nodes, s.nodes[id].Node)
		c.NodeStatuses = append(c.NodeStatuses, s.NodeStatus(s.nodes[id]))
	}
	for _, p := range s.Policies() {
		c.Policies = append(c.Policies, *p)
	}
	config := s.QueueConfig()
	c.QueueConfig = &config
	if status := s.archiving.status; status != (plimsoll.ArchiveStatus{}) {
		c.Archive = &status
	}
	if usual := plimsoll.DefaultEventSettings(); !s.eventSettings.Equal(&usual) {
		settings := s.eventSettings
		c.EventSettings = &settings
	}
	c.Historians = append(c.Historians, s.Historians()...)
	s.tree.Root.Walk(func(q *queue.Queue) { c.QueueStatuses = append(c.QueueStatuses, s.QueueStatus(q)) })
	return nil
}

// groupsByName returns the groups of a job in the order of their names.
func (j *Job) groupsByName() []*Group {
	groups := make([]*Group, len(j.Groups))
	for i := range j.Groups {
		groups[i] = &j.Groups[i]
	}
	slices.SortFunc(groups, func(a, b *Group) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return groups
}

// jobIDs returns the ids of all jobs, also of rejected ones, in their order.
func (s *State) jobIDs() []string {
	ids := append(slices.Sorted(maps.Keys(s.jobs)), slices.Sorted(maps.Keys(s.rejected.byID))...)
	slices.Sort(ids)
	return ids
}
