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
}

// Arrival is a job with one group of tasks.
type Arrival struct {
	At          int64
	Job         string
	Owner       string
	Queue       string // a path, or a word by which Run finds a leaf; see Config
	Labels      map[string]string
	Tags        map[string]string
	Resources   plimsoll.Resources // of each task
	Priority    int32
	Constraints plimsoll.Constraints
	Tasks       []Task
	Killed      int64 // when the job is killed; 0: it is not
}

// Task is a task of an arrival: its attempts in their order. A further attempt is like the last.
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
		n += len(w.Arrivals[i].Tasks)
	}
	return n
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
		for k := range a.Tasks {
			a.Tasks[k] = Task{{}}
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
