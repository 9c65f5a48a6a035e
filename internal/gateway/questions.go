package gateway

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

const (
	// maxTrial bounds the tasks of a group in a dry run.
	maxTrial = 10_000
	// maxNamed bounds the nodes that a question names.
	maxNamed = 10_000
	// maxMoves bounds the moves of one plan.
	maxMoves = 1000
)

// ask sends the leader a question, which it answers from a copy of its working state. An answer
// costs the leader up to 50 ms of a worker, so only few questions are under way at once.
func (g *Gateway) ask(ctx context.Context, question *pb.Command) (*pb.Reply, error) {
	select {
	case g.explains <- struct{}{}:
		defer func() { <-g.explains }()
	default:
		return nil, plimsoll.Errorf(
			plimsoll.CodeExhausted, "%d questions to the leader are under way at this gateway; try again later",
			cap(g.explains),
		)
	}
	reply, err := g.do(ctx, question)
	if plimsoll.CodeOf(err) == plimsoll.CodeOutcomeUnknown { // a question has no effect
		if ended := callerGone(ctx); ended != nil {
			return nil, ended
		}
		return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "the leader has not answered the question; try again")
	}
	return reply, err
}

func olderLeader(verb string) error {
	return plimsoll.Errorf(plimsoll.CodeUnimplemented, "the leader cannot %s; it may be of an older version", verb)
}

// ExplainTask asks the leader why a task waits or runs where it does.
func (s jobService) ExplainTask(
	ctx context.Context, req *connect.Request[pb.ExplainTaskRequest],
) (*connect.Response[pb.ExplainTaskResponse], error) {
	if _, err := taskKey("id", req.Msg.GetId()); err != nil {
		return nil, err
	}
	if node := req.Msg.GetNode(); node != "" {
		if err := plimsoll.ValidateID("node", node); err != nil {
			return nil, err
		}
	}
	reply, err := s.g.ask(ctx, &pb.Command{Kind: &pb.Command_ExplainTask{ExplainTask: req.Msg}})
	if err != nil {
		return nil, err
	}
	if reply.GetExplainTask() == nil {
		return nil, olderLeader("explain tasks")
	}
	return connect.NewResponse(reply.GetExplainTask()), nil
}

// PlaceJob asks the leader where the tasks of a job would be placed now: a dry run. The job is
// checked like one that is submitted.
func (s jobService) PlaceJob(
	ctx context.Context, req *connect.Request[pb.PlaceJobRequest],
) (*connect.Response[pb.PlaceJobResponse], error) {
	spec := req.Msg.GetSpec()
	if spec == nil {
		return nil, plimsoll.Invalid("spec", "is missing; give the job whose tasks are to be tried")
	}
	complete(spec)
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	if n := req.Msg.GetCount(); n < 0 || n > maxTrial {
		return nil, plimsoll.Invalid(
			"count", "is %d; give a number from 1 to %d, or leave it out to try as many as the job says", n, maxTrial,
		)
	}
	reply, err := s.g.ask(ctx, &pb.Command{Kind: &pb.Command_PlaceJob{PlaceJob: req.Msg}})
	if err != nil {
		return nil, err
	}
	if reply.GetPlaceJob() == nil {
		return nil, olderLeader("try jobs")
	}
	return connect.NewResponse(reply.GetPlaceJob()), nil
}

// NodeCapacity asks the leader for the free resources of nodes.
func (s nodeService) NodeCapacity(
	ctx context.Context, req *connect.Request[pb.NodeCapacityRequest],
) (*connect.Response[pb.NodeCapacityResponse], error) {
	nodes := req.Msg.GetNodes()
	if len(nodes) > maxNamed {
		return nil, plimsoll.Invalid("nodes", "names %d nodes; name at most %d, or none for all", len(nodes), maxNamed)
	}
	for i, id := range nodes {
		if err := plimsoll.ValidateID(fmt.Sprintf("nodes[%d]", i), id); err != nil {
			return nil, err
		}
	}
	reply, err := s.g.ask(ctx, &pb.Command{Kind: &pb.Command_NodeCapacity{NodeCapacity: req.Msg}})
	if err != nil {
		return nil, err
	}
	if reply.GetNodeCapacity() == nil {
		return nil, olderLeader("report the free resources of nodes")
	}
	return connect.NewResponse(reply.GetNodeCapacity()), nil
}

// PlanMoves asks the leader for moves that would empty nodes or make room. A job is checked like
// one that is submitted.
func (s nodeService) PlanMoves(
	ctx context.Context, req *connect.Request[pb.PlanMovesRequest],
) (*connect.Response[pb.PlanMovesResponse], error) {
	if n := req.Msg.GetLimit(); n < 1 || n > maxMoves {
		return nil, plimsoll.Invalid(
			"limit", "is %d; give the most moves that the plan may have, from 1 to %d", n, maxMoves,
		)
	}
	if spec := req.Msg.GetSpec(); spec != nil {
		complete(spec)
		if err := checkSpec(spec); err != nil {
			return nil, err
		}
	}
	reply, err := s.g.ask(ctx, &pb.Command{Kind: &pb.Command_PlanMoves{PlanMoves: req.Msg}})
	if err != nil {
		return nil, err
	}
	if reply.GetPlanMoves() == nil {
		return nil, olderLeader("plan moves")
	}
	return connect.NewResponse(reply.GetPlanMoves()), nil
}
