package executor

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// adoptPauses are the waits before another try to take over an attempt.
var adoptPauses = plimsoll.Backoff{First: 100 * time.Millisecond, Longest: 30 * time.Second}

// adoptFound takes over an attempt whose directory was found. A failure, for example because a
// process cannot be killed or the lock is held, delays no other attempt. Until a later try
// succeeds, the attempt shows as starting.
func (s *Supervisor) adoptFound(ctx context.Context, key attemptKey) {
	dir := AttemptDir(s.cfg.Dir, key.task, key.attempt)
	if _, err := os.Stat(filepath.Join(dir, forgotten)); err == nil {
		return
	}
	a, _ := s.reserve(key)
	err := s.adopt(ctx, a)
	if err != nil {
		s.dropAdoption(a)
		s.trouble(TroubleAdopt, key, err)
		s.mu.Lock()
		if a.limits.KillGrace <= 0 { // its record could not be read
			a.limits.KillGrace = plimsoll.DefaultKillGrace
		}
		s.changed(a)
		s.mu.Unlock()
	}
	close(a.startDone)
	if err != nil {
		s.spawn(func(ctx context.Context) { s.adoptLater(ctx, a, err) })
	}
}

// adoptLater retries taking over an attempt, until it succeeds or ctx ends. before is the error of
// the last try.
func (s *Supervisor) adoptLater(ctx context.Context, found *attempt, before error) {
	for tries := 1; ; tries++ {
		timer := time.NewTimer(adoptPauses.Delay(tries))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		a := newAttempt(found.key, found.dir)
		close(a.startDone)
		err := s.adopt(ctx, a)
		if err == nil {
			s.replace(found, a)
			return
		}
		s.dropAdoption(a)
		if err.Error() != before.Error() {
			s.trouble(TroubleAdopt, a.key, err)
		}
		before = err
	}
}

// replace puts an adopted attempt in the place of found, and stops it if a stop was requested
// meanwhile.
func (s *Supervisor) replace(found, a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[a.key] = a
	s.changed(a)
	if why := found.stop; why != nil {
		s.beginStop(a, max(time.Until(found.killAt), 1), *why)
	}
}

// dropAdoption releases the resources of an attempt that could not be taken over.
func (s *Supervisor) dropAdoption(a *attempt) {
	if a.lock != nil {
		_ = a.lock.Close() // nothing was written to it
	}
	for _, f := range a.logs {
		_ = f.Close() // nothing was written to it
	}
	a.lock, a.logs, a.group = nil, nil, nil
}
