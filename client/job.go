package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// SubmitJob submits a job and returns it as it was accepted, once that is durable. If spec.Token is
// empty a random one is sent, so that a retry does not submit the job twice. A caller that repeats
// a submit after a restart of its process sets the token itself.
func (c *Client) SubmitJob(ctx context.Context, spec plimsoll.JobSpec) (plimsoll.Job, error) {
	if spec.Token == "" {
		spec.Token = tokenOf(ctx)
	}
	res, err := change(ctx, c, c.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)})
	if err != nil {
		return plimsoll.Job{}, err
	}
	return wire.JobFromProto(res.GetJob()), nil
}

// Job reads a job with its specification.
func (c *Client) Job(ctx context.Context, id string) (plimsoll.Job, error) {
	res, err := call(ctx, c, c.jobs.GetJob, &pb.GetJobRequest{Id: id, Consistency: c.consistency(ctx)})
	if err != nil {
		return plimsoll.Job{}, err
	}
	return wire.JobFromProto(res.GetJob()), nil
}

// JobFilter chooses jobs. An empty field does not restrict.
type JobFilter struct {
	Queue  string
	Owner  string
	States []plimsoll.JobState
	// PageSize is the most jobs of one request. 0: the server's bound.
	PageSize int32
}

// Jobs reads the jobs that the filter chooses, in the order of their ids. It stops after the first
// error.
func (c *Client) Jobs(ctx context.Context, filter JobFilter) iter.Seq2[plimsoll.JobStatus, error] {
	return func(yield func(plimsoll.JobStatus, error) bool) {
		req := &pb.ListJobsRequest{
			Queue: filter.Queue, Owner: filter.Owner, Limit: filter.PageSize, Consistency: c.consistency(ctx),
		}
		for _, s := range filter.States {
			req.States = append(req.States, pb.JobState(s))
		}
		for {
			res, err := call(ctx, c, c.jobs.ListJobs, req)
			if err != nil {
				yield(plimsoll.JobStatus{}, err)
				return
			}
			for _, m := range res.GetJobs() {
				if !yield(wire.JobStatusFromProto(m), nil) {
					return
				}
			}
			if req.After = res.GetNext(); req.After == "" {
				return
			}
		}
	}
}

// WatchJob sends the job's status now and after each change. Its last status is the one that says
// that the job has ended. The watch survives an absence of the gateway that is shorter than the
// retry budget; it does not see states that came and went meanwhile.
func (c *Client) WatchJob(ctx context.Context, id string) iter.Seq2[plimsoll.JobStatus, error] {
	return func(yield func(plimsoll.JobStatus, error) bool) {
		for r := c.newRetry(); ; {
			done, err := c.watchOnce(ctx, id, r, yield)
			if done {
				return
			}
			if err := r.wait(ctx, err); err != nil {
				yield(plimsoll.JobStatus{}, err)
				return
			}
		}
	}
}

// watchOnce reads one stream. done reports that the watch is over.
func (c *Client) watchOnce(
	ctx context.Context, id string, r *retry, yield func(plimsoll.JobStatus, error) bool,
) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.jobs.WatchJob(ctx, connect.NewRequest(&pb.WatchJobRequest{Id: id}))
	if err != nil {
		return false, wire.FromReadError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	for stream.Receive() {
		r.reset()
		status := wire.JobStatusFromProto(stream.Msg().GetStatus())
		if !yield(status, nil) || status.State.Ended() {
			return true, nil
		}
	}
	if err := stream.Err(); err != nil {
		return false, wire.FromReadError(ctx, err)
	}
	return false, plimsoll.Errorf(
		plimsoll.CodeUnavailable, "the server ended the watch of job %s before the job had ended", id,
	)
}

// KillJob asks to stop all tasks of a job. The reason is for people; it may be empty. KillJob
// returns when the request is durable, before the tasks have stopped.
func (c *Client) KillJob(ctx context.Context, id, reason string) (plimsoll.JobStatus, error) {
	res, err := change(ctx, c, c.jobs.KillJob, &pb.KillJobRequest{Id: id, Reason: reason, Token: tokenOf(ctx)})
	if err != nil {
		return plimsoll.JobStatus{}, err
	}
	return wire.JobStatusFromProto(res.GetStatus()), nil
}

// ScaleJob sets how many tasks a group has. The group may be empty if the job has only one.
func (c *Client) ScaleJob(ctx context.Context, id, group string, count int32) (plimsoll.JobStatus, error) {
	req := &pb.ScaleJobRequest{Id: id, Group: group, Count: count, Token: tokenOf(ctx)}
	res, err := change(ctx, c, c.jobs.ScaleJob, req)
	if err != nil {
		return plimsoll.JobStatus{}, err
	}
	return wire.JobStatusFromProto(res.GetStatus()), nil
}
