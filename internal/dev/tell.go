package dev

import (
	"errors"
	"log/slog"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
)

// The roles tell what happens; here are the log lines that are made of it, for dev and for the roles in processes of their own.

// CoordinatorEvents logs what happens to a coordinator.
func CoordinatorEvents(log *slog.Logger) coordinator.Events {
	return coordinator.Events{
		Standby: func(err error) { log.Info("standby: it takes over when the store is free", "reason", err) },
		Leading: func(epoch, revision uint64, listen string) {
			log.Info("leading", "epoch", epoch, "revision", revision, "listen", listen)
		},
		Failed: func(err error, pause time.Duration) {
			log.Error("the leadership failed", "error", err, "again in", pause.Round(time.Millisecond))
		},
		QueuesRefused: func(err error) {
			var e *plimsoll.Error
			if !errors.As(err, &e) {
				e = &plimsoll.Error{Msg: err.Error()}
			}
			log.Error("the queue file was refused and the tree stays as it was", "field", e.Field, "error", e.Msg)
		},
	}
}
