package rest

import (
	"encoding/json"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// queueInfo is a queue of /queues and /queue/{queue}.
type queueInfo struct {
	QueueName          string          `json:"queuename"`
	Status             string          `json:"status,omitempty"`
	Partition          string          `json:"partition"`
	PendingResource    amounts         `json:"pendingResource,omitempty"`
	MaxResource        amounts         `json:"maxResource,omitempty"`
	GuaranteedResource amounts         `json:"guaranteedResource,omitempty"`
	AllocatedResource  amounts         `json:"allocatedResource,omitempty"`
	Headroom           amounts         `json:"headroom,omitempty"`
	IsLeaf             bool            `json:"isLeaf"`
	IsManaged          bool            `json:"isManaged"`
	Parent             string          `json:"parent,omitempty"`
	Children           json.RawMessage `json:"children,omitempty"`
	ChildNames         []string        `json:"childNames,omitempty"`
	AbsUsedCapacity    amounts         `json:"absUsedCapacity,omitempty"`
	MaxRunningApps     int32           `json:"maxRunningApps,omitempty"`
	RunningApps        int32           `json:"runningApps,omitempty"`
	CurrentPriority    int32           `json:"currentPriority"`
	SortingPolicy      string          `json:"sortingPolicy,omitempty"`
	PrioritySorting    bool            `json:"prioritySorting"`
	PreemptionEnabled  bool            `json:"preemptionEnabled"`
	IsPreemptionFence  bool            `json:"isPreemptionFence"`
	IsPriorityFence    bool            `json:"isPriorityFence"`
	// unicorn-history-server reads these.
	ID          string `json:"id"`
	PartitionID string `json:"partition_id"`
	ParentID    string `json:"parentID,omitempty"`
}

// queueNode is a queue of the tree, with the limits that the queues below it inherit.
type queueNode struct {
	status   plimsoll.QueueStatus
	maxJobs  int32
	headroom amounts // of this queue and those above it
	max      amounts
	children []*queueNode
}

// queueLimits are the facts that the limits of queues follow from, beside their own status.
type queueLimits struct {
	capacity amounts          // of all nodes: as in YuniKorn, the most that the root may take
	maxJobs  map[string]int32 // by path; of at most plimsoll.MaxQueues, and those that drain
}

func (a *reading) queueLimits() (l queueLimits, err error) {
	if l.capacity, err = a.capacity(); err != nil {
		return l, err
	}
	l.maxJobs, err = a.maxJobs()
	return l, err
}

// capacity returns what all nodes have together.
func (a *reading) capacity() (amounts, error) {
	sum := amounts{}
	for id, data := range a.records.Scan(wire.KindNode, "", "") {
		if err := a.look(); err != nil {
			return nil, err
		}
		node, err := wire.DecodeNode(data)
		if err != nil {
			return nil, undecodable(id, err)
		}
		sum.add(node.Capacity, 1)
	}
	return sum, nil
}

func (a *reading) maxJobs() (map[string]int32, error) {
	maxJobs := map[string]int32{}
	if data, has := a.records.Get(wire.KindQueueConfig, ""); has {
		config, err := wire.DecodeQueueConfig(data)
		if err != nil {
			return nil, undecodable("queues", err)
		}
		addMaxJobs(maxJobs, "", &config)
	}
	return maxJobs, nil
}

// tree returns the queues by their paths. There are at most plimsoll.MaxQueues, and those that
// drain.
func (a *reading) tree() (map[string]*queueNode, error) {
	limits, err := a.queueLimits()
	if err != nil {
		return nil, err
	}
	queues := make(map[string]*queueNode, a.records.Len(wire.KindQueueStatus))
	for path, data := range a.records.Scan(wire.KindQueueStatus, "", "") { // a parent comes before its children
		if err := a.look(); err != nil {
			return nil, err
		}
		above := queues[parentOf(path)]
		q, err := newQueueNode(path, data, &limits, above)
		if err != nil {
			return nil, err
		}
		if above != nil {
			above.children = append(above.children, q)
		}
		queues[path] = q
	}
	return queues, nil
}

// queueAlone returns a queue without those below it; nil if there is none. It costs the queues
// above it.
func (a *reading) queueAlone(path string, limits *queueLimits) (*queueNode, error) {
	data, has := a.records.Get(wire.KindQueueStatus, path)
	if !has {
		return nil, nil //nolint:nilnil // as documented
	}
	var above *queueNode
	if parent := parentOf(path); parent != "" {
		var err error
		if above, err = a.queueAlone(parent, limits); err != nil {
			return nil, err
		}
	}
	return newQueueNode(path, data, limits, above)
}

// newQueueNode returns a queue of a record. above is nil for the root.
func newQueueNode(path string, data []byte, limits *queueLimits, above *queueNode) (*queueNode, error) {
	status, err := wire.DecodeQueueStatus(data)
	if err != nil {
		return nil, undecodable(path, err)
	}
	q := &queueNode{status: status, maxJobs: limits.maxJobs[path], max: amountsOf(status.Max)}
	if path == plimsoll.RootQueue {
		q.max = limits.capacity
	}
	q.headroom = q.max.minus(amountsOf(status.Allocated))
	if above != nil {
		q.inherit(above)
	}
	return q, nil
}

// inherit lowers the headroom to that of the queue above.
func (q *queueNode) inherit(above *queueNode) {
	for name, n := range above.headroom {
		if own, limited := q.headroom[name]; !limited || n < own {
			q.headroom[name] = n
		}
	}
}

func addMaxJobs(to map[string]int32, above string, c *plimsoll.QueueConfig) {
	path := above + c.Name
	to[path] = c.MaxJobs
	for i := range c.Queues {
		addMaxJobs(to, path+".", &c.Queues[i])
	}
}

// parentOf returns the path of the queue above; empty for the root.
func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '.'), 0)] }

// info returns a queue in YuniKorn's form. The children are those of the whole subtree, or none.
func (a *reading) info(q *queueNode, subtree bool) (queueInfo, error) {
	allocated := usedOf(q.status.Allocated, q.max)
	info := queueInfo{
		QueueName: q.status.Path, Status: stateActive, Partition: partition,
		PendingResource: amountsOf(q.status.Pending), MaxResource: q.max,
		GuaranteedResource: amountsOf(q.status.Guaranteed), AllocatedResource: allocated, Headroom: q.headroom,
		IsLeaf: q.status.Leaf, IsManaged: true, Parent: parentOf(q.status.Path),
		AbsUsedCapacity: percentages(allocated, q.max), MaxRunningApps: q.maxJobs,
		RunningApps: max(q.status.Jobs-q.status.JobsWaiting, 0), SortingPolicy: "fair",
		ID: q.status.Path, PartitionID: partition, ParentID: parentOf(q.status.Path),
	}
	if q.status.Draining {
		info.Status = stateDraining
	}
	if q.status.Leaf {
		info.SortingPolicy = "fifo"
	}
	for _, child := range q.children {
		info.ChildNames = append(info.ChildNames, child.status.Path)
		if !subtree {
			continue
		}
		below, err := a.info(child, true)
		if err != nil {
			return info, err
		}
		if info.Children, err = a.piece(info.Children, below, len(below.Children)); err != nil {
			return info, err
		}
	}
	return info, nil
}

// queues answers with the root and all queues below it.
func (a *reading) queues() error { return a.addQueue(plimsoll.RootQueue, true) }

func (a *reading) queue() error {
	subtree := a.values.Has("subtree") && a.values.Get("subtree") != "false"
	return a.addQueue(a.of("queue"), subtree)
}

func (a *reading) addQueue(path string, subtree bool) error {
	if err := a.checkQueue(path); err != nil {
		return err
	}
	queues, err := a.tree()
	if err != nil {
		return err
	}
	info, err := a.info(queues[path], subtree)
	if err != nil {
		return err
	}
	return a.add(info)
}

// checkQueue reports a path that is not that of a queue.
func (a *reading) checkQueue(path string) error {
	if err := plimsoll.ValidateQueuePath("queue", path); err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	if _, has := a.records.Get(wire.KindQueueStatus, path); !has {
		return plimsoll.Errorf(plimsoll.CodeNotFound,
			"Queue not found: there is no %q; /ws/v1/partition/default/queues has all", shorten(path))
	}
	return nil
}
