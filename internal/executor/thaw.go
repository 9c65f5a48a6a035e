package executor

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// DefaultThawAfter is the time without an agent after which its frozen attempts are thawed.
const DefaultThawAfter = time.Minute

// thawUnwatched thaws frozen attempts when no agent has watched for long. An agent freezes tasks
// for seconds, and only the agent would thaw them.
func (s *Supervisor) thawUnwatched(ctx context.Context) error {
	if s.tree == nil {
		return nil
	}
	s.mu.Lock()
	if len(s.watchers) == 0 {
		s.unwatchedSince = time.Now()
	}
	s.mu.Unlock()
	tick := time.NewTicker(max(s.cfg.ThawAfter/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if s.unwatched() && s.thawAll() {
			s.mu.Lock()
			if !s.unwatchedSince.IsZero() {
				s.unwatchedSince = time.Now()
			}
			s.mu.Unlock()
		}
	}
}

// unwatched reports whether no agent has watched for ThawAfter.
func (s *Supervisor) unwatched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.unwatchedSince.IsZero() && time.Since(s.unwatchedSince) >= s.cfg.ThawAfter
}

// thawAll thaws every running attempt; whole is false if another try is needed.
func (s *Supervisor) thawAll() (whole bool) {
	whole = true
	for _, a := range s.running() {
		if a.group == nil {
			continue
		}
		thawed := false
		err := withControl(a.group, func(c *cgroup.Control) error {
			frozen, err := c.Frozen()
			if err != nil || !frozen {
				return err
			}
			err = c.Thaw()
			thawed = err == nil
			return err
		})
		switch {
		case err != nil:
			whole = false
			s.trouble(TroubleThaw, a.key, err)
		case thawed:
			s.cfg.Events.Thawed(a.key.task, a.key.attempt)
		}
	}
	return whole
}
