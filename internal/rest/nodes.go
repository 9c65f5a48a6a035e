package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// nodeInfo is a node of /nodes and /node/{node}.
type nodeInfo struct {
	NodeID      string            `json:"nodeID"`
	HostName    string            `json:"hostName,omitempty"`
	RackName    string            `json:"rackName,omitempty"`
	Partition   string            `json:"partition"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Capacity    amounts           `json:"capacity,omitempty"`
	Allocated   amounts           `json:"allocated,omitempty"`
	Available   amounts           `json:"available,omitempty"`
	Utilized    amounts           `json:"utilized,omitempty"`
	Allocations json.RawMessage   `json:"allocations,omitempty"`
	Schedulable bool              `json:"schedulable"`
	IsReserved  bool              `json:"isReserved"`
	// unicorn-history-server reads these two.
	ID          string `json:"id"`
	PartitionID string `json:"partition_id"`
}

// nodeRecords returns a node and its status.
func (a *reading) nodeRecords(id string) (node plimsoll.Node, status plimsoll.NodeStatus, err error) {
	if err := a.look(); err != nil {
		return node, status, err
	}
	data, has := a.records.Get(wire.KindNode, id)
	if !has {
		return node, status, plimsoll.Errorf(plimsoll.CodeNotFound,
			"Node not found: there is no %q; /ws/v1/partition/default/nodes has all", plimsoll.Shorten(id))
	}
	if node, err = wire.DecodeNode(data); err != nil {
		return node, status, undecodable(id, err)
	}
	if data, has = a.records.Get(wire.KindNodeStatus, id); has {
		if status, err = wire.DecodeNodeStatus(data); err != nil {
			return node, status, undecodable(id, err)
		}
	}
	return node, status, nil
}

func (a *reading) nodes() error {
	a.begin()
	for id := range a.records.Scan(wire.KindNode, "", "") {
		info, err := a.nodeInfo(id)
		if err != nil {
			return err
		}
		if err := a.element(info); err != nil {
			return err
		}
	}
	a.end()
	return nil
}

func (a *reading) node() error {
	if err := plimsoll.ValidateID("node", a.of("node")); err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	info, err := a.nodeInfo(a.of("node"))
	if err != nil {
		return err
	}
	return a.add(info)
}

// nodeInfo returns a node in YuniKorn's form.
func (a *reading) nodeInfo(id string) (nodeInfo, error) {
	info, err := a.emptyNode(id)
	if err != nil {
		return info, err
	}
	for key, data := range a.records.NodeTasks(id) {
		task, err := a.task(key, data)
		if err != nil {
			return info, err
		}
		of, err := a.facts(task.Job)
		if err != nil {
			return info, err
		}
		if info.Allocations, err = a.piece(info.Allocations, allocationOf(&task, of), 0); err != nil {
			return info, err
		}
	}
	return info, nil
}

// emptyNode returns a node in YuniKorn's form, but for its tasks.
func (a *reading) emptyNode(id string) (nodeInfo, error) {
	node, status, err := a.nodeRecords(id)
	if err != nil {
		return nodeInfo{}, err
	}
	capacity := amountsOf(node.Capacity)
	allocated := usedOf(status.Allocated, capacity)
	return nodeInfo{
		NodeID: id, HostName: node.Attributes["hostname"], RackName: node.Attributes["rack"], Partition: partition,
		Attributes: node.Attributes, Capacity: capacity, Allocated: allocated, Available: capacity.minus(allocated),
		Utilized: percentages(allocated, capacity), ID: id, PartitionID: partition,
		Schedulable: node.Ready && node.Mode == plimsoll.NodeActive && !node.Gate.Closed && !a.sick(&status),
	}, nil
}

// sick reports whether a node gets no tasks because it could not start its last ones.
func (a *reading) sick(status *plimsoll.NodeStatus) bool { return status.SickUntil > a.records.Time() }

// The parts into which the use of nodes is divided.
const (
	buckets       = 10
	percentBucket = 100 / buckets
)

// partitionUtilization is an element of /scheduler/node-utilizations.
type partitionUtilization struct {
	ClusterID    string            `json:"clusterId"`
	Partition    string            `json:"partition"`
	Utilizations []typeUtilization `json:"utilizations"`
}

type typeUtilization struct {
	Type        string              `json:"type"`
	Utilization []bucketUtilization `json:"utilization"`
}

type bucketUtilization struct {
	BucketName string          `json:"bucketName"`
	NumOfNodes int             `json:"numOfNodes"`
	NodeNames  json.RawMessage `json:"nodeNames"`
}

// utilizations answers with the nodes by their use of each resource.
func (a *reading) utilizations() error {
	byType := map[string][]bucketUtilization{}
	for id := range a.records.Scan(wire.KindNode, "", "") {
		node, status, err := a.nodeRecords(id)
		if err != nil {
			return err
		}
		for name, used := range percentages(amountsOf(status.Allocated), amountsOf(node.Capacity)) {
			if byType[name] == nil {
				byType[name] = newBuckets()
			}
			// 0 to 10 % are the first part, 11 to 20 % the second.
			b := &byType[name][min(max(used-1, 0)/percentBucket, buckets-1)]
			b.NumOfNodes++
			if b.NodeNames, err = a.piece(b.NodeNames, id, 0); err != nil {
				return err
			}
		}
	}
	answer := partitionUtilization{ClusterID: clusterName, Partition: partition, Utilizations: []typeUtilization{}}
	for _, name := range slices.Sorted(maps.Keys(byType)) {
		for i := range byType[name] {
			if b := &byType[name][i]; b.NodeNames == nil {
				b.NodeNames = json.RawMessage("[]")
			}
		}
		answer.Utilizations = append(answer.Utilizations, typeUtilization{name, byType[name]})
	}
	a.begin()
	defer a.end()
	return a.element(answer)
}

func newBuckets() []bucketUtilization {
	list := make([]bucketUtilization, buckets)
	for i := range list {
		list[i].BucketName = fmt.Sprintf("%d-%d%%", i*percentBucket, (i+1)*percentBucket)
	}
	return list
}
