package client

import (
	"context"
	"iter"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Task reads a task.
func (c *Client) Task(ctx context.Context, id string) (plimsoll.Task, error) {
	res, err := call(ctx, c, c.jobs.GetTask, &pb.GetTaskRequest{Id: id, Consistency: c.consistency(ctx)})
	if err != nil {
		return plimsoll.Task{}, err
	}
	return wire.TaskFromProto(res.GetTask()), nil
}

// TaskFilter chooses tasks. An empty field does not restrict.
type TaskFilter struct {
	Job    string
	Node   string // tasks that are on it now
	States []plimsoll.TaskState
	// PageSize is the most tasks of one request. 0: the server's bound.
	PageSize int32
}

// Tasks reads the tasks that the filter chooses, in the order of job, group and index. It stops
// after the first error.
func (c *Client) Tasks(ctx context.Context, filter TaskFilter) iter.Seq2[plimsoll.Task, error] {
	return func(yield func(plimsoll.Task, error) bool) {
		req := &pb.ListTasksRequest{
			Job: filter.Job, Node: filter.Node, Limit: filter.PageSize, Consistency: c.consistency(ctx),
		}
		for _, s := range filter.States {
			req.States = append(req.States, pb.TaskState(s))
		}
		for {
			res, err := call(ctx, c, c.jobs.ListTasks, req)
			if err != nil {
				yield(plimsoll.Task{}, err)
				return
			}
			for _, m := range res.GetTasks() {
				if !yield(wire.TaskFromProto(m), nil) {
					return
				}
			}
			if req.After = res.GetNext(); req.After == "" {
				return
			}
		}
	}
}
