package coordinator

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// replaceQueues returns the request that replaces the tree of queues, which one turn does as a
// whole or not at all.
func (c *Coordinator) replaceQueues(queues *plimsoll.QueueConfig, respond func(*pb.Reply)) request {
	return request{
		command: c.commands.byName["set_queue_config"], do: &engine.SetQueueConfig{Config: *queues}, respond: respond,
	}
}

// replacedQueues notes the answer to the configured tree of queues. Later terms do not set it
// again, because a user may have set another one.
func (c *Coordinator) replacedQueues(r *pb.Reply) {
	c.status.setQueuesReplaced()
	if err := wire.ErrorFromProto(r.GetError()); err != nil {
		c.cfg.Events.QueuesRefused(err)
	}
}

// ReloadQueues replaces the tree of queues by that of the queue file, which the caller has read
// again. It is checked and applied as a user's command is. With err the file could not be read, for
// that reason, and nothing is replaced. Events.QueuesReplaced or QueuesRefused is called with the
// outcome, once it is stored, unless the term ends before. The cluster has an event of a refusal
// too. A process that does not lead refuses: its file is one of several, and the leader's holds.
func (c *Coordinator) ReloadQueues(queues *plimsoll.QueueConfig, err error) {
	t := c.status.get().term
	if t == nil || t.refusal != nil {
		if err == nil {
			err = plimsoll.Errorf(plimsoll.CodeUnavailable,
				"this coordinator does not lead, or takes no commands now; reload the file at the one that leads")
		}
		c.cfg.Events.QueuesRefused(err)
		return
	}
	if err != nil {
		why := err.Error()
		t.inbox.pushAlways(request{do: &engine.QueuesUnread{Why: why}, bytes: commandBytes + len(why)})
		c.cfg.Events.QueuesRefused(err)
		return
	}
	if bound := t.inbox.push(c.replaceQueues(queues, c.reloadedQueues)); bound != "" {
		c.cfg.Events.QueuesRefused(t.inbox.inboxFull(bound))
	}
}

func (c *Coordinator) reloadedQueues(r *pb.Reply) {
	if err := wire.ErrorFromProto(r.GetError()); err != nil {
		c.cfg.Events.QueuesRefused(err)
		return
	}
	c.cfg.Events.QueuesReplaced()
}
