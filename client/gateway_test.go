package client_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// gateway answers a few calls from memory. The first failures calls are answered with
// CodeUnavailable.
type gateway struct {
	plimsollv1connect.UnimplementedJobServiceHandler
	plimsollv1connect.UnimplementedEventServiceHandler
	plimsollv1connect.UnimplementedWatchServiceHandler
	mu struct {
		sync.Mutex
		failures int
		tokens   []string
		jobs     map[string]*pb.Job
		watches  int
		instance string
		events   []*pb.Event
		pages    int
	}
}

// start serves the gateway on a socket. It returns a client of the gateway, and a function that
// stops both.
func (g *gateway) start() (*client.Client, func(), error) { return startGateway(g, client.Config{}) }

// services are those of a gateway that the tests call.
type services interface {
	plimsollv1connect.JobServiceHandler
	plimsollv1connect.EventServiceHandler
	plimsollv1connect.WatchServiceHandler
}

func startGateway(g services, config client.Config) (*client.Client, func(), error) {
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		return nil, nil, err
	}
	address := "unix:" + filepath.Join(dir, "s")
	l, err := transport.Listen(address)
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewJobServiceHandler(g))
	mux.Handle(plimsollv1connect.NewEventServiceHandler(g))
	mux.Handle(plimsollv1connect.NewWatchServiceHandler(g))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- transport.Serve(ctx, l, mux, transport.ServeConfig{}) }()
	config.Server = address
	c, err := client.New(config)
	return c, func() {
		c.Close()
		cancel()
		if err := <-served; err != nil {
			panic(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
	}, err
}

func (g *gateway) fail() error {
	if g.mu.failures > 0 {
		g.mu.failures--
		return wire.ConnectError(plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader"))
	}
	return nil
}

// SubmitJob accepts a valid job with a new id.
func (g *gateway) SubmitJob(
	_ context.Context, req *connect.Request[pb.SubmitJobRequest],
) (*connect.Response[pb.SubmitJobResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	spec := wire.JobSpecFromProto(req.Msg.GetSpec())
	g.mu.tokens = append(g.mu.tokens, spec.Token)
	if err := g.fail(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, wire.ConnectError(err)
	}
	job := plimsoll.Job{
		Spec: spec, Status: plimsoll.JobStatus{ID: spec.ID, Queue: spec.Queue, State: plimsoll.JobAccepted},
	}
	if g.mu.jobs == nil {
		g.mu.jobs = map[string]*pb.Job{}
	}
	g.mu.jobs[spec.ID] = wire.JobToProto(&job)
	return connect.NewResponse(&pb.SubmitJobResponse{Job: g.mu.jobs[spec.ID]}), nil
}

// ListJobs has 25 jobs and gives at most ten a page.
func (g *gateway) ListJobs(
	_ context.Context, req *connect.Request[pb.ListJobsRequest],
) (*connect.Response[pb.ListJobsResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.fail(); err != nil {
		return nil, err
	}
	g.mu.pages++
	res := &pb.ListJobsResponse{}
	for i := range 25 {
		if id := fmt.Sprintf("job-%02d", i); id > req.Msg.GetAfter() {
			if len(res.GetJobs()) == 10 {
				res.Next = res.GetJobs()[9].GetId()
				break
			}
			res.Jobs = append(res.Jobs, &pb.JobStatus{Id: id, State: pb.JobState_JOB_STATE_RUNNING})
		}
	}
	return connect.NewResponse(res), nil
}

// WatchJob breaks its first stream in the middle.
func (g *gateway) WatchJob(
	_ context.Context, req *connect.Request[pb.WatchJobRequest], s *connect.ServerStream[pb.WatchJobResponse],
) error {
	g.mu.Lock()
	g.mu.watches++
	first := g.mu.watches == 1
	g.mu.Unlock()
	send := func(state plimsoll.JobState) error {
		return s.Send(&pb.WatchJobResponse{Status: &pb.JobStatus{Id: req.Msg.GetId(), State: pb.JobState(state)}})
	}
	if first {
		if err := send(plimsoll.JobRunning); err != nil {
			return err
		}
		return wire.ConnectError(plimsoll.Errorf(plimsoll.CodeUnavailable, "the gateway stops"))
	}
	for _, state := range []plimsoll.JobState{plimsoll.JobRunning, plimsoll.JobCompleted} {
		if err := send(state); err != nil {
			return err
		}
	}
	return nil
}

// ReadLogs breaks after the first piece.
func (g *gateway) ReadLogs(
	_ context.Context, req *connect.Request[pb.ReadLogsRequest], s *connect.ServerStream[pb.ReadLogsResponse],
) error {
	if err := s.Send(&pb.ReadLogsResponse{Stream: "stdout", Data: []byte("hello\n")}); err != nil {
		return err
	}
	if req.Msg.GetTask() == "broken.g.0" {
		return wire.ConnectError(plimsoll.Errorf(plimsoll.CodeUnavailable, "the agent is away"))
	}
	return s.Send(&pb.ReadLogsResponse{Stream: "stderr", Data: []byte("oops\n")})
}

// ListEvents gives at most two events a page.
func (g *gateway) ListEvents(
	_ context.Context, req *connect.Request[pb.ListEventsRequest],
) (*connect.Response[pb.ListEventsResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	res := &pb.ListEventsResponse{InstanceUuid: g.mu.instance, Next: req.Msg.GetStart()}
	for id := req.Msg.GetStart(); id < uint64(len(g.mu.events)) && len(res.GetIds()) < 2; id++ {
		res.Ids, res.Events, res.Next = append(res.GetIds(), id), append(res.GetEvents(), g.mu.events[id]), id+1
	}
	return connect.NewResponse(res), nil
}

// WatchTasks sends two tasks of a job, of which one ends.
func (g *gateway) WatchTasks(
	ctx context.Context, req *connect.Request[pb.WatchTasksRequest], to *connect.ServerStream[pb.WatchTasksResponse],
) error {
	task := func(change pb.WatchChange, revision uint64, index int32) []*pb.WatchedTask {
		return []*pb.WatchedTask{{
			Change: change, Revision: revision, Task: &pb.Task{Job: req.Msg.GetJob(), Group: "map", Index: index},
		}}
	}
	for _, m := range []*pb.WatchTasksResponse{
		{
			Tasks: task(pb.WatchChange_WATCH_CHANGE_PRESENT, 0, 0), SnapshotEnd: true,
			Point: &pb.WatchPoint{Epoch: 1, Revision: 7},
		},
		{Tasks: task(pb.WatchChange_WATCH_CHANGE_ADDED, 8, 1), Point: &pb.WatchPoint{Epoch: 1, Revision: 8}},
		{Tasks: task(pb.WatchChange_WATCH_CHANGE_LEFT, 9, 0), Point: &pb.WatchPoint{Epoch: 1, Revision: 9}},
	} {
		if err := to.Send(m); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}
