package gateway

import (
	"bytes"
	"context"
	"time"

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
	if !req.Msg.GetReplace() {
		earlier, err := s.g.earlier(ctx, spec)
		if err != nil {
			return nil, err
		}
		if earlier != nil {
			return connect.NewResponse(&pb.SubmitJobResponse{Job: earlier}), nil
		}
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
	case plimsoll.CodeOf(err) == plimsoll.CodeNotFound: // it has ended, and has left since
		if job, err = s.g.earlier(ctx, spec); err != nil || job == nil {
			job = &pb.Job{Spec: spec, Status: forgotten(spec.GetId())}
		}
	case err != nil:
		return nil, unseen(err)
	}
	return connect.NewResponse(&pb.SubmitJobResponse{Job: job}), nil
}

// earlierTimeout bounds how long a submit waits behind other reads of the archive.
const earlierTimeout = 500 * time.Millisecond

// earlier looks for an earlier job with the id of a submitted one in the archive: such an id is
// taken, unless the submit says replace. The earlier job is returned if the submit has its token:
// it is the same submit, sent again. The leader looks at the jobs of the active store.
//
// The check is for people, who do not want to lose sight of a job by a typo; nothing rests on it.
// It is left out when the archive cannot be read at once. It does not see a job that leaves the
// active store while the submit is under way: the id is free then as it is with replace.
func (g *Gateway) earlier(ctx context.Context, spec *pb.JobSpec) (*pb.Job, error) {
	s := g.replica.Latest()
	if s == nil {
		return nil, nil
	}
	if _, has := s.Get(wire.KindJobStatus, spec.GetId()); has {
		return nil, nil
	}
	v, err := g.archiveOf(s)
	if err != nil || !v.kept() {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, earlierTimeout)
	defer cancel()
	stored, err := v.job(bounded, spec.GetId(), plimsoll.UID{})
	if err != nil {
		return nil, nil //nolint:nilerr // there is none, or it is not known: the leader decides
	}
	job := &pb.Job{Spec: &pb.JobSpec{}, Status: &pb.JobStatus{}}
	if err := decode(wire.KindJobSpec, stored.ID, stored.Spec, job.Spec); err != nil {
		return nil, err
	}
	if err := decode(wire.KindJobStatus, stored.ID, stored.Status, job.Status); err != nil {
		return nil, err
	}
	if token := spec.GetToken(); token != "" && token == job.Spec.GetToken() {
		return job, nil
	}
	return nil, plimsoll.Errorf(plimsoll.CodeAlreadyExists,
		"job %q has ended and is in the archive; submit with replace to use its id again, or choose another id",
		stored.ID)
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

// getJob answers with one job, of the copy or of the archive.
func (s jobService) getJob(ctx context.Context, req *pb.GetJobRequest, a *answer) error {
	wanted, err := parseLifetime("id", req.GetId(), "uid", req.GetUid())
	if err != nil {
		return err
	}
	mask, err := wire.CompileMask(jobFields, req.GetFields())
	if err != nil {
		return err
	}
	v, err := a.view(ctx, req)
	if err != nil {
		return err
	}
	found, err := s.g.find(ctx, v.Snapshot, wanted)
	if err != nil {
		return err
	}
	if found.certain {
		a.share(v.Snapshot)
	}
	spec, _ := v.Get(wire.KindJobSpec, found.id)
	status, archived := found.status, found.stored != nil
	if archived {
		spec, status = found.stored.Spec, found.stored.Status
	}
	var job []wire.Encoded
	ofSpec, wantSpec := mask.Inner(fieldSpec.Number)
	if wantSpec && spec != nil {
		if spec, err = a.chosen(wire.KindJobSpec, found.id, spec, ofSpec, archived); err != nil {
			return err
		}
		job = append(job, wire.Encoded{Field: fieldSpec, Data: spec})
	}
	if ofStatus, wantStatus := mask.Inner(fieldStatus.Number); wantStatus {
		if status, err = a.chosenStatus(v.Snapshot, found.id, status, ofStatus, archived); err != nil {
			return err
		}
		job = append(job, wire.Encoded{Field: fieldStatus, Data: status})
	}
	a.AddNested(fieldJob, job...)
	return a.Finish(&pb.GetJobResponse{Revision: v.Revision(), Epoch: v.Epoch(), Archived: archived}, v.age)
}

// listJobs answers with the jobs that meet all criteria. A queue stands for itself and all queues
// below it.
func (s jobService) listJobs(ctx context.Context, req *pb.ListJobsRequest, a *answer) error {
	want, err := jobListOf(s.g, req)
	if err != nil {
		return err
	}
	if want.plain {
		return s.plainJobs(ctx, req, &want, a)
	}
	return s.orderedJobs(ctx, req, &want, a)
}

// plainJobs is a list of the active jobs in the order of their ids.
func (s jobService) plainJobs(ctx context.Context, req *pb.ListJobsRequest, want *jobList, a *answer) error {
	v, err := a.view(ctx, req)
	if err != nil {
		return err
	}
	a.share(v.Snapshot)
	look, err := s.g.lookAtJobs(v.Snapshot, &want.criteria)
	if err != nil {
		return err
	}
	resp := &pb.ListJobsResponse{Revision: v.Revision(), Epoch: v.Epoch()}
	seen, listed, inQueue, last := 0, 0, false, ""
	for id, data := range v.Jobs(want.jobs(), req.GetAfter()) {
		if seen++; seen%lookEvery == 0 && ctx.Err() != nil {
			return callerGone(ctx)
		}
		here, matches, err := look.matches(id, data)
		if err != nil {
			return err
		}
		if inQueue = inQueue || here; !matches {
			continue
		}
		if listed == want.limit || a.records > pageBytes {
			resp.Next = last
			break
		}
		status, err := a.chosenStatus(v.Snapshot, id, data, want.mask, false)
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
	if want.count {
		if resp.Total, resp.TotalAtLeast, err = look.count(ctx); err != nil {
			return err
		}
	}
	return a.Finish(resp, v.age)
}

// jobLook looks at the jobs of a snapshot for a list.
type jobLook struct {
	snapshot *replica.Snapshot
	want     *criteria
	all      bool // every job is listed, and no record is looked at
	leaving  bool // there are jobs that are about to be deleted, or that have begun to leave
	kept     bool // those that leave are in the archive
	labels   bool // labels are looked at
	few      int  // as Gateway.few
}

func (g *Gateway) lookAtJobs(s *replica.Snapshot, want *criteria) (jobLook, error) {
	l := jobLook{
		snapshot: s, want: want, leaving: s.JobsLeaving() > 0, labels: len(want.labels) > 0, few: g.few,
	}
	if l.leaving {
		v, err := g.archiveOf(s)
		if err != nil {
			return l, err
		}
		l.kept = v.kept()
	}
	l.all = !l.leaving && !want.restricts()
	return l, nil
}

// matches reports whether a job is in the queue of a list, and whether it meets all criteria. It
// looks at the fields of the record, which it does not decode; without criteria at none.
func (l *jobLook) matches(id string, data []byte) (inQueue, all bool, err error) {
	if l.all {
		return true, true, nil
	}
	job, err := wire.LookAtJob(data)
	if err != nil {
		return false, false, undecodable(wire.KindJobStatus, id, err)
	}
	inQueue, all = l.look(id, &job)
	return inQueue, all, nil
}

// look is matches for the facts of a record.
func (l *jobLook) look(id string, job *wire.JobFacts) (inQueue, all bool) {
	f := jobFacts(id, job)
	inQueue = isOrBelow(f.queue, l.want.queue)
	if l.leaving && l.hides(job) || l.want.ended && !plimsoll.JobState(job.State).Ended() {
		return inQueue, false
	}
	if l.labels {
		f.spec, _ = l.snapshot.Get(wire.KindJobSpec, id)
	}
	return inQueue, l.want.met(&f)
}

// hides reports whether a job of the snapshot is not shown: it is about to be deleted, or it is
// found in the archive.
func (l *jobLook) hides(job *wire.JobFacts) bool {
	return job.Deleted || l.kept && plimsoll.JobState(job.State) == plimsoll.JobExpired
}

// maxCounted bounds the records that are looked at to count.
const maxCounted = 100_000

// count counts the jobs of the snapshot that meet the criteria. atLeast reports that there may be
// more.
func (l *jobLook) count(ctx context.Context) (n int64, atLeast bool, err error) {
	jobs := l.snapshot.JobRange(l.want.jobs())
	if !l.leaving && l.want.indexed() {
		return int64(jobs.Len()), false, nil
	}
	seen := 0
	for id, data := range jobs.After("") {
		if seen++; seen%lookEvery == 0 && ctx.Err() != nil {
			return 0, false, callerGone(ctx)
		}
		if seen > maxCounted {
			return n, true, nil
		}
		_, matches, err := l.matches(id, data)
		if err != nil {
			return 0, false, err
		}
		if matches {
			n++
		}
	}
	return n, false, nil
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
	if _, err := parseLifetime("id", req.Msg.GetId(), "uid", req.Msg.GetUid()); err != nil {
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

// DeleteJob asks the leader to remove a job that has ended, from the active store and the archive.
func (s jobService) DeleteJob(
	ctx context.Context, req *connect.Request[pb.DeleteJobRequest],
) (*connect.Response[pb.DeleteJobResponse], error) {
	if _, err := parseLifetime("id", req.Msg.GetId(), "uid", req.Msg.GetUid()); err != nil {
		return nil, err
	}
	cmd := &pb.Command{Kind: &pb.Command_DeleteJob{DeleteJob: req.Msg}}
	if _, err := s.g.change(ctx, req.Msg.GetToken(), cmd); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.DeleteJobResponse{}), nil
}

// ScaleJob asks the leader to change how many tasks a group has.
func (s jobService) ScaleJob(
	ctx context.Context, req *connect.Request[pb.ScaleJobRequest],
) (*connect.Response[pb.ScaleJobResponse], error) {
	if err := plimsoll.ValidateID("id", req.Msg.GetId()); err != nil {
		return nil, err
	}
	if _, err := parseLifetime("id", req.Msg.GetId(), "uid", req.Msg.GetUid()); err != nil {
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
		return nil, s.g.orEnded(ctx, id, err)
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

// orEnded returns the error for a change that the leader has refused. A job that the leader does
// not know may be in the archive, and has ended then.
func (g *Gateway) orEnded(ctx context.Context, id string, refused error) error {
	code := plimsoll.CodeOf(refused)
	if code != plimsoll.CodeNotFound && code != plimsoll.CodeConflict {
		return refused
	}
	snapshot, err := g.read(ctx)
	if err != nil {
		return err
	}
	job, err := g.find(ctx, snapshot, lifetime{id: id})
	switch {
	case plimsoll.CodeOf(err) == plimsoll.CodeNotFound, err == nil && job.stored == nil:
		return refused
	case err != nil:
		return err
	}
	status, err := decodedStatus(job.stored)
	if err != nil {
		return err
	}
	ended := wire.JobStatusFromProto(status)
	return plimsoll.AlreadyEnded(id, ended.State, ended.Finished)
}

// forgotten is the status of a job that was changed and has been removed since. It answers a call
// that is repeated much later.
func forgotten(id string) *pb.JobStatus {
	return &pb.JobStatus{Id: id, State: pb.JobState_JOB_STATE_EXPIRED}
}

// WatchJob sends a job's status now and after each change, and ends when the job has ended. A job
// that leaves the copy meanwhile, or has left it, is sent as it stands in the archive.
func (s jobService) WatchJob(
	ctx context.Context, req *connect.Request[pb.WatchJobRequest], stream *connect.ServerStream[pb.WatchJobResponse],
) error {
	wanted, err := parseLifetime("id", req.Msg.GetId(), "uid", req.Msg.GetUid())
	if err != nil {
		return err
	}
	if wanted.id == "" {
		snapshot, err := s.g.read(ctx)
		if err != nil {
			return err
		}
		wanted.id, _ = snapshot.JobOf(wanted.uid.String())
	}
	changed, cancel := s.g.replica.Watch(wire.KindJobStatus, wanted.id)
	defer cancel()
	defer s.g.metrics.watching("WatchJob")()
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return err
	}
	var sent []byte // the record that was sent last
	for {
		found, err := s.g.find(ctx, snapshot, wanted)
		if err != nil {
			return err
		}
		if found.stored != nil {
			status, err := decodedStatus(found.stored)
			if err != nil {
				return err
			}
			return stream.Send(&pb.WatchJobResponse{Status: status, Archived: true})
		}
		if data := found.status; sent == nil || !bytes.Equal(data, sent) {
			sent = data
			status := &pb.JobStatus{}
			if err := decode(wire.KindJobStatus, found.id, data, status); err != nil {
				return err
			}
			if wanted, err = lifetimeOf(status); err != nil {
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

// lifetimeOf returns the lifetime of a job: a later job with the same id is another one.
func lifetimeOf(status *pb.JobStatus) (lifetime, error) {
	l := lifetime{id: status.GetId(), uid: plimsoll.MakeUID(status.GetSubmitted(), 0)}
	if status.GetUid() == "" {
		return l, nil
	}
	var err error
	if l.uid, err = plimsoll.ParseUID(status.GetUid()); err != nil {
		return l, undecodable(wire.KindJobStatus, l.id, err)
	}
	return l, nil
}
