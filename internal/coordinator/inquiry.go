package coordinator

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
	"github.com/plimsoll-dev/plimsoll/placement"
	"github.com/plimsoll-dev/plimsoll/placement/fleetjson"
)

// maxCandidates bounds the candidate nodes of a decision in an answer.
const maxCandidates = 50

// explainTask asks why a task waits, and for the verdict of each filter on a node, if one is named.
type explainTask struct {
	task   taskName
	node   string
	export bool // add the record of the decision that chose the task's node
}

func readExplain(m *pb.ExplainTaskRequest) (*explainTask, error) {
	job, group, index, ok := wire.SplitTaskID(m.GetId())
	if !ok {
		return nil, badTaskID("id", m.GetId())
	}
	return &explainTask{taskName{job, group, index}, m.GetNode(), m.GetExport()}, nil
}

func (q *explainTask) about() *taskName { return &q.task }

func (q *explainTask) ask(v *scheduler.View, task *scheduler.Subject, revision uint64, reply *pb.Reply) error {
	x, err := v.Explain(task, q.node)
	if err != nil {
		return err
	}
	m := encodeExplanation(&x)
	m.Revision = revision
	if q.export && x.Decision != nil {
		if m.Decision.Export, err = fleetjson.WriteDecision(x.Decision.Record()); err != nil {
			return err
		}
	}
	reply.ExplainTask = m
	return nil
}

// nodeCapacity asks for the room that is left on some nodes, or on all if none is named.
type nodeCapacity struct{ nodes []string }

func readCapacity(m *pb.NodeCapacityRequest) (*nodeCapacity, error) {
	return &nodeCapacity{m.GetNodes()}, nil
}

func (*nodeCapacity) about() *taskName { return nil }

func (q *nodeCapacity) ask(v *scheduler.View, _ *scheduler.Subject, revision uint64, reply *pb.Reply) error {
	list, err := v.Capacities(q.nodes)
	if err != nil {
		return err
	}
	reply.NodeCapacity = encodeCapacities(list)
	reply.NodeCapacity.Revision = revision
	return nil
}

// placeJob asks where tasks of a job would be placed: count tasks of a group. A count of 0 means
// the group's own count, and an empty group means all groups.
type placeJob struct {
	spec  *plimsoll.JobSpec
	group string
	count int32
}

func readPlace(m *pb.PlaceJobRequest) (*placeJob, error) {
	spec := wire.JobSpecFromProto(m.GetSpec())
	return &placeJob{&spec, m.GetGroup(), m.GetCount()}, nil
}

func (*placeJob) about() *taskName { return nil }

func (q *placeJob) ask(v *scheduler.View, _ *scheduler.Subject, revision uint64, reply *pb.Reply) error {
	trial, err := v.Try(q.spec, q.group, int(q.count))
	if err != nil {
		return err
	}
	reply.PlaceJob = encodeTrial(trial)
	reply.PlaceJob.Revision = revision
	return nil
}

// planMoves asks for moves that would make room for a task of a job's group. Without a job it asks
// for moves that would empty nodes.
type planMoves struct {
	spec  *plimsoll.JobSpec
	group string
	limit int32
}

func readPlan(m *pb.PlanMovesRequest) (*planMoves, error) {
	q := &planMoves{limit: m.GetLimit(), group: m.GetGroup()}
	if m.GetSpec() != nil {
		spec := wire.JobSpecFromProto(m.GetSpec())
		q.spec = &spec
	}
	return q, nil
}

func (*planMoves) about() *taskName { return nil }

func (q *planMoves) ask(v *scheduler.View, _ *scheduler.Subject, revision uint64, reply *pb.Reply) error {
	plan, err := v.PlanMoves(q.spec, q.group, int(q.limit))
	if err != nil {
		return err
	}
	reply.PlanMoves = encodePlan(plan)
	reply.PlanMoves.Revision = revision
	return nil
}

func encodeExplanation(x *scheduler.Explanation) *pb.ExplainTaskResponse {
	m := &pb.ExplainTaskResponse{
		Task: wire.TaskToProto(&x.Task), WaitCode: pb.WaitCode(x.Code), Summary: x.Summary,
		Steps: encodeSteps(x.Steps), Nodes: encodeCounts(&x.Explanation), DecisionsKept: scheduler.KeptDecisions,
	}
	for _, v := range x.Verdicts {
		m.Verdicts = append(m.Verdicts, &pb.NodeVerdict{Stage: v.Stage, Kind: stageKind(v.Kind), Reason: v.Why})
	}
	for i := range x.Spreads {
		c := &x.Spreads[i]
		m.Spreads = append(m.Spreads, &pb.SpreadCount{
			By: c.By, MaxSkew: c.MaxSkew, Values: int32(c.Values), Counted: int32(c.Counted), Fewest: int32(c.Fewest),
			FewestIn: c.FewestIn, Uncounted: c.Uncounted, Summary: c.String(),
		})
	}
	if d := x.Decision; d != nil {
		m.Decision = &pb.PlacementDecision{
			Time: x.Task.Bound, Node: d.Server, Score: d.Score, Looked: int32(d.Looked), Batches: int32(d.Batches),
			Steps: encodeSteps(d.Steps),
		}
		for _, c := range d.Candidates[:min(len(d.Candidates), maxCandidates)] {
			m.Decision.Candidates = append(m.Decision.Candidates, &pb.PlacementCandidate{
				Node: c.Server, Kept: c.Kept, Score: c.Score, Free: wire.ResourcesToProto(c.Free),
				Tasks: int32(c.Instances),
			})
		}
	}
	return m
}

func stageKind(k placement.StepKind) pb.StageKind {
	return pb.StageKind(k) + pb.StageKind_STAGE_KIND_CLOSED
}

func encodeSteps(steps []placement.Step) []*pb.ExplainStep {
	out := make([]*pb.ExplainStep, len(steps))
	for i := range steps {
		s := &steps[i]
		m := &pb.ExplainStep{
			Stage: s.Stage, Kind: stageKind(s.Kind), Received: int32(s.Received), Remaining: int32(s.Remaining),
			Dropped: int32(s.Dropped),
			Refused: int32(s.Refused),
		}
		for _, r := range s.Reasons {
			m.Reasons = append(
				m.Reasons, &pb.ExplainReason{Reason: r.Text, Nodes: int32(r.Servers), Examples: r.Examples},
			)
		}
		out[i] = m
	}
	return out
}

func encodeCounts(x *placement.Explanation) *pb.NodeCounts {
	return &pb.NodeCounts{
		Total: int32(x.Servers), Open: int32(x.Open), Eligible: int32(x.Eligible), FitEmpty: int32(x.FitEmpty),
		Fit: int32(x.Fit),
	}
}

func encodeCapacities(list []placement.Capacity) *pb.NodeCapacityResponse {
	m := &pb.NodeCapacityResponse{Nodes: make([]*pb.NodeRoom, len(list))}
	for i := range list {
		c := &list[i]
		m.Nodes[i] = &pb.NodeRoom{
			Node: c.Server, Reason: c.Why, Unreserved: wire.ResourcesToProto(c.Free),
			Whole: wire.ResourcesToProto(c.Whole), Tasks: int32(c.Instances),
			MaxTasks: int32(c.Most),
		}
	}
	return m
}

func encodeTrial(t *scheduler.Trial) *pb.PlaceJobResponse {
	m := &pb.PlaceJobResponse{QueueReason: t.QueueReason}
	for i := range t.Groups {
		g := &t.Groups[i]
		group := &pb.PlacedGroup{
			Group: g.Name, Asked: int32(g.Asked), Stopped: g.Stopped, Placed: make([]*pb.PlacedTask, len(g.Placed)),
		}
		for k, p := range g.Placed {
			group.Placed[k] = &pb.PlacedTask{Node: p.Server, Score: p.Score, Free: wire.ResourcesToProto(g.Free(k))}
		}
		if g.Why != nil {
			group.Refused = &pb.PlacementRefusal{
				WaitCode: pb.WaitCode(g.Code), Summary: g.Summary, Steps: encodeSteps(g.Why.Steps),
				Nodes: encodeCounts(g.Why),
			}
		}
		m.Groups = append(m.Groups, group)
	}
	return m
}

func encodePlan(p *scheduler.MovePlan) *pb.PlanMovesResponse {
	m := &pb.PlanMovesResponse{
		Emptied: p.Emptied, Room: p.Room, More: int32(p.More), Stopped: p.Stopped, Refusal: p.Refusal,
	}
	for _, move := range p.Moves {
		m.Moves = append(m.Moves, &pb.PlannedMove{Task: move.Name, From: move.From, To: move.To})
	}
	for _, k := range p.Kept {
		m.Kept = append(m.Kept, &pb.KeptNode{Node: k.Server, Task: k.Name, Reason: k.Why})
	}
	return m
}
