package gateway

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// leaderService serves LeaderService. The leader itself answers.
type leaderService struct{ g *Gateway }

// GetLeader tells the coordinator that leads, and those that stand by.
func (s leaderService) GetLeader(
	ctx context.Context, req *connect.Request[pb.GetLeaderRequest],
) (*connect.Response[pb.GetLeaderResponse], error) {
	reply, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_GetLeader{GetLeader: req.Msg}})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(reply.GetGetLeader()), nil
}

// StepDown lets the leader hand leadership over.
func (s leaderService) StepDown(
	ctx context.Context, req *connect.Request[pb.StepDownRequest],
) (*connect.Response[pb.StepDownResponse], error) {
	if _, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_StepDown{StepDown: req.Msg}}); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StepDownResponse{}), nil
}
