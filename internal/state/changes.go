package state

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// TaskName is the key of a task's record.
type TaskName struct {
	Job, Group string
	Index      int32
}

// Status is a job's status. An ephemeral one is replicated but not stored.
type Status struct {
	plimsoll.JobStatus
	Ephemeral bool
}

// Changes holds the changed objects of a turn: each once, as it is at the end of the turn. The
// value can be reused for the next turn. Specifications are shared and never changed afterwards;
// everything else is a copy. No object is both put and deleted.
type Changes struct {
	JobSpecs      []*plimsoll.JobSpec
	JobStatuses   []Status
	Tasks         []plimsoll.Task // without ID: it follows from job, group and index
	Nodes         []plimsoll.Node
	NodeStatuses  []plimsoll.NodeStatus
	QueueConfig   *plimsoll.QueueConfig
	QueueStatuses []plimsoll.QueueStatus
	Policies      []plimsoll.Policy
	Archive       *plimsoll.ArchiveStatus
	EventSettings *plimsoll.EventSettings
	Historians    []plimsoll.Historian
	DeletedJobs   []string
	DeletedTasks  []TaskName
	DeletedNodes  []string
	DeletedQueues []string
	Events        []plimsoll.Event

	// Requests are events for resource managers. They are neither stored nor replicated. Each comes
	// with a changed record, so a turn has as few of them as it has records.
	Requests []plimsoll.RequestEvent

	DeletedPolicies   []plimsoll.PolicyRef
	DeletedHistorians []string

	// EventsAnew says that events were lost before those of this turn, because none were collected.
	// The turn begins another InstanceUUID.
	EventsAnew bool

	Outcomes        []Outcome // stored and not replicated
	DeletedOutcomes []string  // by token

	QueuePasts        []QueuePast // stored and not replicated
	DeletedQueuePasts []string    // by path

	Bytes int // bound of the bytes of the batch in the store
}

// Empty reports whether nothing changed.
func (c *Changes) Empty() bool {
	return len(c.JobSpecs) == 0 && len(c.JobStatuses) == 0 && len(c.Tasks) == 0 && len(c.Nodes) == 0 &&
		len(c.NodeStatuses) == 0 && c.QueueConfig == nil && len(c.QueueStatuses) == 0 && len(c.DeletedJobs) == 0 &&
		len(c.DeletedTasks) == 0 && len(c.DeletedNodes) == 0 && len(c.DeletedQueues) == 0 && len(c.Events) == 0 &&
		c.Archive == nil && c.EventSettings == nil && len(c.Policies) == 0 && len(c.DeletedPolicies) == 0 &&
		len(c.Outcomes) == 0 && len(c.DeletedOutcomes) == 0 &&
		len(c.Historians) == 0 && len(c.DeletedHistorians) == 0 &&
		len(c.QueuePasts) == 0 && len(c.DeletedQueuePasts) == 0
}

func (c *Changes) reset() {
	clear(c.JobSpecs)
	clear(c.Events)
	clear(c.Requests)
	clear(c.Policies)
	clear(c.Outcomes)
	clear(c.QueuePasts)
	*c = Changes{
		QueuePasts: c.QueuePasts[:0], DeletedQueuePasts: c.DeletedQueuePasts[:0],
		Outcomes: c.Outcomes[:0], DeletedOutcomes: c.DeletedOutcomes[:0],
		Historians: c.Historians[:0], DeletedHistorians: c.DeletedHistorians[:0],
		Policies: c.Policies[:0], DeletedPolicies: c.DeletedPolicies[:0],
		JobSpecs: c.JobSpecs[:0], JobStatuses: c.JobStatuses[:0], Tasks: c.Tasks[:0], Nodes: c.Nodes[:0],
		NodeStatuses:  c.NodeStatuses[:0],
		QueueStatuses: c.QueueStatuses[:0], DeletedJobs: c.DeletedJobs[:0], DeletedTasks: c.DeletedTasks[:0],
		DeletedNodes: c.DeletedNodes[:0], DeletedQueues: c.DeletedQueues[:0], Events: c.Events[:0],
		Requests: c.Requests[:0],
	}
}

// dirtyLists holds the rows and events that Take hands out at the end of the turn. Rows are listed
// once, while their dirty flag is set; names of deleted objects may repeat.
type dirtyLists struct {
	specs         []*Job
	jobs          []*Job
	tasks         []Ref
	nodes         []*Node
	nodeStatuses  []*Node
	queueConfig   bool
	archive       bool
	eventSettings bool
	eventsAnew    bool     // see Changes.EventsAnew
	historians    []string // names of those that were changed or deleted; they may repeat
	rejected      []*rejectedJob
	deletedJobs   []string
	deletedTasks  []TaskName
	deletedNodes  []string
	deletedQueues []string
	policies      []plimsoll.PolicyRef
	events        []plimsoll.Event
	requests      []plimsoll.RequestEvent

	deletedPolicies []plimsoll.PolicyRef

	outcomes        []*Outcome
	deletedOutcomes []string

	pasts []string // paths of queues

	bytes     int // bound of the bytes of the turn's batch so far
	treeBytes int // part of bytes for the configuration of the queues
}

// Begin opens a turn: changes from now on have this time and become this revision.
func (s *State) Begin(at int64, revision uint64) {
	s.at, s.revision = at, revision
	s.tree.Advance(at)
}

// Forget deletes records of jobs that ended long ago, and outcomes of commands, as far as the
// budget goes. It must come first in a turn.
func (s *State) Forget(budget Budget) {
	s.forgetOutcomes(budget)
	s.forgetRejected(budget)
	s.forgetHistorians(budget)
	s.forgetting = runSteps(s.forgetting, budget, s.forgetTasks)
	for len(s.forgetting) == 0 && s.mustExpire() && !s.Over(budget) {
		j := s.nextToForget()
		s.setJobState(j, jobForgotten)
		j.forgetting = true
		if !s.forgetTasks(j, budget) {
			s.forgetting = append(s.forgetting, j)
		}
	}
}

// Continue goes on with work that is done in parts, as far as the budget goes.
func (s *State) Continue(budget Budget) {
	s.stopping = runSteps(s.stopping, budget, s.stopTasks)
	s.emptying = runSteps(s.emptying, budget, s.emptyNode)
	s.leaving = runSteps(s.leaving, budget, s.leaveRecord)
	s.readmit(budget)
	s.relimiting = runSteps(s.relimiting, budget, s.relimit)
	s.storePasts(budget)
	s.growing = runSteps(s.growing, budget, s.createTasks)
	s.excluded = runSteps(s.excluded, budget, s.dropExclusions) // after the steps that end jobs
	s.reviseStaleNames()
}

// Behind reports whether work is left over for the next turn.
func (s *State) Behind() bool {
	return len(s.stopping)+len(s.emptying)+len(s.growing)+len(s.excluded)+len(s.forgetting)+len(s.leaving) > 0 ||
		len(s.relimiting) > 0 || s.tree.HasNextPast() ||
		s.tree.HasNextCause() ||
		s.tree.Readmitting() ||
		s.mustExpire() || s.mustForgetOutcome() || s.mustForgetHistorian() || s.isDue() || s.dirty.archive ||
		s.dirty.eventSettings || s.tooManyRejected()
}

// runSteps does a step for each item until one is not done, and returns the items that are left.
func runSteps[T any](list []T, budget Budget, step func(T, Budget) bool) []T {
	for i, item := range list {
		if !step(item, budget) {
			return append(list[:0:0], list[i:]...)
		}
	}
	return nil
}

func (s *State) markTask(r Ref) {
	if t := r.Task(); !t.dirty {
		t.dirty = true
		s.dirty.tasks = append(s.dirty.tasks, r)
		s.dirty.bytes += taskBytes(r)
	}
}

func (s *State) markStatus(j *Job, persist bool) {
	j.persist = j.persist || persist
	if !j.dirty {
		j.dirty = true
		s.dirty.jobs = append(s.dirty.jobs, j)
		s.dirty.bytes += statusBytes(j)
	}
}

func (s *State) markSpec(j *Job) {
	if !j.dirtySpec {
		j.dirtySpec = true
		s.dirty.specs = append(s.dirty.specs, j)
		s.dirty.bytes += j.specSize()
	}
}

// markNode marks the record of a node dirty. Each change of the record is followed by a call.
func (s *State) markNode(n *Node) {
	if !n.dirty {
		n.dirty, n.dirtyBytes = true, 0
		s.dirty.nodes = append(s.dirty.nodes, n)
	}
	if bytes := nodeBytes(&n.Node); bytes > n.dirtyBytes {
		s.dirty.bytes += bytes - n.dirtyBytes
		n.dirtyBytes = bytes
	}
	stored := storedNode(&n.Node)
	s.nodeBytes += stored - n.countedBytes
	n.countedBytes = stored
}

// markQueueConfig marks the configuration of the queues dirty, after queues were added or removed.
func (s *State) markQueueConfig() {
	if !s.dirty.queueConfig {
		config := s.QueueConfig()
		s.countQueueConfig(size.Of(&config))
	}
}

// countQueueConfig marks the configuration of the queues dirty and counts its bytes.
func (s *State) countQueueConfig(bytes int) {
	s.dirty.queueConfig = true
	if more := bytes - s.dirty.treeBytes; more > 0 {
		s.dirty.bytes += more
		s.dirty.treeBytes = bytes
	}
}

func (s *State) markNodeStatus(n *Node) {
	if !n.dirtyStatus {
		n.dirtyStatus = true
		s.dirty.nodeStatuses = append(s.dirty.nodeStatuses, n)
	}
}

// Take moves the changes of the turn into c and closes the turn.
func (s *State) Take(c *Changes) {
	c.reset()
	d := &s.dirty
	for _, j := range d.specs {
		j.dirtySpec = false
		if s.jobs[j.Spec.ID] == j {
			c.JobSpecs = append(c.JobSpecs, j.Spec)
		}
	}
	for _, j := range d.jobs {
		if s.jobs[j.Spec.ID] == j {
			j.revision = s.revision
			c.JobStatuses = append(c.JobStatuses, Status{s.JobStatus(j), !j.persist})
		}
		j.dirty, j.persist = false, false
	}
	s.takeRejectedRecords(c)
	for _, r := range d.tasks {
		t := r.Task()
		t.dirty, t.revision = false, s.revision
		c.Tasks = append(c.Tasks, s.TaskRecord(r))
	}
	for _, n := range d.nodes {
		n.dirty = false
		if !n.deleted {
			n.Revision = s.revision
			c.Nodes = append(c.Nodes, n.Node)
		}
	}
	for _, n := range d.nodeStatuses {
		n.dirtyStatus = false
		if !n.deleted {
			c.NodeStatuses = append(c.NodeStatuses, s.NodeStatus(n))
		}
	}
	s.tree.Changed(func(q *queue.Queue) {
		if s.tree.Find(q.Path) == q {
			c.QueueStatuses = append(c.QueueStatuses, s.QueueStatus(q))
		}
	})
	if d.queueConfig {
		config := s.QueueConfig()
		c.QueueConfig = &config
	}
	if d.archive {
		status := s.archiving.status
		c.Archive = &status
	}
	if d.eventSettings {
		settings := s.eventSettings
		c.EventSettings, c.EventsAnew = &settings, d.eventsAnew
	}
	s.takeHistorians(c)
	s.takePolicies(c)
	s.takeDeleted(c)
	s.takeOutcomes(c)
	s.takePasts(c)
	c.Events = append(c.Events, d.events...)
	c.Requests = append(c.Requests, d.requests...)
	c.Bytes = d.bytes
	d.reset()
}

// takeDeleted hands out the deleted objects that were not created again in the same turn: an object
// is put or deleted, never both.
func (s *State) takeDeleted(c *Changes) {
	d := &s.dirty
	for _, id := range unique(d.deletedJobs) {
		if s.jobs[id] == nil && s.rejected.byID[id] == nil {
			c.DeletedJobs = append(c.DeletedJobs, id)
		}
	}
	for _, name := range d.deletedTasks {
		if _, again := s.FindTask(name.Job, name.Group, name.Index); !again {
			c.DeletedTasks = append(c.DeletedTasks, name)
		}
	}
	for _, id := range unique(d.deletedNodes) {
		if s.nodes[id] == nil {
			c.DeletedNodes = append(c.DeletedNodes, id)
		}
	}
	for _, path := range unique(d.deletedQueues) {
		if s.tree.Find(path) == nil {
			c.DeletedQueues = append(c.DeletedQueues, path)
		}
	}
}

// unique sorts names and drops duplicates: an object may be deleted twice in one turn.
func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// forget drops the dirty rows and events without handing them out.
func (d *dirtyLists) forget() {
	for _, j := range d.specs {
		j.dirtySpec = false
	}
	for _, j := range d.jobs {
		j.dirty, j.persist = false, false
	}
	for _, r := range d.tasks {
		r.Task().dirty = false
	}
	for _, n := range d.nodes {
		n.dirty = false
	}
	for _, n := range d.nodeStatuses {
		n.dirtyStatus = false
	}
	d.reset()
}

func (d *dirtyLists) reset() {
	clear(d.specs)
	clear(d.jobs)
	clear(d.tasks)
	clear(d.events)
	clear(d.requests)
	clear(d.outcomes)
	clear(d.rejected)
	*d = dirtyLists{
		rejected: d.rejected[:0], historians: d.historians[:0],
		outcomes: d.outcomes[:0], deletedOutcomes: d.deletedOutcomes[:0],
		policies: d.policies[:0], deletedPolicies: d.deletedPolicies[:0],
		specs: d.specs[:0], jobs: d.jobs[:0], tasks: d.tasks[:0], nodes: d.nodes[:0], nodeStatuses: d.nodeStatuses[:0],
		deletedJobs: d.deletedJobs[:0], deletedTasks: d.deletedTasks[:0], deletedNodes: d.deletedNodes[:0],
		deletedQueues: d.deletedQueues[:0], events: d.events[:0], requests: d.requests[:0],
	}
}

// TaskRecord returns the record of a task, without its ID.
func (s *State) TaskRecord(r Ref) plimsoll.Task {
	t, f := r.Task(), r.former()
	return plimsoll.Task{
		Job: r.Group.Job.Spec.ID, Group: r.Group.Spec.Name, Index: r.Index, Attempt: t.Attempt, Failures: t.Failures,
		State:  t.State,
		Result: t.Result, Node: t.Node, ExitCode: t.ExitCode, Message: t.Message, Created: t.Created, Bound: t.Bound,
		Started:  t.Started,
		Finished: t.Finished, NotBefore: t.NotBefore, Revision: t.revision, Starting: t.Starting, Stopping: t.Stopping,
		Attempts: f.attempts, Earlier: f.earlier,
	}
}

// JobStatus returns the status record of a job.
func (s *State) JobStatus(j *Job) plimsoll.JobStatus {
	st := plimsoll.JobStatus{
		ID: j.Spec.ID, Owner: j.Spec.Owner, Queue: j.Queue.Path, State: j.State, Reason: j.Reason, Killed: j.Killed,
		Submitted: j.Submitted, Started: j.Started, Finished: j.Finished,
		Groups:   make([]plimsoll.GroupStatus, len(j.Groups)),
		Revision: j.revision, UID: j.UID, History: j.history[:len(j.history):len(j.history)], Deleted: j.deleted,
		UserLimits: j.limited.User, LimitGroup: j.limited.Group,
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		st.Groups[i] = plimsoll.GroupStatus{
			Name: g.Spec.Name, Count: g.Spec.Count, Counts: g.Counts, Wait: g.Wait,
		}
	}
	return st
}

// emit makes an event, unless the collection of events is off.
func (s *State) emit(e plimsoll.Event) {
	if !s.eventSettings.Collecting() {
		return
	}
	if len(s.dirty.events) == 0 {
		s.dirty.bytes += size.Chunk()
	}
	e.Time = s.at
	s.dirty.events = append(s.dirty.events, e)
	s.dirty.bytes += size.Event(e.Object, e.Reference, e.Message) + e.Head.Size()
}

func (s *State) emitApp(
	j *Job, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, ref string, r plimsoll.Resources, message string,
) {
	s.emit(plimsoll.Event{ // the resources of a task are counted with its job's status
		Type: plimsoll.EventApp, Change: change, Detail: detail, Object: j.Spec.ID, Reference: ref, Resources: r,
		Message: message,
	})
}

func (s *State) emitNode(
	n *Node, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, ref string, r plimsoll.Resources, message string,
) {
	if detail != plimsoll.NodeAlloc { // the resources of a task are counted with its job's status
		s.dirty.bytes += size.Of(r)
	}
	s.emit(plimsoll.Event{
		Type: plimsoll.EventNode, Change: change, Detail: detail, Object: n.ID, Reference: ref, Resources: r,
		Message: message,
	})
}

func (s *State) emitQueue(
	q *queue.Queue, change plimsoll.ChangeType, detail plimsoll.ChangeDetail, ref string, r plimsoll.Resources,
	message string,
) {
	s.dirty.bytes += size.Of(r)
	s.emit(plimsoll.Event{
		Type: plimsoll.EventQueue, Change: change, Detail: detail, Object: q.Path, Reference: ref, Resources: r,
		Message: message,
	})
}
