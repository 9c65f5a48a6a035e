package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// PlanOptions chooses the moves to plan.
type PlanOptions struct {
	Limit int32             // most moves, from 1 to 1,000
	For   *plimsoll.JobSpec // make room for a task of this job; nil: empty as many nodes as possible
	Group string            // of the job; may be empty if it has only one
}

// MovePlan is a plan of moves of tasks.
type MovePlan struct {
	Moves   []Move     // in the order in which they can be made
	Emptied []string   // nodes that would be left without tasks
	Room    string     // the node that would have room; empty: none would have, or no room was asked for
	Kept    []KeptNode // nodes that keep their tasks, and why; not all of them
	More    int32      // number of further nodes that keep their tasks
	Stopped bool       // the plan ends at the bound on the work of one request: more may be possible
	Refusal string     // why the task of PlanOptions.For finds no node, if no node would have room

	Revision uint64 // revision of the cluster that the plan is of, see Explanation.Revision
}

// Move takes a task from one node to another.
type Move struct{ Task, From, To string }

// KeptNode says why a node keeps its tasks.
type KeptNode struct {
	Node   string
	Task   string // a task that cannot be moved; empty: the reason is not a task
	Reason string
}

// PlanMoves asks the leader for moves of tasks that would empty nodes or make room. Nothing is
// moved.
func (c *Client) PlanMoves(ctx context.Context, options PlanOptions) (MovePlan, error) {
	req := &pb.PlanMovesRequest{Limit: options.Limit, Group: options.Group}
	if options.For != nil {
		req.Spec = wire.JobSpecToProto(options.For)
	}
	res, err := call(ctx, c, c.nodes.PlanMoves, req)
	if err != nil {
		return MovePlan{}, err
	}
	return movePlan(res), nil
}

func movePlan(res *pb.PlanMovesResponse) MovePlan {
	p := MovePlan{
		Emptied: res.GetEmptied(), Room: res.GetRoom(), More: res.GetMore(), Stopped: res.GetStopped(),
		Refusal:  res.GetRefusal(),
		Revision: res.GetRevision(),
	}
	for _, m := range res.GetMoves() {
		p.Moves = append(p.Moves, Move{Task: m.GetTask(), From: m.GetFrom(), To: m.GetTo()})
	}
	for _, k := range res.GetKept() {
		p.Kept = append(p.Kept, KeptNode{Node: k.GetNode(), Task: k.GetTask(), Reason: k.GetReason()})
	}
	return p
}
