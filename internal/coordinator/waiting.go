package coordinator

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/scheduler"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// explainWaiting asks what the tasks of a job wait for or, without a job, those of a queue.
type explainWaiting struct {
	job, queue string
	turnsOnly  bool // of a queue: only when it and those below it have their turn
}

func readWaiting(m *pb.ExplainWaitingRequest) (*explainWaiting, error) {
	if (m.GetJob() == "") == (m.GetQueue() == "") {
		return nil, plimsoll.Invalid("job", "and queue: give one of them")
	}
	if m.GetTurnsOnly() && m.GetQueue() == "" {
		return nil, plimsoll.Invalid("turns_only", "is for a queue; leave it out, or give a queue")
	}
	return &explainWaiting{m.GetJob(), m.GetQueue(), m.GetTurnsOnly()}, nil
}

func (*explainWaiting) about() *taskName { return nil }

func (q *explainWaiting) ask(v *scheduler.View, _ *scheduler.Subject, revision uint64, reply *pb.Reply) error {
	w, err := q.waiting(v)
	if err != nil {
		return err
	}
	m := &pb.ExplainWaitingResponse{
		Queue: w.Queue, Tasks: w.Tasks, Jobs: w.Jobs, More: int32(w.More), Revision: revision,
	}
	for i := range w.Causes {
		c := &w.Causes[i]
		m.Causes = append(m.Causes, &pb.WaitingCause{
			WaitCode: pb.WaitCode(c.Cause.Code), WaitQueue: c.Cause.Queue, WaitResource: c.Cause.Resource,
			Each: wire.ResourcesToProto(c.Each), Tasks: c.Tasks, Jobs: c.Jobs, Groups: c.Groups, Since: c.Since,
			Summary: c.Why, Unblock: c.Unblock,
		})
	}
	for _, t := range w.Queues {
		m.Queues = append(m.Queues, &pb.QueueTurn{Queue: t.Path, Share: t.Share, Next: int32(t.Next), Reason: t.Why})
	}
	reply.ExplainWaiting = m
	return nil
}

func (q *explainWaiting) waiting(v *scheduler.View) (*scheduler.Waiting, error) {
	if !q.turnsOnly {
		return v.ExplainWaiting(q.job, q.queue)
	}
	turns, err := v.Turns(q.queue)
	return &scheduler.Waiting{Queue: q.queue, Queues: turns}, err
}
