package pebble

import (
	"context"
	"fmt"
	"log/slog"

	lsm "github.com/cockroachdb/pebble/v2"
)

// logger receives Pebble's own log. An error that Pebble calls fatal does not end the process: it
// shuts the fence, and the store fails.
type logger struct {
	log   *slog.Logger
	fence *fence
}

func (l *logger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("pebble: " + fmt.Sprintf(format, args...))
	}
}

func (l *logger) Errorf(format string, args ...any) {
	l.log.Warn("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf returns, although Pebble does not expect that. The fence makes Pebble's further writes
// harmless.
func (l *logger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.fence.shut(err)
	l.log.Error("pebble failed", "error", err)
}

// listener reports events inside Pebble. It leaves out the events that are of no use.
func (l *logger) listener() *lsm.EventListener {
	return &lsm.EventListener{
		BackgroundError: func(err error) { l.log.Warn("pebble: work in the background failed", "error", err) },
		DataCorruption: func(info lsm.DataCorruptionInfo) {
			l.fence.recordRead(&info.Path)
			l.fence.shut(fmt.Errorf("%s is damaged: %w", info.Path, info.Details))
		},
		DiskSlow: func(info lsm.DiskSlowInfo) { l.log.Warn("pebble: the disk is slow", "info", info.String()) },
		WriteStallBegin: func(
			info lsm.WriteStallBeginInfo,
		) {
			l.log.Warn("pebble: commits wait", "reason", info.Reason)
		},
		WriteStallEnd: func() { l.log.Info("pebble: commits go on") },
	}
}
