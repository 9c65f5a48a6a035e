package rest

import (
	"encoding/json"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// queueInfo is a queue of /queues and /queue/{queue}.
type queueInfo struct {
	QueueName          string  `json:"queuename"`
	Status             string  `json:"status,omitempty"`
	Partition          string  `json:"partition"`
	PendingResource    amounts `json:"pendingResource,omitempty"`
	MaxResource        amounts `json:"maxResource,omitempty"`
	GuaranteedResource amounts `json:"guaranteedResource,omitempty"`
	AllocatedResource  amounts `json:"allocatedResource,omitempty"`
	Headroom           amounts `json:"headroom,omitempty"`
	IsLeaf             bool    `json:"isLeaf"`
	IsManaged          bool    `json:"isManaged"` // it is configured; otherwise a rule has made it
	// Properties are those that hold: stated by the queue, or inherited.
	Properties        map[string]string `json:"properties,omitempty"`
	Parent            string            `json:"parent,omitempty"`
	Template          *templateInfo     `json:"template,omitempty"`
	Children          json.RawMessage   `json:"children,omitempty"`
	ChildNames        []string          `json:"childNames,omitempty"`
	AbsUsedCapacity   amounts           `json:"absUsedCapacity,omitempty"`
	MaxRunningApps    int32             `json:"maxRunningApps,omitempty"`
	RunningApps       int32             `json:"runningApps,omitempty"`
	CurrentPriority   int32             `json:"currentPriority"`
	SortingPolicy     string            `json:"sortingPolicy,omitempty"`
	PrioritySorting   bool              `json:"prioritySorting"`
	PreemptionEnabled bool              `json:"preemptionEnabled"`
	IsPreemptionFence bool              `json:"isPreemptionFence"`
	PreemptionDelay   string            `json:"preemptionDelay,omitempty"`
	// QuotaPreemptionDelay is left out when a lowered maximum is to preempt nothing.
	QuotaPreemptionDelay string `json:"quotaPreemptionDelay,omitempty"`
	IsPriorityFence      bool   `json:"isPriorityFence"`
	PriorityOffset       int32  `json:"priorityOffset,omitempty"`
	// unicorn-history-server reads these.
	ID          string `json:"id"`
	PartitionID string `json:"partition_id"`
	ParentID    string `json:"parentID,omitempty"`
}

// templateInfo holds the settings of the queues that rules make below a queue.
type templateInfo struct {
	MaxApplications    int32             `json:"maxApplications,omitempty"`
	MaxResource        amounts           `json:"maxResource,omitempty"`
	GuaranteedResource amounts           `json:"guaranteedResource,omitempty"`
	Properties         map[string]string `json:"properties,omitempty"`
}

func templateInfoOf(t *plimsoll.QueueTemplate) *templateInfo {
	if t == nil {
		return nil
	}
	return &templateInfo{
		MaxApplications: t.MaxJobs, MaxResource: amountsOf(t.Max), GuaranteedResource: amountsOf(t.Guaranteed),
		Properties: t.Properties,
	}
}

// queueStated has the parts of a queue's configuration.
type queueStated struct {
	maxJobs    int32
	dynamic    bool
	properties map[string]string // with those that it inherits
	template   *plimsoll.QueueTemplate
}

// queueNode is a queue of the tree, with the limits that the queues below it inherit.
type queueNode struct {
	status   plimsoll.QueueStatus
	stated   queueStated
	headroom amounts // of this queue and those above it
	max      amounts
	children []*queueNode
}

// queueLimits are the facts of queues beside their own status.
type queueLimits struct {
	capacity amounts                // of all nodes: as in YuniKorn, the most that the root may take
	stated   map[string]queueStated // by path; of at most plimsoll.MaxQueues, and those that drain
}

func (a *reading) queueLimits() (l queueLimits, err error) {
	if l.capacity, err = a.capacity(); err != nil {
		return l, err
	}
	l.stated, err = a.statedQueues()
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

func (a *reading) statedQueues() (map[string]queueStated, error) {
	stated := map[string]queueStated{}
	config, has, err := a.storedQueues()
	if has {
		addStated(stated, "", nil, &config)
	}
	return stated, err
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
	q := &queueNode{status: status, stated: limits.stated[path], max: amountsOf(status.Max)}
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

// addStated adds a queue and those below it. above is the path of the queue above with a dot, and
// inherited has the properties that hold there.
func addStated(to map[string]queueStated, above string, inherited map[string]string, c *plimsoll.QueueConfig) {
	path, properties := above+c.Name, c.Properties
	if len(inherited) > 0 {
		properties = plimsoll.InheritProperties(inherited, c.Properties)
	}
	to[path] = queueStated{c.MaxJobs, c.Dynamic, properties, c.Template}
	for i := range c.Queues {
		addStated(to, path+".", properties, &c.Queues[i])
	}
}

// parentOf returns the path of the queue above; empty for the root.
func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '.'), 0)] }

// info returns a queue in YuniKorn's form. The children are those of the whole subtree, or none.
func (a *reading) info(q *queueNode, subtree bool) (queueInfo, error) {
	allocated, settings := usedOf(q.status.Allocated, q.max), plimsoll.ParseQueueSettings(q.stated.properties)
	info := queueInfo{
		QueueName: q.status.Path, Status: stateActive, Partition: partition,
		PendingResource: amountsOf(q.status.Pending), MaxResource: q.max,
		GuaranteedResource: amountsOf(q.status.Guaranteed), AllocatedResource: allocated, Headroom: q.headroom,
		IsLeaf: q.status.Leaf, IsManaged: !q.stated.dynamic, Properties: q.stated.properties,
		Parent: parentOf(q.status.Path), Template: templateInfoOf(q.stated.template),
		AbsUsedCapacity: percentages(allocated, q.max), MaxRunningApps: q.stated.maxJobs,
		RunningApps: max(q.status.Jobs-q.status.JobsWaiting, 0), SortingPolicy: "fair",
		PrioritySorting: settings.PrioritySort, IsPreemptionFence: settings.PreemptionFence,
		PreemptionDelay: settings.PreemptionDelay.String(), IsPriorityFence: settings.PriorityFence,
		PriorityOffset: settings.PriorityOffset,
		ID:             q.status.Path, PartitionID: partition, ParentID: parentOf(q.status.Path),
	}
	if q.status.Draining {
		info.Status = stateDraining
	}
	if q.status.Leaf && !settings.Fair {
		info.SortingPolicy = "fifo"
	}
	if settings.QuotaPreemptionDelay > 0 {
		info.QuotaPreemptionDelay = settings.QuotaPreemptionDelay.String()
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
			"Queue not found: there is no %q; /ws/v1/partition/default/queues has all", plimsoll.Shorten(path))
	}
	return nil
}
