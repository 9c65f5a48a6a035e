package main

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The fake gateway's answers about placement.

// refusingSteps has a stage of each kind. No node came to one of them.
func refusingSteps() []*pb.ExplainStep {
	return []*pb.ExplainStep{
		{Stage: "setup", Kind: pb.StageKind_STAGE_KIND_CLOSED, Received: 3, Remaining: 3},
		{
			Stage: "reserved", Kind: pb.StageKind_STAGE_KIND_CLOSED, Received: 3, Remaining: 2, Dropped: 1, Refused: 1,
			Reasons: []*pb.ExplainReason{{Reason: "draining", Nodes: 1, Examples: []string{"n2"}}},
		},
		{
			Stage: "traits", Kind: pb.StageKind_STAGE_KIND_NOT_ELIGIBLE, Received: 2, Remaining: 1, Dropped: 1,
			Refused: 2,
			Reasons: []*pb.ExplainReason{{Reason: "lacks the trait ssd", Nodes: 1, Examples: []string{"n3"}}},
		},
		{
			Stage: "min-cpu", Kind: pb.StageKind_STAGE_KIND_NO_ROOM, Received: 1, Dropped: 1, Refused: 1,
			Reasons: []*pb.ExplainReason{{Reason: "not enough cpu", Nodes: 1, Examples: []string{"n1"}}},
		},
		{Stage: "min-disk", Kind: pb.StageKind_STAGE_KIND_NO_ROOM, Refused: 2},
	}
}

func verdictsOn(node string) []*pb.NodeVerdict {
	if node == "" {
		return nil
	}
	return []*pb.NodeVerdict{
		{Stage: "running", Kind: pb.StageKind_STAGE_KIND_CLOSED},
		{Stage: "traits", Kind: pb.StageKind_STAGE_KIND_NOT_ELIGIBLE, Reason: "lacks the trait ssd"},
		{Stage: "min-cpu", Kind: pb.StageKind_STAGE_KIND_NO_ROOM, Reason: "not enough cpu"},
	}
}

// decisionOn returns a decision for the tasks of wordcount; other tasks have none.
func decisionOn(t *plimsoll.Task, export bool) *pb.PlacementDecision {
	if t.Job != "wordcount" && t.Job != "flaky" || t.Node == "" || t.Index == 1 {
		return nil
	}
	free := func(cpu int64) *pb.Resources {
		return wire.ResourcesToProto(plimsoll.Resources{"cpu": cpu, "memory": 8 << 30, "gpu": 2})
	}
	d := &pb.PlacementDecision{
		Time: testNow.UnixNano() - 90e9, Node: t.Node, Score: 3.25, Looked: 120, Batches: 3,
		Steps: []*pb.ExplainStep{
			{Stage: "traits", Kind: pb.StageKind_STAGE_KIND_NOT_ELIGIBLE, Received: 120, Remaining: 20, Dropped: 100},
			{Stage: "min-cpu", Kind: pb.StageKind_STAGE_KIND_NO_ROOM, Received: 20, Remaining: 8, Dropped: 12},
			{Stage: "score-random", Kind: pb.StageKind_STAGE_KIND_NOT_BEST, Received: 8, Remaining: 8},
		},
		Candidates: []*pb.PlacementCandidate{{Node: t.Node, Kept: true, Score: 3.25, Free: free(1500), Tasks: 3}},
	}
	for i := range 7 {
		d.Candidates = append(
			d.Candidates,
			&pb.PlacementCandidate{Node: fmt.Sprintf("m%d", i), Kept: true, Score: 2 - float64(i)/4, Free: free(4000)},
		)
	}
	d.Candidates = append(d.Candidates, &pb.PlacementCandidate{Node: "full", Free: free(0), Tasks: 9})
	if export {
		d.Export = []byte(`{"name": "` + t.ID + `"}`)
	}
	return d
}

// PlaceJob has room for three tasks of each group on n1 and n2.
func (g *fakeGateway) PlaceJob(
	_ context.Context, req *connect.Request[pb.PlaceJobRequest],
) (*connect.Response[pb.PlaceJobResponse], error) {
	res := &pb.PlaceJobResponse{Revision: 4711}
	for _, group := range req.Msg.GetSpec().GetGroups() {
		if req.Msg.GetGroup() != "" && req.Msg.GetGroup() != group.GetName() {
			continue
		}
		m := &pb.PlacedGroup{Group: group.GetName(), Asked: group.GetCount()}
		if n := req.Msg.GetCount(); n > 0 {
			m.Asked = n
		}
		for i := range min(m.Asked, 3) {
			m.Placed = append(m.Placed, &pb.PlacedTask{
				Node: []string{"n1", "n2"}[i%2], Score: 2,
				Free: wire.ResourcesToProto(plimsoll.Resources{"cpu": int64(3000 - 1000*i), "memory": 4 << 30}),
			})
		}
		switch {
		case m.Asked == 5000:
			m.Stopped = true
		case m.Asked > 3:
			res.QueueReason = "root.batch has cpu 2 left of its max of 8, and they ask for 3"
			m.Refused = &pb.PlacementRefusal{
				WaitCode: pb.WaitCode_WAIT_CODE_NO_NODE, Summary: "2 of 3 nodes: not enough cpu",
				Steps: refusingSteps(),
				Nodes: &pb.NodeCounts{Total: 3, Open: 2, Eligible: 2, FitEmpty: 1},
			}
		}
		res.Groups = append(res.Groups, m)
	}
	return connect.NewResponse(res), nil
}

// NodeCapacity has one node with a resource of its own, one that is over-promised, and one that is
// not counted.
func (g *fakeGateway) NodeCapacity(
	_ context.Context, req *connect.Request[pb.NodeCapacityRequest],
) (*connect.Response[pb.NodeCapacityResponse], error) {
	amounts := func(cpu, memory int64) plimsoll.Resources { return plimsoll.Resources{"cpu": cpu, "memory": memory} }
	gpus := amounts(4000, 16<<30)
	gpus["nvidia.com/gpu"] = 2
	free := amounts(2500, 12<<30)
	free["nvidia.com/gpu"] = 0
	all := []*pb.NodeRoom{
		{Node: "n1", Unreserved: wire.ResourcesToProto(free), Whole: wire.ResourcesToProto(gpus), Tasks: 2},
		{
			Node: "n2", Unreserved: wire.ResourcesToProto(amounts(-500, 1<<30)),
			Whole: wire.ResourcesToProto(amounts(4000, 16<<30)), Tasks: 9,
		},
		{Node: "n4", Reason: "running: it is not heard", Whole: wire.ResourcesToProto(amounts(4000, 16<<30)), Tasks: 1},
	}
	if len(req.Msg.GetNodes()) == 0 {
		return connect.NewResponse(&pb.NodeCapacityResponse{Nodes: all, Revision: 4711}), nil
	}
	res := &pb.NodeCapacityResponse{Revision: 4711}
	for _, id := range req.Msg.GetNodes() {
		if id != "n1" {
			return nil, noSuch("node", id)
		}
		res.Nodes = append(res.Nodes, all[0])
	}
	return connect.NewResponse(res), nil
}

// spreadOverRacks has a spread that compares two racks of ten.
func spreadOverRacks() []*pb.SpreadCount {
	return []*pb.SpreadCount{{
		By: "rack", MaxSkew: 1, Values: 10, Counted: 2, Fewest: 1, FewestIn: "r3",
		Uncounted: []string{"r0", "r1", "r2", "r4", "r5", "r6", "r8", "r9"},
		Summary: "spread by rack: r3 has the fewest, 1, of 2 that count; " +
			"8 others have no node that the other constraints allow",
	}}
}
