package gateway

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// accept commits what a command asks for, as a leader would.
func accept(f *fake) func(*pb.Command) *pb.Reply {
	return func(cmd *pb.Command) *pb.Reply {
		switch {
		case cmd.GetSubmitJob() != nil:
			spec := wire.JobSpecFromProto(cmd.GetSubmitJob().GetSpec())
			f.put(
				putSpec(spec),
				putStatus(
					plimsoll.JobStatus{ID: spec.ID, Owner: spec.Owner, Queue: spec.Queue, State: plimsoll.JobAccepted},
				),
			)
		case cmd.GetKillJob() != nil:
			f.put(
				putStatus(
					plimsoll.JobStatus{
						ID: cmd.GetKillJob().GetId(), State: plimsoll.JobFailing, Killed: true,
						Reason: cmd.GetKillJob().GetReason(),
					},
				),
			)
		case cmd.GetScaleJob() != nil:
			count := cmd.GetScaleJob().GetCount()
			f.put(
				putStatus(
					plimsoll.JobStatus{
						ID: cmd.GetScaleJob().GetId(), Groups: []plimsoll.GroupStatus{{Name: "map", Count: count}},
					},
				),
			)
		case cmd.GetSetNodeMode() != nil:
			f.put(
				putNode(
					plimsoll.Node{
						ID: cmd.GetSetNodeMode().GetId(), Mode: plimsoll.NodeMode(cmd.GetSetNodeMode().GetMode()),
					},
				),
			)
		case cmd.GetExplainTask() != nil:
			return &pb.Reply{ExplainTask: &pb.ExplainTaskResponse{Summary: "it is too large"}}
		case cmd.GetPlaceJob() != nil:
			return &pb.Reply{
				PlaceJob: &pb.PlaceJobResponse{QueueReason: cmd.GetPlaceJob().GetSpec().GetQueue() + " is full"},
			}
		case cmd.GetNodeCapacity() != nil:
			return &pb.Reply{
				NodeCapacity: &pb.NodeCapacityResponse{
					Nodes: []*pb.NodeRoom{{Node: cmd.GetNodeCapacity().GetNodes()[0]}},
				},
			}
		}
		return &pb.Reply{}
	}
}

func TestWritesAreSentOnceAndAnsweredWithTheirEffect(t *testing.T) {
	f := cluster()
	f.answer = accept(f)
	s := directly(newGateway(t, Config{}, f))

	spec := specNamed("new")
	submitted := must(t, s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)}).GetJob()
	if submitted.GetStatus().GetState() != pb.JobState_JOB_STATE_ACCEPTED ||
		submitted.GetSpec().GetGroups()[0].GetCount() != 2 {
		t.Errorf("submitted is %v", submitted)
	}
	killed := must(t, s.jobs.KillJob, &pb.KillJobRequest{Id: "a", Reason: "enough"}).GetStatus()
	if !killed.GetKilled() || killed.GetReason() != "enough" {
		t.Errorf("killed is %v", killed)
	}
	if scaled := must(
		t, s.jobs.ScaleJob, &pb.ScaleJobRequest{Id: "a", Count: 7},
	).GetStatus(); scaled.GetGroups()[0].GetCount() != 7 {
		t.Errorf("scaled is %v", scaled)
	}
	if node := must(
		t, s.nodes.SetNodeMode, &pb.SetNodeModeRequest{Id: "n1", Mode: 3},
	).GetNode(); node.GetMode() != pb.NodeMode_NODE_MODE_DRAINING {
		t.Errorf("drained is %v", node)
	}
	must(t, s.nodes.RemoveNode, &pb.RemoveNodeRequest{Id: "n1"})
	must(
		t, s.queues.SetQueueConfig,
		&pb.SetQueueConfigRequest{Config: wire.QueueConfigToProto(new(plimsoll.DefaultQueues()))},
	)
	if explained := must(
		t, s.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: "a.map.1"},
	); explained.GetSummary() != "it is too large" {
		t.Errorf("explained is %v", explained)
	}
	if n := len(f.sent()); n != 7 {
		t.Errorf("%d commands were sent for 7 writes", n)
	}
}

// The leader chooses the queue of a job by the placement rules, so the gateway adds none.
func TestASubmitWithoutAQueueIsSentWithoutOne(t *testing.T) {
	f := newFake()
	f.answer = accept(f)
	spec := specNamed("new")
	spec.Queue = ""
	job := must(
		t, directly(newGateway(t, Config{}, f)).jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)},
	).GetJob()
	sent := f.sent()[0].GetSubmitJob().GetSpec().GetQueue()
	if sent != "" || job.GetStatus().GetId() != "new" {
		t.Errorf("it was sent with the queue %q, and the answer is %v", sent, job)
	}
}

// A reply is behind its batch. Should the copy have been replaced by an older one meanwhile, the
// answer waits for a barrier.
func TestAnAnswerIsNeverOlderThanItsReply(t *testing.T) {
	f := cluster()
	f.answer = func(*pb.Command) *pb.Reply { return &pb.Reply{Revision: 2} }
	s := directly(newGateway(t, Config{}, &behind{fake: f}))
	status := must(t, s.jobs.KillJob, &pb.KillJobRequest{Id: "a"}).GetStatus()
	if !status.GetKilled() {
		t.Errorf("the answer is %v, from before the change", status)
	}
}

// behind is a replica whose Latest lacks the change that a barrier brings.
type behind struct{ *fake }

func (b *behind) Barrier(ctx context.Context) (*replica.Snapshot, error) {
	b.put(putStatus(plimsoll.JobStatus{ID: "a", Killed: true}))
	return b.fake.Barrier(ctx)
}

func TestBadInputIsRefusedBeforeTheLeaderSeesIt(t *testing.T) {
	f := cluster()
	s := directly(newGateway(t, Config{}, f))
	good := specNamed("tried")
	tried := wire.JobSpecToProto(&good)
	long := strings.Repeat("x", 2000)
	spec := func(change func(*pb.JobSpec)) error {
		valid := specNamed("new")
		m := wire.JobSpecToProto(&valid)
		change(m)
		return second(call(s.jobs.SubmitJob, &pb.SubmitJobRequest{Spec: m}))
	}
	report := func(change func(*pb.ReportTasksRequest)) error {
		m := &pb.ReportTasksRequest{
			Node: "n1", Incarnation: 3, Sequence: 1, Reports: []*pb.TaskReport{{Task: "a.map.0", Attempt: 1, State: 4}},
		}
		change(m)
		return second(call(s.agents.ReportTasks, m))
	}
	node := func(n *pb.Node) error { return second(call(s.agents.RegisterNode, &pb.RegisterNodeRequest{Node: n})) }
	queues := func(c *pb.QueueConfig) error {
		return second(call(s.queues.SetQueueConfig, &pb.SetQueueConfigRequest{Config: c, DryRun: true}))
	}
	tests := []struct {
		name  string
		err   error
		field string
		says  string
	}{
		{"no job", second(call(s.jobs.SubmitJob, &pb.SubmitJobRequest{})), "spec", "give the job"},
		{"no id", spec(func(m *pb.JobSpec) { m.Id = "" }), "job", "give a name"},
		{"an impossible id", spec(func(m *pb.JobSpec) { m.Id = "../x" }), "job", "not a possible id"},
		{"a queue that is no path", spec(func(m *pb.JobSpec) { m.Queue = "root..b" }), "queue", "possible queue name"},
		{"no groups", spec(func(m *pb.JobSpec) { m.Groups = nil }), "groups", "at least one"},
		{"an empty group", spec(func(m *pb.JobSpec) { m.Groups[0] = &pb.GroupSpec{} }), "groups[0].name", "1 to 63"},
		{"a negative count", spec(func(m *pb.JobSpec) { m.Groups[0].Count = -1 }), "groups[0].count", "from 0"},
		{
			"no command", spec(func(m *pb.JobSpec) { m.Groups[0].Command = nil }), "groups[0].command",
			"give the program",
		},
		{
			"a negative amount",
			spec(func(m *pb.JobSpec) { m.Groups[0].Resources = &pb.Resources{Amounts: map[string]int64{"cpu": -1}} }),
			"groups[0].resources.cpu", "negative",
		},
		{
			"an absurd amount",
			spec(
				func(
					m *pb.JobSpec,
				) {
					m.Groups[0].Resources = &pb.Resources{Amounts: map[string]int64{"cpu": 1 << 62}}
				},
			),
			"groups[0].resources.cpu", "larger than the largest",
		},
		{
			"an unknown kind of retry", spec(func(m *pb.JobSpec) { m.Groups[0].Retry = &pb.RetryPolicy{Kind: 99} }),
			"spec.groups[0].retry.kind", "RETRY_KIND_IMMEDIATE",
		},
		{"get without an id", second(call(s.jobs.GetJob, &pb.GetJobRequest{})), "id", "is empty"},
		{
			"kill an impossible id", second(call(s.jobs.KillJob, &pb.KillJobRequest{Id: "a b"})), "id",
			"not a possible id",
		},
		{
			"kill an impossible uid", second(call(s.jobs.KillJob, &pb.KillJobRequest{Id: "a", Uid: "b"})), "uid",
			"is not a uid",
		},
		{
			"scale an impossible uid", second(call(s.jobs.ScaleJob, &pb.ScaleJobRequest{Id: "a", Uid: "b"})), "uid",
			"is not a uid",
		},
		{
			"kill with an endless reason", second(call(s.jobs.KillJob, &pb.KillJobRequest{Id: "a", Reason: long})),
			"reason", "at most 1024",
		},
		{
			"kill with a long token", second(call(s.jobs.KillJob, &pb.KillJobRequest{Id: "a", Token: long})),
			"token", "at most 128",
		},
		{
			"remove with a long token", second(call(s.nodes.RemoveNode, &pb.RemoveNodeRequest{Id: "a", Token: long})),
			"token", "at most 128",
		},
		{
			"scale to less than nothing", second(call(s.jobs.ScaleJob, &pb.ScaleJobRequest{Id: "a", Count: -1})),
			"count", "from 0",
		},
		{
			"scale beyond all", second(call(s.jobs.ScaleJob, &pb.ScaleJobRequest{Id: "a", Count: 1_000_001})), "count",
			"to 1000000",
		},
		{
			"a task that is a job", second(call(s.jobs.GetTask, &pb.GetTaskRequest{Id: "a"})), "id",
			"job, group and index",
		},
		{
			"plan too many moves", second(call(s.nodes.PlanMoves, &pb.PlanMovesRequest{Limit: 1001})), "limit",
			"from 1 to 1000",
		},
		{
			"explain what is no task", second(call(s.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: "a.map.x"})), "id",
			"job, group and index",
		},
		{
			"explain on an impossible node",
			second(call(s.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: "a.map.1", Node: "n 1"})), "node",
			"not a possible id",
		},
		{"try nothing", second(call(s.jobs.PlaceJob, &pb.PlaceJobRequest{})), "spec", "is missing"},
		{
			"try a job that is none", second(call(s.jobs.PlaceJob, &pb.PlaceJobRequest{Spec: &pb.JobSpec{Id: "a b"}})),
			"job", "not a possible id",
		},
		{
			"try less than nothing", second(call(s.jobs.PlaceJob, &pb.PlaceJobRequest{Spec: tried, Count: -1})),
			"count", "from 1 to 10000",
		},
		{
			"try too much", second(call(s.jobs.PlaceJob, &pb.PlaceJobRequest{Spec: tried, Count: 10_001})), "count",
			"from 1 to 10000",
		},
		{
			"what is left on nobody",
			second(call(s.nodes.NodeCapacity, &pb.NodeCapacityRequest{Nodes: []string{"n1", ""}})), "nodes[1]",
			"is empty",
		},
		{
			"what is left on too many",
			second(call(s.nodes.NodeCapacity, &pb.NodeCapacityRequest{Nodes: make([]string, 10_001)})), "nodes",
			"at most 10000",
		},
		{
			"a negative limit of jobs", second(call(s.jobs.ListJobs, &pb.ListJobsRequest{Limit: -1})), "limit",
			"give 1 or more",
		},
		{
			"a negative limit of tasks", second(call(s.jobs.ListTasks, &pb.ListTasksRequest{Limit: -1})), "limit",
			"give 1 or more",
		},
		{
			"tasks after what is no task", second(call(s.jobs.ListTasks, &pb.ListTasksRequest{After: "a"})), "after",
			"job, group and index",
		},
		{
			"a node without a mode", second(call(s.nodes.SetNodeMode, &pb.SetNodeModeRequest{Id: "n1"})), "mode",
			"active, cordoned or draining",
		},
		{
			"a mode that is none", second(call(s.nodes.SetNodeMode, &pb.SetNodeModeRequest{Id: "n1", Mode: 4})), "mode",
			"NODE_MODE_ACTIVE",
		},
		{"remove no node", second(call(s.nodes.RemoveNode, &pb.RemoveNodeRequest{})), "id", "is empty"},
		{"no queues", queues(nil), "config", "whole tree"},
		{"queues without a root", queues(&pb.QueueConfig{Name: "top"}), "queues", "root"},
		{
			"a queue that stands twice",
			queues(&pb.QueueConfig{Name: "root", Queues: []*pb.QueueConfig{{Name: "a"}, {Name: "a"}}}), "root.a",
			"twice",
		},
		{"register nothing", node(nil), "node", "is missing"},
		{"register no id", node(&pb.Node{Incarnation: 1}), "node", "is empty"},
		{"register no incarnation", node(&pb.Node{Id: "n1"}), "incarnation", "from 1"},
		{
			"register an address that is none", node(&pb.Node{Id: "n1", Incarnation: 1, Address: "nowhere"}), "address",
			"127.0.0.1:9080",
		},
		{"heartbeat of nobody", second(call(s.agents.Heartbeat, &pb.HeartbeatRequest{})), "node", "is empty"},
		{"report of nobody", report(func(m *pb.ReportTasksRequest) { m.Node = "" }), "node", "is empty"},
		{
			"report without an incarnation", report(func(m *pb.ReportTasksRequest) { m.Incarnation = 0 }),
			"incarnation", "from 1",
		},
		{"report without a sequence", report(func(m *pb.ReportTasksRequest) { m.Sequence = 0 }), "sequence", "from 1"},
		{
			"report of no task", report(func(m *pb.ReportTasksRequest) { m.Reports[0].Task = "a" }), "reports.task",
			"job, group and index",
		},
		{
			"report of no attempt", report(func(m *pb.ReportTasksRequest) { m.Reports[0].Attempt = 0 }),
			"reports.attempt", "from 1",
		},
		{
			"report of a state that is not an agent's",
			report(func(m *pb.ReportTasksRequest) { m.Reports[0].State = 1 }), "reports.state",
			"Starting, Running or Finished",
		},
		{
			"report of a result that is none", report(func(m *pb.ReportTasksRequest) { m.Reports[0].Result = 13 }),
			"reports.result", "not a result",
		},
		{
			"report with an endless message",
			report(func(m *pb.ReportTasksRequest) { m.Reports[0].Message = long + long + long }), "reports.message",
			"at most 4096",
		},
		{
			"endless reports", report(func(m *pb.ReportTasksRequest) { m.Reports = make([]*pb.TaskReport, 10_001) }),
			"reports", "at most 10000",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e, ok := test.err.(*plimsoll.Error) //nolint:errorlint // FromConnectError makes just this
			if !ok || e.Code != plimsoll.CodeInvalid || e.Field != test.field || !strings.Contains(e.Msg, test.says) {
				t.Errorf("got %#v; want field %q and %q", test.err, test.field, test.says)
			}
		})
	}
	if sent := f.sent(); len(sent) > 0 {
		t.Errorf("the leader was sent %v", sent)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	s := directly(newGateway(t, Config{}, newFake()))
	for name, err := range map[string]error{
		"job":    second(call(s.jobs.GetJob, &pb.GetJobRequest{Id: "gone"})),
		"task":   second(call(s.jobs.GetTask, &pb.GetTaskRequest{Id: "gone.map.0"})),
		"queues": second(call(s.queues.GetQueueConfig, &pb.GetQueueConfigRequest{})),
	} {
		if plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatTheLeaderRefusesReachesTheCallerAsItIs(t *testing.T) {
	f := cluster()
	refusal := &plimsoll.Error{
		Code: plimsoll.CodeAlreadyExists, Op: "submit job", Field: "job",
		Msg: "there is a job \"new\"; choose another id",
	}
	f.answer = func(*pb.Command) *pb.Reply { return &pb.Reply{Error: wire.ErrorToProto(refusal)} }
	spec := specNamed("new")
	_, err := call(
		directly(newGateway(t, Config{}, f)).jobs.SubmitJob, &pb.SubmitJobRequest{Spec: wire.JobSpecToProto(&spec)},
	)
	if err == nil || err.Error() != refusal.Error() || plimsoll.CodeOf(err) != plimsoll.CodeAlreadyExists {
		t.Errorf("got %v, want %v", err, refusal)
	}
}

func TestWithoutALeaderNoWriteIsTaken(t *testing.T) {
	f := cluster()
	f.down = errNoLeader
	s := directly(newGateway(t, Config{}, f))
	if _, err := call(s.jobs.KillJob, &pb.KillJobRequest{Id: "a"}); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("got %v", err)
	}
}

func TestALeaderThatHangsCostsAWriteItsTimeout(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f := cluster()
		f.hang = true
		began := time.Now()
		_, err := call(directly(newGateway(t, Config{}, f)).jobs.KillJob, &pb.KillJobRequest{Id: "a"})
		said := "within 30s: the change was made or not"
		if plimsoll.CodeOf(err) != plimsoll.CodeOutcomeUnknown || !strings.Contains(err.Error(), said) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(began); waited != 30*time.Second {
			t.Errorf("it took %s", waited)
		}
	})
}

func TestOnlySoManyExplanationsAtOnce(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		f := cluster()
		release := make(chan struct{})
		f.answer = func(*pb.Command) *pb.Reply {
			<-release
			return &pb.Reply{ExplainTask: &pb.ExplainTaskResponse{}}
		}
		s := directly(newGateway(t, Config{MaxExplains: 2}, f))
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- second(call(s.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: "a.map.0"})) }()
		}
		synctest.Wait()
		if _, err := call(
			s.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: "a.map.0"},
		); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
			t.Errorf("the third: %v", err)
		}
		close(release)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		must(t, s.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: "a.map.0"})
	})
}

// A dry run and a question for capacities go to the leader. A job without a queue goes as it is:
// the rules of the queues give it one. A leader that knows neither is reported.
func TestQuestionsGoToTheLeader(t *testing.T) {
	f := cluster()
	f.answer = accept(f)
	s := directly(newGateway(t, Config{}, f))
	spec := specNamed("try")
	spec.Queue = ""
	if tried := must(
		t, s.jobs.PlaceJob, &pb.PlaceJobRequest{Spec: wire.JobSpecToProto(&spec), Count: 3},
	); tried.GetQueueReason() != " is full" {
		t.Errorf("tried is %v", tried)
	}
	if left := must(
		t, s.nodes.NodeCapacity, &pb.NodeCapacityRequest{Nodes: []string{"n1"}},
	); left.GetNodes()[0].GetNode() != "n1" {
		t.Errorf("what is left is %v", left)
	}
	f.answer = func(*pb.Command) *pb.Reply { return &pb.Reply{} }
	for _, err := range []error{
		second(call(s.jobs.PlaceJob, &pb.PlaceJobRequest{Spec: wire.JobSpecToProto(&spec)})),
		second(call(s.nodes.NodeCapacity, &pb.NodeCapacityRequest{})),
	} {
		if plimsoll.CodeOf(err) != plimsoll.CodeUnimplemented || !strings.Contains(err.Error(), "older version") {
			t.Errorf("an older leader: %v", err)
		}
	}
}

// A gateway forwards a command unchanged.
func TestReportsGoOnAsTheyAre(t *testing.T) {
	f := cluster()
	req := &pb.ReportTasksRequest{Node: "n1", Incarnation: 3, Sequence: 9, Reports: []*pb.TaskReport{
		{Task: "a.map.0", Attempt: 1, State: 4, At: 5},
		{Task: "b.2.map.0", Attempt: 2, State: 6, Result: 2, ExitCode: 3, Message: "exit 3"},
	}}
	must(t, directly(newGateway(t, Config{}, f)).agents.ReportTasks, req)
	if sent := f.sent(); len(sent) != 1 || !proto.Equal(sent[0].GetReportTasks(), req) {
		t.Errorf("the leader was sent %v", sent)
	}
}
