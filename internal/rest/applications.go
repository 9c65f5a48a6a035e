package rest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// applicationInfo is an application: a job.
type applicationInfo struct {
	ApplicationID   string          `json:"applicationID"`
	UsedResource    amounts         `json:"usedResource,omitempty"`
	PendingResource amounts         `json:"pendingResource,omitempty"`
	Partition       string          `json:"partition"`
	QueueName       string          `json:"queueName"`
	SubmissionTime  int64           `json:"submissionTime,omitempty"`
	FinishedTime    int64           `json:"finishedTime,omitempty"`
	Requests        json.RawMessage `json:"requests,omitempty"`
	Allocations     json.RawMessage `json:"allocations,omitempty"`
	State           string          `json:"applicationState,omitempty"`
	User            string          `json:"user,omitempty"`
	Groups          []string        `json:"groups,omitempty"`
	RejectedMessage string          `json:"rejectedMessage,omitempty"`
	StateLog        []stateInfo     `json:"stateLog,omitempty"`
	// LastStateChangeTime is only set after the end: yunikorn-web shows it as the time of the end.
	LastStateChangeTime int64 `json:"lastStateChangeTime,omitempty"`
	MaxRequestPriority  int32 `json:"maxRequestPriority,omitempty"`
	StartTime           int64 `json:"startTime,omitempty"` // ms, as in YuniKorn; the others are in ns
	// unicorn-history-server reads these. A job whose id comes again has another ID.
	ID          string `json:"id"`
	PartitionID string `json:"partition_id"`
	QueueID     string `json:"queueID,omitempty"`
}

type stateInfo struct {
	Time  int64  `json:"time"`
	State string `json:"applicationState"`
}

// askInfo is a request: a task that waits for a node.
type askInfo struct {
	AllocationKey  string            `json:"allocationKey"`
	AllocationTags map[string]string `json:"allocationTags,omitempty"`
	RequestTime    int64             `json:"requestTime,omitempty"`
	Resource       amounts           `json:"resource,omitempty"`
	Priority       string            `json:"priority,omitempty"`
	ApplicationID  string            `json:"applicationId,omitempty"`
	TaskGroupName  string            `json:"taskGroupName,omitempty"`
	AllocationLog  []logInfo         `json:"allocationLog,omitempty"`
}

type logInfo struct {
	Message string `json:"message"`
}

// allocationInfo is an allocation: a task that holds resources of a node.
type allocationInfo struct {
	AllocationKey   string            `json:"allocationKey"`
	AllocationTags  map[string]string `json:"allocationTags,omitempty"`
	RequestTime     int64             `json:"requestTime,omitempty"`
	AllocationTime  int64             `json:"allocationTime,omitempty"`
	AllocationDelay int64             `json:"allocationDelay,omitempty"`
	Resource        amounts           `json:"resource,omitempty"`
	Priority        string            `json:"priority,omitempty"`
	NodeID          string            `json:"nodeId,omitempty"`
	ApplicationID   string            `json:"applicationId,omitempty"`
	TaskGroupName   string            `json:"taskGroupName,omitempty"`
	// yunikorn-web reads these two.
	QueueName string `json:"queueName,omitempty"`
	Partition string `json:"partition,omitempty"`
}

// jobFacts are the parts of a specification that its tasks share.
type jobFacts struct {
	queue  string
	groups map[string]groupFacts

	ownerGroups []string
}

type groupFacts struct {
	requested plimsoll.Resources
	resource  amounts
	priority  int32
}

// keptGroups bounds the groups whose facts an answer remembers. Each takes less than 4 KiB.
const keptGroups = 512

// facts returns the facts of a job. Those of a job without a specification are empty.
func (a *reading) facts(job string) (*jobFacts, error) {
	if known := a.groups[job]; known != nil {
		return known, nil
	}
	of := &jobFacts{groups: map[string]groupFacts{}}
	if data, has := a.records.Get(wire.KindJobSpec, job); has {
		if err := a.state.hold(chargeFor * len(data)); err != nil {
			return nil, err
		}
		defer a.state.release(chargeFor * len(data))
		spec, err := wire.DecodeJobSpec(data)
		if err != nil {
			return nil, undecodable(job, err)
		}
		of.queue, of.ownerGroups = strings.Clone(spec.Queue), spec.OwnerGroups
		for i := range spec.Groups {
			g := &spec.Groups[i]
			of.groups[strings.Clone(g.Name)] = groupFacts{
				requested: g.Resources, resource: amountsOf(g.Resources), priority: g.Priority,
			}
		}
	}
	if a.groupsKept += len(of.groups); a.groupsKept > keptGroups {
		clear(a.groups)
		a.groupsKept = len(of.groups)
	}
	a.groups[job] = of
	return of, nil
}

// task decodes a task.
func (a *reading) task(key string, data []byte) (plimsoll.Task, error) {
	if err := a.look(); err != nil {
		return plimsoll.Task{}, err
	}
	task, err := wire.DecodeTask(data)
	if err != nil {
		return task, undecodable(strings.ReplaceAll(key, "\x00", "."), err)
	}
	return task, nil
}

// The tags by which yunikorn-web names an allocation: queue/task.
const (
	tagNamespace = "kubernetes.io/meta/namespace"
	tagName      = "kubernetes.io/meta/podName"
)

func tagsOf(t *plimsoll.Task, of *jobFacts) map[string]string {
	return map[string]string{tagNamespace: of.queue, tagName: t.ID}
}

func allocationOf(t *plimsoll.Task, of *jobFacts) allocationInfo {
	g := of.groups[t.Group]
	return allocationInfo{
		AllocationKey: t.ID, AllocationTags: tagsOf(t, of), RequestTime: t.Created, AllocationTime: t.Bound,
		AllocationDelay: max(t.Bound-t.Created, 0), Resource: g.resource, Priority: strconv.Itoa(int(g.priority)),
		NodeID: t.Node, ApplicationID: t.Job, TaskGroupName: t.Group, QueueName: of.queue, Partition: partition,
	}
}

func askOf(t *plimsoll.Task, of *jobFacts, status *plimsoll.JobStatus) askInfo {
	g := of.groups[t.Group]
	ask := askInfo{
		AllocationKey: t.ID, AllocationTags: tagsOf(t, of), RequestTime: t.Created, Resource: g.resource,
		Priority: strconv.Itoa(int(g.priority)), ApplicationID: t.Job, TaskGroupName: t.Group,
	}
	for i := range status.Groups {
		if s := &status.Groups[i]; s.Name == t.Group && s.Wait.Code != plimsoll.WaitNone {
			ask.AllocationLog = []logInfo{{s.Wait.String()}}
		}
	}
	return ask
}

// applicationInfo returns a job in YuniKorn's form. ok is false if it is about to disappear.
func (a *reading) applicationInfo(id string, data []byte) (info applicationInfo, ok bool, err error) {
	status, err := wire.DecodeJobStatus(data)
	if err != nil {
		return info, false, undecodable(id, err)
	}
	if status.Deleted {
		return info, false, nil
	}
	of, err := a.facts(id)
	if err != nil {
		return info, false, err
	}
	info = withoutTasks(id, &status, of)
	return info, true, a.addTasks(&info, of, &status)
}

// withoutTasks returns a job in YuniKorn's form, but for its tasks.
func withoutTasks(id string, status *plimsoll.JobStatus, of *jobFacts) applicationInfo {
	info := applicationInfo{
		ApplicationID: id, Partition: partition, QueueName: status.Queue, SubmissionTime: status.Submitted,
		FinishedTime: status.Finished, State: status.State.String(), User: status.Owner,
		Groups: of.ownerGroups, StartTime: status.Started / int64(time.Millisecond),
		ID: status.UID.Text(), PartitionID: partition, QueueID: status.Queue,
	}
	if status.State == plimsoll.JobRejected {
		info.RejectedMessage = status.Reason
	}
	if status.State.Ended() {
		info.LastStateChangeTime = status.Finished
	}
	for _, step := range status.History {
		info.StateLog = append(info.StateLog, stateInfo{step.At, step.State.String()})
	}
	used, pending, waits := amounts{}, amounts{}, false
	for i := range status.Groups {
		s := &status.Groups[i]
		g, c := of.groups[s.Name], &s.Counts
		used.add(g.requested, int64(c.Bound)+int64(c.Starting)+int64(c.Running)+int64(c.Stopping))
		pending.add(g.requested, int64(c.Pending))
		if c.Pending > 0 && (!waits || g.priority > info.MaxRequestPriority) {
			info.MaxRequestPriority, waits = g.priority, true
		}
	}
	info.UsedResource, info.PendingResource = used, pending
	return info
}

// addTasks adds the tasks of a job that have not ended.
func (a *reading) addTasks(info *applicationInfo, of *jobFacts, status *plimsoll.JobStatus) error {
	for key, data := range a.records.Tasks(replica.TaskCriteria{Job: info.ApplicationID}, "") {
		if !wire.IsTaskKeyOf(key, info.ApplicationID) {
			continue
		}
		if state, _, ok := wire.PeekTask(data); ok && state == plimsoll.TaskFinished {
			if err := a.look(); err != nil {
				return err
			}
			continue
		}
		task, err := a.task(key, data)
		if err != nil {
			return err
		}
		switch {
		case task.State.OnNode():
			info.Allocations, err = a.piece(info.Allocations, allocationOf(&task, of), 0)
		case task.State == plimsoll.TaskPending:
			info.Requests, err = a.piece(info.Requests, askOf(&task, of, status), 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The sets of applications that have routes.
const (
	setActive    = "active"
	setRejected  = "rejected"
	setCompleted = "completed"
)

// statesOf returns the states of a set.
func statesOf(set string) (states []plimsoll.JobState) {
	for state := range plimsoll.JobState(plimsoll.NumJobStates) {
		of := setActive
		switch {
		case !state.Known():
			continue
		case state == plimsoll.JobRejected:
			of = setRejected
		case state.Ended():
			of = setCompleted
		}
		if of == set {
			states = append(states, state)
		}
	}
	return states
}

// wanted returns the states of the applications that a request asks for: those of a set, or the one
// that the parameter status names.
func (a *reading) wanted(set string, sets ...string) ([]plimsoll.JobState, error) {
	if !slices.Contains(sets, set) {
		return nil, plimsoll.Invalid("applications", "%q is not a set of them; give %s",
			plimsoll.Shorten(set), strings.Join(sets, ", "))
	}
	states := statesOf(set)
	named := a.values.Get("status")
	if named == "" {
		return states, nil
	}
	if set != setActive {
		return nil, plimsoll.Invalid("status", "is possible with applications/active alone; leave it out")
	}
	var names []string
	for _, state := range states {
		if strings.EqualFold(named, state.String()) {
			return []plimsoll.JobState{state}, nil
		}
		names = append(names, state.String())
	}
	return nil, plimsoll.Invalid("status", "%q is not the state of an active application; give one of %s",
		plimsoll.Shorten(named), strings.Join(names, ", "))
}

// applicationsIn answers with the applications of a set.
func (a *reading) applicationsIn() error {
	states, err := a.wanted(a.of("state"), setActive, setRejected, setCompleted)
	if err != nil {
		return err
	}
	return a.addApplications("", states)
}

// queueApplications answers with the applications of a queue that have not ended.
func (a *reading) queueApplications() error {
	if err := a.checkQueue(a.of("queue")); err != nil {
		return err
	}
	return a.addApplications(a.of("queue"), statesOf(setActive))
}

func (a *reading) queueApplicationsIn() error {
	states, err := a.wanted(a.of("state"), setActive)
	if err != nil {
		return err
	}
	if err := a.checkQueue(a.of("queue")); err != nil {
		return err
	}
	return a.addApplications(a.of("queue"), states)
}

// addApplications adds the applications in some states: of a queue, or of all if it is empty.
func (a *reading) addApplications(queue string, states []plimsoll.JobState) error {
	a.begin()
	for id, data := range a.records.Jobs(replica.JobCriteria{Queue: queue, States: states}, "") {
		if err := a.look(); err != nil {
			return err
		}
		_, of, state, read := wire.PeekJob(data)
		if !read {
			return plimsoll.Errorf(plimsoll.CodeCorrupt, "decode the record %q: it has no state", id)
		}
		if queue != "" && string(of) != queue || !slices.Contains(states, state) {
			continue
		}
		info, ok, err := a.applicationInfo(id, data)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := a.element(info); err != nil {
			return err
		}
	}
	a.end()
	return nil
}

// application answers with one application, which has to be in the queue that the path names.
func (a *reading) application() error {
	id, queue := a.of("application"), a.of("queue")
	if err := plimsoll.ValidateID("application", id); err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	if queue != "" {
		if err := a.checkQueue(queue); err != nil {
			return err
		}
	}
	var info applicationInfo
	data, has := a.records.Get(wire.KindJobStatus, id)
	if has {
		var err error
		if info, has, err = a.applicationInfo(id, data); err != nil {
			return err
		}
	}
	if !has {
		return plimsoll.Errorf(plimsoll.CodeNotFound,
			"Application not found: there is no %q; JobService.GetJob knows those that ended long ago", id)
	}
	if queue != "" && info.QueueName != queue {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "Application not found: %q is in %s", id, info.QueueName)
	}
	return a.add(info)
}
