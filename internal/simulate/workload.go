package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Workload is a stream of jobs and the nodes for them. Times are nanoseconds from its beginning.
type Workload struct {
	Name     string
	Nodes    []Node
	Arrivals []Arrival
	Notes    []string // facts of the source that are left out or changed
	// Recorded says that the workload is one of the past: TaskGroup.Waits has the waits of then.
	Recorded bool
	// WaitingAtEnd has how many tasks waited then at the end, by queue.
	WaitingAtEnd map[string]int
}

// Node is a machine of a workload.
type Node struct {
	ID         string
	Capacity   plimsoll.Resources
	Attributes map[string]string
	Facts      plimsoll.NodeFacts
	From       int64 // when it joins
	Until      int64 // when it is gone; 0: never
	Closed     bool  // it takes no tasks
	// States are its states in the course of time, in their order. From, Until and Closed have no
	// effect then.
	States []NodeState
}

// Arrival is a job.
type Arrival struct {
	At     int64
	Job    string
	Owner  string
	Queue  string // a path, or a word by which Run finds a leaf; see Config
	Labels map[string]string
	Tags   map[string]string
	Groups []TaskGroup
	Scales []Scale // in the order of their times
	Killed int64   // when the job is killed; 0: it is not
}

// TaskGroup is a group of tasks of a job.
type TaskGroup struct {
	Name        string             // empty if it is the only one
	Resources   plimsoll.Resources // of each task
	Priority    int32
	Constraints plimsoll.Constraints
	Tasks       []Task
	Later       int32 // how many of them, at the end of Tasks, are asked for by Arrival.Scales
	// Waits has for each task of a recorded workload how long it waited then, in nanoseconds, or
	// NoWait, or StillWaits.
	Waits []int64
}

// Values of TaskGroup.Waits for tasks without a wait.
const (
	NoWait     = int64(-1) // it is not known how long the task waited, and it is in no wait
	StillWaits = int64(-2) // the task waited then until the end
)

// Scale changes how many tasks a group of a job has.
type Scale struct {
	At    int64
	Group string
	Count int32
}

// Task is a task of a group: its attempts in their order. A further attempt is like the last. An
// attempt that the loss of a node or the end of the job interrupts begins anew.
type Task []Attempt

// Attempt is one run of a task.
type Attempt struct {
	Runtime int64 // nanoseconds; 0: it runs until the end of the simulation
	Result  plimsoll.TaskResult
}

// tasks returns how many tasks the workload has.
func (w *Workload) tasks() int {
	n := 0
	for i := range w.Arrivals {
		n += w.Arrivals[i].tasks()
	}
	return n
}

func (a *Arrival) tasks() int {
	n := 0
	for i := range a.Groups {
		n += len(a.Groups[i].Tasks)
	}
	return n
}

// single returns the only group of an arrival.
func single(resources plimsoll.Resources, tasks ...Task) []TaskGroup {
	return []TaskGroup{{Resources: resources, Tasks: tasks}}
}

// sort puts the arrivals into the order of their times. Equal ones stay as they are.
func (w *Workload) sort() {
	slices.SortStableFunc(w.Arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
}

// Pack makes the workload a packing test: its jobs come one a second in order, and never end.
func (w *Workload) Pack() {
	w.sort()
	for i := range w.Arrivals {
		a := &w.Arrivals[i]
		a.At, a.Killed = int64(i)*second, 0
		for k := range a.Groups {
			for n := range a.Groups[k].Tasks {
				a.Groups[k].Tasks[n] = Task{{}}
			}
		}
	}
	w.Notes = append(w.Notes, "the jobs come one a second, in their order, and never end")
}

// Hasten divides the times between arrivals. How long tasks run stays the same, so the load grows.
func (w *Workload) Hasten(by float64) {
	for i := range w.Arrivals {
		w.Arrivals[i].At = int64(float64(w.Arrivals[i].At) / by)
		if a := &w.Arrivals[i]; a.Killed != 0 {
			a.Killed = max(int64(float64(a.Killed)/by), a.At+1)
		}
	}
}

// AddNodes adds nodes of one kind, named by a number.
func (w *Workload) AddNodes(count int, capacity plimsoll.Resources) {
	for range count {
		w.Nodes = append(w.Nodes, Node{ID: "added-" + padded(len(w.Nodes), 5), Capacity: capacity})
	}
}

// seconds is a time in seconds as nanoseconds.
func seconds(s float64) int64 { return int64(s * float64(time.Second)) }
