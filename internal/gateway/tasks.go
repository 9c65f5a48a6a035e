package gateway

import (
	"context"
	"iter"
	"slices"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// GetTask answers with one task.
func (s jobService) GetTask(
	ctx context.Context, req *connect.Request[pb.GetTaskRequest],
) (*connect.Response[pb.GetTaskResponse], error) {
	if _, err := taskKey("id", req.Msg.GetId()); err != nil {
		return nil, err
	}
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	task, err := loadTask(snapshot, req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.GetTaskResponse{Task: task, Revision: snapshot.Revision()}), nil
}

// ListTasks answers with the tasks that pass all filters, in the order of job, group and index.
func (s jobService) ListTasks(
	ctx context.Context, req *connect.Request[pb.ListTasksRequest],
) (*connect.Response[pb.ListTasksResponse], error) {
	limit, err := s.g.limit(req.Msg.GetLimit())
	if err != nil {
		return nil, err
	}
	after := ""
	if cursor := req.Msg.GetAfter(); cursor != "" {
		if after, err = taskKey("after", cursor); err != nil {
			return nil, err
		}
	}
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListTasksResponse{Revision: snapshot.Revision()}
	looked, records := 0, 0
	task := &pb.Task{}
	for key, data := range tasksOf(snapshot, req.Msg, after) {
		if looked++; looked%lookEvery == 0 && ctx.Err() != nil {
			return nil, callerGone(ctx)
		}
		if key <= after {
			continue
		}
		if err := decode(wire.KindTask, key, data, task); err != nil {
			return nil, err
		}
		if !taskMatches(req.Msg, task) {
			continue
		}
		if n := len(resp.Tasks); n == limit || records > pageBytes {
			resp.Next = taskID(resp.Tasks[n-1])
			break
		}
		if err := holding(ctx, len(data)); err != nil {
			return nil, err
		}
		records += len(data)
		resp.Tasks = append(resp.Tasks, task)
		task = &pb.Task{}
	}
	if len(resp.Tasks) == 0 && after == "" {
		if err := checkTaskFilters(snapshot, req.Msg); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(resp), nil
}

// tasksOf yields a range of task records that contains all requested ones.
func tasksOf(s *replica.Snapshot, want *pb.ListTasksRequest, after string) iter.Seq2[string, []byte] {
	return s.Tasks(replica.TaskCriteria{
		Job: want.GetJob(), Node: want.GetNode(), States: wire.EnumsFromProto[plimsoll.TaskState](want.GetStates()),
	}, after)
}

func taskMatches(want *pb.ListTasksRequest, task *pb.Task) bool {
	return (want.GetJob() == "" || task.GetJob() == want.GetJob()) &&
		(want.GetNode() == "" || task.GetNode() == want.GetNode()) &&
		(len(want.GetStates()) == 0 || slices.Contains(want.GetStates(), task.GetState()))
}
