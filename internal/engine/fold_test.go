package engine_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// fold makes jobs, tasks, nodes and queues of events alone, from the first one on. It knows the
// table of the event design and nothing of the state. It is the program that the design wishes for:
// one that learns of the cluster by its events.
type fold struct {
	jobs   map[string]*foldedJob
	nodes  map[string]*foldedNode
	queues map[string]*foldedQueue
	limits foldedLimits
	wrong  string // the first event that cannot be, or that says what is so already
}

type foldedJob struct {
	state plimsoll.ChangeDetail
	queue string
	tasks map[string]*foldedTask // those that are wanted
}

type foldedTask struct {
	resources plimsoll.Resources
	allocated bool
}

type foldedNode struct {
	capacity, occupied plimsoll.Resources
	ready, schedulable bool
	tasks              map[string]plimsoll.Resources
}

type foldedQueue struct {
	leaf, draining  bool
	dynamic         bool
	max, guaranteed plimsoll.Resources
	jobs            map[string]bool
}

func newFold() *fold {
	return &fold{map[string]*foldedJob{}, map[string]*foldedNode{}, map[string]*foldedQueue{}, newFoldedLimits(), ""}
}

// apply applies an event.
func (f *fold) apply(e *plimsoll.Event) {
	right := false
	switch e.Type {
	case plimsoll.EventApp:
		right = f.app(e)
	case plimsoll.EventNode:
		right = f.node(e)
	case plimsoll.EventQueue:
		right = f.queue(e)
	case plimsoll.EventUserGroup:
		right = f.userGroup(e)
	case plimsoll.EventRequest:
		right = e.Detail == plimsoll.AllocQOSDetail // it changes nothing of a job
	}
	if !right && f.wrong == "" {
		f.wrong = fmt.Sprintf(
			"%v %v %v %s %s %v %q", e.Type, e.Change, e.Detail, e.Object, e.Reference, e.Resources, e.Message,
		)
	}
}

func (f *fold) app(e *plimsoll.Event) (right bool) {
	j := f.jobs[e.Object]
	if e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.DetailNone {
		f.jobs[e.Object] = &foldedJob{tasks: map[string]*foldedTask{}}
		return j == nil
	}
	if j == nil {
		return false
	}
	switch e.Change {
	case plimsoll.ChangeSet:
		right, j.state = j.state != e.Detail, e.Detail
		return right
	case plimsoll.ChangeAdd:
		return f.wanted(j, e)
	}
	t := j.tasks[e.Reference]
	switch e.Detail {
	case plimsoll.DetailNone:
		delete(f.jobs, e.Object)
		return len(j.tasks) == 0
	case plimsoll.AppReject: // it was added in front of this, and was never anything else
		delete(f.jobs, e.Object)
		return len(j.tasks) == 0 && j.state == 0 && j.queue == "" && e.Message != ""
	case plimsoll.AppRequest, plimsoll.RequestCancel, plimsoll.RequestTimeout:
		delete(j.tasks, e.Reference)
		return t != nil && !t.allocated && maps.Equal(t.resources, e.Resources)
	case plimsoll.AllocCancel, plimsoll.AllocTimeout, plimsoll.AllocPreempt, plimsoll.AllocReplaced,
		plimsoll.AllocNodeRemoved:
		right = t != nil && t.allocated && maps.Equal(t.resources, e.Resources)
		if t != nil {
			t.allocated = false
		}
		return right
	}
	return false
}

func (f *fold) wanted(j *foldedJob, e *plimsoll.Event) (right bool) {
	t := j.tasks[e.Reference]
	switch e.Detail {
	case plimsoll.AppRequest:
		j.tasks[e.Reference] = &foldedTask{resources: e.Resources}
		return t == nil
	case plimsoll.AppAlloc:
		right = t != nil && !t.allocated && maps.Equal(t.resources, e.Resources)
		if t != nil {
			t.allocated = true
		}
	}
	return right
}

func (f *fold) node(e *plimsoll.Event) (right bool) {
	n := f.nodes[e.Object]
	if e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.DetailNone {
		f.nodes[e.Object] = &foldedNode{capacity: e.Resources, tasks: map[string]plimsoll.Resources{}}
		return n == nil
	}
	if n == nil {
		return false
	}
	_, has := n.tasks[e.Reference]
	switch e.Detail {
	case plimsoll.NodeReady:
		n.ready = strings.HasPrefix(e.Message, "ready: true")
	case plimsoll.NodeSchedulable:
		n.schedulable = strings.HasPrefix(e.Message, "schedulable: true")
	case plimsoll.NodeCapacity:
		n.capacity = e.Resources
	case plimsoll.NodeOccupied:
		right, n.occupied = n.occupied == nil || !sameAmounts(n.occupied, e.Resources), e.Resources
		return right && e.Change == plimsoll.ChangeSet
	case plimsoll.NodeDecomission:
		delete(f.nodes, e.Object)
		return len(n.tasks) == 0
	case plimsoll.NodeAlloc:
		if e.Change == plimsoll.ChangeAdd {
			n.tasks[e.Reference] = e.Resources
			return !has
		}
		right = has && maps.Equal(n.tasks[e.Reference], e.Resources)
		delete(n.tasks, e.Reference)
		return right
	case plimsoll.NodeQOSDetail:
	default:
		return false
	}
	return e.Change == plimsoll.ChangeSet
}

func (f *fold) queue(e *plimsoll.Event) (right bool) {
	q := f.queues[e.Object]
	dynamic := e.Detail == plimsoll.QueueDynamic
	if e.Change == plimsoll.ChangeAdd && (dynamic || e.Detail == plimsoll.DetailNone) {
		f.queues[e.Object] = &foldedQueue{leaf: true, dynamic: dynamic, jobs: map[string]bool{}}
		return q == nil
	}
	if q == nil {
		return false
	}
	switch e.Detail {
	case plimsoll.QueueMax:
		q.max = e.Resources
	case plimsoll.QueueGuaranteed:
		q.guaranteed = e.Resources
	case plimsoll.QueueType:
		q.leaf = strings.HasSuffix(e.Message, "true")
	case plimsoll.QueueConfigured:
		if why, refused := e.QueuesRefused(); refused {
			return why != "" && e.Object == plimsoll.RootQueue
		}
		right, q.draining = q.draining != (e.Message == "draining: true"), e.Message == "draining: true"
		return right && e.Change == plimsoll.ChangeSet
	case plimsoll.QueueApp:
		right = q.jobs[e.Reference] != (e.Change == plimsoll.ChangeAdd)
		if delete(q.jobs, e.Reference); e.Change == plimsoll.ChangeAdd {
			q.jobs[e.Reference] = true
			if j := f.jobs[e.Reference]; j != nil {
				j.queue = e.Object
			}
		}
		return right
	case plimsoll.DetailNone, plimsoll.QueueDynamic:
		if e.Change == plimsoll.ChangeSet {
			right, q.dynamic = q.dynamic && dynamic && e.Message == "dynamic: false", false
			return right
		}
		delete(f.queues, e.Object)
		f.limits.dropQueue(e.Object)
		return len(q.jobs) == 0 && q.dynamic == dynamic
	default:
		return false
	}
	return e.Change == plimsoll.ChangeSet
}

// foldedStates are the states that the details of the design stand for.
var foldedStates = map[plimsoll.ChangeDetail]plimsoll.JobState{
	plimsoll.AppNew: plimsoll.JobNew, plimsoll.AppAccepted: plimsoll.JobAccepted,
	plimsoll.AppStarting: plimsoll.JobStarting, plimsoll.AppRunning: plimsoll.JobRunning,
	plimsoll.AppCompleting: plimsoll.JobCompleting, plimsoll.AppCompleted: plimsoll.JobCompleted,
	plimsoll.AppFailing: plimsoll.JobFailing, plimsoll.AppFailed: plimsoll.JobFailed,
	plimsoll.AppExpired: plimsoll.JobExpired,
}

// checkFold compares the fold of all events with the state.
func (w *world) checkFold() {
	if w.fold.wrong != "" {
		w.t.Fatalf("this event cannot be, after those before it: %s", w.fold.wrong)
	}
	w.foldedJobs()
	w.foldedNodes()
	w.foldedQueues()
	w.foldedLimits()
}

func (w *world) foldedJobs() {
	s, there := w.engine.State(), 0
	for _, id := range w.jobs {
		j, folded := s.Job(id), w.fold.jobs[id]
		if (j == nil) != (folded == nil) {
			w.t.Fatalf("job %s is in the state: %t; the events say: %t", id, j != nil, folded != nil)
		}
		if j == nil {
			continue
		}
		there++
		if foldedStates[folded.state] != j.State {
			w.t.Fatalf("job %s is %v; the events say %v", id, j.State, folded.state)
		}
		if folded.queue != j.Spec.Queue && !j.State.Ended() {
			w.t.Fatalf("job %s is in %s; the events say %s", id, j.Spec.Queue, folded.queue)
		}
		wanted := 0
		for i := range j.Groups {
			g := &j.Groups[i]
			for index := range g.Tasks {
				t := &g.Tasks[index]
				if t.State == plimsoll.TaskFinished {
					continue
				}
				wanted++
				known := folded.tasks[t.ID]
				if known == nil || known.allocated != (t.State != plimsoll.TaskPending) ||
					!maps.Equal(known.resources, g.Spec.Resources) {
					w.t.Fatalf("task %s is %v with %v; the events say %+v", t.ID, t.State, g.Spec.Resources, known)
				}
			}
		}
		if wanted != len(folded.tasks) {
			w.t.Fatalf("job %s has %d tasks that have not ended; the events say %d", id, wanted, len(folded.tasks))
		}
	}
	if there != len(w.fold.jobs) {
		w.t.Fatalf("%d jobs are in the state; the events say %d", there, len(w.fold.jobs))
	}
}

func (w *world) foldedNodes() {
	s, there := w.engine.State(), 0
	for i := range 6 {
		id := "n" + strconv.Itoa(i)
		n, folded := s.Node(id), w.fold.nodes[id]
		if (n == nil) != (folded == nil) {
			w.t.Fatalf("node %s is in the state: %t; the events say: %t", id, n != nil, folded != nil)
		}
		if n == nil {
			continue
		}
		there++
		allocated := plimsoll.Resources{}
		for _, r := range folded.tasks {
			for name, amount := range r {
				allocated[name] += amount
			}
		}
		status := s.NodeStatus(n)
		if !sameAmounts(allocated, status.Allocated) || int(status.Tasks) != len(folded.tasks) ||
			!maps.Equal(folded.capacity, n.Capacity) {
			w.t.Fatalf("node %s has %d tasks with %v of %v; the events say %d with %v of %v", id, status.Tasks,
				status.Allocated, n.Capacity, len(folded.tasks), allocated, folded.capacity)
		}
		if (folded.occupied != nil) != (n.OccupiedAt != 0) ||
			!sameAmounts(folded.occupied, n.Occupied.Resources()) {
			w.t.Fatalf("others use %+v of node %s; the events say %v", n.Occupied, id, folded.occupied)
		}
		if folded.ready != n.Ready {
			w.t.Fatalf("node %s is ready: %t; the events say %t", id, n.Ready, folded.ready)
		}
	}
	if there != len(w.fold.nodes) {
		w.t.Fatalf("%d nodes are in the state; the events say %d", there, len(w.fold.nodes))
	}
}

func (w *world) foldedQueues() {
	s, there := w.engine.State(), 0
	used := map[string]plimsoll.Resources{}
	for _, n := range w.fold.nodes {
		for task, r := range n.tasks {
			job, _, _ := strings.Cut(task, ".")
			for path := w.fold.jobs[job].queue; path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
				if used[path] == nil {
					used[path] = plimsoll.Resources{}
				}
				for name, amount := range r {
					used[path][name] += amount
				}
			}
		}
	}
	s.Tree().Root.Walk(func(q *queue.Queue) {
		there++
		folded := w.fold.queues[q.Path]
		if folded == nil {
			w.t.Fatalf("the events do not say that there is a queue %s", q.Path)
		}
		status := s.QueueStatus(q)
		if !sameAmounts(used[q.Path], status.Allocated) {
			w.t.Fatalf("queue %s uses %v; the events say %v", q.Path, status.Allocated, used[q.Path])
		}
		if q.Parent != nil && (!maps.Equal(folded.max, w.limitOf(&q.Max, q.MaxSet)) ||
			!maps.Equal(folded.guaranteed, w.limitOf(&q.Guaranteed, q.GuaranteedSet))) {
			w.t.Fatalf("queue %s has max %v and guaranteed %v; the events say %v and %v", q.Path,
				w.limitOf(&q.Max, q.MaxSet), w.limitOf(&q.Guaranteed, q.GuaranteedSet), folded.max, folded.guaranteed)
		}
		if folded.leaf != q.Leaf || folded.draining != q.Draining || folded.dynamic != q.Dynamic {
			w.t.Fatalf("queue %s is a leaf: %t, drains: %t, is dynamic: %t; the events say %t, %t, %t", q.Path, q.Leaf,
				q.Draining, q.Dynamic, folded.leaf, folded.draining, folded.dynamic)
		}
		if q.Parent == nil && !sameAmounts(folded.max, s.Names.Resources(s.Total())) {
			w.t.Fatalf("all nodes have %v; the events say %v", s.Names.Resources(s.Total()), folded.max)
		}
	})
	if there != len(w.fold.queues) {
		w.t.Fatalf("%d queues are in the state; the events say %d", there, len(w.fold.queues))
	}
}

func (w *world) limitOf(a *placement.Amounts, set uint32) plimsoll.Resources {
	if set == 0 {
		return nil
	}
	return w.engine.State().Names.Masked(a, set)
}

// sameAmounts compares resources; a name that is missing counts as 0.
func sameAmounts(a, b plimsoll.Resources) bool {
	for _, r := range []plimsoll.Resources{a, b} {
		for name := range r {
			if a[name] != b[name] {
				return false
			}
		}
	}
	return true
}
