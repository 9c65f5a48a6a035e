package client

import (
	"context"
	"iter"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Task reads a task of the newest job with its id.
func (c *Client) Task(ctx context.Context, id string) (plimsoll.Task, error) {
	found, err := c.FindTask(ctx, TaskName{ID: id})
	return found.Task, err
}

// TaskName names a task.
type TaskName struct {
	ID     string
	JobUID string   // the lifetime of the job; empty: the newest
	Fields []string // that are read, such as "state"; empty: all
}

// FoundTask is a task with its place.
type FoundTask struct {
	plimsoll.Task
	Archived bool // as FoundJob.Archived
}

// FindTask reads a task, from the active store or the archive.
func (c *Client) FindTask(ctx context.Context, name TaskName) (FoundTask, error) {
	res, err := call(ctx, c, c.jobs.GetTask, &pb.GetTaskRequest{
		Id: name.ID, JobUid: name.JobUID, Fields: name.Fields, Consistency: c.consistency(ctx),
	})
	if err != nil {
		return FoundTask{}, err
	}
	return FoundTask{wire.TaskFromProto(res.GetTask()), res.GetArchived()}, nil
}

// Attempts reads the attempts of a task, the oldest first. The last one may not have ended. The
// number of the first is above 1 if earlier ones are forgotten: those of a cell without an archive.
// An empty jobUID stands for the newest job. It stops after the first error.
func (c *Client) Attempts(ctx context.Context, task, jobUID string) iter.Seq2[plimsoll.Attempt, error] {
	return func(yield func(plimsoll.Attempt, error) bool) {
		req := &pb.ListAttemptsRequest{Task: task, JobUid: jobUID, Consistency: c.consistency(ctx)}
		for {
			res, err := call(ctx, c, c.jobs.ListAttempts, req)
			if err != nil {
				yield(plimsoll.Attempt{}, err)
				return
			}
			for _, m := range res.GetAttempts() {
				if !yield(wire.AttemptFromProto(m), nil) {
					return
				}
			}
			if req.After = res.GetNext(); req.After == 0 {
				return
			}
		}
	}
}
