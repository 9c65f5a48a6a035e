package gateway

import (
	"context"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// ReportNode forwards the report of a QoS agent on its node to the leader, and answers when the
// report is durable.
func (s agentService) ReportNode(
	ctx context.Context, req *connect.Request[pb.ReportNodeRequest],
) (*connect.Response[pb.ReportNodeResponse], error) {
	if err := checkNodeReport(req.Msg); err != nil {
		return nil, err
	}
	if _, err := s.caller(req.Header(), req.Msg.GetNode()); err != nil {
		return nil, err
	}
	if _, err := s.g.nodes.heard(req.Msg.GetNode(), req.Msg.GetIncarnation(), s.g.cfg.Clock()); err != nil {
		return nil, err
	}
	if _, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_ReportNode{ReportNode: req.Msg}}); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.ReportNodeResponse{}), nil
}

func checkNodeReport(req *pb.ReportNodeRequest) error {
	if err := plimsoll.ValidateID("node", req.GetNode()); err != nil {
		return err
	}
	if err := checkCounts(req.GetIncarnation(), req.GetSequence()); err != nil {
		return err
	}
	if req.GetReport() == nil {
		return plimsoll.Invalid("report", "is missing; give the report on the node")
	}
	report := wire.NodeReportFromProto(req.GetReport())
	if err := report.Validate(); err != nil {
		return err
	}
	for i := range report.Events {
		if task := report.Events[i].Task; task != "" {
			if _, err := taskKey("events.task", task); err != nil {
				return err
			}
		}
	}
	return nil
}

// WatchNodeQOS relays the readings and planned actions of a node's QoS agent.
func (s nodeService) WatchNodeQOS(
	ctx context.Context, req *connect.Request[pb.WatchNodeQOSRequest],
	stream *connect.ServerStream[pb.WatchNodeQOSResponse],
) error {
	id := req.Msg.GetNode()
	if err := plimsoll.ValidateID("node", id); err != nil {
		return err
	}
	if req.Msg.GetIntervalNanos() < 0 {
		return plimsoll.Invalid("interval", "is negative; give a duration such as 1s, or 0 for every sample")
	}
	defer s.g.metrics.watching("WatchNodeQOS")()
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return err
	}
	node, err := loadNode(snapshot, id)
	if err != nil {
		return err
	}
	address := node.GetAddress()
	if address == "" {
		return plimsoll.Errorf(plimsoll.CodeConflict, "node %q cannot be watched: its agent gave no address", id)
	}
	client, err := s.g.agents.get(ctx, node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, err := client.qos.WatchQOS(
		ctx, connect.NewRequest(&pb.WatchQOSRequest{Node: id, IntervalNanos: req.Msg.GetIntervalNanos()}),
	)
	if err != nil {
		return relayQOSError(ctx, id, address, err)
	}
	defer watch.Close() //nolint:errcheck // the stream is at its end or its context is: there is nothing to learn
	for watch.Receive() {
		if err := stream.Send(&pb.WatchNodeQOSResponse{Status: watch.Msg().GetStatus()}); err != nil {
			return err
		}
	}
	return relayQOSError(ctx, id, address, watch.Err())
}

// relayQOSError returns the error for a caller whose stream from a QoS agent has ended.
func relayQOSError(ctx context.Context, node, address string, err error) error {
	if err == nil {
		return nil
	}
	if gone := callerGone(ctx); gone != nil {
		return gone
	}
	err = wire.FromConnectError(err)
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable:
		return &plimsoll.Error{
			Code: plimsoll.CodeUnavailable,
			Msg: "the agent of node " + node + " at " + address +
				" cannot be reached; see that it runs, and try again",
			Err: err,
		}
	case plimsoll.CodeUnauthenticated:
		return agentDenied(node, address, err)
	case plimsoll.CodeUnimplemented:
		return plimsoll.Errorf(
			plimsoll.CodeUnimplemented, "the agent of node %q watches nothing; it may be of an older version", node,
		)
	}
	return err
}
