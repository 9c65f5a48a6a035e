package main

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// PlanMoves empties n2 with two moves, and makes room on n1 with one for a group that is not called
// huge.
func (g *fakeGateway) PlanMoves(
	_ context.Context, req *connect.Request[pb.PlanMovesRequest],
) (*connect.Response[pb.PlanMovesResponse], error) {
	moves := []*pb.PlannedMove{{Task: "a.web.0", From: "n2", To: "n1"}, {Task: "a.web.1", From: "n2", To: "n3"}}
	kept := []*pb.KeptNode{
		{Node: "n3", Task: "b.db.0", Reason: "2 of 2 other nodes: not enough cpu"},
		{Node: "n4", Reason: "has 30 instances, of which 18 may still be moved"},
	}
	res := &pb.PlanMovesResponse{Revision: 4711}
	switch n := req.Msg.GetLimit(); {
	case req.Msg.GetSpec() == nil && n == 1:
		res.Kept, res.More, res.Stopped = kept, 7, true
	case req.Msg.GetSpec() == nil:
		res.Moves, res.Emptied, res.Kept = moves, []string{"n2"}, kept
	case n == 1:
		res.Kept, res.Refusal = kept[:1], "3 of 3 nodes: not enough cpu"
	case n == 2:
		res.Room = "n1"
	default:
		res.Room, res.Moves = "n2", moves[:1]
	}
	return connect.NewResponse(res), nil
}
