package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// PlanOptions says what moves to plan.
type PlanOptions struct {
	Limit int32             // most moves, from 1 to 1,000
	For   *plimsoll.JobSpec // make room for a task of this job; nil: empty as many nodes as possible
	Group string            // of the job; may be empty if it has only one
}

// MovePlan is a plan of moves of tasks.
type MovePlan struct {
	Moves   []Move     // in the order in which they are possible
	Emptied []string   // nodes that would be left without tasks
	Room    string     // the node that would have room; empty: none would, or none was asked for
	Kept    []KeptNode // why nodes keep their tasks, of some of them
	More    int32      // so many more keep theirs
	Stopped bool       // the bound on the work of one question was reached: more may be possible
	Refusal string     // why the task finds no node as it is now, if no node would have room

	Revision uint64 // as that of Explanation
}

// Move takes a task from one node to another.
type Move struct{ Task, From, To string }

// KeptNode says why a node keeps its tasks.
type KeptNode struct {
	Node   string
	Task   string // that cannot be moved; empty: it is not because of one
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
