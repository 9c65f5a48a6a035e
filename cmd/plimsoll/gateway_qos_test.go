package main

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// WatchNodeQOS sends two samples of n1. For n2, which has no rules, it sends a status without a
// sample and then one with a sample.
func (g *fakeGateway) WatchNodeQOS(
	_ context.Context, req *connect.Request[pb.WatchNodeQOSRequest],
	stream *connect.ServerStream[pb.WatchNodeQOSResponse],
) error {
	var samples []*pb.NodeQOSStatus
	switch req.Msg.GetNode() {
	case "n1":
		samples = []*pb.NodeQOSStatus{busyNode(), calmNode()}
	case "n2":
		samples = []*pb.NodeQOSStatus{
			{Node: "n2"},
			{Node: "n2", At: before(2 * time.Second), Sequence: 1, Unable: "its control groups are read-only"},
		}
	default:
		return noSuch("node", req.Msg.GetNode())
	}
	for _, s := range samples {
		if err := stream.Send(&pb.WatchNodeQOSResponse{Status: s}); err != nil {
			return err
		}
	}
	return wire.ConnectError(
		plimsoll.Errorf(plimsoll.CodeConflict, "the agent of node %s has been stopped", req.Msg.GetNode()),
	)
}

// busyNode is above one of its lines, and has a rule in every state.
func busyNode() *pb.NodeQOSStatus {
	line := func(rule, metric, unit string, scale, waterline, release, usage int64) *pb.QOSLine {
		return &pb.QOSLine{
			Rule: rule, Metric: metric, Unit: unit, Scale: scale, Waterline: waterline, Release: release, Usage: usage,
			Action: "shed-batch",
		}
	}
	percent := func(rule, metric string, waterline, release, usage int64) *pb.QOSLine {
		return line(
			rule, metric, "percent", plimsoll.LineScale, waterline*plimsoll.LineScale, release*plimsoll.LineScale,
			usage*plimsoll.LineScale/10,
		)
	}
	acting := percent("shared-nodes/cpu", qos.CPUTotalUtilization, 80, 70, 962)
	acting.Gap, acting.Triggered, acting.Since = 26_200, true, before(12*time.Second)
	counting := line("shared-nodes/memory", qos.MemoryTotalUsage, "bytes", 1, 12<<30, 12<<30, 13<<30)
	counting.Gap, counting.Waits = 1<<30, "2 of 3 samples"
	tried := percent("trial/cpu", qos.CPUTotalUtilization, 60, 60, 962)
	tried.Gap, tried.Triggered, tried.Since, tried.Preview = 36_200, true, before(2*time.Minute), true
	missing := line("trial/queue", "queue_depth", "", plimsoll.LineScale, 100_000, 100_000, 0)
	missing.Missing, missing.Waits = true, "not measured for 9s; the rule says hold"
	return &pb.NodeQOSStatus{
		Node: "n1", At: before(400 * time.Millisecond), Sequence: 812, CpuNanocores: 4 * qos.Core,
		MemoryBytes:        16 << 30,
		SchedulingDisabled: true, SchedulingReason: "shared-nodes/cpu is above its line",
		Extended: wire.ResourcesToProto(plimsoll.Resources{plimsoll.ExtCPU: 1500, plimsoll.ExtMemory: 2 << 30}),
		Lines: []*pb.QOSLine{
			acting, percent("shared-nodes/pressure", qos.CPUPressure, 25, 20, 113), counting, tried, missing,
		},
		Tasks: []*pb.QOSTask{
			busyTask("shards.burn.0", pb.Class_CLASS_BEST_EFFORT, 0, &pb.QOSTask{
				CpuNanocores: 1_204_000_000, MemoryBytes: 64 << 20, QuotaNanocores: 1_200_000_000, Shares: 1024,
				Idle: true, Rung: "throttle", Pending: true,
				OriginalShares: 1024,
			}),
			busyTask("shards.burn.1", pb.Class_CLASS_BEST_EFFORT, 0, &pb.QOSTask{
				CpuNanocores: 811_400_000, MemoryBytes: 64 << 20, QuotaNanocores: 2 * qos.Core,
				OriginalQuotaNanocores: 2 * qos.Core, Shares: 2048,
				Idle: true, OriginalShares: 2048, Rung: "weight",
			}),
			busyTask("leaving.main.0", pb.Class_CLASS_BEST_EFFORT, 5, &pb.QOSTask{
				CpuNanocores: 300_000_000, MemoryBytes: 3 << 30, Shares: 102, Stopping: true, Rung: "evict",
				Pending: true,
			}),
			busyTask(
				"report.main.0", pb.Class_CLASS_BURSTABLE, 0,
				&pb.QOSTask{CpuUnknown: true, MemoryUnknown: true, Exempt: "no TaskQOS matches it", Started: -1},
			),
			busyTask("web.main.0", pb.Class_CLASS_GUARANTEED, 100, &pb.QOSTask{
				CpuNanocores: 950_000_000, MemoryBytes: 1 << 30, Shares: 4096, QuotaNanocores: 4 * qos.Core,
				OriginalQuotaNanocores: 4 * qos.Core,
				Exempt:                 "TaskQOS services says that it is critical",
			}),
		},
		Plan: []*pb.QOSStep{
			{
				Task: "shards.burn.0", Verb: "throttle", Metric: qos.CPUTotalUtilization, Rule: "shared-nodes/cpu",
				Amount: "0.3 cores", Before: "quota 1.5 cores",
				After:  "quota 1.2 cores",
				Reason: "shared-nodes/cpu: cpu_total_utilization is 96.2 % (line 80 %, release 70 %)",
			},
			{
				Task: "shards.burn.1", Verb: "evict", Metric: qos.CPUTotalUtilization, Rule: "trial/cpu",
				Amount: "0.811 cores", Before: "running",
				After: "stopping", Reason: "trial/cpu: cpu_total_utilization is 96.2 % (line 60 %)", Preview: true,
			},
		},
		Skipped: []*pb.QOSSkip{{
			Task: "leaving.main.0", Rule: "shared-nodes/cpu", Verb: "throttle",
			Reason: "it is being stopped, and what it uses counts as released",
		}},
		Waterlines: &pb.QOSWaterlines{
			Throttle: []*pb.QOSWaterline{{
				Metric: qos.CPUTotalUtilization, Rule: "shared-nodes/cpu", Unit: "percent", Scale: plimsoll.LineScale,
				Value: 80 * plimsoll.LineScale, Smallest: true, Gap: 16_200,
			}},
		},
		Values: map[string]int64{
			qos.CPUTotalUsage: 3_848_000_000, qos.CPUTotalUtilization: 96_200, qos.MemoryTotalUsage: 13 << 30,
			qos.MemoryTotalUtilization: 81_250,
		},
	}
}

// busyTask sets the fields that all tasks share.
func busyTask(id string, class pb.Class, priority int32, t *pb.QOSTask) *pb.QOSTask {
	t.Task, t.Attempt, t.Class, t.Priority = id, 1, class, priority
	if t.Started == 0 {
		t.Started = before(time.Hour)
	}
	t.Started = max(t.Started, 0)
	if t.Exempt == "" {
		t.Allowed = []string{"shed-batch"}
	}
	t.Owner, t.Queue = "alice", "root.batch"
	return t
}

// calmNode is the same node a little later.
func calmNode() *pb.NodeQOSStatus {
	s := busyNode()
	s.At, s.Sequence, s.SchedulingDisabled, s.SchedulingReason, s.Plan, s.Skipped = before(
		-600*time.Millisecond,
	), 813, false, "", nil, nil
	s.Lines = s.Lines[:2]
	s.Lines[0].Usage, s.Lines[0].Gap, s.Lines[0].Triggered, s.Lines[0].Since = 64_000, 0, false, 0
	s.Tasks = s.Tasks[4:]
	return s
}

// ListPolicies answers with the policies of the server, which has more than the files of a test.
func (g *fakeGateway) ListPolicies(
	_ context.Context, _ *connect.Request[pb.ListPoliciesRequest],
) (*connect.Response[pb.ListPoliciesResponse], error) {
	res := &pb.ListPoliciesResponse{}
	for _, p := range []plimsoll.Policy{
		{Action: &plimsoll.Action{Name: "stop", CoolDown: time.Minute, Evict: &plimsoll.EvictAction{}}},
		{Action: &plimsoll.Action{Name: "slow", CoolDown: time.Minute, Throttle: &plimsoll.ThrottleAction{Step: 90}}},
		{TaskQOS: &plimsoll.TaskQOS{
			Name: "batch", Allowed: []string{"stop", "slow"},
			Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeQueue, Values: []string{"root.batch"}}},
		}},
		{TaskQOS: &plimsoll.TaskQOS{
			Name: "services", Critical: true,
			Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeClass, Values: []string{"guaranteed"}}},
		}},
		{
			NodeQOS: &plimsoll.NodeQOS{
				Name: "in-force", Rules: []plimsoll.Rule{{Name: "cpu", Metric: "load", Waterline: "1", Action: "stop"}},
			},
		},
	} {
		res.Policies = append(res.Policies, wire.PolicyToProto(&p))
	}
	return connect.NewResponse(res), nil
}
