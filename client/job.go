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
	return c.submit(ctx, spec, false)
}

// ReplaceJob is SubmitJob for an id that an earlier job may have, if that has ended. The earlier
// job stays in the archive.
func (c *Client) ReplaceJob(ctx context.Context, spec plimsoll.JobSpec) (plimsoll.Job, error) {
	return c.submit(ctx, spec, true)
}

func (c *Client) submit(ctx context.Context, spec plimsoll.JobSpec, replace bool) (plimsoll.Job, error) {
	if spec.Token == "" {
		spec.Token = tokenOf(ctx)
	}
	req := &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec), Replace: replace}
	res, err := change(ctx, c, c.jobs.SubmitJob, req)
	if err != nil {
		return plimsoll.Job{}, err
	}
	return wire.JobFromProto(res.GetJob()), nil
}

// Job reads the newest job with an id, with its specification.
func (c *Client) Job(ctx context.Context, id string) (plimsoll.Job, error) {
	found, err := c.FindJob(ctx, JobName{ID: id})
	return found.Job, err
}

// JobName names a job: the newest with an id, or one lifetime of the id.
type JobName struct {
	ID     string   // may be empty beside a UID
	UID    string   // empty: the newest
	Fields []string // of the job that are read, such as "status.state"; empty: all
}

// FoundJob is a job with its place.
type FoundJob struct {
	plimsoll.Job
	Archived bool // it has left the active store, and was read from the archive
}

// FindJob reads a job with its specification, from the active store or the archive.
func (c *Client) FindJob(ctx context.Context, name JobName) (FoundJob, error) {
	res, err := call(ctx, c, c.jobs.GetJob, &pb.GetJobRequest{
		Id: name.ID, Uid: name.UID, Fields: name.Fields, Consistency: c.consistency(ctx),
	})
	if err != nil {
		return FoundJob{}, err
	}
	return FoundJob{wire.JobFromProto(res.GetJob()), res.GetArchived()}, nil
}

// DeleteJob removes a job that has ended from the active store and from the archive, with its tasks
// and attempts. A zero uid stands for the newest job with the id, and the id may be empty beside a
// uid.
func (c *Client) DeleteJob(ctx context.Context, id string, uid plimsoll.UID) error {
	req := &pb.DeleteJobRequest{Id: id, Uid: uid.Text(), Token: tokenOf(ctx)}
	_, err := change(ctx, c, c.jobs.DeleteJob, req)
	return err
}

// WatchJob sends the job's status now and after each change. The last one says that the job has
// ended; it may come from the archive. The watch survives an absence of the gateway that is shorter
// than the retry budget; it does not see states that came and went meanwhile.
func (c *Client) WatchJob(ctx context.Context, id string) iter.Seq2[plimsoll.JobStatus, error] {
	return c.WatchLifetime(ctx, id, plimsoll.UID{})
}

// WatchLifetime is WatchJob for one lifetime of an id. A zero uid stands for the newest one.
func (c *Client) WatchLifetime(
	ctx context.Context, id string, uid plimsoll.UID,
) iter.Seq2[plimsoll.JobStatus, error] {
	return func(yield func(plimsoll.JobStatus, error) bool) {
		req := &pb.WatchJobRequest{Id: id, Uid: uid.Text()}
		for r := c.newRetry(); ; {
			done, err := c.watchOnce(ctx, req, r, yield)
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

// watchOnce reads one stream. done reports that the watch is over. The uid of the job is kept in
// the request: a later job with the id is another one.
func (c *Client) watchOnce(
	ctx context.Context, req *pb.WatchJobRequest, r *retry, yield func(plimsoll.JobStatus, error) bool,
) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.jobs.WatchJob(ctx, connect.NewRequest(req))
	if err != nil {
		return false, r.readError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written, and Err has the stream's error
	for stream.Receive() {
		r.reset()
		req.Uid = stream.Msg().GetStatus().GetUid()
		status := wire.JobStatusFromProto(stream.Msg().GetStatus())
		if !yield(status, nil) || status.State.Ended() {
			return true, nil
		}
	}
	if err := stream.Err(); err != nil {
		return false, r.readError(ctx, err)
	}
	return false, plimsoll.Errorf(
		plimsoll.CodeUnavailable, "the server ended the watch of job %s before the job had ended", req.GetId(),
	)
}

// KillJob asks to stop all tasks of a job. The reason is for people; it may be empty. KillJob
// returns when the request is durable, before the tasks have stopped.
func (c *Client) KillJob(ctx context.Context, id, reason string) (plimsoll.JobStatus, error) {
	return c.KillLifetime(ctx, id, plimsoll.UID{}, reason)
}

// KillLifetime is KillJob for one lifetime of an id: the error is CodeConflict if the id belongs to
// another job now. A zero uid stands for any. A coordinator of an older version ignores the uid.
func (c *Client) KillLifetime(
	ctx context.Context, id string, uid plimsoll.UID, reason string,
) (plimsoll.JobStatus, error) {
	req := &pb.KillJobRequest{Id: id, Uid: uid.Text(), Reason: reason, Token: tokenOf(ctx)}
	res, err := change(ctx, c, c.jobs.KillJob, req)
	if err != nil {
		return plimsoll.JobStatus{}, err
	}
	return wire.JobStatusFromProto(res.GetStatus()), nil
}

// ScaleJob sets how many tasks a group has. The group may be empty if the job has only one.
func (c *Client) ScaleJob(ctx context.Context, id, group string, count int32) (plimsoll.JobStatus, error) {
	return c.ScaleLifetime(ctx, id, plimsoll.UID{}, group, count)
}

// ScaleLifetime is ScaleJob for one lifetime of an id, as KillLifetime is KillJob.
func (c *Client) ScaleLifetime(
	ctx context.Context, id string, uid plimsoll.UID, group string, count int32,
) (plimsoll.JobStatus, error) {
	req := &pb.ScaleJobRequest{Id: id, Uid: uid.Text(), Group: group, Count: count, Token: tokenOf(ctx)}
	res, err := change(ctx, c, c.jobs.ScaleJob, req)
	if err != nil {
		return plimsoll.JobStatus{}, err
	}
	return wire.JobStatusFromProto(res.GetStatus()), nil
}
