package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Bounds on one ReportTasks.
const (
	maxReports       = 10_000
	maxReportMessage = 4096
)

// agentService serves AgentService.
type agentService struct{ g *Gateway }

// RegisterNode makes a node known to the leader, and heard here.
func (s agentService) RegisterNode(ctx context.Context, req *connect.Request[pb.RegisterNodeRequest]) (*connect.Response[pb.RegisterNodeResponse], error) {
	if req.Msg.GetNode() == nil {
		return nil, plimsoll.Invalid("node", "is missing; give the node that is to be registered")
	}
	node := wire.NodeFromProto(req.Msg.GetNode())
	if err := node.Validate(); err != nil {
		return nil, err
	}
	if node.Address != "" {
		if _, _, err := transport.Split(node.Address); err != nil {
			return nil, err
		}
	}
	connection, err := s.g.nodes.reserve(node.ID)
	if err != nil {
		return nil, err
	}
	reply, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_RegisterNode{RegisterNode: req.Msg}})
	if err != nil {
		s.g.nodes.release(node.ID, connection)
		return nil, err
	}
	s.g.nodes.register(node.ID, connection, node.Incarnation, reply.GetRegistration(), s.g.cfg.Clock())
	s.g.cfg.Events.Registered(node.ID, node.Incarnation)
	return connect.NewResponse(&pb.RegisterNodeResponse{HeartbeatIntervalNanos: s.g.cfg.HeartbeatInterval.Nanoseconds()}), nil
}

// Heartbeat notes that a node was heard. It asks for another registration if this gateway does not know the node, or the leader
// takes it for dead.
func (s agentService) Heartbeat(_ context.Context, req *connect.Request[pb.HeartbeatRequest]) (*connect.Response[pb.HeartbeatResponse], error) {
	id, incarnation := req.Msg.GetNode(), req.Msg.GetIncarnation()
	if err := plimsoll.ValidateID("node", id); err != nil {
		return nil, err
	}
	known, err := s.g.nodes.heard(id, incarnation, s.g.cfg.Clock())
	if err != nil {
		return nil, err
	}
	if known {
		if known, err = s.alive(id, incarnation); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&pb.HeartbeatResponse{Registered: known}), nil
}

// alive reports whether the leader counts on this incarnation of a node, as far as this gateway's copy shows it.
func (s agentService) alive(id string, incarnation uint64) (bool, error) {
	snapshot := s.g.replica.Latest()
	if snapshot == nil {
		return true, nil
	}
	node, err := load[pb.Node](snapshot, wire.KindNode, id)
	if err != nil {
		return false, err
	}
	if node != nil && incarnation < node.GetIncarnation() {
		return false, staleIncarnation(id, node.GetIncarnation(), incarnation)
	}
	return node != nil && node.GetReady() && node.GetIncarnation() == incarnation, nil
}

// ReportTasks hands reports to the leader, and is answered when they are durable. A report from an agent that is not registered
// here goes on all the same: the leader knows whether to take it.
func (s agentService) ReportTasks(ctx context.Context, req *connect.Request[pb.ReportTasksRequest]) (*connect.Response[pb.ReportTasksResponse], error) {
	if err := checkReports(req.Msg); err != nil {
		return nil, err
	}
	if _, err := s.g.nodes.heard(req.Msg.GetNode(), req.Msg.GetIncarnation(), s.g.cfg.Clock()); err != nil {
		return nil, err
	}
	if _, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_ReportTasks{ReportTasks: req.Msg}}); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.ReportTasksResponse{}), nil
}

func checkReports(req *pb.ReportTasksRequest) error {
	if err := plimsoll.ValidateID("node", req.GetNode()); err != nil {
		return err
	}
	if req.GetIncarnation() == 0 {
		return plimsoll.Invalid("incarnation", "is 0; an agent counts its starts from 1")
	}
	if req.GetSequence() == 0 {
		return plimsoll.Invalid("sequence", "is 0; an agent counts its reports from 1")
	}
	if n := len(req.GetReports()); n > maxReports {
		return plimsoll.Invalid("reports", "has %d entries; at most %d are possible in one call", n, maxReports)
	}
	for _, report := range req.GetReports() {
		if _, err := taskKey("reports.task", report.GetTask()); err != nil {
			return err
		}
		if report.GetAttempt() < 1 {
			return plimsoll.Invalid("reports.attempt", "is %d for task %s; attempts are counted from 1", report.GetAttempt(), report.GetTask())
		}
		switch report.GetState() {
		case pb.TaskState_TASK_STATE_STARTING, pb.TaskState_TASK_STATE_RUNNING, pb.TaskState_TASK_STATE_FINISHED:
		default:
			return plimsoll.Invalid("reports.state", "is %s for task %s; an agent reports Starting, Running or Finished", report.GetState(), report.GetTask())
		}
		if r := report.GetResult(); pb.TaskResult_name[int32(r)] == "" {
			return plimsoll.Invalid("reports.result", "%d is not a result (task %s)", r, report.GetTask())
		}
		if n := len(report.GetMessage()); n > maxReportMessage {
			return plimsoll.Invalid("reports.message", "is %d bytes long for task %s; at most %d are possible", n, report.GetTask(), maxReportMessage)
		}
	}
	return nil
}

func staleIncarnation(id string, known, yours uint64) error {
	return plimsoll.Errorf(plimsoll.CodeStale, "another agent with the id %q has started since (incarnation %d, yours is %d); give each machine its own id",
		id, known, yours)
}
