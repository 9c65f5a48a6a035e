package dev

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A gateway that looks for a leader several times a second does not fill its log with one reason.
func TestAFailureThatRepeatsIsToldOnce(t *testing.T) {
	var log strings.Builder
	events := FollowerEvents(slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		events.Disconnected(errors.New("connection refused"), time.Second)
	}
	events.Disconnected(errors.New("loads the active state"), time.Second)
	events.Live(2, 7, false)
	events.Disconnected(errors.New("loads the active state"), time.Second)
	if n := strings.Count(log.String(), "no leader"); n != 3 {
		t.Errorf("%d lines about five failures of three kinds:\n%s", n, log.String())
	}
}
