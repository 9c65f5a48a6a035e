package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ChangeType is the type of a Change.
type ChangeType uint8

// The types of changes. The first three make up a snapshot; the numbers are no wire format.
const (
	// ChangeReset says that a snapshot begins. Objects known from before count no more: those that
	// still exist follow with ChangePresent.
	ChangeReset   ChangeType = 1 + iota
	ChangePresent            // the object is part of the snapshot
	ChangeSynced             // the snapshot is complete
	ChangeAdded              // the object is new, or meets the criteria now and did not before
	ChangeUpdated            // the object met the criteria before and does now
	ChangeLeft               // the object no longer meets the criteria; Object is its state now
	ChangeDeleted            // the object was deleted; Object is its state before
	// ChangeBookmark moves the point, and has no object.
	ChangeBookmark

	numChangeTypes
)

var changeTypes = [numChangeTypes]string{
	"", "reset", "present", "synced", "added", "updated", "left", "deleted", "bookmark",
}

// String returns the type's word, such as "updated".
func (t ChangeType) String() string {
	if t >= numChangeTypes {
		return ""
	}
	return changeTypes[t]
}

// WatchPoint is a place in the sequence of changes. The zero value is before everything: a watch
// from there begins with a snapshot.
type WatchPoint struct {
	Epoch    uint64
	Revision uint64 // every change up to this revision lies before the point
	// Part is the number of objects changed by the next revision that lie before it too. The
	// largest value stands for a place at which no watch resumes.
	Part uint32
}

// Change is one message of a watch.
type Change[T any] struct {
	Type   ChangeType
	Object T
	// Revision is the revision of the change; 0 if Type is not ChangeAdded, ChangeUpdated,
	// ChangeLeft or ChangeDeleted.
	Revision uint64
	// Archived is set with ChangeDeleted for a job that is in the archive now.
	Archived bool
	// Point is where a later watch with the same criteria resumes. Changes that arrived together
	// have the point before them, except the last, which has the point behind it. Zero: the
	// snapshot is not complete.
	Point WatchPoint
}

// WatchJobs sends the status of all jobs that the filter chooses, and then each change. It begins
// with a strict read if from is zero, and resumes at from otherwise.
//
// After a break the watch goes on where it was, if the server is away for less than the retry
// budget. When another leader takes over it goes on too, with one change for each object that
// differs. If the servers no longer have the changes of that time it begins again: ChangeReset says
// so. It ends with its context or after the first error that no retry mends.
func (c *Client) WatchJobs(
	ctx context.Context, filter JobFilter, from WatchPoint,
) iter.Seq2[Change[plimsoll.JobStatus], error] {
	return watched(ctx, c, c.watches.WatchJobs, from, func(p *pb.WatchPoint) *pb.WatchJobsRequest {
		return jobsRequest(filter, p, false)
	}, statusOf)
}

// WatchWholeJobs is WatchJobs with the jobs' specifications.
func (c *Client) WatchWholeJobs(
	ctx context.Context, filter JobFilter, from WatchPoint,
) iter.Seq2[Change[plimsoll.Job], error] {
	return watched(ctx, c, c.watches.WatchJobs, from, func(p *pb.WatchPoint) *pb.WatchJobsRequest {
		return jobsRequest(filter, p, true)
	}, func(m *pb.WatchedJob) plimsoll.Job { return wire.JobFromProto(m.GetJob()) })
}

func jobsRequest(filter JobFilter, from *pb.WatchPoint, specs bool) *pb.WatchJobsRequest {
	return &pb.WatchJobsRequest{
		Ids: filter.IDs, Queue: filter.Queue, Owner: filter.Owner, Labels: filter.Labels,
		States: numbersOf[pb.JobState](filter.States), Results: numbersOf[pb.TaskResult](filter.Results),
		Specs: specs, From: from,
	}
}

// WatchTasks sends all tasks that the filter chooses, and then each change, as WatchJobs does.
func (c *Client) WatchTasks(
	ctx context.Context, filter TaskFilter, from WatchPoint,
) iter.Seq2[Change[plimsoll.Task], error] {
	return watched(ctx, c, c.watches.WatchTasks, from, filter.watch, taskOf)
}

// watch returns the request of a watch that resumes at a point; nil: it begins with a snapshot.
func (f TaskFilter) watch(from *pb.WatchPoint) *pb.WatchTasksRequest {
	return &pb.WatchTasksRequest{
		Job: f.Job, Node: f.Node, States: numbersOf[pb.TaskState](f.States),
		Results: numbersOf[pb.TaskResult](f.Results), ExitCodes: f.ExitCodes, From: from,
	}
}

// WatchNodes sends all nodes, and then each change, as WatchJobs does.
func (c *Client) WatchNodes(ctx context.Context, from WatchPoint) iter.Seq2[Change[NodeInfo], error] {
	return watched(ctx, c, c.watches.WatchNodes, from, nodesRequest, nodeOf)
}

// WatchQueues sends all queues, and then each change, as WatchJobs does.
func (c *Client) WatchQueues(ctx context.Context, from WatchPoint) iter.Seq2[Change[plimsoll.QueueStatus], error] {
	return watched(ctx, c, c.watches.WatchQueues, from, queuesRequest, queueOf)
}

func nodesRequest(from *pb.WatchPoint) *pb.WatchNodesRequest {
	return &pb.WatchNodesRequest{From: from}
}

func queuesRequest(from *pb.WatchPoint) *pb.WatchQueuesRequest {
	return &pb.WatchQueuesRequest{From: from}
}

func statusOf(m *pb.WatchedJob) plimsoll.JobStatus {
	return wire.JobStatusFromProto(m.GetJob().GetStatus())
}

func taskOf(m *pb.WatchedTask) plimsoll.Task { return wire.TaskFromProto(m.GetTask()) }

func nodeOf(m *pb.WatchedNode) NodeInfo {
	n := m.GetNode()
	return NodeInfo{Node: wire.NodeFromProto(n.GetNode()), Status: wire.NodeStatusFromProto(n.GetStatus())}
}

func queueOf(m *pb.WatchedQueue) plimsoll.QueueStatus { return wire.QueueStatusFromProto(m.GetQueue()) }

// watchedObject is an object in a message of a watch.
type watchedObject interface {
	GetChange() pb.WatchChange
	GetRevision() uint64
}

// watchMessage is a message of a watch, whose objects are of type E.
type watchMessage interface {
	GetPoint() *pb.WatchPoint
	GetSnapshotEnd() bool
}

// objectsOf returns the objects of a message.
func objectsOf[E watchedObject](m any) []E {
	var objects any
	switch m := m.(type) {
	case *pb.WatchJobsResponse:
		objects = m.GetJobs()
	case *pb.WatchTasksResponse:
		objects = m.GetTasks()
	case *pb.WatchNodesResponse:
		objects = m.GetNodes()
	case *pb.WatchQueuesResponse:
		objects = m.GetQueues()
	}
	all, _ := objects.([]E)
	return all
}

// watched runs a watch through its breaks.
func watched[Req, Res any, E watchedObject, T any](
	ctx context.Context, c *Client,
	rpc func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error),
	from WatchPoint, request func(*pb.WatchPoint) *Req, object func(E) T,
) iter.Seq2[Change[T], error] {
	return func(yield func(Change[T], error) bool) {
		w := watching[T]{point: from, yield: yield}
		for r := c.newRetry(); ; {
			begun, err := watchStream(ctx, &w, r, rpc, request, object)
			if w.over {
				return
			}
			if plimsoll.CodeOf(err) == plimsoll.CodeStale {
				w.point = WatchPoint{}
				if begun || r.failures == 0 {
					r.failures++
					continue
				}
				err = &plimsoll.Error{Code: plimsoll.CodeUnavailable, Err: err}
			}
			if err := r.wait(ctx, err); err != nil {
				yield(Change[T]{}, err)
				return
			}
		}
	}
}

// watching is the state of a watch across its streams.
type watching[T any] struct {
	point WatchPoint // where the next stream resumes; zero: it begins with a snapshot
	yield func(Change[T], error) bool
	over  bool // the caller wants no more
}

func (w *watching[T]) send(change Change[T]) bool {
	w.over = w.over || !w.yield(change, nil)
	return !w.over
}

// watchStream reads one stream to its end. begun reports that it sent a message.
func watchStream[Req, Res any, E watchedObject, T any](
	ctx context.Context, w *watching[T], r *retry,
	rpc func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error),
	request func(*pb.WatchPoint) *Req, object func(E) T,
) (begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var from *pb.WatchPoint
	if p := w.point; p != (WatchPoint{}) {
		from = &pb.WatchPoint{Epoch: p.Epoch, Revision: p.Revision, Part: p.Part}
	}
	stream, err := rpc(ctx, connect.NewRequest(request(from)))
	if err != nil {
		return false, r.readError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	for stream.Receive() {
		if !begun && from == nil && !w.send(Change[T]{Type: ChangeReset}) {
			return true, nil
		}
		begun = true
		r.reset()
		m, _ := any(stream.Msg()).(watchMessage) // every response of WatchService but that of events
		if !w.receive(m, objectChanges(w.point, objectsOf[E](m), object)) {
			return true, nil
		}
	}
	if err := stream.Err(); err != nil {
		return begun, r.readError(ctx, err)
	}
	return begun, plimsoll.Errorf(plimsoll.CodeUnavailable, "the server ended the watch")
}

// objectChanges returns the changes of a message's objects.
func objectChanges[E watchedObject, T any](point WatchPoint, objects []E, object func(E) T) []Change[T] {
	changes := make([]Change[T], len(objects))
	for i, m := range objects {
		changes[i] = Change[T]{Type: typeOf(m.GetChange()), Object: object(m), Revision: m.GetRevision(), Point: point}
		if of, ok := any(m).(interface{ GetArchived() bool }); ok { // a job
			changes[i].Archived = of.GetArchived()
		}
	}
	return changes
}

// receive passes on one message.
func (w *watching[T]) receive(m watchMessage, changes []Change[T]) bool {
	p := m.GetPoint()
	behind := WatchPoint{Epoch: p.GetEpoch(), Revision: p.GetRevision(), Part: p.GetPart()}
	switch {
	case m.GetSnapshotEnd():
		changes = append(changes, Change[T]{Type: ChangeSynced, Point: behind})
	case p != nil && len(changes) == 0:
		changes = append(changes, Change[T]{Type: ChangeBookmark, Point: behind})
	case p != nil:
		changes[len(changes)-1].Point = behind
	}
	for _, change := range changes {
		if !w.send(change) {
			return false
		}
	}
	if p != nil {
		w.point = behind
	}
	return true
}

// typeOf returns the type of a change on the wire. A type that this version does not know is an
// update.
func typeOf(change pb.WatchChange) ChangeType {
	switch change {
	case pb.WatchChange_WATCH_CHANGE_PRESENT:
		return ChangePresent
	case pb.WatchChange_WATCH_CHANGE_ADDED:
		return ChangeAdded
	case pb.WatchChange_WATCH_CHANGE_LEFT:
		return ChangeLeft
	case pb.WatchChange_WATCH_CHANGE_DELETED:
		return ChangeDeleted
	}
	return ChangeUpdated
}
