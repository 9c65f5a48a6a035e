package main

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// The views are the types that -o json and -o yaml print. Scripts rely on them: fields are added,
// never renamed. Amounts are in milli-cores and bytes, instants in RFC 3339. An instant that has
// not come is null.

type countsView struct {
	Pending   int32 `json:"pending"`
	Bound     int32 `json:"bound"`
	Starting  int32 `json:"starting"`
	Running   int32 `json:"running"`
	Stopping  int32 `json:"stopping"`
	Succeeded int32 `json:"succeeded"`
	Failed    int32 `json:"failed"`
}

func viewCounts(c plimsoll.TaskCounts) countsView { return countsView(c) }

type groupView struct {
	Name       string     `json:"name"`
	Count      int32      `json:"count"`
	Counts     countsView `json:"counts"`
	WaitCode   string     `json:"waitCode,omitempty"`
	WaitReason string     `json:"waitReason,omitempty"`
	WaitQueue  string     `json:"waitQueue,omitempty"`
	// WaitResource is the resource that is short in the queue.
	WaitResource string `json:"waitResource,omitempty"`
	WaitAsked    int64  `json:"waitAsked,omitempty"`
	// WaitUserOrGroup is whose limit is reached.
	WaitUserOrGroup string `json:"waitUserOrGroup,omitempty"`
	// Resources are those that each task asks for. A list of jobs leaves them out.
	Resources plimsoll.Resources `json:"resources,omitempty"`
}

// jobView is a job. In a list Tasks holds counts, for a single job the tasks themselves. Counts is
// set in both.
type jobView struct {
	ID        string            `json:"id"`
	State     string            `json:"state"`
	Queue     string            `json:"queue"`
	Owner     string            `json:"owner"`
	Reason    string            `json:"reason"`
	Killed    bool              `json:"killed"`
	Result    string            `json:"result"` // succeeded, failed or killed; empty before the end
	Labels    map[string]string `json:"labels,omitempty"`
	Submitted *string           `json:"submitted"`
	Started   *string           `json:"started"`
	Finished  *string           `json:"finished"`
	Counts    countsView        `json:"counts"`
	Groups    []groupView       `json:"groups"`
	Revision  uint64            `json:"revision"`
	UID       string            `json:"uid,omitempty"`
	AgainOf   string            `json:"againOf,omitempty"` // uid of the job that it does again; not in a list
	Archived  bool              `json:"archived,omitempty"`
	History   []jobStepView     `json:"history,omitempty"`
	Tasks     any               `json:"tasks"`

	UserLimits bool   `json:"userLimits,omitempty"` // limits of users hold for its owner
	LimitGroup string `json:"limitGroup,omitempty"` // group whose limits hold for it
}

type jobStepView struct {
	State  string  `json:"state"`
	At     *string `json:"at"`
	Reason string  `json:"reason"`
}

func totals(s *plimsoll.JobStatus) plimsoll.TaskCounts {
	var sum plimsoll.TaskCounts
	for i := range s.Groups {
		sum = sum.Plus(s.Groups[i].Counts)
	}
	return sum
}

// wanted returns the number of tasks that the job is to have.
func wanted(s *plimsoll.JobStatus) int32 {
	n := int32(0)
	for i := range s.Groups {
		n += s.Groups[i].Count
	}
	return n
}

func viewJob(s *plimsoll.JobStatus) jobView {
	v := jobView{
		ID: s.ID, State: s.State.String(), Queue: s.Queue, Owner: s.Owner, Reason: s.Reason, Killed: s.Killed,
		Result:    s.Result().String(),
		Submitted: stamp(s.Submitted), Started: stamp(s.Started), Finished: stamp(s.Finished),
		Counts: viewCounts(totals(s)), Groups: make([]groupView, len(s.Groups)), Revision: s.Revision,
		UserLimits: s.UserLimits, LimitGroup: s.LimitGroup,
	}
	v.Tasks, v.UID = v.Counts, s.UID.Text()
	for _, step := range s.History {
		v.History = append(v.History, jobStepView{step.State.String(), stamp(step.At), step.Reason.String()})
	}
	for i := range s.Groups {
		v.Groups[i] = viewGroup(&s.Groups[i])
	}
	return v
}

func viewGroup(g *plimsoll.GroupStatus) groupView {
	return groupView{
		Name: g.Name, Count: g.Count, Counts: viewCounts(g.Counts), WaitCode: g.Wait.Code.String(),
		WaitReason: g.Wait.String(),
		WaitQueue:  g.Wait.Queue, WaitResource: g.Wait.Resource, WaitAsked: g.Wait.Asked,
		WaitUserOrGroup: g.Wait.UserOrGroup,
	}
}

type taskView struct {
	ID       string  `json:"id"`
	Job      string  `json:"job"`
	JobUID   string  `json:"jobUid,omitempty"` // not in a watch
	Group    string  `json:"group"`
	Index    int32   `json:"index"`
	State    string  `json:"state"`
	Node     string  `json:"node"`
	ExitCode *int32  `json:"exitCode"` // null before an attempt has ended, and if the code is not known
	Result   string  `json:"result"`   // of the last attempt that has ended; empty: none has
	Reason   string  `json:"reason"`   // why the task waits, or how it ended in a word or two
	Message  string  `json:"message"`
	Attempt  int32   `json:"attempt"`
	Failures int32   `json:"failures"`
	Created  *string `json:"created"`
	Bound    *string `json:"bound"`
	Starting *string `json:"starting"`
	Started  *string `json:"started"`
	Stopping *string `json:"stopping"`
	Finished *string `json:"finished"`

	Earlier  []attemptsView `json:"earlier,omitempty"`  // where earlier attempts were
	Attempts []attemptView  `json:"attempts,omitempty"` // all of them; only with --attempts
}

type attemptView struct {
	Number   int32   `json:"number"`
	Node     string  `json:"node"`
	Result   string  `json:"result"` // empty: it has not ended
	ExitCode *int32  `json:"exitCode"`
	Message  string  `json:"message"`
	Pending  *string `json:"pending"`
	Bound    *string `json:"bound"`
	Starting *string `json:"starting"`
	Started  *string `json:"started"`
	Stopping *string `json:"stopping"`
	Finished *string `json:"finished"`

	from plimsoll.Attempt
}

func viewAttempts(attempts []plimsoll.Attempt) []attemptView {
	views := make([]attemptView, len(attempts))
	for i := range attempts {
		views[i] = viewAttempt(&attempts[i])
	}
	return views
}

func viewAttempt(a *plimsoll.Attempt) attemptView {
	v := attemptView{
		Number: a.Number, Node: a.Node, Result: a.Result.String(), Message: a.Message,
		Pending: stamp(a.Pending), Bound: stamp(a.Bound), Starting: stamp(a.Starting), Started: stamp(a.Started),
		Stopping: stamp(a.Stopping), Finished: stamp(a.Finished), from: *a,
	}
	if a.Result != plimsoll.ResultNone && a.ExitCode >= 0 {
		v.ExitCode = &a.ExitCode
	}
	return v
}

type attemptsView struct {
	Node  string `json:"node"`
	First int32  `json:"first"`
	Last  int32  `json:"last"`
}

// viewTask shows a task. waits is the reason why the tasks of its group wait; empty: not known.
func viewTask(t *plimsoll.Task, waits string) taskView {
	v := taskView{
		ID: t.ID, Job: t.Job, Group: t.Group, Index: t.Index, State: t.State.String(), Node: t.Node,
		Result: t.Result.String(), Reason: t.Result.String(),
		Message: t.Message, Attempt: t.Attempt, Failures: t.Failures,
		Created: stamp(t.Created), Bound: stamp(t.Bound), Starting: stamp(t.Starting), Started: stamp(t.Started),
		Stopping: stamp(t.Stopping), Finished: stamp(t.Finished),
	}
	ended := t.Result != plimsoll.ResultNone && t.State != plimsoll.TaskStopping
	if ended && t.Attempt > 0 && t.ExitCode >= 0 {
		v.ExitCode = &t.ExitCode
	}
	for _, e := range t.Earlier {
		v.Earlier = append(v.Earlier, attemptsView(e))
	}
	if t.State == plimsoll.TaskPending && waits != "" {
		v.Reason = waits
	}
	return v
}

// viewTasks shows tasks of one job with the reasons why its groups wait.
func viewTasks(tasks []plimsoll.Task, status *plimsoll.JobStatus) []taskView {
	waits := map[string]string{}
	for i := range status.Groups {
		waits[status.Groups[i].Name] = status.Groups[i].Wait.String()
	}
	views := make([]taskView, len(tasks))
	for i := range tasks {
		views[i] = viewTask(&tasks[i], waits[tasks[i].Group])
	}
	return views
}

type nodeView struct {
	ID          string             `json:"id"`
	Ready       bool               `json:"ready"`
	Mode        string             `json:"mode"`
	Tasks       int32              `json:"tasks"`
	Capacity    plimsoll.Resources `json:"capacity"`
	Allocated   plimsoll.Resources `json:"allocated"`
	Attributes  map[string]string  `json:"attributes"`
	Address     string             `json:"address"`
	Incarnation uint64             `json:"incarnation"`
	Registered  *string            `json:"registered"`
	Revision    uint64             `json:"revision"`
	SickUntil   *string            `json:"sickUntil"`  // null: the node is not left out for faults
	NoNewTasks  *string            `json:"noNewTasks"` // why the agent has stopped new tasks; null: it has not
	// Occupied is the use outside of its tasks, as told at OccupiedAt; null: it was not told.
	Occupied   *plimsoll.Resources `json:"occupied"`
	OccupiedAt *string             `json:"occupiedAt"`
	factsView
}

// factsView is the part of a node that placement depends on. A trait is true, false, a word or a
// list of words, as in a job file.
type factsView struct {
	Traits        map[string]any     `json:"traits"`
	Networks      map[string]bool    `json:"networks"`
	Release       string             `json:"release"`
	Platform      string             `json:"platform"`
	Headnode      bool               `json:"headnode"`
	Reservoir     bool               `json:"reservoir"`
	Reserve       map[string]float64 `json:"reserve"`
	Overprovision map[string]float64 `json:"overprovision"`
	LastBoot      *string            `json:"lastBoot"`
	NextReboot    *string            `json:"nextReboot"`
	Metrics       []string           `json:"metrics"`
	MaxTasks      *int32             `json:"maxTasks"` // null: no bound
}

func viewFacts(f *plimsoll.NodeFacts) factsView {
	return factsView{
		Traits: entries(config.TraitsFile(f.Traits)), Networks: entries(f.Networks), Release: f.Release,
		Platform: f.Platform,
		Headnode: f.Headnode, Reservoir: f.Reservoir, Reserve: entries(f.Reserve),
		Overprovision: entries(f.Overprovision),
		LastBoot:      stampSeconds(f.LastBoot), NextReboot: stampSeconds(f.NextReboot),
		Metrics:  append([]string{}, f.Metrics...),
		MaxTasks: bound(f.MaxTasks),
	}
}

// bound returns a bound for JSON; nil for zero, which is no bound.
func bound(most int32) *int32 {
	if most == 0 {
		return nil
	}
	return &most
}

// entries returns a map that is never null in JSON.
func entries[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// stampSeconds is stamp for Unix seconds, which may be too large for nanoseconds.
func stampSeconds(seconds int64) *string {
	if seconds == 0 {
		return nil
	}
	s := time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	return &s
}

func viewNode(n *client.NodeInfo) nodeView {
	return nodeView{
		ID: n.Node.ID, Ready: n.Node.Ready, Mode: n.Node.Mode.String(), Tasks: n.Status.Tasks,
		Capacity:  amounts(n.Node.Capacity),
		Allocated: amounts(n.Status.Allocated), Attributes: n.Node.Attributes, Address: n.Node.Address,
		Incarnation: n.Node.Incarnation, Registered: stamp(n.Node.Registered), Revision: n.Node.Revision,
		SickUntil: stamp(n.Status.SickUntil), NoNewTasks: nullIfEmpty(noNewTasks(&n.Node)),
		Occupied: viewOccupied(&n.Node), OccupiedAt: stamp(n.Node.OccupiedAt),
		factsView: viewFacts(&n.Node.Facts),
	}
}

func viewOccupied(n *plimsoll.Node) *plimsoll.Resources {
	if n.OccupiedAt == 0 {
		return nil
	}
	r := n.Occupied.Resources()
	return &r
}

func nullIfEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

type queueView struct {
	Path        string             `json:"path"`
	Leaf        bool               `json:"leaf"`
	Draining    bool               `json:"draining"`
	Jobs        int32              `json:"jobs"`
	Running     int32              `json:"running"`
	Waiting     int32              `json:"waiting"`
	Tasks       int64              `json:"tasks"`
	MaxTasks    int32              `json:"maxTasks"`
	JobsWaiting int32              `json:"jobsWaiting"`
	Guaranteed  plimsoll.Resources `json:"guaranteed"`
	Max         plimsoll.Resources `json:"max"`
	Allocated   plimsoll.Resources `json:"allocated"`
	Pending     plimsoll.Resources `json:"pending"`
	Share       *float64           `json:"share"`
	Next        *int32             `json:"next"`
	Reason      *string            `json:"reason"`
	Past        map[string]float64 `json:"past,omitempty"` // cpu in milli-cores, memory in bytes
}

func viewQueue(q *plimsoll.QueueStatus) queueView {
	return queueView{
		Path: q.Path, Leaf: q.Leaf, Draining: q.Draining, Jobs: q.Jobs, Running: q.Running, Waiting: q.Waiting,
		Tasks: q.Tasks, MaxTasks: q.MaxTasks, JobsWaiting: q.JobsWaiting,
		Guaranteed: amounts(q.Guaranteed), Max: amounts(q.Max), Allocated: amounts(q.Allocated),
		Pending: amounts(q.Pending), Past: q.Past,
	}
}

// amounts returns amounts that are never null in JSON.
func amounts(r plimsoll.Resources) plimsoll.Resources {
	if r == nil {
		return plimsoll.Resources{}
	}
	return r
}

type eventView struct {
	ID        uint64             `json:"id"`
	Type      string             `json:"type"`
	Change    string             `json:"change"`
	Detail    string             `json:"detail"`
	Time      *string            `json:"time"`
	Object    string             `json:"object"`
	Reference string             `json:"reference"`
	Resources plimsoll.Resources `json:"resources"`
	Message   string             `json:"message"`
	Subject   string             `json:"subject"` // job, task, node, queue, user or group
	Text      string             `json:"text"`    // the event in plain words
	Head      *headView          `json:"head"`    // of the event that takes a job in; otherwise null
}

// headView has the facts of a job.
type headView struct {
	UID    string            `json:"uid"`
	Owner  string            `json:"owner"`
	Labels map[string]string `json:"labels"`
}

func viewHead(h *plimsoll.JobHead) *headView {
	if h == nil {
		return nil
	}
	view := &headView{UID: h.UID.Text(), Owner: h.Owner, Labels: h.Labels}
	if view.Labels == nil {
		view.Labels = map[string]string{}
	}
	return view
}

func viewEvent(r *client.EventRecord) eventView {
	e := &r.Event
	return eventView{
		ID: r.ID, Type: e.Type.String(), Change: e.Change.String(), Detail: e.Detail.String(), Time: stamp(e.Time),
		Object: e.Object, Reference: e.Reference, Resources: amounts(e.Resources), Message: e.Message,
		Subject: e.Subject().String(), Text: e.Sentence(), Head: viewHead(e.Head),
	}
}
