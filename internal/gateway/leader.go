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

// StepDown lets the leader hand leadership over. A command that was not sent yet when leadership
// moves goes to the next leader. So it always names the leader that is meant.
func (s leaderService) StepDown(
	ctx context.Context, req *connect.Request[pb.StepDownRequest],
) (*connect.Response[pb.StepDownResponse], error) {
	epoch := req.Msg.GetEpoch()
	if epoch == 0 {
		leader, err := s.g.do(ctx, &pb.Command{Kind: &pb.Command_GetLeader{GetLeader: &pb.GetLeaderRequest{}}})
		if err != nil {
			return nil, err
		}
		epoch = leader.GetGetLeader().GetEpoch()
	}
	stepDown := &pb.Command_StepDown{StepDown: &pb.StepDownRequest{Epoch: epoch}}
	if _, err := s.g.do(ctx, &pb.Command{Kind: stepDown}); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StepDownResponse{}), nil
}
