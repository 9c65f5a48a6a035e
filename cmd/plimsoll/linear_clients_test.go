package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/anishathalye/porcupine"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/watchtest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

const (
	linearClients = 8
	callTimeout   = 3 * time.Second
	callsPerStage = 250 // calls after which clients go on with new jobs
	jobsPerStage  = 3
	oldStages     = 8 // stages whose jobs are still read
)

// workload holds the state that all clients share.
type workload struct {
	t       *testing.T
	level   plimsoll.Consistency // of all reads; zero: strict
	order   atomic.Int64         // of calls and answers
	calls   atomic.Int64
	values  atomic.Int32 // counts of tasks, each used once
	changed atomic.Uint64
	over    chan struct{}
}

// linearClient is one client with its connections to all gateways.
type linearClient struct {
	*workload
	id       int
	rng      *rand.Rand
	gateways []*client.Client
	watches  []plimsollv1connect.WatchServiceClient
	answers  []answer
	works    int // jobs that run
	unknown  int // changes whose outcome is not known
}

func (w *workload) ended() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// watchClient returns a client for the watches of a gateway, as its messages are on the wire.
func (c *faultyCluster) watchClient(name string) plimsollv1connect.WatchServiceClient {
	c.t.Helper()
	caller, base, err := transport.Client("unix:" + c.path(name+".users"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(caller.CloseIdleConnections)
	return plimsollv1connect.NewWatchServiceClient(caller, base)
}

// run makes calls until all is over.
func (u *linearClient) run() {
	for !u.ended() {
		ctx, cancel := context.WithTimeout(u.t.Context(), callTimeout)
		if u.level != (plimsoll.Consistency{}) {
			ctx = client.WithConsistency(ctx, u.level)
		}
		u.call(ctx)
		cancel()
		pause(u.t.Context(), time.Duration(u.rng.IntN(8))*time.Millisecond)
	}
}

// stageJobs are the jobs that clients compete for now. A quarter of the time those of the stage
// before are used too.
func (u *linearClient) stageJobs() (jobs []string) {
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
func (u *linearClient) oldJobs() (jobs []string) {
	stage := u.calls.Load() / callsPerStage
	for s := max(0, stage-oldStages); s <= stage; s++ {
		for i := range jobsPerStage {
			jobs = append(jobs, fmt.Sprintf("j%03d-%d", s, i))
		}
	}
	return jobs
}

// call makes one call at a random gateway.
func (u *linearClient) call(ctx context.Context) {
	jobs := u.stageJobs()
	job := jobs[len(jobs)-1-u.rng.IntN(jobsPerStage)]
	if u.rng.IntN(4) == 0 {
		job = jobs[u.rng.IntN(len(jobs))]
	}
	old := u.oldJobs()
	at := u.rng.IntN(len(u.gateways))
	a := answer{client: u.id, began: u.order.Add(1)}
	switch dice := u.rng.IntN(100); {
	case dice < 34:
		if dice < 10 {
			job = old[u.rng.IntN(len(old))]
		}
		u.get(ctx, &a, at, job)
	case dice < 50:
		u.list(ctx, &a, at, old)
	case dice < 58:
		u.snapshot(ctx, &a, at, old)
	case dice < 72:
		u.change(ctx, &a, at, jobCall{job: job, kind: createJob, count: u.values.Add(1)%40 + 2})
	case dice < 90:
		u.change(ctx, &a, at, jobCall{job: job, kind: scaleJob, count: u.values.Add(1)%40 + 2})
	case dice < 95:
		u.change(ctx, &a, at, jobCall{job: job, kind: killJob, reason: fmt.Sprintf("%d-%d", u.id, len(u.answers))})
	default:
		u.work(ctx, at)
	}
}

// keep adds an answer to the history.
func (u *linearClient) keep(a *answer) {
	a.ended = u.order.Add(1)
	u.answers = append(u.answers, *a)
}

// seen returns the checked part of a status.
func seen(s *plimsoll.JobStatus) jobSeen {
	shows := jobSeen{exists: true}
	if len(s.Groups) == 1 {
		shows.count = s.Groups[0].Count
	}
	if s.Killed {
		shows.reason = s.Reason
	}
	return shows
}

func (u *linearClient) get(ctx context.Context, a *answer, at int, id string) {
	var stamp client.Stamp
	job, err := u.gateways[at].FindJob(client.WithStamp(ctx, &stamp), client.JobName{ID: id})
	op := porcupine.Operation{Input: jobCall{job: id, kind: readJob}, Output: jobSeen{}}
	switch {
	case err == nil:
		op.Output = seen(&job.Status)
		a.read, a.version, a.jobs = true, stamp.Version, map[string]plimsoll.JobStatus{id: job.Status}
		a.archived = job.Archived
	case plimsoll.CodeOf(err) != plimsoll.CodeNotFound:
		u.failed("get", err)
		return
	}
	a.calls = []porcupine.Operation{op}
	u.keep(a)
}

// shows notes that an answer shows all active jobs, and with archived those of the archive too.
func (a *answer) shows(v plimsoll.Version, all map[string]plimsoll.JobStatus, jobs []string, archived bool) {
	a.read, a.whole, a.version, a.jobs, a.archived = true, true, v, all, archived
	kind := readActive
	if archived {
		kind = readJob
	}
	for _, id := range jobs {
		op := porcupine.Operation{Input: jobCall{job: id, kind: kind}, Output: jobSeen{}}
		if status, exists := all[id]; exists {
			op.Output = seen(&status)
		}
		a.calls = append(a.calls, op)
	}
}

// list lists the active jobs, or those of the archive too. Of several jobs with one id the newest
// comes first.
func (u *linearClient) list(ctx context.Context, a *answer, at int, jobs []string) {
	var stamp client.Stamp
	all, filter := map[string]plimsoll.JobStatus{}, client.JobFilter{}
	if u.rng.IntN(3) > 0 {
		filter.Scope = client.ScopeAll
	}
	for status, err := range u.gateways[at].Jobs(client.WithStamp(ctx, &stamp), filter) {
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
func (u *linearClient) snapshot(ctx context.Context, a *answer, at int, jobs []string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := u.watches[at].WatchJobs(ctx, connect.NewRequest(&pb.WatchJobsRequest{}))
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

// spec is a job that no node has room for, so that only calls change how it is wanted.
func spec(id, owner string, count int32) plimsoll.JobSpec {
	return plimsoll.JobSpec{ID: id, Owner: owner, Groups: []plimsoll.GroupSpec{{
		Name: "main", Count: count, Command: []string{"true"}, Resources: plimsoll.Resources{"cpu": 64_000},
	}}}
}

func (u *linearClient) change(ctx context.Context, a *answer, at int, call jobCall) {
	var status plimsoll.JobStatus
	var err error
	switch c := u.gateways[at]; call.kind {
	case createJob:
		var job plimsoll.Job
		job, err = c.SubmitJob(ctx, spec(call.job, []string{"ann", "bob"}[u.id%2], call.count))
		status = job.Status
	case scaleJob:
		status, err = c.ScaleJob(ctx, call.job, "", call.count)
	default:
		status, err = c.KillJob(ctx, call.job, call.reason)
	}
	op := porcupine.Operation{Input: call, Output: callDone}
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeNotFound:
		op.Output = callMissing
	case plimsoll.CodeConflict, plimsoll.CodeAlreadyExists:
		op.Output = callRefused
	case plimsoll.CodeOutcomeUnknown:
		u.unknown++
		op.Output = nil
	default:
		if err != nil {
			u.failed(string(call.kind), err)
			return
		}
		a.changed, a.revision = call.job, status.Revision
	}
	a.calls = []porcupine.Operation{op}
	u.keep(a)
	if a.changed != "" {
		u.noteChanged(a.revision)
	}
}

func (w *workload) noteChanged(revision uint64) {
	for at := w.changed.Load(); at < revision && !w.changed.CompareAndSwap(at, revision); at = w.changed.Load() {
	}
}

// work submits a job that runs on the node. Its states come and go in the watches.
func (u *linearClient) work(ctx context.Context, at int) {
	u.works++
	s := spec(fmt.Sprintf("w%d-%05d", u.id, u.works), "worker", 1)
	s.Groups[0].Resources = plimsoll.Resources{"cpu": 100}
	if _, err := u.gateways[at].SubmitJob(ctx, s); err != nil && plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown {
		u.failed("submit", err)
	}
}

// failed reports a failed call to the test, unless a fault explains it. Such a call had no effect.
func (u *linearClient) failed(what string, err error) {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeDeadline, plimsoll.CodeCanceled,
		plimsoll.CodeStale:
	default:
		u.t.Errorf("client %d: %s: %v", u.id, what, err)
	}
}

// watcher is a watch through any number of cuts, at any gateway.
type watcher struct {
	*workload
	rng      *rand.Rand
	gateways []plimsollv1connect.WatchServiceClient
	owner    string // criteria; empty: all jobs
	record   *watchtest.Record
	resumes  int
	until    atomic.Uint64 // revision behind which the watch ends; 0: not known yet
}

// digest returns a status as text, with its owner in front for the criteria.
func digest(s *plimsoll.JobStatus) string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return s.Owner + "|" + string(text)
}

func newWatcher(w *workload, rng *rand.Rand, owner string) *watcher {
	var criteria func(string) bool
	if owner != "" {
		criteria = func(value string) bool { return strings.HasPrefix(value, owner+"|") }
	}
	return &watcher{workload: w, rng: rng, owner: owner, record: watchtest.NewRecord(criteria)}
}

// run watches until it has been sent everything, or its context ends.
func (w *watcher) run(ctx context.Context) error {
	for {
		var err error
		until := w.until.Load()
		complete := until > 0 && w.record.Point().Revision >= until
		if !complete {
			complete, err = w.watch(ctx)
		}
		switch {
		case complete:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("a watch of %q is at %+v of revision %d", w.owner, w.record.Point(), until)
		case plimsoll.CodeOf(err) == plimsoll.CodeStale:
			w.record.Open(w.changed.Load())
		}
		pause(ctx, time.Duration(w.rng.IntN(100))*time.Millisecond)
	}
}

// watch reads one stream, some of the time only a part of it.
func (w *watcher) watch(ctx context.Context) (complete bool, err error) {
	lasts := time.Duration(200+w.rng.IntN(4000)) * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	req := &pb.WatchJobsRequest{Owner: w.owner}
	if p := w.record.Point(); p != (watchtest.Point{}) {
		req.From = &pb.WatchPoint{Epoch: p.Epoch, Revision: p.Revision, Part: p.Part}
		w.resumes++
	} else {
		w.record.Open(w.changed.Load())
	}
	stream, err := w.gateways[w.rng.IntN(len(w.gateways))].WatchJobs(ctx, connect.NewRequest(req))
	if err != nil {
		return false, wire.FromReadError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing was written
	for stream.Receive() {
		m := stream.Msg()
		p := m.GetPoint()
		sent := watchtest.Message{
			Point:       watchtest.Point{Epoch: p.GetEpoch(), Revision: p.GetRevision(), Part: p.GetPart()},
			SnapshotEnd: m.GetSnapshotEnd(),
		}
		for _, job := range m.GetJobs() {
			status := wire.JobStatusFromProto(job.GetJob().GetStatus())
			sent.Changes = append(sent.Changes, watchtest.Change{
				Type: watchtest.Type(job.GetChange()), Key: status.ID, Value: digest(&status),
				Revision: job.GetRevision(),
			})
		}
		w.record.Receive(sent)
		if until := w.until.Load(); until > 0 && p.GetRevision() >= until {
			return true, nil
		}
	}
	return false, wire.FromReadError(ctx, stream.Err())
}
