package coordinator

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// decodeCommand turns a gateway's command into one of the engine's, and names it.
func decodeCommand(gateway string, cmd *pb.Command) (name string, do any, err error) {
	switch kind := cmd.GetKind().(type) {
	case *pb.Command_SubmitJob:
		spec := wire.JobSpecFromProto(kind.SubmitJob.GetSpec())
		return "submit_job", &engine.SubmitJob{Spec: &spec}, nil
	case *pb.Command_KillJob:
		return "kill_job", &engine.KillJob{ID: kind.KillJob.GetId(), Reason: kind.KillJob.GetReason()}, nil
	case *pb.Command_ScaleJob:
		m := kind.ScaleJob
		return "scale_job", &engine.ScaleJob{ID: m.GetId(), Group: m.GetGroup(), Count: m.GetCount()}, nil
	case *pb.Command_SetNodeMode:
		return "set_node_mode", &engine.SetNodeMode{ID: kind.SetNodeMode.GetId(), Mode: plimsoll.NodeMode(kind.SetNodeMode.GetMode())}, nil
	case *pb.Command_RemoveNode:
		return "remove_node", &engine.RemoveNode{ID: kind.RemoveNode.GetId()}, nil
	case *pb.Command_SetQueueConfig:
		return "set_queue_config", &engine.SetQueueConfig{Config: wire.QueueConfigFromProto(kind.SetQueueConfig.GetConfig())}, nil
	case *pb.Command_RegisterNode:
		return "register_node", &engine.RegisterNode{Node: wire.NodeFromProto(kind.RegisterNode.GetNode()), Gateway: gateway}, nil
	case *pb.Command_NodeLiveness:
		return "node_liveness", &engine.NodeSilent{ID: kind.NodeLiveness.GetNode(), Registration: kind.NodeLiveness.GetRegistration()}, nil
	case *pb.Command_ReportTasks:
		do, err := decodeReports(kind.ReportTasks)
		return "report_tasks", do, err
	case *pb.Command_ReportNode:
		m := kind.ReportNode
		report := wire.NodeReportFromProto(m.GetReport())
		return "report_node", &engine.ReportNode{Node: m.GetNode(), Incarnation: m.GetIncarnation(), Sequence: m.GetSequence(), Report: report}, nil
	case *pb.Command_ApplyPolicies:
		return "apply_policies", decodePolicies(kind.ApplyPolicies), nil
	case *pb.Command_DeletePolicy:
		m := kind.DeletePolicy
		return "delete_policy", &engine.DeletePolicy{Ref: wire.PolicyRefFromProto(&pb.PolicyRef{Kind: m.GetKind(), Name: m.GetName()})}, nil
	case *pb.Command_ExplainTask:
		job, group, index, ok := wire.SplitTaskID(kind.ExplainTask.GetId())
		if !ok {
			return "explain_task", nil, badTaskID("id", kind.ExplainTask.GetId())
		}
		m := kind.ExplainTask
		return "explain_task", &engine.Explain{Job: job, Group: group, Index: index, Node: m.GetNode(), Export: m.GetExport()}, nil
	case *pb.Command_NodeCapacity:
		return "node_capacity", &engine.NodeCapacity{Nodes: kind.NodeCapacity.GetNodes()}, nil
	case *pb.Command_PlaceJob:
		m := kind.PlaceJob
		spec := wire.JobSpecFromProto(m.GetSpec())
		return "place_job", &engine.PlaceJob{Spec: &spec, Group: m.GetGroup(), Count: m.GetCount()}, nil
	case *pb.Command_PlanMoves:
		m := kind.PlanMoves
		do := &engine.PlanMoves{Limit: m.GetLimit(), Group: m.GetGroup()}
		if m.GetSpec() != nil {
			spec := wire.JobSpecFromProto(m.GetSpec())
			do.Spec = &spec
		}
		return "plan_moves", do, nil
	}
	return "unknown", nil, plimsoll.Errorf(plimsoll.CodeUnimplemented, "the leader does not know this command; it is older than the gateway")
}

func decodePolicies(m *pb.ApplyPoliciesRequest) *engine.ApplyPolicies {
	cmd := &engine.ApplyPolicies{DryRun: m.GetDryRun()}
	for _, policy := range m.GetPolicies() {
		cmd.Policies = append(cmd.Policies, wire.PolicyFromProto(policy))
	}
	return cmd
}

func badTaskID(field, id string) error {
	return plimsoll.Invalid(field, "%q is not a task id; write for example wordcount.map.3", id)
}

func decodeReports(m *pb.ReportTasksRequest) (*engine.ReportTasks, error) {
	cmd := &engine.ReportTasks{Node: m.GetNode(), Incarnation: m.GetIncarnation(), Reports: make([]engine.Report, len(m.GetReports()))}
	for i, report := range m.GetReports() {
		job, group, index, ok := wire.SplitTaskID(report.GetTask())
		if !ok {
			return nil, badTaskID("reports.task", report.GetTask())
		}
		cmd.Reports[i] = engine.Report{Job: job, Group: group, Index: index, TaskReport: wire.TaskReportFromProto(report)}
	}
	return cmd, nil
}

// encodeReply turns the engine's answer into the gateway's.
func encodeReply(r *engine.Reply, revision uint64) *pb.Reply {
	m := &pb.Reply{Revision: revision, Registration: r.Registration}
	if r.Err != nil {
		m.Error = wire.ErrorToProto(r.Err)
	}
	m.ExplainTask, m.NodeCapacity, m.PlaceJob = encodeExplanation(r.Explanation), encodeCapacities(r.Capacities), encodeTrial(r.Trial)
	m.PlanMoves, m.ApplyPolicies = encodePlan(r.Plan), encodeOutcomes(r.Policies)
	return m
}
