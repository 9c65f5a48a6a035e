package gateway

import (
	"bytes"
	"context"
	"iter"
	"slices"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
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
type jobService struct{ g *Gateway }

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

// GetJob answers with one job.
func (s jobService) GetJob(
	ctx context.Context, req *connect.Request[pb.GetJobRequest],
) (*connect.Response[pb.GetJobResponse], error) {
	if err := plimsoll.ValidateID("id", req.Msg.GetId()); err != nil {
		return nil, err
	}
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	job, err := loadJob(ctx, snapshot, req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.GetJobResponse{Job: job, Revision: snapshot.Revision()}), nil
}

// ListJobs answers with the jobs that pass all filters, in the order of their ids. A queue stands
// for itself and all queues below it.
func (s jobService) ListJobs(
	ctx context.Context, req *connect.Request[pb.ListJobsRequest],
) (*connect.Response[pb.ListJobsResponse], error) {
	limit, err := s.g.limit(req.Msg.GetLimit())
	if err != nil {
		return nil, err
	}
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListJobsResponse{Revision: snapshot.Revision()}
	looked, records, inQueue := 0, 0, false
	status := &pb.JobStatus{}
	for id, data := range jobsOf(snapshot, req.Msg) {
		if looked++; looked%lookEvery == 0 && ctx.Err() != nil {
			return nil, callerGone(ctx)
		}
		if err := decode(wire.KindJobStatus, id, data, status); err != nil {
			return nil, err
		}
		if !isOrBelow(status.GetQueue(), req.Msg.GetQueue()) {
			continue
		}
		inQueue = true
		if !jobMatches(req.Msg, status) {
			continue
		}
		if n := len(resp.Jobs); n == limit || records > pageBytes {
			resp.Next = resp.Jobs[n-1].GetId()
			break
		}
		if err := addKnown(snapshot, status); err != nil {
			return nil, err
		}
		if err := holding(ctx, len(data)); err != nil {
			return nil, err
		}
		records += len(data)
		resp.Jobs = append(resp.Jobs, status)
		status = &pb.JobStatus{}
	}
	if !inQueue && req.Msg.GetAfter() == "" {
		if err := checkJobFilters(snapshot, req.Msg); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(resp), nil
}

// jobsOf yields a range of statuses behind the cursor that contains all requested ones.
func jobsOf(s *replica.Snapshot, want *pb.ListJobsRequest) iter.Seq2[string, []byte] {
	return s.Jobs(replica.JobCriteria{
		Queue: want.GetQueue(), Owner: want.GetOwner(), States: wire.EnumsFromProto[plimsoll.JobState](want.GetStates()),
	}, want.GetAfter())
}

// jobMatches reports whether a job of the queue passes the other filters.
func jobMatches(want *pb.ListJobsRequest, job *pb.JobStatus) bool {
	if want.GetOwner() != "" && job.GetOwner() != want.GetOwner() {
		return false
	}
	return len(want.GetStates()) == 0 || slices.Contains(want.GetStates(), job.GetState())
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
		select {
		case <-ctx.Done():
			return callerGone(ctx)
		case <-changed:
		}
		if latest := s.g.replica.Latest(); latest != nil {
			snapshot = latest
		}
	}
}
