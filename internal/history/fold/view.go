package fold

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// View is the cluster at an instant. Its lists belong to the caller.
type View struct {
	Time   int64   // of the newest event, Unix nanoseconds
	Jobs   []Job   // by id
	Nodes  []Node  // by id
	Queues []Queue // by path
}

// Job is a job that the cluster knew, perhaps one that had ended.
type Job struct {
	history.Job
	Known     bool // UID, Owner and Labels are known
	Queued    bool // it had not left its queue
	Tasks     int  // that were wanted
	Allocated int  // of them, those that had a node
	Used      plimsoll.Resources
}

// Node is a node.
type Node struct {
	ID        string
	Capacity  plimsoll.Resources
	Occupied  plimsoll.Resources // by others than its tasks; nil: it was not told
	Allocated plimsoll.Resources // by its tasks
	Tasks     int
	Ready     bool
	Cordoned  bool // a person had closed it for new tasks
	Closed    bool // its agent had
}

// Queue is a queue.
type Queue struct {
	Path       string
	Leaf       bool
	Draining   bool
	Max        plimsoll.Resources // nil: no limit
	Guaranteed plimsoll.Resources // nil: none
	Allocated  plimsoll.Resources // by tasks of its jobs and of those below it
	Jobs       int                // that had not ended, in it and below it
}

// Task is a task that was wanted.
type Task struct {
	Job       string
	Group     string
	Index     int32
	Allocated bool
	Node      string // empty if it had none
	Requested int64  // Unix nanoseconds; 0: not known
	Since     int64  // time of the allocation; 0: it has none
	Resources plimsoll.Resources
}

// ID returns the id of the task.
func (t *Task) ID() string { return plimsoll.TaskID(t.Job, t.Group, t.Index) }

// View returns the cluster as all events have left it.
func (f *Fold) View() *View {
	v := &View{Time: f.clock}
	queues := map[string]*Queue{}
	for _, path := range slices.Sorted(maps.Keys(f.queues)) {
		q := f.queues[path]
		v.Queues = append(v.Queues, Queue{
			Path: path, Leaf: !q.parent, Draining: q.draining, Max: limit(q.max), Guaranteed: limit(q.guaranteed),
			Allocated: plimsoll.Resources{},
		})
	}
	for i := range v.Queues {
		queues[v.Queues[i].Path] = &v.Queues[i]
	}
	onNodes := map[*node]plimsoll.Resources{}
	for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
		v.Jobs = append(v.Jobs, f.jobs[id].view(onNodes))
		v.Jobs[len(v.Jobs)-1].enter(queues)
	}
	for _, id := range slices.Sorted(maps.Keys(f.nodes)) {
		n := f.nodes[id]
		allocated := onNodes[n]
		if allocated == nil {
			allocated = plimsoll.Resources{}
		}
		v.Nodes = append(v.Nodes, Node{
			ID: id, Capacity: resourcesOf(n.capacity), Occupied: limit(n.occupied), Allocated: allocated,
			Tasks: int(n.tasks), Ready: n.ready, Cordoned: n.cordoned, Closed: n.closed,
		})
	}
	return v
}

func limit(list []amount) plimsoll.Resources {
	if list == nil {
		return nil
	}
	return resourcesOf(list)
}

// view returns the job, and adds up what its tasks take on nodes.
func (j *job) view(onNodes map[*node]plimsoll.Resources) Job {
	is := Job{Job: j.Job, Known: j.headed, Queued: j.queued, Tasks: int(j.tasks), Used: plimsoll.Resources{}}
	for _, g := range j.groups {
		count := 0
		for _, index := range sortedKeys(g.tasks) {
			t := g.tasks[index]
			if t.is(allocated) {
				count++
			}
			if t.node == nil {
				continue
			}
			sum := onNodes[t.node]
			if sum == nil {
				sum = plimsoll.Resources{}
				onNodes[t.node] = sum
			}
			for _, a := range g.amounts {
				sum[a.name] += a.value
			}
		}
		if is.Allocated += count; count > 0 {
			for _, a := range g.amounts {
				is.Used[a.name] += int64(count) * a.value
			}
		}
	}
	return is
}

// enter adds a job to its queue and those above it.
func (j *Job) enter(queues map[string]*Queue) {
	for path := j.Queue; path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
		q := queues[path]
		if q == nil {
			continue
		}
		if j.Queued {
			q.Jobs++
		}
		for _, name := range slices.Sorted(maps.Keys(j.Used)) {
			q.Allocated[name] += j.Used[name]
		}
	}
}

// Tasks yields the tasks that are wanted, in the order of jobs, groups and indexes. With a job, it
// yields those of that one. The fold must not change meanwhile.
func (f *Fold) Tasks(job string) iter.Seq[Task] {
	return func(yield func(Task) bool) {
		ids := []string{job}
		if job == "" {
			ids = slices.Sorted(maps.Keys(f.jobs))
		}
		for _, id := range ids {
			if j := f.jobs[id]; j != nil && !j.yield(yield) {
				return
			}
		}
	}
}

func (j *job) yield(yield func(Task) bool) (more bool) {
	groups := slices.SortedFunc(slices.Values(j.groups), func(a, b *group) int { return cmp.Compare(a.name, b.name) })
	for _, g := range groups {
		resources := resourcesOf(g.amounts)
		for _, index := range sortedKeys(g.tasks) {
			t := g.tasks[index]
			is := Task{
				Job: j.ID, Group: g.name, Index: index, Allocated: t.is(allocated), Requested: t.requested,
				Resources: resources,
			}
			if is.Allocated {
				is.Since = t.since
			}
			if t.node != nil {
				is.Node = t.node.id
			}
			if !yield(is) {
				return false
			}
		}
	}
	return true
}

// sortedKeys returns the keys of a map in their order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := slices.AppendSeq(make([]K, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}
