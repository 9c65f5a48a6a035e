package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/plimsoll-dev/plimsoll"
)

// catchReloads begins to catch the signal that asks a role to read its queue file again, if it is
// wanted. Otherwise the signal ends the process, as it does by default. stop gives the signal back.
func catchReloads(wanted bool) (asked <-chan os.Signal, stop func()) {
	if !wanted {
		return nil, func() {}
	}
	signals := make(chan os.Signal, 1) // one that comes during a reload leads to another
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// queueReloads reads the queue file of a role again each time that a signal asks for it.
type queueReloads struct {
	file  string // empty: the role has none, and a signal is only logged
	asked <-chan os.Signal
	log   *slog.Logger
}

// run answers signals until ctx ends.
func (q *queueReloads) run(ctx context.Context, a *app, reload func(*plimsoll.QueueConfig, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.asked:
			if q.file == "" {
				q.log.Info("there is no queue file to read again: none is named by --queues")
				continue
			}
			reload(readQueues(a, q.log, q.file))
		}
	}
}
