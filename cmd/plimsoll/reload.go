package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/plimsoll-dev/plimsoll"
)

// catchReloads begins to catch the signal that asks a role to read its queue file again, if it has
// one. Without a file the signal ends the process, as it does by default. stop gives the signal
// back.
func catchReloads(file string) (asked <-chan os.Signal, stop func()) {
	if file == "" {
		return nil, func() {}
	}
	signals := make(chan os.Signal, 1) // one that comes during a reload leads to another
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// reloadQueues reads the queue file again each time that it is asked to, until ctx ends.
func reloadQueues(
	ctx context.Context, a *app, file string, asked <-chan os.Signal, reload func(*plimsoll.QueueConfig, error),
) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
			reload(readQueues(a, file))
		}
	}
}
