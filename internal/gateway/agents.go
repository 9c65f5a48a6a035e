package gateway

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
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

// RegisterNode registers a node at the leader, and enters it in this gateway's table of heard
// nodes.
func (s agentService) RegisterNode(
	ctx context.Context, req *connect.Request[pb.RegisterNodeRequest],
) (*connect.Response[pb.RegisterNodeResponse], error) {
	if req.Msg.GetNode() == nil {
		return nil, plimsoll.Invalid("node", "is missing; give the node that is to be registered")
	}
	req.Msg.Node.Peer = transport.PeerOf(ctx).String() // the gateway's own reading, never the agent's
	node := wire.NodeFromProto(req.Msg.GetNode())
	if err := node.Validate(); err != nil {
		return nil, err
	}
	if node.Key != "" {
		if err := nodekey.CheckRegistration(&node, req.Msg.GetSignature()); err != nil {
			return nil, err
		}
	}
	if err := s.g.agents.addresses.check(req.Msg.GetNode()); err != nil {
		return nil, err
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
	return connect.NewResponse(
		&pb.RegisterNodeResponse{HeartbeatIntervalNanos: s.g.cfg.HeartbeatInterval.Nanoseconds()},
	), nil
}

// Heartbeat notes that a node was heard. It asks for another registration if this gateway does not
// know the node, or if the leader counts the node as lost.
func (s agentService) Heartbeat(
	_ context.Context, req *connect.Request[pb.HeartbeatRequest],
) (*connect.Response[pb.HeartbeatResponse], error) {
	id, incarnation := req.Msg.GetNode(), req.Msg.GetIncarnation()
	if err := plimsoll.ValidateID("node", id); err != nil {
		return nil, err
	}
	node, err := s.caller(req.Header(), id)
	if err != nil {
		return nil, err
	}
	known, err := s.g.nodes.heard(id, incarnation, s.g.cfg.Clock())
	if err != nil {
		return nil, err
	}
	if known {
		if known, err = s.alive(node, id, incarnation); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&pb.HeartbeatResponse{Registered: known}), nil
}

// caller returns the record of the node for which a caller speaks; nil if this gateway's copy does
// not hold it. A caller without the session of the node's agent is refused. A node that an older
// version has registered has no session, and needs none.
func (s agentService) caller(header http.Header, id string) (*pb.Node, error) {
	return callerIn(s.g.replica.Latest(), header, id)
}

// callerIn is caller by a given copy.
func callerIn(snapshot *replica.Snapshot, header http.Header, id string) (*pb.Node, error) {
	if snapshot == nil {
		return nil, nil //nolint:nilnil // the copy has no record of the node yet
	}
	node, err := load[pb.Node](snapshot, wire.KindNode, id)
	if err != nil || node == nil {
		return nil, err
	}
	return node, checkSession(header, node)
}

func checkSession(header http.Header, node *pb.Node) error {
	if node.GetSession() == "" || nodekey.Proves(header.Get(nodekey.Header), node.GetSession()) {
		return nil
	}
	return plimsoll.Errorf(
		plimsoll.CodeDenied,
		"this call is not from the agent that is registered as node %q; register with the node's key first",
		node.GetId(),
	)
}

// alive reports whether the leader counts this incarnation of a node as alive.
func (s agentService) alive(node *pb.Node, id string, incarnation uint64) (bool, error) {
	if node == nil {
		return s.g.replica.Latest() == nil, nil
	}
	if incarnation < node.GetIncarnation() {
		return false, staleIncarnation(id, node.GetIncarnation(), incarnation)
	}
	return node.GetReady() && node.GetIncarnation() == incarnation, nil
}

// ReportTasks forwards reports to the leader and answers when they are durable. Reports of an agent
// that is not registered here are forwarded too: the leader decides whether to accept them.
func (s agentService) ReportTasks(
	ctx context.Context, req *connect.Request[pb.ReportTasksRequest],
) (*connect.Response[pb.ReportTasksResponse], error) {
	if err := checkReports(req.Msg); err != nil {
		return nil, err
	}
	if _, err := s.caller(req.Header(), req.Msg.GetNode()); err != nil {
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

// LeaveNode tells the leader that the agent of a node has stopped, so that its silence need not be
// noticed first. The agent need not be registered at this gateway. The session is compared with a
// fresh copy: an older one may not hold the node yet, and the tasks of an empty node are started
// elsewhere.
func (s agentService) LeaveNode(
	ctx context.Context, req *connect.Request[pb.LeaveNodeRequest],
) (*connect.Response[pb.LeaveNodeResponse], error) {
	id, incarnation := req.Msg.GetNode(), req.Msg.GetIncarnation()
	if err := plimsoll.ValidateID("node", id); err != nil {
		return nil, err
	}
	fresh, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := callerIn(fresh, req.Header(), id); err != nil {
		return nil, err
	}
	if _, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_LeaveNode{LeaveNode: req.Msg}}); err != nil {
		return nil, err
	}
	s.g.nodes.leave(id, incarnation)
	return connect.NewResponse(&pb.LeaveNodeResponse{}), nil
}

func checkReports(req *pb.ReportTasksRequest) error {
	if err := plimsoll.ValidateID("node", req.GetNode()); err != nil {
		return err
	}
	if err := checkCounts(req.GetIncarnation(), req.GetSequence()); err != nil {
		return err
	}
	if n := len(req.GetReports()); n > maxReports {
		return plimsoll.Invalid("reports", "has %d entries; at most %d are possible in one call", n, maxReports)
	}
	for _, report := range req.GetReports() {
		if _, err := taskKey("reports.task", report.GetTask()); err != nil {
			return err
		}
		if uid := report.GetUid(); uid != "" {
			if _, err := plimsoll.ParseUID(uid); err != nil {
				return plimsoll.Invalid("reports.uid", "%.64q is not a uid (task %s)", uid, report.GetTask())
			}
		}
		if report.GetAttempt() < 1 {
			return plimsoll.Invalid(
				"reports.attempt", "is %d for task %s; attempts are counted from 1", report.GetAttempt(),
				report.GetTask(),
			)
		}
		switch report.GetState() {
		case pb.TaskState_TASK_STATE_STARTING, pb.TaskState_TASK_STATE_RUNNING, pb.TaskState_TASK_STATE_FINISHED:
		default:
			return plimsoll.Invalid(
				"reports.state", "is %s for task %s; an agent reports Starting, Running or Finished", report.GetState(),
				report.GetTask(),
			)
		}
		if r := report.GetResult(); pb.TaskResult_name[int32(r)] == "" {
			return plimsoll.Invalid("reports.result", "%d is not a result (task %s)", r, report.GetTask())
		}
		if n := len(report.GetMessage()); n > maxReportMessage {
			return plimsoll.Invalid(
				"reports.message", "is %d bytes long for task %s; at most %d are possible", n, report.GetTask(),
				maxReportMessage,
			)
		}
	}
	return nil
}

// checkCounts validates the incarnation and the sequence number that an agent sends.
func checkCounts(incarnation, sequence uint64) error {
	if incarnation == 0 {
		return plimsoll.Invalid("incarnation", "is 0; an agent counts its starts from 1")
	}
	if sequence == 0 || sequence > plimsoll.MaxSequence {
		return plimsoll.Invalid(
			"sequence", "is %d; an agent counts its reports from 1, and not beyond %d", sequence, plimsoll.MaxSequence,
		)
	}
	return nil
}

func staleIncarnation(id string, known, yours uint64) error {
	return plimsoll.Errorf(plimsoll.CodeStale, "another agent with the id %q has started since (incarnation %d, yours is %d); give each machine its own id",
		id, known, yours)
}
