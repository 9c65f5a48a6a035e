package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
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

// LogOptions chooses the part of a task's output to read.
type LogOptions struct {
	Attempt   int32  // 0: the last one that has started
	Stream    string // "stdout" or "stderr"; empty: both
	Follow    bool   // wait for more until the attempt has ended
	TailBytes int64  // only this number of last bytes; 0: all
	TailLines int64  // only this number of last lines of each stream; 0: all
}

// LogChunk is a piece of a task's output.
type LogChunk struct {
	Stream string // "stdout" or "stderr"
	Data   []byte // the caller may keep and change it
}

// Logs reads the output of a task. The call is retried only until the first chunk has come: a later
// retry would send the same output again.
func (c *Client) Logs(ctx context.Context, task string, options LogOptions) iter.Seq2[LogChunk, error] {
	return func(yield func(LogChunk, error) bool) {
		for r := c.newRetry(); ; {
			begun, done, err := c.logsOnce(ctx, task, options, yield)
			if done {
				return
			}
			if !begun {
				err = r.wait(ctx, err)
			}
			if err != nil {
				yield(LogChunk{}, err)
				return
			}
		}
	}
}

// logsOnce reads one stream. begun reports that a chunk was read, done that the read is over.
func (c *Client) logsOnce(
	ctx context.Context, task string, options LogOptions, yield func(LogChunk, error) bool,
) (begun, done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.jobs.ReadLogs(ctx, connect.NewRequest(&pb.ReadLogsRequest{
		Task: task, Attempt: options.Attempt, Stream: options.Stream, Follow: options.Follow,
		TailBytes: options.TailBytes,
		TailLines: options.TailLines,
	}))
	if err != nil {
		return false, false, wire.FromReadError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	// pause is the longest time between two reads of the stream.
	var pause time.Duration
	for stream.Receive() {
		begun = true
		read := time.Now()
		if !yield(LogChunk{Stream: stream.Msg().GetStream(), Data: stream.Msg().GetData()}, nil) {
			return begun, true, nil
		}
		pause = max(pause, time.Since(read))
	}
	if err := stream.Err(); err != nil {
		return begun, false, afterPause(wire.FromReadError(ctx, err), pause)
	}
	return begun, true, nil
}

// afterPause explains the error of a stream that the caller did not read for a while. Its server
// cuts such a stream, and cannot send the reason on it.
func afterPause(err error, pause time.Duration) error {
	if plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || pause < transport.DefaultUnreadTimeout {
		return err
	}
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Err: err, Msg: fmt.Sprintf(
		"the connection broke after nothing was read for %s; servers cut a stream that is not read for %s: read it again",
		pause.Round(time.Second), transport.DefaultUnreadTimeout)}
}
