package main

import (
	"cmp"
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// testNow is the time at which the tests' commands run.
var testNow = time.Date(2025, 3, 4, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) int64 { return testNow.Add(-d).UnixNano() }

// fakeGateway is a gateway with a few objects in memory. A job that is submitted runs at once, when
// somebody watches it.
type fakeGateway struct {
	plimsollv1connect.UnimplementedJobServiceHandler
	plimsollv1connect.UnimplementedNodeServiceHandler
	plimsollv1connect.UnimplementedPolicyServiceHandler
	plimsollv1connect.UnimplementedEventServiceHandler
	plimsollv1connect.UnimplementedWatchServiceHandler
	mu struct {
		sync.Mutex
		jobs     []plimsoll.Job
		tasks    []plimsoll.Task
		nodes    []plimsoll.Node
		config   plimsoll.QueueConfig
		attempts map[string][]plimsoll.Attempt // of the archive, by task
		// unread are the errors of logs and outputs, by task.
		unread  map[string]error
		outputs map[string][]*pb.FetchOutputsResponse
	}
	killed chan string // ids of jobs that were killed
	// readLog answers for the log of a task; nil: each task has the same.
	readLog func(ctx context.Context, task string, send func(*pb.ReadLogsResponse) error) error
}

// serve starts a gateway and returns its address.
func serve(t *testing.T, options ...connect.HandlerOption) (address string, g *fakeGateway) {
	t.Helper()
	g = newGateway()
	address = "unix:" + filepath.Join(t.TempDir(), "s")
	l, err := transport.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(plimsollv1connect.NewJobServiceHandler(g, options...))
	mux.Handle(plimsollv1connect.NewNodeServiceHandler(g, options...))
	mux.Handle(plimsollv1connect.NewPolicyServiceHandler(g, options...))
	mux.Handle(plimsollv1connect.NewQueueServiceHandler(g, options...))
	mux.Handle(plimsollv1connect.NewEventServiceHandler(g, options...))
	mux.Handle(plimsollv1connect.NewWatchServiceHandler(g, options...))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- transport.Serve(ctx, l, mux, transport.ServeConfig{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return address, g
}

func newGateway() *fakeGateway {
	g := &fakeGateway{killed: make(chan string, 10)}
	g.mu.config = plimsoll.DefaultQueues()
	spec := func(id string, count int32) plimsoll.JobSpec {
		return plimsoll.JobSpec{
			ID: id, Owner: "alice", Queue: "root.batch", Labels: map[string]string{"team": "docs"},
			Groups: []plimsoll.GroupSpec{{
				Name: "map", Count: count, Command: []string{"true"},
				Resources: plimsoll.Resources{"cpu": 500, "memory": 64 << 20},
			}},
		}
	}
	status := func(id string, state plimsoll.JobState, group plimsoll.GroupStatus) plimsoll.JobStatus {
		group.Name, group.Count = "map", group.Counts.Total()
		s := plimsoll.JobStatus{
			ID: id, Owner: "alice", Queue: "root.batch", State: state, Submitted: before(5 * time.Minute),
			Groups:   []plimsoll.GroupStatus{group},
			Revision: 7,
		}
		if state.Ended() {
			s.Started, s.Finished = before(299*time.Second), before(2*time.Minute)
		}
		return s
	}
	failed := status(
		"flaky", plimsoll.JobFailed, plimsoll.GroupStatus{Counts: plimsoll.TaskCounts{Succeeded: 1, Failed: 2}},
	)
	failed.Reason = "flaky.map.1 failed 3 times"
	g.mu.jobs = []plimsoll.Job{
		{Spec: spec("flaky", 3), Status: failed},
		{Spec: spec("waiting", 2), Status: status("waiting", plimsoll.JobRunning, plimsoll.GroupStatus{
			Counts: plimsoll.TaskCounts{Pending: 1, Running: 1},
			Wait: plimsoll.WaitCause{
				Code: plimsoll.WaitQueueMax, Queue: "root.batch", Resource: "memory", Asked: 1 << 30,
			},
		})},
		{Spec: spec("wordcount", 2), Status: status("wordcount", plimsoll.JobCompleted, plimsoll.GroupStatus{
			Counts: plimsoll.TaskCounts{Succeeded: 2},
		})},
	}
	task := func(
		job string, index int32, state plimsoll.TaskState, result plimsoll.TaskResult, exit int32, message string,
	) {
		t := plimsoll.Task{
			ID: plimsoll.TaskID(job, "map", index), Job: job, Group: "map", Index: index, State: state, Result: result,
			ExitCode: exit,
			Message:  message, Created: before(5 * time.Minute),
		}
		if state > plimsoll.TaskPending {
			t.Attempt, t.Node, t.Bound, t.Started = 1, "n1", before(299*time.Second), before(298*time.Second)
		}
		if state == plimsoll.TaskFinished {
			t.Finished = before(2 * time.Minute)
		}
		g.mu.tasks = append(g.mu.tasks, t)
	}
	task("flaky", 0, plimsoll.TaskFinished, plimsoll.ResultSucceeded, 0, "")
	task("flaky", 1, plimsoll.TaskFinished, plimsoll.ResultFailed, 3, "")
	task("flaky", 2, plimsoll.TaskFinished, plimsoll.ResultOutOfMemory, 137, "used more than its 64Mi")
	task("waiting", 0, plimsoll.TaskRunning, plimsoll.ResultNone, 0, "")
	task("waiting", 1, plimsoll.TaskPending, plimsoll.ResultNone, 0, "")
	task("wordcount", 0, plimsoll.TaskFinished, plimsoll.ResultSucceeded, 0, "")
	task("wordcount", 1, plimsoll.TaskFinished, plimsoll.ResultSucceeded, 0, "")
	capacity := plimsoll.Resources{"cpu": 4000, "memory": 16<<30 - 12345, "disk": 100 << 30}
	g.mu.nodes = []plimsoll.Node{
		{
			ID: "n1", Address: "10.0.0.1:9081", Capacity: capacity, Attributes: map[string]string{"os": "linux"},
			Incarnation: 1,
			Mode:        plimsoll.NodeActive, Ready: true, Registered: before(3 * time.Hour), Revision: 2,
			Facts: plimsoll.NodeFacts{
				Traits: map[string]plimsoll.Trait{
					"ssd": {Flag: true}, "hdd": {}, "gpu": {Words: []string{"a100", "h100"}},
					"tier": {Words: []string{"gold"}},
				},
				Networks: map[string]bool{"eth0": true, "storage": false}, Release: "7.0", Platform: "20260114T101500Z",
				Reservoir:     true,
				Reserve:       map[string]float64{"memory": 0.15, "cpu": 0.07},
				Overprovision: map[string]float64{"cpu": 4, "memory": 1.5},
				LastBoot:      before(240*time.Hour) / int64(time.Second), NextReboot: 4102444800,
			},
			Occupied: plimsoll.NodeUse{CPU: 300, Memory: 3 << 29}, OccupiedAt: before(5 * time.Minute),
		},
		{
			ID: "n2", Capacity: capacity, Incarnation: 4, Mode: plimsoll.NodeDraining,
			Registered: before(72 * time.Hour), Revision: 3,
		},
	}
	return g
}

func noSuch(what, id string) error {
	return wire.ConnectError(plimsoll.Errorf(plimsoll.CodeNotFound, "there is no %s %q", what, id))
}

// job returns the job with an id. The caller holds the lock.
func (g *fakeGateway) job(id string) (*plimsoll.Job, error) {
	i := slices.IndexFunc(g.mu.jobs, func(j plimsoll.Job) bool { return j.Spec.ID == id })
	if i < 0 {
		return nil, noSuch("job", id)
	}
	return &g.mu.jobs[i], nil
}

// SubmitJob accepts a valid job with a new id.
func (g *fakeGateway) SubmitJob(
	_ context.Context, req *connect.Request[pb.SubmitJobRequest],
) (*connect.Response[pb.SubmitJobResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	spec := wire.JobSpecFromProto(req.Msg.GetSpec())
	if err := spec.Validate(); err != nil {
		return nil, wire.ConnectError(err)
	}
	if _, err := g.job(spec.ID); err == nil {
		return nil, wire.ConnectError(&plimsoll.Error{
			Code: plimsoll.CodeAlreadyExists, Field: "job", Msg: `"` + spec.ID + `" is taken; choose another id`,
		})
	}
	spec.Queue = cmp.Or(spec.Queue, "root.default")
	job := plimsoll.Job{Spec: spec, Status: plimsoll.JobStatus{
		ID: spec.ID, Owner: spec.Owner, Queue: spec.Queue, State: plimsoll.JobAccepted, Submitted: testNow.UnixNano(),
	}}
	for _, s := range spec.Groups {
		job.Status.Groups = append(job.Status.Groups, plimsoll.GroupStatus{
			Name: s.Name, Count: s.Count, Counts: plimsoll.TaskCounts{Pending: s.Count},
		})
		for i := range s.Count {
			g.mu.tasks = append(g.mu.tasks, plimsoll.Task{
				ID: plimsoll.TaskID(spec.ID, s.Name, i), Job: spec.ID, Group: s.Name, Index: i,
				State: plimsoll.TaskPending,
			})
		}
	}
	g.mu.jobs = append(g.mu.jobs, job)
	return connect.NewResponse(&pb.SubmitJobResponse{Job: wire.JobToProto(&job)}), nil
}

// GetJob reads a job.
func (g *fakeGateway) GetJob(
	_ context.Context, req *connect.Request[pb.GetJobRequest],
) (*connect.Response[pb.GetJobResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	job, err := g.job(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.GetJobResponse{Job: wire.JobToProto(job)}), nil
}

// ListJobs lists the jobs in the states and with the results that are asked for, in the order of
// their ids or backwards. It has no second page.
func (g *fakeGateway) ListJobs(
	_ context.Context, req *connect.Request[pb.ListJobsRequest],
) (*connect.Response[pb.ListJobsResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	res := &pb.ListJobsResponse{}
	for i := range g.mu.jobs {
		s := &g.mu.jobs[i].Status
		states, results := req.Msg.GetStates(), req.Msg.GetResults()
		if (len(states) == 0 || slices.Contains(states, pb.JobState(s.State))) &&
			(len(results) == 0 || slices.Contains(results, pb.TaskResult(s.Result()))) {
			res.Jobs = append(res.Jobs, wire.JobStatusToProto(s))
		}
	}
	if req.Msg.GetSort() != pb.JobSort_JOB_SORT_UNSPECIFIED && !req.Msg.GetAscending() {
		slices.Reverse(res.Jobs)
	}
	res.Total = int64(len(res.Jobs))
	if limit := int(req.Msg.GetLimit()); limit > 0 && limit < len(res.Jobs) {
		res.Jobs, res.Next = res.Jobs[:limit], "next"
	}
	return connect.NewResponse(res), nil
}

// advance lets a job take its next step and returns its status.
func (g *fakeGateway) advance(id string) (plimsoll.JobStatus, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	job, err := g.job(id)
	if err != nil || job.Status.State.Ended() || id == "waiting" {
		if err != nil {
			return plimsoll.JobStatus{}, err
		}
		return job.Status, nil
	}
	code := exitCodeOf(job.Spec.Groups[0].Command)
	s := &job.Status
	for i := range g.mu.tasks {
		t := &g.mu.tasks[i]
		if t.Job != id {
			continue
		}
		switch {
		case s.State == plimsoll.JobAccepted:
			t.State, t.Attempt = plimsoll.TaskRunning, 1
			s.Groups[0].Counts = plimsoll.TaskCounts{Running: s.Groups[0].Count}
		case code == 0:
			t.State, t.Result = plimsoll.TaskFinished, plimsoll.ResultSucceeded
			s.Groups[0].Counts = plimsoll.TaskCounts{Succeeded: s.Groups[0].Count}
		default:
			t.State, t.Result, t.ExitCode = plimsoll.TaskFinished, plimsoll.ResultFailed, code
			s.Groups[0].Counts = plimsoll.TaskCounts{Failed: s.Groups[0].Count}
		}
	}
	switch {
	case s.State == plimsoll.JobAccepted:
		s.State = plimsoll.JobRunning
	case s.State == plimsoll.JobFailing, code != 0:
		s.State = plimsoll.JobFailed
	default:
		s.State, s.Finished = plimsoll.JobCompleted, testNow.Add(3*time.Second).UnixNano()
	}
	return *s, nil
}

// exitCodeOf reads the code of a command "exit N".
func exitCodeOf(command []string) int32 {
	if command[0] == "exit" && command[1] == "3" {
		return 3
	}
	return 0
}

// WatchJob sends a step of the job at a time.
func (g *fakeGateway) WatchJob(
	ctx context.Context, req *connect.Request[pb.WatchJobRequest], s *connect.ServerStream[pb.WatchJobResponse],
) error {
	for {
		status, err := g.advance(req.Msg.GetId())
		if err != nil {
			return err
		}
		if err := s.Send(&pb.WatchJobResponse{Status: wire.JobStatusToProto(&status)}); err != nil {
			return err
		}
		if status.State.Ended() {
			return nil
		}
		if g.sleeps(req.Msg.GetId()) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-g.killed:
			}
		}
	}
}

// sleeps is true for a running job whose command is sleep: it ends by being killed.
func (g *fakeGateway) sleeps(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	job, err := g.job(id)
	return err == nil && job.Status.State == plimsoll.JobRunning && job.Spec.Groups[0].Command[0] == "sleep"
}

// KillJob lets a job fail, and wakes its watch.
func (g *fakeGateway) KillJob(
	_ context.Context, req *connect.Request[pb.KillJobRequest],
) (*connect.Response[pb.KillJobResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	job, err := g.job(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	job.Status.State, job.Status.Killed, job.Status.Reason = plimsoll.JobFailing, true, req.Msg.GetReason()
	g.killed <- job.Spec.ID
	return connect.NewResponse(&pb.KillJobResponse{Status: wire.JobStatusToProto(&job.Status)}), nil
}

// ScaleJob changes the count and nothing else.
func (g *fakeGateway) ScaleJob(
	_ context.Context, req *connect.Request[pb.ScaleJobRequest],
) (*connect.Response[pb.ScaleJobResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	job, err := g.job(req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	job.Status.Groups[0].Count = req.Msg.GetCount()
	return connect.NewResponse(&pb.ScaleJobResponse{Status: wire.JobStatusToProto(&job.Status)}), nil
}

// GetTask reads a task.
func (g *fakeGateway) GetTask(
	_ context.Context, req *connect.Request[pb.GetTaskRequest],
) (*connect.Response[pb.GetTaskResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.mu.tasks {
		if g.mu.tasks[i].ID == req.Msg.GetId() {
			return connect.NewResponse(&pb.GetTaskResponse{Task: wire.TaskToProto(&g.mu.tasks[i])}), nil
		}
	}
	return nil, noSuch("task", req.Msg.GetId())
}

// ListTasks lists the tasks of a job, a node, in some states.
func (g *fakeGateway) ListTasks(
	_ context.Context, req *connect.Request[pb.ListTasksRequest],
) (*connect.Response[pb.ListTasksResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	res := &pb.ListTasksResponse{}
	for i := range g.mu.tasks {
		t := &g.mu.tasks[i]
		states := req.Msg.GetStates()
		if (req.Msg.GetJob() == "" || t.Job == req.Msg.GetJob()) &&
			(req.Msg.GetNode() == "" || t.Node == req.Msg.GetNode()) &&
			(len(states) == 0 || slices.Contains(states, pb.TaskState(t.State))) &&
			(len(req.Msg.GetResults()) == 0 || slices.Contains(req.Msg.GetResults(), pb.TaskResult(t.Result))) &&
			(len(req.Msg.GetExitCodes()) == 0 || slices.Contains(req.Msg.GetExitCodes(), t.ExitCode)) {
			res.Tasks = append(res.Tasks, wire.TaskToProto(t))
		}
	}
	if req.Msg.GetSort() == pb.TaskSort_TASK_SORT_FAILED_FIRST {
		good := func(t *pb.Task) bool { return t.GetResult() <= pb.TaskResult_TASK_RESULT_SUCCEEDED }
		slices.SortStableFunc(res.Tasks, func(a, b *pb.Task) int {
			switch {
			case good(a) == good(b):
				return 0
			case good(b):
				return -1
			}
			return 1
		})
	}
	res.Total = int64(len(res.Tasks))
	if limit := int(req.Msg.GetLimit()); limit > 0 && limit < len(res.Tasks) {
		res.Tasks, res.Next = res.Tasks[:limit], "next"
	}
	return connect.NewResponse(res), nil
}

// ExplainTask has one explanation for every task.
func (g *fakeGateway) ExplainTask(
	_ context.Context, req *connect.Request[pb.ExplainTaskRequest],
) (*connect.Response[pb.ExplainTaskResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.mu.tasks {
		if t := &g.mu.tasks[i]; t.ID == req.Msg.GetId() {
			return connect.NewResponse(&pb.ExplainTaskResponse{
				Revision: 4711,
				Task:     wire.TaskToProto(t), WaitCode: pb.WaitCode_WAIT_CODE_NO_NODE,
				Summary: "2 of 2 nodes: not enough cpu",
				Steps:   refusingSteps(), Nodes: &pb.NodeCounts{Total: 3, Open: 2, Eligible: 2, FitEmpty: 1},
				DecisionsKept: 2000,
				Verdicts:      verdictsOn(req.Msg.GetNode()), Decision: decisionOn(t, req.Msg.GetExport()),
				Spreads: spreadOverRacks(),
			}), nil
		}
	}
	return nil, noSuch("task", req.Msg.GetId())
}

// ReadLogs answers with the id of the task on stdout, and with bytes that are no line on stderr.
func (g *fakeGateway) ReadLogs(
	ctx context.Context, req *connect.Request[pb.ReadLogsRequest], s *connect.ServerStream[pb.ReadLogsResponse],
) error {
	if g.readLog != nil {
		return g.readLog(ctx, req.Msg.GetTask(), s.Send)
	}
	if err := g.missing(req.Msg.GetTask()); err != nil {
		return err
	}
	for _, m := range []*pb.ReadLogsResponse{
		{Stream: "stdout", Data: []byte("this is ")},
		{Stream: "stderr", Data: []byte("no line end")},
		{Stream: "stdout", Data: []byte(req.Msg.GetTask() + "\nsecond line\n")},
	} {
		if req.Msg.GetStream() != "" && req.Msg.GetStream() != m.GetStream() {
			continue
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the error for the logs and outputs of a task.
func (g *fakeGateway) missing(task string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return wire.ConnectError(g.mu.unread[task])
}

// FetchOutputs answers with the parts that the test has set.
func (g *fakeGateway) FetchOutputs(
	_ context.Context, req *connect.Request[pb.FetchOutputsRequest], s *connect.ServerStream[pb.FetchOutputsResponse],
) error {
	if err := g.missing(req.Msg.GetTask()); err != nil {
		return err
	}
	g.mu.Lock()
	parts := g.mu.outputs[req.Msg.GetTask()]
	g.mu.Unlock()
	for _, m := range parts {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// ListNodes lists the nodes; the first has something allocated, and is sick.
func (g *fakeGateway) ListNodes(
	context.Context, *connect.Request[pb.ListNodesRequest],
) (*connect.Response[pb.ListNodesResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	res := &pb.ListNodesResponse{}
	for i := range g.mu.nodes {
		status := plimsoll.NodeStatus{ID: g.mu.nodes[i].ID}
		if i == 0 {
			status.Allocated, status.Tasks = plimsoll.Resources{"cpu": 1500, "memory": 1 << 30}, 1
			status.SickUntil = before(-298 * time.Second)
		}
		res.Nodes = append(
			res.Nodes, &pb.NodeInfo{Node: wire.NodeToProto(&g.mu.nodes[i]), Status: wire.NodeStatusToProto(&status)},
		)
	}
	return connect.NewResponse(res), nil
}

// SetNodeMode changes the mode.
func (g *fakeGateway) SetNodeMode(
	_ context.Context, req *connect.Request[pb.SetNodeModeRequest],
) (*connect.Response[pb.SetNodeModeResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.mu.nodes {
		if n := &g.mu.nodes[i]; n.ID == req.Msg.GetId() {
			n.Mode = plimsoll.NodeMode(req.Msg.GetMode())
			return connect.NewResponse(&pb.SetNodeModeResponse{Node: wire.NodeToProto(n)}), nil
		}
	}
	return nil, noSuch("node", req.Msg.GetId())
}

// RemoveNode forgets a node.
func (g *fakeGateway) RemoveNode(
	_ context.Context, req *connect.Request[pb.RemoveNodeRequest],
) (*connect.Response[pb.RemoveNodeResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.mu.nodes)
	g.mu.nodes = slices.DeleteFunc(g.mu.nodes, func(n plimsoll.Node) bool { return n.ID == req.Msg.GetId() })
	if len(g.mu.nodes) == n {
		return nil, noSuch("node", req.Msg.GetId())
	}
	return connect.NewResponse(&pb.RemoveNodeResponse{}), nil
}

// ListQueues has three queues that never change.
func (g *fakeGateway) ListQueues(
	context.Context, *connect.Request[pb.ListQueuesRequest],
) (*connect.Response[pb.ListQueuesResponse], error) {
	return connect.NewResponse(&pb.ListQueuesResponse{Queues: []*pb.QueueStatus{
		wire.QueueStatusToProto(
			&plimsoll.QueueStatus{
				Path: "root", Max: plimsoll.Resources{"cpu": 8000, "nvidia.com/gpu": 2}, Tasks: 2,
				Allocated: plimsoll.Resources{"cpu": 1500}, Jobs: 1, Running: 1, Waiting: 1,
			},
		),
		wire.QueueStatusToProto(&plimsoll.QueueStatus{
			Path: "root.batch", Leaf: true, Max: plimsoll.Resources{"cpu": 8000, "memory": 64 << 30},
			Guaranteed: plimsoll.Resources{"cpu": 500},
			Allocated:  plimsoll.Resources{"cpu": 1500, "memory": 64 << 30},
			Pending:    plimsoll.Resources{"memory": 64 << 20},
			Jobs:       1, Running: 1, Waiting: 1, Tasks: 2, MaxTasks: 5000,
		}),
		wire.QueueStatusToProto(&plimsoll.QueueStatus{Path: "root.old", Leaf: true, Draining: true}),
	}}), nil
}

// ExplainWaiting has the turns of the queues of ListQueues, and nothing else.
func (g *fakeGateway) ExplainWaiting(
	ctx context.Context, req *connect.Request[pb.ExplainWaitingRequest],
) (*connect.Response[pb.ExplainWaitingResponse], error) {
	if !req.Msg.GetTurnsOnly() {
		return g.UnimplementedJobServiceHandler.ExplainWaiting(ctx, req)
	}
	return connect.NewResponse(&pb.ExplainWaitingResponse{Queues: []*pb.QueueTurn{
		{Queue: "root", Share: 0.1875, Reason: "tasks wait below it: 1"},
		{Queue: "root.batch", Share: 3, Reason: "root.batch is at its max: memory 64Gi of 64Gi"},
		{Queue: "root.old"},
	}}), nil
}

// GetQueueConfig returns the configuration of the last SetQueueConfig.
func (g *fakeGateway) GetQueueConfig(
	context.Context, *connect.Request[pb.GetQueueConfigRequest],
) (*connect.Response[pb.GetQueueConfigResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return connect.NewResponse(&pb.GetQueueConfigResponse{Config: wire.QueueConfigToProto(&g.mu.config)}), nil
}

// SetQueueConfig replaces the configuration.
func (g *fakeGateway) SetQueueConfig(
	_ context.Context, req *connect.Request[pb.SetQueueConfigRequest],
) (*connect.Response[pb.SetQueueConfigResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.config = wire.QueueConfigFromProto(req.Msg.GetConfig())
	return connect.NewResponse(&pb.SetQueueConfigResponse{}), nil
}

// ListEvents has five events and gives two a page.
func (g *fakeGateway) ListEvents(
	_ context.Context, req *connect.Request[pb.ListEventsRequest],
) (*connect.Response[pb.ListEventsResponse], error) {
	events := []plimsoll.Event{
		{Type: plimsoll.EventNode, Change: plimsoll.ChangeAdd, Object: "n1"},
		{Type: plimsoll.EventApp, Change: plimsoll.ChangeSet, Detail: plimsoll.AppNew, Object: "wordcount"},
		{
			Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Detail: plimsoll.AppAlloc, Object: "wordcount",
			Reference: "wordcount.map.0",
			Resources: plimsoll.Resources{"cpu": 500, "memory": 64 << 20},
		},
		{Type: plimsoll.EventApp, Change: plimsoll.ChangeSet, Detail: plimsoll.AppRunning, Object: "wordcount"},
		{
			Type: plimsoll.EventNode, Change: plimsoll.ChangeSet, Detail: plimsoll.NodeSchedulable, Object: "n2",
			Message: "schedulable: false (drained\nby alice)",
		},
	}
	res := &pb.ListEventsResponse{InstanceUuid: "u", HighestId: uint64(len(events) - 1)}
	count := min(req.Msg.GetCount(), 2)
	if count == 0 {
		count = 2
	}
	id := req.Msg.GetStart()
	for ; id < uint64(len(events)) && uint64(len(res.GetIds())) < count; id++ {
		e := &events[id]
		e.Time = before(time.Duration(10-id) * time.Second)
		if object := req.Msg.GetObject(); object == "" || e.Object == object ||
			strings.HasPrefix(e.Reference, object+".") {
			res.Ids, res.Events = append(res.GetIds(), id), append(res.GetEvents(), wire.EventToProto(e))
		}
	}
	res.Next = id
	return connect.NewResponse(res), nil
}
