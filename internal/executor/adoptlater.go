package executor

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// adoptPauses is how long to wait before an attempt that could not be taken over is tried again.
var adoptPauses = plimsoll.Backoff{First: 100 * time.Millisecond, Longest: 30 * time.Second}

// adoptFound takes over an attempt whose directory was found. One that cannot be taken over,
// because a process cannot be killed or its lock is held, keeps no other one waiting. Nothing is
// said of it but that it has begun, as long as it may run; and it is tried again.
func (s *Supervisor) adoptFound(ctx context.Context, key attemptKey) {
	dir := AttemptDir(s.cfg.Dir, key.task, key.attempt)
	if _, err := os.Stat(filepath.Join(dir, forgotten)); err == nil {
		return
	}
	a, _ := s.reserve(key)
	err := s.adopt(ctx, a)
	if err != nil {
		s.disown(a)
		s.trouble(TroubleAdopt, key, err)
		s.mu.Lock()
		if a.limits.KillGrace <= 0 { // its record was not read
			a.limits.KillGrace = plimsoll.DefaultKillGrace
		}
		s.changed(a)
		s.mu.Unlock()
	}
	close(a.settled)
	if err != nil {
		s.spawn(func(ctx context.Context) { s.adoptLater(ctx, a, err) })
	}
}

// adoptLater tries again and again to take over an attempt, until it can or ctx ends. before is why
// it could not.
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
		close(a.settled)
		err := s.adopt(ctx, a)
		if err == nil {
			s.replace(found, a)
			return
		}
		s.disown(a)
		if err.Error() != before.Error() {
			s.trouble(TroubleAdopt, a.key, err)
		}
		before = err
	}
}

// replace puts an attempt that was taken over in the place of what stood for it, and stops it if
// that was asked for meanwhile.
func (s *Supervisor) replace(found, a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[a.key] = a
	s.changed(a)
	if why := found.stop; why != nil {
		s.beginStop(a, max(time.Until(found.killAt), 1), *why)
	}
}

// disown gives back what was taken of an attempt that could not be taken over.
func (s *Supervisor) disown(a *attempt) {
	if a.lock != nil {
		_ = a.lock.Close() // nothing was written to it
	}
	for _, f := range a.logs {
		_ = f.Close() // the same
	}
	a.lock, a.logs, a.group = nil, nil, nil
}
