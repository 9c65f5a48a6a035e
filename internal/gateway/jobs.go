package gateway

import (
	"bytes"
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	// maxReason bounds the bytes of the reason given for a kill.
	maxReason = 1024
	// lookEvery is the number of records between two checks whether the caller of a list still
	// waits.
	lookEvery = 1024
)

// jobService serves JobService.
type jobService struct {
	plimsollv1connect.UnimplementedJobServiceHandler // for the reads in Gateway.encodedReads

	g *Gateway
}

// SubmitJob checks a job, sends it to the leader and answers with the status that it has reached.
func (s jobService) SubmitJob(
	ctx context.Context, req *connect.Request[pb.SubmitJobRequest],
) (*connect.Response[pb.SubmitJobResponse], error) {
	spec := req.Msg.GetSpec()
	if spec == nil {
		return nil, plimsoll.Invalid("spec", "is missing; give the job that is to be run")
	}
	complete(spec)
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	reply, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_SubmitJob{SubmitJob: req.Msg}})
	if err != nil {
		return nil, err
	}
	snapshot, err := s.g.after(ctx, reply)
	if err != nil {
		return nil, err
	}
	job, err := loadJob(ctx, snapshot, spec.GetId())
	switch {
	case plimsoll.CodeOf(err) == plimsoll.CodeNotFound:
		job = &pb.Job{Spec: spec, Status: forgotten(spec.GetId())}
	case err != nil:
		return nil, unseen(err)
	}
	return connect.NewResponse(&pb.SubmitJobResponse{Job: job}), nil
}

func checkSpec(spec *pb.JobSpec) error {
	checked := wire.JobSpecFromProto(spec)
	return checked.Validate()
}

func loadJob(ctx context.Context, snapshot *replica.Snapshot, id string) (*pb.Job, error) {
	data, ok := snapshot.Get(wire.KindJobSpec, id)
	if err := holding(ctx, len(data)); err != nil {
		return nil, err
	}
	status, err := loadStatus(snapshot, id)
	if err != nil {
		return nil, err
	}
	job := &pb.Job{Status: status}
	if ok {
		job.Spec = new(pb.JobSpec)
		err = decode(wire.KindJobSpec, id, data, job.Spec)
	}
	return job, err
}

// getJob answers with one job.
func (s jobService) getJob(ctx context.Context, req *pb.GetJobRequest, a *answer) error {
	id := req.GetId()
	if err := plimsoll.ValidateID("id", id); err != nil {
		return err
	}
	v, err := s.g.view(ctx, req)
	if err != nil {
		return err
	}
	data, ok := v.Get(wire.KindJobStatus, id)
	if !ok {
		return noJob(id)
	}
	var job []wire.Encoded
	if spec, has := v.Get(wire.KindJobSpec, id); has {
		if spec, err = a.encoded(wire.KindJobSpec, id, spec); err != nil {
			return err
		}
		job = append(job, wire.Encoded{Field: fieldSpec, Data: spec})
	}
	status, err := a.jobStatus(v.Snapshot, id, data)
	if err != nil {
		return err
	}
	a.AddNested(fieldJob, append(job, wire.Encoded{Field: fieldStatus, Data: status})...)
	return a.Finish(&pb.GetJobResponse{Revision: v.Revision(), Epoch: v.Epoch(), AgeNanos: int64(v.age)})
}

// listJobs answers with the jobs that pass all filters, in the order of their ids. A queue stands
// for itself and all queues below it.
func (s jobService) listJobs(ctx context.Context, req *pb.ListJobsRequest, a *answer) error {
	limit, err := s.g.limit(req.GetLimit())
	if err != nil {
		return err
	}
	v, err := s.g.view(ctx, req)
	if err != nil {
		return err
	}
	resp := &pb.ListJobsResponse{Revision: v.Revision(), Epoch: v.Epoch(), AgeNanos: int64(v.age)}
	want := jobCriteria(req)
	seen, listed, inQueue, last := 0, 0, false, ""
	for id, data := range jobsOf(v.Snapshot, req) {
		if seen++; seen%lookEvery == 0 && ctx.Err() != nil {
			return callerGone(ctx)
		}
		here, matches, err := jobMatches(&want, id, data)
		if err != nil {
			return err
		}
		if inQueue = inQueue || here; !matches {
			continue
		}
		if listed == limit || a.records > pageBytes {
			resp.Next = last
			break
		}
		status, err := a.jobStatus(v.Snapshot, id, data)
		if err != nil {
			return err
		}
		a.Add(fieldJobs, status)
		listed++
		last = id
	}
	if !inQueue && req.GetAfter() == "" {
		if err := checkJobFilters(v.Snapshot, req); err != nil {
			return err
		}
	}
	return a.Finish(resp)
}

// jobsOf yields a range of statuses behind the cursor that contains all requested ones.
func jobsOf(s *replica.Snapshot, want *pb.ListJobsRequest) iter.Seq2[string, []byte] {
	return s.Jobs(replica.JobCriteria{
		Queue: want.GetQueue(), Owner: want.GetOwner(), States: wire.EnumsFromProto[plimsoll.JobState](want.GetStates()),
	}, want.GetAfter())
}

// jobMatches reports whether a job is in the queue of a list, and whether it passes all filters. It
// looks at the fields of the record, which it does not decode; without filters at none.
func jobMatches(want *criteria, id string, data []byte) (inQueue, all bool, err error) {
	if want.queue == "" && want.owner == "" && len(want.states) == 0 {
		return true, true, nil
	}
	job, err := wire.LookAtJob(data)
	if err != nil {
		return false, false, undecodable(wire.KindJobStatus, id, err)
	}
	f := facts{exists: true, key: id, queue: job.Queue, owner: job.Owner, state: job.State}
	return isOrBelow(f.queue, want.queue), want.met(&f), nil
}

// limit returns the limit of a list. 0, and a number above Config.PageSize, stand for
// Config.PageSize.
func (g *Gateway) limit(asked int32) (int, error) {
	if asked < 0 {
		return 0, plimsoll.Invalid("limit", "is negative; give 1 or more, or 0 for %d", g.cfg.PageSize)
	}
	if asked == 0 || int(asked) > g.cfg.PageSize {
		return g.cfg.PageSize, nil
	}
	return int(asked), nil
}

// KillJob asks the leader to end a job.
func (s jobService) KillJob(
	ctx context.Context, req *connect.Request[pb.KillJobRequest],
) (*connect.Response[pb.KillJobResponse], error) {
	if err := plimsoll.ValidateID("id", req.Msg.GetId()); err != nil {
		return nil, err
	}
	if n := len(req.Msg.GetReason()); n > maxReason {
		return nil, plimsoll.Invalid("reason", "is %d bytes long; at most %d are possible", n, maxReason)
	}
	status, err := s.change(ctx, req.Msg, &pb.Command{Kind: &pb.Command_KillJob{KillJob: req.Msg}})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.KillJobResponse{Status: status}), nil
}

// ScaleJob asks the leader to change how many tasks a group has.
func (s jobService) ScaleJob(
	ctx context.Context, req *connect.Request[pb.ScaleJobRequest],
) (*connect.Response[pb.ScaleJobResponse], error) {
	if err := plimsoll.ValidateID("id", req.Msg.GetId()); err != nil {
		return nil, err
	}
	if n := req.Msg.GetCount(); n < 0 || n > plimsoll.MaxTasksPerJob {
		return nil, plimsoll.Invalid("count", "is %d; give a number from 0 to %d", n, plimsoll.MaxTasksPerJob)
	}
	status, err := s.change(ctx, req.Msg, &pb.Command{Kind: &pb.Command_ScaleJob{ScaleJob: req.Msg}})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.ScaleJobResponse{Status: status}), nil
}

// jobChange is a request that changes a job.
type jobChange interface {
	GetId() string
	GetToken() string
}

// change sends a command about a job and returns the job's status after it.
func (s jobService) change(ctx context.Context, req jobChange, cmd *pb.Command) (*pb.JobStatus, error) {
	id := req.GetId()
	reply, err := s.g.change(ctx, req.GetToken(), cmd)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.g.after(ctx, reply)
	if err != nil {
		return nil, err
	}
	status, err := loadStatus(snapshot, id)
	switch {
	case plimsoll.CodeOf(err) == plimsoll.CodeNotFound:
		return forgotten(id), nil
	case err != nil:
		return nil, unseen(err)
	}
	return status, nil
}

// forgotten is the status of a job that was changed and has been removed since. It answers a call
// that is repeated much later.
func forgotten(id string) *pb.JobStatus {
	return &pb.JobStatus{Id: id, State: pb.JobState_JOB_STATE_EXPIRED}
}

// WatchJob sends a job's status now and after each change, and ends when the job has ended.
func (s jobService) WatchJob(
	ctx context.Context, req *connect.Request[pb.WatchJobRequest], stream *connect.ServerStream[pb.WatchJobResponse],
) error {
	id := req.Msg.GetId()
	if err := plimsoll.ValidateID("id", id); err != nil {
		return err
	}
	changed, cancel := s.g.replica.Watch(wire.KindJobStatus, id)
	defer cancel()
	defer s.g.metrics.watching("WatchJob")()
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return err
	}
	var sent []byte // the record that was sent last
	for {
		data, ok := snapshot.Get(wire.KindJobStatus, id)
		if !ok {
			return noJob(id)
		}
		if sent == nil || !bytes.Equal(data, sent) {
			sent = data
			status := &pb.JobStatus{}
			if err := decode(wire.KindJobStatus, id, data, status); err != nil {
				return err
			}
			if err := addKnown(snapshot, status); err != nil {
				return err
			}
			if err := stream.Send(&pb.WatchJobResponse{Status: status}); err != nil {
				return err
			}
			if plimsoll.JobState(status.GetState()).Ended() {
				return nil
			}
		}
		// As in WatchAssignments, no snapshot is kept while the stream waits.
		select {
		case <-ctx.Done():
			return callerGone(ctx)
		case <-changed:
		}
		snapshot = s.g.replica.Latest()
	}
}
