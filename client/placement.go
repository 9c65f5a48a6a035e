package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// StageKind says what kind of thing a stage of the placement chain decides by.
type StageKind int

// The kinds.
const (
	StageUnknown     StageKind = iota // the server is older than kinds
	StageClosed                       // the node takes nothing at all now
	StageNotEligible                  // it is not for the task, full or empty
	StageNoRoom                       // what runs there: it could take the task at another time
	StageNotBest                      // others are preferred; it could take the task
)

// String returns the kind in words.
func (k StageKind) String() string {
	switch k {
	case StageClosed:
		return "closed"
	case StageNotEligible:
		return "not eligible"
	case StageNoRoom:
		return "no room"
	case StageNotBest:
		return "not best"
	case StageUnknown:
	}
	return ""
}

// Explanation says why a task waits, or why it is where it is.
type Explanation struct {
	Task     plimsoll.Task
	WaitCode plimsoll.WaitCode
	Summary  string // the answer in one sentence
	Steps    []ExplainStep
	Nodes    NodeCounts
	Spreads  []SpreadCount // what the task's hard spreads compare now, in their order
	Verdicts []NodeVerdict // on the node that was asked about
	Decision *Decision     // how the task came to its node; nil: that is not known
	Kept     int32         // so many of the last decisions are known
	Revision uint64        // of the cluster as it was when this was found; all that was acknowledged before is in it
}

// ExplainStep is one stage of the placement chain.
type ExplainStep struct {
	Stage     string
	Kind      StageKind
	Received  int32 // nodes that came to it
	Remaining int32 // nodes that passed it
	Dropped   int32
	Refused   int32           // of all nodes, how many it refuses, whatever the others say
	Reasons   []ExplainReason // the most frequent first
}

// ExplainReason is one reason for which a stage dropped nodes.
type ExplainReason struct {
	Reason   string
	Nodes    int32
	Examples []string // some of the nodes
}

// SpreadCount says which values of a label a hard spread compares: those that have a node which the
// task's other constraints allow.
type SpreadCount struct {
	By        string
	MaxSkew   int32
	Values    int32    // that nodes have
	Counted   int32    // of them, those that are compared
	Fewest    int32    // tasks of the group in the value that has the fewest of those that are compared
	FewestIn  string   // that value; empty: none is compared
	Uncounted []string // some of the values that are not compared
	Summary   string   // all of it in one line
}

// NodeCounts counts nodes by what they could do for a task.
type NodeCounts struct {
	Total    int32
	Open     int32 // take tasks now
	Eligible int32 // are for the task, open or not, full or empty
	FitEmpty int32 // of the eligible, would have room if they were empty
	Fit      int32 // could take it now
}

// NodeVerdict is what one filter says about one node, whatever the others say.
type NodeVerdict struct {
	Stage  string
	Kind   StageKind
	Reason string // why it refuses the node; empty: it does not
}

// Decision is how a task came to its node.
type Decision struct {
	Time       int64 // Unix nanoseconds
	Node       string
	Score      float64
	Looked     int32 // nodes that were looked at
	Batches    int32
	Steps      []ExplainStep // what each stage left, without reasons
	Candidates []Candidate   // nodes of the last batch: those that all filters left first, the best first
	// with everything that it was decided by, as fleetjson.ReadDecision takes it, if it was asked
	// for
	Export []byte
}

// Candidate is a node that a decision was about.
type Candidate struct {
	Node  string
	Kept  bool // all filters left it
	Score float64
	Free  plimsoll.Resources // before the task came
	Tasks int32
}

// ExplainOptions says what else to explain.
type ExplainOptions struct {
	Node   string // what each filter says about this node; empty: about none
	Export bool   // the decision in the form in which it can be decided again
}

// ExplainTask asks the leader why a task waits, or why it is where it is.
func (c *Client) ExplainTask(ctx context.Context, id string, options ExplainOptions) (Explanation, error) {
	res, err := call(
		ctx, c, c.jobs.ExplainTask, &pb.ExplainTaskRequest{Id: id, Node: options.Node, Export: options.Export},
	)
	if err != nil {
		return Explanation{}, err
	}
	return explanation(res), nil
}

func explanation(res *pb.ExplainTaskResponse) Explanation {
	x := Explanation{
		Task: wire.TaskFromProto(res.GetTask()), WaitCode: wire.EnumFromProto[plimsoll.WaitCode](res.GetWaitCode()),
		Summary: res.GetSummary(),
		Steps:   steps(res.GetSteps()), Nodes: nodeCounts(res.GetNodes()), Kept: res.GetDecisionsKept(),
		Revision: res.GetRevision(),
	}
	for _, v := range res.GetVerdicts() {
		x.Verdicts = append(
			x.Verdicts, NodeVerdict{Stage: v.GetStage(), Kind: StageKind(v.GetKind()), Reason: v.GetReason()},
		)
	}
	for _, c := range res.GetSpreads() {
		x.Spreads = append(x.Spreads, SpreadCount{
			By: c.GetBy(), MaxSkew: c.GetMaxSkew(), Values: c.GetValues(), Counted: c.GetCounted(),
			Fewest:   c.GetFewest(),
			FewestIn: c.GetFewestIn(), Uncounted: c.GetUncounted(), Summary: c.GetSummary(),
		})
	}
	if d := res.GetDecision(); d != nil {
		x.Decision = &Decision{
			Time: d.GetTime(), Node: d.GetNode(), Score: d.GetScore(), Looked: d.GetLooked(), Batches: d.GetBatches(),
			Steps: steps(d.GetSteps()), Export: d.GetExport(),
		}
		for _, n := range d.GetCandidates() {
			x.Decision.Candidates = append(x.Decision.Candidates, Candidate{
				Node: n.GetNode(), Kept: n.GetKept(), Score: n.GetScore(), Free: wire.ResourcesFromProto(n.GetFree()),
				Tasks: n.GetTasks(),
			})
		}
	}
	return x
}

func steps(list []*pb.ExplainStep) []ExplainStep {
	var out []ExplainStep
	for _, s := range list {
		step := ExplainStep{
			Stage: s.GetStage(), Kind: StageKind(s.GetKind()), Received: s.GetReceived(), Remaining: s.GetRemaining(),
			Dropped: s.GetDropped(),
			Refused: s.GetRefused(),
		}
		for _, r := range s.GetReasons() {
			step.Reasons = append(
				step.Reasons, ExplainReason{Reason: r.GetReason(), Nodes: r.GetNodes(), Examples: r.GetExamples()},
			)
		}
		out = append(out, step)
	}
	return out
}

func nodeCounts(m *pb.NodeCounts) NodeCounts {
	return NodeCounts{
		Total: m.GetTotal(), Open: m.GetOpen(), Eligible: m.GetEligible(), FitEmpty: m.GetFitEmpty(), Fit: m.GetFit(),
	}
}

// PlaceOptions says what of a job to try.
type PlaceOptions struct {
	Group string // only this group; empty: all
	Count int32  // so many tasks of each group, at most 10,000; 0: as many as the specification says
}

// Trial says where the tasks of a job would be placed now.
type Trial struct {
	Groups      []TriedGroup
	QueueReason string // why the job's queue would hold back tasks that would find a node; empty: it would not
	Revision    uint64 // as that of Explanation
}

// TriedGroup is what came of the tasks of one group.
type TriedGroup struct {
	Name    string
	Asked   int32
	Placed  []PlacedTask // those that found a node, in their order
	Stopped bool         // the bound on the work of one question was reached: at least these fit
	Refused *Refusal     // why the next finds no node; nil: all have found one, or it stopped
}

// PlacedTask is where one task would go.
type PlacedTask struct {
	Node  string
	Score float64
	Free  plimsoll.Resources // what would remain there
}

// Refusal says why a task finds no node.
type Refusal struct {
	WaitCode plimsoll.WaitCode
	Summary  string
	Steps    []ExplainStep
	Nodes    NodeCounts
}

// PlaceJob asks the leader where the tasks of a job would be placed now, one after another. Nothing
// is placed.
func (c *Client) PlaceJob(ctx context.Context, spec plimsoll.JobSpec, options PlaceOptions) (Trial, error) {
	res, err := call(
		ctx, c, c.jobs.PlaceJob,
		&pb.PlaceJobRequest{Spec: wire.JobSpecToProto(&spec), Group: options.Group, Count: options.Count},
	)
	if err != nil {
		return Trial{}, err
	}
	return trial(res), nil
}

func trial(res *pb.PlaceJobResponse) Trial {
	t := Trial{QueueReason: res.GetQueueReason(), Revision: res.GetRevision()}
	for _, m := range res.GetGroups() {
		g := TriedGroup{Name: m.GetGroup(), Asked: m.GetAsked(), Stopped: m.GetStopped()}
		for _, p := range m.GetPlaced() {
			g.Placed = append(
				g.Placed,
				PlacedTask{Node: p.GetNode(), Score: p.GetScore(), Free: wire.ResourcesFromProto(p.GetFree())},
			)
		}
		if r := m.GetRefused(); r != nil {
			g.Refused = &Refusal{
				WaitCode: wire.EnumFromProto[plimsoll.WaitCode](r.GetWaitCode()), Summary: r.GetSummary(),
				Steps: steps(r.GetSteps()), Nodes: nodeCounts(r.GetNodes()),
			}
		}
		t.Groups = append(t.Groups, g)
	}
	return t
}

// NodeRoom is what is left on a node.
type NodeRoom struct {
	Node   string
	Reason string // why it is not counted; empty: it is
	// what no task holds; negative: more is promised than there is; nil: it is not counted
	Unreserved plimsoll.Resources
	Whole      plimsoll.Resources
	Tasks      int32
	MaxTasks   int32  // most tasks that it takes at once; 0: no bound
	Revision   uint64 // as that of Explanation, the same for all nodes of an answer
}

// NodeCapacity asks the leader what is left on nodes, in their order; none named: on all, in the
// order of their ids.
func (c *Client) NodeCapacity(ctx context.Context, nodes ...string) ([]NodeRoom, error) {
	res, err := call(ctx, c, c.nodes.NodeCapacity, &pb.NodeCapacityRequest{Nodes: nodes})
	if err != nil {
		return nil, err
	}
	return nodeRooms(res), nil
}

func nodeRooms(res *pb.NodeCapacityResponse) []NodeRoom {
	rooms := make([]NodeRoom, len(res.GetNodes()))
	for i, m := range res.GetNodes() {
		rooms[i] = NodeRoom{
			Node: m.GetNode(), Reason: m.GetReason(), Unreserved: wire.ResourcesFromProto(m.GetUnreserved()),
			Whole: wire.ResourcesFromProto(m.GetWhole()), Tasks: m.GetTasks(), MaxTasks: m.GetMaxTasks(),
			Revision: res.GetRevision(),
		}
	}
	return rooms
}
