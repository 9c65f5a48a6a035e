package executor

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// DefaultThawAfter is how long an agent has to come back before what it froze runs again.
const DefaultThawAfter = time.Minute

// thawAlone thaws what stands still when the agent is gone for long: it freezes tasks for seconds,
// and nobody else would end that.
func (s *Supervisor) thawAlone(ctx context.Context) error {
	if s.tree == nil {
		return nil
	}
	s.mu.Lock()
	if len(s.watchers) == 0 {
		s.alone = time.Now()
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
		if s.isAlone() && s.thawAll() {
			s.mu.Lock()
			if !s.alone.IsZero() {
				s.alone = time.Now()
			}
			s.mu.Unlock()
		}
	}
}

// isAlone reports whether nobody has watched for long.
func (s *Supervisor) isAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.alone.IsZero() && time.Since(s.alone) >= s.cfg.ThawAfter
}

// thawAll lets everything run again; whole is false if it must be tried again.
func (s *Supervisor) thawAll() (whole bool) {
	whole = true
	for _, a := range s.running() {
		if a.group == nil {
			continue
		}
		thawed := false
		err := change(a.group, func(c *cgroup.Control) error {
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
