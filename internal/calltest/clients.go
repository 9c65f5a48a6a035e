package calltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	callTimeout   = 3 * time.Second
	callsPerStage = 250 // calls after which clients go on with new jobs
	jobsPerStage  = 3
	oldStages     = 8 // stages whose jobs are still read
)

// Workload holds the state that all clients and watchers share.
type Workload struct {
	T       testing.TB
	Level   plimsoll.Consistency // of all reads; zero: strict
	Pause   time.Duration        // longest pause between two calls of a client
	Archive bool                 // jobs that have ended are listed from an archive too
	Over    chan struct{}        // closed when no more calls are to be made

	order   atomic.Int64 // of calls and answers
	calls   atomic.Int64
	values  atomic.Int32 // counts of tasks, each used once
	changed atomic.Uint64
}

// Client is one client with its connections to all gateways.
type Client struct {
	*Workload
	ID       int
	Rand     *rand.Rand
	Gateways []*client.Client
	Watches  []plimsollv1connect.WatchServiceClient // of the same gateways
	Answers  []Answer
	Unknown  int // changes whose outcome is not known

	works int // jobs that run
}

// Calls is the number of calls that clients have begun.
func (w *Workload) Calls() int64 { return w.calls.Load() }

func (w *Workload) ended() bool {
	select {
	case <-w.Over:
		return true
	default:
		return false
	}
}

// NoteChanged notes the revision of an acknowledged change. Snapshots of watches that are opened
// later must hold it.
func (w *Workload) NoteChanged(revision uint64) {
	for at := w.changed.Load(); at < revision && !w.changed.CompareAndSwap(at, revision); at = w.changed.Load() {
	}
}

// Run makes calls until all is over.
func (u *Client) Run() {
	for !u.ended() {
		ctx, cancel := context.WithTimeout(u.T.Context(), callTimeout)
		if u.Level != (plimsoll.Consistency{}) {
			ctx = client.WithConsistency(ctx, u.Level)
		}
		u.call(ctx)
		cancel()
		pause(u.T.Context(), time.Duration(u.Rand.Int64N(int64(u.Pause))))
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d) //nolint:forbidigo // the pause of a client of a test
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// stageJobs are the jobs that clients compete for now. A quarter of the time those of the stage
// before are used too.
func (u *Client) stageJobs() (jobs []string) {
	stage := u.calls.Add(1) / callsPerStage
	for s := max(0, stage-1); s <= stage; s++ {
		for i := range jobsPerStage {
			jobs = append(jobs, fmt.Sprintf("j%03d-%d", s, i))
		}
	}
	return jobs
}

// oldJobs are the jobs of the last stages. They are read until some time after they have left for
// the archive.
func (u *Client) oldJobs() (jobs []string) {
	stage := u.calls.Load() / callsPerStage
	for s := max(0, stage-oldStages); s <= stage; s++ {
		for i := range jobsPerStage {
			jobs = append(jobs, fmt.Sprintf("j%03d-%d", s, i))
		}
	}
	return jobs
}

// call makes one call at a random gateway.
func (u *Client) call(ctx context.Context) {
	jobs := u.stageJobs()
	job := jobs[len(jobs)-1-u.Rand.IntN(jobsPerStage)]
	if u.Rand.IntN(4) == 0 {
		job = jobs[u.Rand.IntN(len(jobs))]
	}
	old := u.oldJobs()
	at := u.Rand.IntN(len(u.Gateways))
	a := Answer{Client: u.ID, Began: u.order.Add(1)}
	switch dice := u.Rand.IntN(100); {
	case dice < 34:
		if dice < 10 {
			job = old[u.Rand.IntN(len(old))]
		}
		u.get(ctx, &a, at, job)
	case dice < 50:
		u.list(ctx, &a, at, old)
	case dice < 58:
		u.snapshot(ctx, &a, at, old)
	case dice < 72:
		u.change(ctx, &a, at, Call{Job: job, Kind: CreateJob, Count: u.values.Add(1)%40 + 2})
	case dice < 90:
		u.change(ctx, &a, at, Call{Job: job, Kind: ScaleJob, Count: u.values.Add(1)%40 + 2})
	case dice < 95:
		u.change(ctx, &a, at, Call{Job: job, Kind: KillJob, Reason: fmt.Sprintf("%d-%d", u.ID, len(u.Answers))})
	default:
		u.work(ctx, at)
	}
}

// keep adds an answer to the history.
func (u *Client) keep(a *Answer) {
	a.Ended = u.order.Add(1)
	u.Answers = append(u.Answers, *a)
}

// seen returns the checked part of a status.
func seen(s *plimsoll.JobStatus) Seen {
	shows := Seen{Exists: true}
	if len(s.Groups) == 1 {
		shows.Count = s.Groups[0].Count
	}
	if s.Killed {
		shows.Reason = s.Reason
	}
	return shows
}

func (u *Client) get(ctx context.Context, a *Answer, at int, id string) {
	var stamp client.Stamp
	job, err := u.Gateways[at].FindJob(client.WithStamp(ctx, &stamp), client.JobName{ID: id})
	op := porcupine.Operation{Input: Call{Job: id, Kind: ReadJob}, Output: Seen{}}
	switch {
	case err == nil:
		op.Output = seen(&job.Status)
		a.Read, a.Version, a.Jobs = true, stamp.Version, map[string]plimsoll.JobStatus{id: job.Status}
		a.Archived = job.Archived
	case plimsoll.CodeOf(err) != plimsoll.CodeNotFound:
		u.failed("get", err)
		return
	}
	a.Calls = []porcupine.Operation{op}
	u.keep(a)
}

// shows notes that an answer shows all active jobs, and with archived those of the archive too.
func (a *Answer) shows(v plimsoll.Version, all map[string]plimsoll.JobStatus, jobs []string, archived bool) {
	a.Read, a.Whole, a.Version, a.Jobs, a.Archived = true, true, v, all, archived
	kind := ReadActive
	if archived {
		kind = ReadJob
	}
	for _, id := range jobs {
		op := porcupine.Operation{Input: Call{Job: id, Kind: kind}, Output: Seen{}}
		if status, exists := all[id]; exists {
			op.Output = seen(&status)
		}
		a.Calls = append(a.Calls, op)
	}
}

// list lists the active jobs, or those of the archive too. Of several jobs with one id the newest
// comes first.
func (u *Client) list(ctx context.Context, a *Answer, at int, jobs []string) {
	var stamp client.Stamp
	all, filter := map[string]plimsoll.JobStatus{}, client.JobFilter{}
	if u.Archive && u.Rand.IntN(3) > 0 {
		filter.Scope = client.ScopeAll
	}
	for status, err := range u.Gateways[at].Jobs(client.WithStamp(ctx, &stamp), filter) {
		if err != nil {
			u.failed("list", err)
			return
		}
		if _, newer := all[status.ID]; !newer {
			all[status.ID] = status
		}
	}
	a.shows(stamp.Version, all, jobs, filter.Scope == client.ScopeAll)
	u.keep(a)
}

// snapshot reads the beginning of a watch, which is a strict read of all jobs.
func (u *Client) snapshot(ctx context.Context, a *Answer, at int, jobs []string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := u.Watches[at].WatchJobs(ctx, connect.NewRequest(&pb.WatchJobsRequest{}))
	if err != nil {
		u.failed("watch", wire.FromReadError(ctx, err))
		return
	}
	defer func() { _ = stream.Close() }() // nothing was written
	all := map[string]plimsoll.JobStatus{}
	for stream.Receive() {
		for _, m := range stream.Msg().GetJobs() {
			status := wire.JobStatusFromProto(m.GetJob().GetStatus())
			all[status.ID] = status
		}
		if p := stream.Msg().GetPoint(); stream.Msg().GetSnapshotEnd() {
			a.shows(plimsoll.Version{Epoch: p.GetEpoch(), Revision: p.GetRevision()}, all, jobs, false)
			u.keep(a)
			return
		}
	}
	u.failed("watch", wire.FromReadError(ctx, stream.Err()))
}

// Spec is a job that no node has room for, so that only calls change how it is wanted.
func Spec(id, owner string, count int32) plimsoll.JobSpec {
	return plimsoll.JobSpec{ID: id, Owner: owner, Groups: []plimsoll.GroupSpec{{
		Name: "main", Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 64_000},
	}}}
}

func (u *Client) change(ctx context.Context, a *Answer, at int, call Call) {
	var status plimsoll.JobStatus
	var err error
	switch c := u.Gateways[at]; call.Kind {
	case CreateJob:
		var job plimsoll.Job
		job, err = c.SubmitJob(ctx, Spec(call.Job, []string{"ann", "bob"}[u.ID%2], call.Count))
		status = job.Status
	case ScaleJob:
		status, err = c.ScaleJob(ctx, call.Job, "", call.Count)
	default:
		status, err = c.KillJob(ctx, call.Job, call.Reason)
	}
	op := porcupine.Operation{Input: call, Output: Done}
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeNotFound:
		op.Output = Missing
	case plimsoll.CodeConflict, plimsoll.CodeAlreadyExists:
		op.Output = Refused
	case plimsoll.CodeOutcomeUnknown:
		u.Unknown++
		op.Output = nil
	default:
		if err != nil {
			u.failed(string(call.Kind), err)
			return
		}
		a.Changed, a.Revision = call.Job, status.Revision
	}
	a.Calls = []porcupine.Operation{op}
	u.keep(a)
	if a.Changed != "" {
		u.NoteChanged(a.Revision)
	}
}

// work submits a job that runs on the node. Its states come and go in the watches.
func (u *Client) work(ctx context.Context, at int) {
	u.works++
	s := Spec(fmt.Sprintf("w%d-%05d", u.ID, u.works), "worker", 1)
	s.Groups[0].Resources = plimsoll.Resources{"cpu": 100}
	if _, err := u.Gateways[at].SubmitJob(ctx, s); err != nil && plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown {
		u.failed("submit", err)
	}
}

// failed reports a failed call to the test, unless a fault explains it. Such a call had no effect.
func (u *Client) failed(what string, err error) {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeDeadline, plimsoll.CodeCanceled,
		plimsoll.CodeStale:
	default:
		u.T.Errorf("client %d: %s: %v", u.ID, what, err)
	}
}
