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
	queues, has, err := a.queueConfig()
	if err != nil {
		return err
	}
	if !has {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "the leader has no queue configuration; set one")
	}
	a.header.Add("Vary", "Accept")
	if strings.Contains(a.accept, "application/json") {
		return a.add(config.QueueFileForYuniKorn(&queues))
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

// queueConfig returns the configured queues, without those that drain or are dynamic. has is false
// if there are none.
func (a *reading) queueConfig() (queues plimsoll.QueueConfig, has bool, err error) {
	if queues, has, err = a.storedQueues(); has {
		onlyConfigured(&queues)
	}
	return queues, has, err
}

// storedQueues is queueConfig with the queues that drain or are dynamic.
func (a *reading) storedQueues() (queues plimsoll.QueueConfig, has bool, err error) {
	data, has := a.records.Get(wire.KindQueueConfig, "")
	if !has {
		return queues, false, nil
	}
	if err := a.state.hold(chargeFor * len(data)); err != nil {
		return queues, false, err
	}
	if queues, err = wire.DecodeQueueConfig(data); err != nil {
		return queues, false, undecodable("queues", err)
	}
	return queues, true, nil
}

// onlyConfigured takes out the queues that are configured no more, and those that placement rules
// have made.
func onlyConfigured(c *plimsoll.QueueConfig) {
	c.Queues = slices.DeleteFunc(c.Queues, func(q plimsoll.QueueConfig) bool { return q.Draining || q.Dynamic })
	for i := range c.Queues {
		onlyConfigured(&c.Queues[i])
	}
}
