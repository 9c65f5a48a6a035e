package gateway

import (
	"context"
	"iter"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// getTask answers with one task.
func (s jobService) getTask(ctx context.Context, req *pb.GetTaskRequest, a *answer) error {
	key, err := taskKey("id", req.GetId())
	if err != nil {
		return err
	}
	v, err := s.g.view(ctx, req)
	if err != nil {
		return err
	}
	data, ok := v.Get(wire.KindTask, key)
	if !ok {
		return noTask(req.GetId())
	}
	if err := a.add(fieldTask, wire.KindTask, key, data); err != nil {
		return err
	}
	return a.Finish(&pb.GetTaskResponse{Revision: v.Revision(), Epoch: v.Epoch(), AgeNanos: int64(v.age)})
}

// listTasks answers with the tasks that pass all filters, in the order of job, group and index.
func (s jobService) listTasks(ctx context.Context, req *pb.ListTasksRequest, a *answer) error {
	limit, err := s.g.limit(req.GetLimit())
	if err != nil {
		return err
	}
	after := ""
	if cursor := req.GetAfter(); cursor != "" {
		if after, err = taskKey("after", cursor); err != nil {
			return err
		}
	}
	v, err := s.g.view(ctx, req)
	if err != nil {
		return err
	}
	resp := &pb.ListTasksResponse{Revision: v.Revision(), Epoch: v.Epoch(), AgeNanos: int64(v.age)}
	want := taskCriteria(req)
	seen, listed, last := 0, 0, ""
	for key, data := range tasksOf(v.Snapshot, req, after) {
		if seen++; seen%lookEvery == 0 && ctx.Err() != nil {
			return callerGone(ctx)
		}
		if key <= after {
			continue
		}
		matches, err := taskMatches(&want, key, data)
		if err != nil {
			return err
		}
		if !matches {
			continue
		}
		if listed == limit || a.records > pageBytes {
			resp.Next = idOfTask(last)
			break
		}
		if err := a.add(fieldTasks, wire.KindTask, key, data); err != nil {
			return err
		}
		listed++
		last = key
	}
	if listed == 0 && after == "" {
		if err := checkTaskFilters(v.Snapshot, req); err != nil {
			return err
		}
	}
	return a.Finish(resp)
}

// tasksOf yields a range of task records that contains all requested ones.
func tasksOf(s *replica.Snapshot, want *pb.ListTasksRequest, after string) iter.Seq2[string, []byte] {
	return s.Tasks(replica.TaskCriteria{
		Job: want.GetJob(), Node: want.GetNode(), States: wire.EnumsFromProto[plimsoll.TaskState](want.GetStates()),
	}, after)
}

// taskMatches reports whether a task passes all filters. The filter of a node passes the tasks that
// are on it now. It looks at the fields of the record, which it does not decode.
func taskMatches(want *criteria, key string, data []byte) (bool, error) {
	if want.job != "" && !wire.IsTaskKeyOf(key, want.job) {
		return false, nil
	}
	if want.node == "" && len(want.states) == 0 {
		return true, nil
	}
	looked, err := wire.LookAtTask(data)
	if err != nil {
		return false, undecodable(wire.KindTask, key, err)
	}
	f := taskFacts(key, looked.Node, looked.State)
	return want.met(&f), nil
}
