package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// StageKind classes a stage of the placement chain by the reason for which it drops nodes.
type StageKind int

// The kinds.
const (
	StageUnknown     StageKind = iota // the server is too old to send kinds
	StageClosed                       // the node takes no tasks at present
	StageNotEligible                  // the node is not meant for the task, full or empty
	StageNoRoom                       // the tasks on the node leave no room; it could take the task at another time
	StageNotBest                      // other nodes are preferred; the node could take the task
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

// Explanation says why a task waits, or why it is on its node.
type Explanation struct {
	Task     plimsoll.Task
	WaitCode plimsoll.WaitCode
	Summary  string // the answer in one sentence
	Steps    []ExplainStep
	Nodes    NodeCounts
	Spreads  []SpreadCount // the task's hard spreads as they are now, in their order
	Verdicts []NodeVerdict // on ExplainOptions.Node
	Decision *Decision     // how the task came to its node; nil: not known
	Kept     int32         // number of last decisions that the leader keeps
	// Revision is the revision of the cluster's state that the answer describes. The state holds
	// every change that was acknowledged before the call.
	Revision uint64
}

// ExplainStep is one stage of the placement chain.
type ExplainStep struct {
	Stage     string
	Kind      StageKind
	Received  int32 // nodes that came to the stage
	Remaining int32 // nodes that passed the stage
	Dropped   int32
	Refused   int32           // nodes of the whole cluster that the stage alone would refuse
	Reasons   []ExplainReason // the most frequent first
}

// ExplainReason is one reason for which a stage dropped nodes.
type ExplainReason struct {
	Reason   string
	Nodes    int32
	Examples []string // some of the nodes
}

// SpreadCount says which values of a label a hard spread compares. A value counts if it has a node
// that the task's other constraints allow.
type SpreadCount struct {
	By        string
	MaxSkew   int32
	Values    int32    // values that nodes have
	Counted   int32    // values that are compared
	Fewest    int32    // tasks of the group in the compared value that has the fewest
	FewestIn  string   // that value; empty: no value is compared
	Uncounted []string // examples of values that are not compared
	Summary   string   // all fields in one line
}

// NodeCounts counts nodes by their ability to take a task.
type NodeCounts struct {
	Total    int32
	Open     int32 // nodes that take tasks now
	Eligible int32 // nodes that the task may run on, open or not, full or empty
	FitEmpty int32 // eligible nodes that would have room if they were empty
	Fit      int32 // nodes that could take the task now
}

// NodeVerdict is the verdict of one filter on one node. It does not depend on the other filters.
type NodeVerdict struct {
	Stage  string
	Kind   StageKind
	Reason string // why the filter refuses the node; empty: it does not
}

// Decision is how a task came to its node.
type Decision struct {
	Time       int64 // Unix nanoseconds
	Node       string
	Score      float64
	Looked     int32 // nodes that were considered
	Batches    int32
	Steps      []ExplainStep // nodes that each stage left, without reasons
	Candidates []Candidate   // nodes of the last batch: first those that all filters left, the best first
	// Export is the decision with everything that it depends on, in the format of
	// fleetjson.ReadDecision. Empty unless ExplainOptions.Export was set.
	Export []byte
}

// Candidate is a node that a decision considered.
type Candidate struct {
	Node  string
	Kept  bool // all filters left it
	Score float64
	Free  plimsoll.Resources // before the task came
	Tasks int32
}

// ExplainOptions chooses further parts of an explanation.
type ExplainOptions struct {
	Node   string // explain also each filter's verdict on this node; empty: on none
	Export bool   // include the decision in the form in which it can be replayed
}

// ExplainTask asks the leader why a task waits, or why it is on its node.
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

// PlaceOptions chooses the tasks of a job to try.
type PlaceOptions struct {
	Group string // only this group; empty: all
	Count int32  // number of tasks of each group, at most 10,000; 0: as in the specification
}

// Trial says where the tasks of a job would be placed now.
type Trial struct {
	Groups      []TriedGroup
	QueueReason string // why the job's queue would hold back tasks that find a node; empty: it would not
	Revision    uint64 // see Explanation.Revision
}

// TriedGroup is the result of a trial for one group.
type TriedGroup struct {
	Name    string
	Asked   int32
	Placed  []PlacedTask // tasks that found a node, in their order
	Stopped bool         // the bound on the work of one request was reached: at least the placed tasks fit
	Refused *Refusal     // why the next task finds no node; nil: all found one, or Stopped
}

// PlacedTask is the node that one task would be placed on.
type PlacedTask struct {
	Node  string
	Score float64
	Free  plimsoll.Resources // resources that would remain on the node
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

// NodeRoom is the room that is left on a node.
type NodeRoom struct {
	Node   string
	Reason string // why the room is not counted; empty: it is
	// Unreserved is the amount that no task holds. Negative: more is promised than there is; nil:
	// the room is not counted.
	Unreserved plimsoll.Resources
	Whole      plimsoll.Resources
	Tasks      int32
	MaxTasks   int32  // most tasks at once; 0: no bound
	Revision   uint64 // see Explanation.Revision; the same for all nodes of an answer
}

// NodeCapacity asks the leader for the room that is left on nodes, in the order of the arguments.
// Without arguments it asks for all nodes, in the order of their ids.
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
