package client

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// Waiting says what the tasks of a job, or of a queue and all below it, wait for.
type Waiting struct {
	Queue    string         // the queue that was asked about, or that of the job
	Tasks    int64          // waiting tasks
	Jobs     int64          // jobs that have some
	Causes   []WaitingCause // those of the most tasks first
	More     int32          // causes that are left out
	Queues   []QueueTurn    // of a queue: it and all below it, by their paths
	Revision uint64         // of the state that the answer is about
}

// WaitingCause is a cause that waiting tasks have in common. Tasks that wait for nodes have one
// only if they also ask for the same.
type WaitingCause struct {
	Code     plimsoll.WaitCode
	Queue    string             // as plimsoll.WaitCause
	Resource string             // as plimsoll.WaitCause
	Each     plimsoll.Resources // what one task asks for; nil if they ask for different amounts
	Tasks    int64
	Jobs     int64
	Groups   []string // job.group, the one that has waited longest first; at most ten
	Since    int64    // when the first of them began to wait, in Unix nanoseconds
	Summary  string   // what holds them back, with numbers
	Unblock  []string // what would let them be placed: each entry by itself is a way
}

// QueueTurn says when the tasks of a queue have their turn.
type QueueTurn struct {
	Queue  string
	Share  float64 // dominant share: the largest part of what the queue has a claim to that it uses
	Next   int32   // place among the queues beside it that wait and have room; 0: it is not one of them
	Reason string  // why it has that place, or none; empty: nothing waits in it
}

// ExplainJob asks the leader why the tasks of a job wait, and which changes would let them be
// placed. The error is CodeNotFound if the active store has no such job.
func (c *Client) ExplainJob(ctx context.Context, id string) (Waiting, error) {
	return c.explainWaiting(ctx, &pb.ExplainWaitingRequest{Job: id})
}

// ExplainQueue asks the same about the tasks of a queue and of all queues below it.
func (c *Client) ExplainQueue(ctx context.Context, path string) (Waiting, error) {
	return c.explainWaiting(ctx, &pb.ExplainWaitingRequest{Queue: path})
}

// QueueTurns asks the leader when a queue and all below it have their turn, and why, in the order
// of their paths. It costs the leader nothing for the jobs. The error is CodeNotFound if there is
// no such queue.
func (c *Client) QueueTurns(ctx context.Context, path string) ([]QueueTurn, error) {
	w, err := c.explainWaiting(ctx, &pb.ExplainWaitingRequest{Queue: path, TurnsOnly: true})
	return w.Queues, err
}

func (c *Client) explainWaiting(ctx context.Context, req *pb.ExplainWaitingRequest) (Waiting, error) {
	res, err := call(ctx, c, c.jobs.ExplainWaiting, req)
	if err != nil {
		return Waiting{}, err
	}
	w := Waiting{
		Queue: res.GetQueue(), Tasks: res.GetTasks(), Jobs: res.GetJobs(), More: res.GetMore(),
		Revision: res.GetRevision(),
	}
	for _, m := range res.GetCauses() {
		w.Causes = append(w.Causes, WaitingCause{
			Code: wire.EnumFromProto[plimsoll.WaitCode](m.GetWaitCode()), Queue: m.GetWaitQueue(),
			Resource: m.GetWaitResource(), Each: wire.ResourcesFromProto(m.GetEach()), Tasks: m.GetTasks(),
			Jobs: m.GetJobs(), Groups: m.GetGroups(), Since: m.GetSince(), Summary: m.GetSummary(),
			Unblock: m.GetUnblock(),
		})
	}
	for _, m := range res.GetQueues() {
		w.Queues = append(w.Queues, QueueTurn{
			Queue: m.GetQueue(), Share: m.GetShare(), Next: m.GetNext(), Reason: m.GetReason(),
		})
	}
	return w, nil
}
