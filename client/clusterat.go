package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ClusterPart is a part of the cluster that ClusterAt shows beside the summary.
type ClusterPart uint8

// The parts. The numbers are those of the API.
const (
	PartNone ClusterPart = iota
	PartJobs
	PartNodes
	PartQueues
	PartTasks // those that waited or ran
)

// ClusterQuestion asks what the cluster looked like at an instant.
type ClusterQuestion struct {
	At       int64 // Unix nanoseconds; 0: now
	Part     ClusterPart
	PageSize int32 // objects in one answer; 0: the server's bound
}

// ClusterAt is the cluster at an instant, as its events tell it.
type ClusterAt struct {
	At         int64 // the instant; Unix nanoseconds
	Newest     int64 // time of the last event before it; Unix nanoseconds
	JobsBy     map[plimsoll.JobState]int64
	Waiting    int64 // tasks
	Running    int64 // tasks that were on a node
	Nodes      int64
	NodesReady int64 // those that took tasks
	Capacity   plimsoll.Resources
	Allocated  plimsoll.Resources

	// The page of the part that was asked for, in the order of ids.
	Jobs     []JobAt
	NodeList []NodeAt
	Queues   []QueueAt
	Tasks    []TaskAt
	Next     string // where the next page begins; empty: there is none
}

// Count returns the number of objects of the page.
func (c *ClusterAt) Count() int { return len(c.Jobs) + len(c.NodeList) + len(c.Queues) + len(c.Tasks) }

// JobAt is a job at an instant.
type JobAt struct {
	ID, Owner, Queue string
	State            plimsoll.JobState
	Submitted        int64 // Unix nanoseconds
	Waiting, Running int64 // tasks
	Allocated        plimsoll.Resources
}

// NodeAt is a node at an instant.
type NodeAt struct {
	ID                            string
	Ready, Schedulable            bool
	Capacity, Allocated, Occupied plimsoll.Resources
	Tasks                         int64
}

// QueueAt is a queue at an instant, with the queues below it.
type QueueAt struct {
	Path                       string
	Leaf, Draining             bool
	Max, Guaranteed, Allocated plimsoll.Resources
	Jobs                       int64 // that had not ended
}

// TaskAt is a task at an instant. Its Node is empty if it waited.
type TaskAt struct {
	ID, Node  string
	Resources plimsoll.Resources
}

// ClusterAt reads what the cluster looked like: the summary with the first page of a part, or with
// the page that the one before calls Next.
func (c *Client) ClusterAt(ctx context.Context, q ClusterQuestion, next string) (ClusterAt, error) {
	res, err := call(ctx, c, c.history.GetClusterAt, &pb.GetClusterAtRequest{
		At: q.At, Part: pb.ClusterPart(q.Part), After: next, Limit: q.PageSize,
	})
	if err != nil {
		return ClusterAt{}, err
	}
	return clusterAt(res), nil
}

func clusterAt(res *pb.GetClusterAtResponse) ClusterAt {
	at := ClusterAt{
		At: res.GetAt(), Newest: res.GetNewest(), Waiting: res.GetWaiting(), Running: res.GetRunning(),
		Nodes: res.GetNodesTotal(), NodesReady: res.GetNodesReady(),
		Capacity:  wire.ResourcesFromProto(res.GetCapacity()),
		Allocated: wire.ResourcesFromProto(res.GetAllocated()), Next: res.GetNext(),
		JobsBy: map[plimsoll.JobState]int64{},
	}
	for _, m := range res.GetJobsByState() {
		at.JobsBy[plimsoll.JobState(m.GetState())] = m.GetJobs()
	}
	for _, m := range res.GetJobs() {
		at.Jobs = append(at.Jobs, JobAt{
			ID: m.GetId(), Owner: m.GetOwner(), Queue: m.GetQueue(), State: plimsoll.JobState(m.GetState()),
			Submitted: m.GetSubmitted(), Waiting: m.GetWaiting(), Running: m.GetRunning(),
			Allocated: wire.ResourcesFromProto(m.GetAllocated()),
		})
	}
	for _, m := range res.GetNodes() {
		at.NodeList = append(at.NodeList, NodeAt{
			ID: m.GetId(), Ready: m.GetReady(), Schedulable: m.GetSchedulable(), Tasks: m.GetTasks(),
			Capacity:  wire.ResourcesFromProto(m.GetCapacity()),
			Allocated: wire.ResourcesFromProto(m.GetAllocated()),
			Occupied:  wire.ResourcesFromProto(m.GetOccupied()),
		})
	}
	for _, m := range res.GetQueues() {
		at.Queues = append(at.Queues, QueueAt{
			Path: m.GetPath(), Leaf: m.GetLeaf(), Draining: m.GetDraining(), Jobs: m.GetJobs(),
			Max: wire.ResourcesFromProto(m.GetMax()), Guaranteed: wire.ResourcesFromProto(m.GetGuaranteed()),
			Allocated: wire.ResourcesFromProto(m.GetAllocated()),
		})
	}
	for _, m := range res.GetTasks() {
		at.Tasks = append(at.Tasks, TaskAt{
			ID: m.GetId(), Node: m.GetNode(), Resources: wire.ResourcesFromProto(m.GetResources()),
		})
	}
	return at
}
