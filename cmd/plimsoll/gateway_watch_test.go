package main

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// errWatchEnds ends the watches of the fake gateway.
var errWatchEnds = plimsoll.Errorf(plimsoll.CodeConflict, "the fake gateway ends its watch here")

// WatchTasks sends the tasks of a job, one that begins to run, and one that leaves the criteria.
func (g *fakeGateway) WatchTasks(
	_ context.Context, req *connect.Request[pb.WatchTasksRequest], to *connect.ServerStream[pb.WatchTasksResponse],
) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	snapshot := &pb.WatchTasksResponse{SnapshotEnd: true, Point: &pb.WatchPoint{Epoch: 3, Revision: 40}}
	var last *pb.Task
	for i := range g.mu.tasks {
		if t := &g.mu.tasks[i]; req.Msg.GetJob() == "" || t.Job == req.Msg.GetJob() {
			last = wire.TaskToProto(t)
			present := &pb.WatchedTask{Change: pb.WatchChange_WATCH_CHANGE_PRESENT, Task: last}
			snapshot.Tasks = append(snapshot.Tasks, present)
		}
	}
	if err := to.Send(snapshot); err != nil {
		return err
	}
	last.State, last.Node, last.Attempt = pb.TaskState_TASK_STATE_RUNNING, "a-node-with-a-long-name", 1
	for i, change := range []pb.WatchChange{pb.WatchChange_WATCH_CHANGE_UPDATED, pb.WatchChange_WATCH_CHANGE_LEFT} {
		revision := uint64(41 + i)
		if err := to.Send(&pb.WatchTasksResponse{
			Tasks: []*pb.WatchedTask{{Change: change, Task: last, Revision: revision}},
			Point: &pb.WatchPoint{Epoch: 3, Revision: revision},
		}); err != nil {
			return err
		}
	}
	return wire.ConnectError(errWatchEnds)
}
