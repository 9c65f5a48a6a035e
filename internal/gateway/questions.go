package gateway

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
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
	key, err := taskKey("id", req.Msg.GetId())
	if err != nil {
		return nil, err
	}
	if node := req.Msg.GetNode(); node != "" {
		if err := plimsoll.ValidateID("node", node); err != nil {
			return nil, err
		}
	}
	reply, err := s.g.ask(ctx, &pb.Command{Kind: &pb.Command_ExplainTask{ExplainTask: req.Msg}})
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		return s.explainEnded(ctx, req.Msg, key, err)
	}
	if err != nil {
		return nil, err
	}
	if reply.GetExplainTask() == nil {
		return nil, olderLeader("explain tasks")
	}
	return connect.NewResponse(reply.GetExplainTask()), nil
}

// ExplainWaiting asks the leader what the tasks of a job or of a queue wait for.
func (s jobService) ExplainWaiting(
	ctx context.Context, req *connect.Request[pb.ExplainWaitingRequest],
) (*connect.Response[pb.ExplainWaitingResponse], error) {
	job, queue := req.Msg.GetJob(), req.Msg.GetQueue()
	switch {
	case (job == "") == (queue == ""):
		return nil, plimsoll.Invalid("job", "and queue: give one of them")
	case job != "":
		if err := plimsoll.ValidateID("job", job); err != nil {
			return nil, err
		}
	default:
		if err := plimsoll.ValidateQueuePath("queue", queue); err != nil {
			return nil, err
		}
	}
	reply, err := s.g.ask(ctx, &pb.Command{Kind: &pb.Command_ExplainWaiting{ExplainWaiting: req.Msg}})
	if err != nil {
		return nil, err
	}
	if reply.GetExplainWaiting() == nil {
		return nil, olderLeader("explain what tasks wait for")
	}
	return connect.NewResponse(reply.GetExplainWaiting()), nil
}

// explainEnded explains a task of the archive, which the leader does not know. unknown is the
// leader's answer.
func (s jobService) explainEnded(
	ctx context.Context, req *pb.ExplainTaskRequest, key string, unknown error,
) (*connect.Response[pb.ExplainTaskResponse], error) {
	snapshot, err := s.g.read(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.g.taskWithFiles(ctx, snapshot, lifetime{id: wire.JobOfTaskKey(key)}, key, req.GetId())
	switch {
	case plimsoll.CodeOf(err) == plimsoll.CodeNotFound:
		return nil, unknown
	case err != nil:
		return nil, err
	case found.stored == nil: // the task is the leader's, and something else was not found, such as the node
		return nil, unknown
	case req.GetNode() != "":
		return nil, plimsoll.Errorf(plimsoll.CodeConflict,
			"task %s has ended and its job is in the archive, so nodes are not asked about it; leave out the node",
			req.GetId())
	}
	task := wire.TaskFromProto(found.Task)
	return connect.NewResponse(&pb.ExplainTaskResponse{
		Task: found.Task, Summary: task.Ending(), Nodes: &pb.NodeCounts{}, Revision: snapshot.Revision(),
	}), nil
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
