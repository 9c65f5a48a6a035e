package fold

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// node is a node. A list that is nil has not been told.
type node struct {
	id       string
	capacity []amount
	occupied []amount
	ready    bool
	cordoned bool  // by a person
	closed   bool  // by its agent
	tasks    int32 // that have it in task.node
	listed   uint64
	number   int // in the encoded fold
}

// queue is a queue.
type queue struct {
	path       string
	max        []amount
	guaranteed []amount
	parent     bool
	draining   bool
	listed     uint64
}

func (t *task) leaveNode() {
	if t.node != nil {
		t.node.tasks--
		t.node = nil
	}
}

// node applies an event of a node. One that is unknown was gone when the lists were read.
func (f *Fold) node(e *plimsoll.Event) {
	if e.Change == plimsoll.ChangeAdd && e.Detail == plimsoll.DetailNone {
		f.addNode(e.Object, e.Resources)
		return
	}
	if e.Detail == plimsoll.NodeAlloc {
		f.nodeTask(e)
		return
	}
	n := f.nodes[e.Object]
	if n == nil {
		f.unexpected()
		return
	}
	switch e.Detail {
	case plimsoll.NodeReady:
		n.ready, _ = readSwitch(e.Message)
	case plimsoll.NodeSchedulable:
		on, byAgent := readSwitch(e.Message)
		if byAgent {
			n.closed = !on
		} else {
			n.cordoned = !on
		}
	case plimsoll.NodeCapacity:
		n.capacity = f.amountsOf(e.Resources)
	case plimsoll.NodeOccupied:
		n.occupied = f.amountsOf(e.Resources)
	case plimsoll.NodeDecomission:
		f.removeNode(n)
	}
}

// readSwitch reads a message such as "schedulable: false (its agent has stopped new tasks)". It has
// a reason if an agent is the cause.
func readSwitch(message string) (on, reason bool) {
	_, value, _ := strings.Cut(message, ": ")
	word, _, reason := strings.Cut(value, " (")
	return word == "true", reason
}

func (f *Fold) addNode(id string, capacity plimsoll.Resources) {
	n := f.nodes[id]
	if n == nil {
		n = &node{id: strings.Clone(id)}
		f.nodes[n.id] = n
		f.bytes += nodeBytes + len(id)
	} else {
		f.unexpected()
		*n = node{id: n.id, tasks: n.tasks, listed: n.listed}
	}
	n.capacity = f.amountsOf(capacity)
}

// removeNode removes a node. It has no tasks, but for those that a list has shown on one that comes
// later and has its id.
func (f *Fold) removeNode(n *node) {
	if n.tasks > 0 {
		f.unexpected()
		for _, id := range sortedKeys(f.jobs) {
			for _, g := range f.jobs[id].groups {
				for _, index := range sortedKeys(g.tasks) {
					if t := g.tasks[index]; t.node == n {
						t.leaveNode()
						g.tasks[index] = t
					}
				}
			}
		}
	}
	delete(f.nodes, n.id)
	f.bytes -= nodeBytes + len(n.id)
}

// nodeTask puts a task on a node, or takes it away.
func (f *Fold) nodeTask(e *plimsoll.Event) {
	id, name, index, ok := SplitTask(e.Reference)
	j, n := f.jobs[id], f.nodes[e.Object]
	if !ok || n == nil || j == nil {
		f.unexpected()
		return
	}
	g := f.groupOf(j, name, e.Resources)
	t, known := g.tasks[index]
	if e.Change == plimsoll.ChangeAdd {
		if !known && j.early {
			t.flags = listed
		}
		if !known || t.node != nil && t.node != n {
			f.unexpected()
		}
		t.leaveNode()
		t.node = n
		n.tasks++
		f.put(place{g, index}, t, known)
		return
	}
	if t.node != n {
		f.unexpected()
		return
	}
	t.leaveNode()
	g.tasks[index] = t
}

// queue applies an event of a queue. One that is unknown was gone when the lists were read.
func (f *Fold) queue(e *plimsoll.Event) {
	switch {
	case e.Change == plimsoll.ChangeAdd && (e.Detail == plimsoll.DetailNone || e.Detail == plimsoll.QueueDynamic):
		f.addQueue(e.Object)
		return
	case e.Detail == plimsoll.QueueApp:
		f.queueJob(e)
		return
	}
	q := f.queues[e.Object]
	if q == nil {
		f.unexpected()
		return
	}
	switch {
	case e.Change == plimsoll.ChangeRemove && (e.Detail == plimsoll.DetailNone || e.Detail == plimsoll.QueueDynamic):
		delete(f.queues, q.path)
		f.bytes -= queueBytes + len(q.path)
	case e.Detail == plimsoll.QueueMax:
		q.max = f.limitOf(e.Resources)
	case e.Detail == plimsoll.QueueGuaranteed:
		q.guaranteed = f.limitOf(e.Resources)
	case e.Detail == plimsoll.QueueType:
		q.parent = !strings.HasSuffix(e.Message, "true")
	case e.Detail == plimsoll.QueueConfigured:
		if _, refused := e.QueuesRefused(); !refused {
			q.draining, _ = readSwitch(e.Message)
		}
	}
}

// limitOf returns nil for no limit.
func (f *Fold) limitOf(r plimsoll.Resources) []amount {
	if len(r) == 0 {
		return nil
	}
	return f.amountsOf(r)
}

func (f *Fold) addQueue(path string) {
	q := f.queues[path]
	if q == nil {
		q = &queue{path: strings.Clone(path)}
		f.queues[q.path] = q
		f.bytes += queueBytes + len(path)
	} else {
		f.unexpected()
		*q = queue{path: q.path, listed: q.listed}
	}
}

// queueJob puts a job into a queue, or takes it away.
func (f *Fold) queueJob(e *plimsoll.Event) {
	j, add := f.jobs[e.Reference], e.Change == plimsoll.ChangeAdd
	if j == nil {
		f.unexpected()
		return
	}
	if j.queued == add {
		f.unexpected()
	}
	if j.queued = add; j.Queue != e.Object {
		j.Queue = f.text(e.Object)
		f.tellJob(j)
	}
}
