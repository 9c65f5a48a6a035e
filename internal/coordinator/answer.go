package coordinator

import (
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/state"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// maxCandidates is how many nodes of a decision are told of.
const maxCandidates = 50

// The encoders of the table of commands put the engine's answers into the gateway's reply.

func done(*pb.Reply, engine.Done) {}

func encodeRegistration(reply *pb.Reply, number engine.Registration) {
	reply.Registration = uint64(number)
}

func encodeExplanation(reply *pb.Reply, x scheduler.Explanation) {
	m := &pb.ExplainTaskResponse{
		Task: wire.TaskToProto(&x.Task), WaitCode: pb.WaitCode(x.Code), Summary: x.Summary,
		Steps: encodeSteps(x.Steps), Nodes: encodeCounts(&x.Explanation), DecisionsKept: scheduler.KeptDecisions,
	}
	for _, v := range x.Verdicts {
		m.Verdicts = append(m.Verdicts, &pb.NodeVerdict{Stage: v.Stage, Kind: stageKind(v.Kind), Reason: v.Why})
	}
	if d := x.Decision; d != nil {
		m.Decision = &pb.PlacementDecision{
			Time: x.Task.Bound, Node: d.Server, Score: d.Score, Looked: int32(d.Looked), Batches: int32(d.Batches),
			Steps: encodeSteps(d.Steps), Export: x.Export,
		}
		for _, c := range d.Candidates[:min(len(d.Candidates), maxCandidates)] {
			m.Decision.Candidates = append(m.Decision.Candidates, &pb.PlacementCandidate{
				Node: c.Server, Kept: c.Kept, Score: c.Score, Free: wire.ResourcesToProto(c.Free), Tasks: int32(c.Instances),
			})
		}
	}
	reply.ExplainTask = m
}

func stageKind(k placement.StepKind) pb.StageKind {
	return pb.StageKind(k) + pb.StageKind_STAGE_KIND_CLOSED
}

func encodeSteps(steps []placement.Step) []*pb.ExplainStep {
	out := make([]*pb.ExplainStep, len(steps))
	for i := range steps {
		s := &steps[i]
		m := &pb.ExplainStep{
			Stage: s.Stage, Kind: stageKind(s.Kind), Received: int32(s.Received), Remaining: int32(s.Remaining), Dropped: int32(s.Dropped),
			Refused: int32(s.Refused),
		}
		for _, r := range s.Reasons {
			m.Reasons = append(m.Reasons, &pb.ExplainReason{Reason: r.Text, Nodes: int32(r.Servers), Examples: r.Examples})
		}
		out[i] = m
	}
	return out
}

func encodeCounts(x *placement.Explanation) *pb.NodeCounts {
	return &pb.NodeCounts{Total: int32(x.Servers), Open: int32(x.Open), Eligible: int32(x.Eligible), FitEmpty: int32(x.FitEmpty), Fit: int32(x.Fit)}
}

func encodeCapacities(reply *pb.Reply, list []placement.Capacity) {
	m := &pb.NodeCapacityResponse{Nodes: make([]*pb.NodeRoom, len(list))}
	for i := range list {
		c := &list[i]
		m.Nodes[i] = &pb.NodeRoom{
			Node: c.Server, Reason: c.Why, Unreserved: wire.ResourcesToProto(c.Free), Whole: wire.ResourcesToProto(c.Whole), Tasks: int32(c.Instances),
			MaxTasks: int32(c.Most),
		}
	}
	reply.NodeCapacity = m
}

func encodeTrial(reply *pb.Reply, t *scheduler.Trial) {
	m := &pb.PlaceJobResponse{QueueReason: t.QueueReason}
	for i := range t.Groups {
		g := &t.Groups[i]
		group := &pb.PlacedGroup{Group: g.Name, Asked: int32(g.Asked), Stopped: g.Stopped, Placed: make([]*pb.PlacedTask, len(g.Placed))}
		for k, p := range g.Placed {
			group.Placed[k] = &pb.PlacedTask{Node: p.Server, Score: p.Score, Free: wire.ResourcesToProto(g.Free(k))}
		}
		if g.Why != nil {
			group.Refused = &pb.PlacementRefusal{WaitCode: pb.WaitCode(g.Code), Summary: g.Summary, Steps: encodeSteps(g.Why.Steps), Nodes: encodeCounts(g.Why)}
		}
		m.Groups = append(m.Groups, group)
	}
	reply.PlaceJob = m
}

func encodeOutcomes(reply *pb.Reply, list []state.PolicyOutcome) {
	m := &pb.ApplyPoliciesResponse{}
	for _, o := range list {
		m.Outcomes = append(m.Outcomes, &pb.PolicyOutcome{Policy: wire.PolicyRefToProto(o.Ref), Change: pb.PolicyChange(o.Change)})
	}
	reply.ApplyPolicies = m
}

func encodePlan(reply *pb.Reply, p *scheduler.MovePlan) {
	m := &pb.PlanMovesResponse{Emptied: p.Emptied, Room: p.Room, More: int32(p.More), Stopped: p.Stopped, Refusal: p.Refusal}
	for _, move := range p.Moves {
		m.Moves = append(m.Moves, &pb.PlannedMove{Task: move.Name, From: move.From, To: move.To})
	}
	for _, k := range p.Kept {
		m.Kept = append(m.Kept, &pb.KeptNode{Node: k.Server, Task: k.Name, Reason: k.Why})
	}
	reply.PlanMoves = m
}
