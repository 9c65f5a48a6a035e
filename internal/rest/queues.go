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

// tree returns the queues by their paths. There are at most plimsoll.MaxQueues, and those that
// drain.
func (a *reading) tree() (map[string]*queueNode, error) {
	capacity, err := a.totals()
	if err != nil {
		return nil, err
	}
	maxJobs := map[string]int32{}
	if data, has := a.records.Get(wire.KindQueueConfig, ""); has {
		config, err := wire.DecodeQueueConfig(data)
		if err != nil {
			return nil, undecodable("queues", err)
		}
		addMaxJobs(maxJobs, "", &config)
	}
	queues := make(map[string]*queueNode, a.records.Len(wire.KindQueueStatus))
	for path, data := range a.records.Scan(wire.KindQueueStatus, "", "") { // a parent comes before its children
		if err := a.look(); err != nil {
			return nil, err
		}
		status, err := wire.DecodeQueueStatus(data)
		if err != nil {
			return nil, undecodable(path, err)
		}
		q := &queueNode{status: status, maxJobs: maxJobs[path], max: amountsOf(status.Max)}
		if path == plimsoll.RootQueue {
			q.max = capacity.capacity // as in YuniKorn, what all nodes have together
		}
		q.headroom = q.max.minus(amountsOf(status.Allocated))
		if above := queues[parentOf(path)]; above != nil {
			q.inherit(above)
			above.children = append(above.children, q)
		}
		queues[path] = q
	}
	return queues, nil
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
