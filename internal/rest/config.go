package rest

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// config answers with the configured queues as a queue file, which is in YuniKorn's schema: YAML,
// or JSON for a caller who takes that.
func (a *reading) config() error {
	data, has := a.records.Get(wire.KindQueueConfig, "")
	if !has {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "the leader has no queue configuration; set one")
	}
	if err := a.state.hold(chargeFor * len(data)); err != nil {
		return err
	}
	queues, err := wire.DecodeQueueConfig(data)
	if err != nil {
		return undecodable("queues", err)
	}
	withoutDraining(&queues)
	a.header.Add("Vary", "Accept")
	if strings.Contains(a.accept, "application/json") {
		return a.add(config.QueueFile(&queues))
	}
	text, err := config.FormatQueues(&queues)
	if err != nil {
		return plimsoll.Errorf(plimsoll.CodeInternal, "print the queues: %v", err)
	}
	if err := a.charge(len(text)); err != nil {
		return err
	}
	a.header.Set("Content-Type", "application/x-yaml; charset=UTF-8")
	a.body = text
	return nil
}

// withoutDraining takes out the queues that are configured no more.
func withoutDraining(c *plimsoll.QueueConfig) {
	c.Queues = slices.DeleteFunc(c.Queues, func(q plimsoll.QueueConfig) bool { return q.Draining })
	for i := range c.Queues {
		withoutDraining(&c.Queues[i])
	}
}
