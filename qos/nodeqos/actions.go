package nodeqos

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// Actions are a Go program's own ways to act on a task for a metric of its own. They are called in
// the background, for several tasks at once but for one task one after the other, and must end with
// ctx. An error is reported, and the task is left alone for a while. ErrGone is no error.
type Actions struct {
	// Throttle lowers a task's limit, and Restore raises it. limit is in the metric's unit;
	// math.Inf(1) is no limit. Both need qos.Metric.Limit, which plans the limits. Each call may
	// take Metric.Timeout. A limit may be set again, after a failure and when the loop is started
	// anew.
	Throttle func(ctx context.Context, task *Task, limit float64) error
	Restore  func(ctx context.Context, task *Task, limit float64) error
	// Evict stops a task for this metric. It may take the grace and half a minute more. nil:
	// Deps.Evict.
	Evict func(ctx context.Context, task *Task, grace time.Duration, reason string) error
}

// ErrGone is the error of an action whose task no longer exists.
var ErrGone = cgroup.ErrGone

func (m *Metric) validateActions() error {
	limited := m.Limit != nil
	switch {
	case limited != (m.Actions.Throttle != nil) || limited != (m.Actions.Restore != nil):
		return plimsoll.Invalid("metric",
			"%s: Limit plans the limits that Actions.Throttle and Actions.Restore set; give all three, or none", m.Name)
	case limited && m.Limit.Throttle == nil && !m.PerTask:
		return plimsoll.Invalid("metric",
			"%s: a limit goes by the tasks' own values; set PerTask, or give Limit.Throttle", m.Name)
	case m.Actions.Evict != nil && !m.Evictable:
		return plimsoll.Invalid("metric", "%s: it has Actions.Evict and is not evictable; say that it is", m.Name)
	}
	return nil
}

// actor returns the user-defined metric whose functions do a step; nil if there is none.
func (l *Loop) actor(step *qos.Step) *Metric {
	i := slices.IndexFunc(l.cfg.Metrics, func(m Metric) bool { return m.Name == step.By() })
	if i < 0 {
		return nil
	}
	return &l.cfg.Metrics[i]
}

// find returns a copy of a task of the sample; nil if it is no longer there.
func (s *loopState) find(key qos.Key) *Task {
	i := slices.IndexFunc(s.tasks, func(t Task) bool { return t.Key() == key })
	if i < 0 {
		return nil
	}
	t := s.tasks[i]
	return &t
}

// limit changes a metric's own limit of a task in the background.
func (s *loopState) limit(ctx context.Context, l *Loop, step *qos.Step) {
	m, task := l.actor(step), s.find(step.Key())
	if m == nil || task == nil {
		l.background.release(step.Key())
		s.finish(l, step, cgroup.ErrGone)
		return
	}
	set := m.Actions.Throttle
	if step.Verb == qos.Restore {
		set = m.Actions.Restore
	}
	limit := math.Inf(1)
	if step.After >= 0 {
		limit = float64(step.After) / float64(m.LineScale())
	}
	l.background.start(ctx, *step, m.timeout(), func(ctx context.Context) (int64, error) {
		return 0, set(ctx, task, limit)
	})
}

// reassert sets the limits recorded by an earlier Run once more: the program that enforces them may
// have been started anew. A task has one such change under way at a time.
func (s *loopState) reassert(ctx context.Context, l *Loop, at int64) {
	if s.first {
		s.recorded = nil
		for _, key := range s.ledger.Held() {
			s.recorded = append(s.recorded, s.ledger.Limits(key, l.registry)...)
		}
	}
	s.recorded = slices.DeleteFunc(s.recorded, func(step qos.Step) bool {
		if s.find(step.Key()) == nil || l.actor(&step) == nil {
			return true
		}
		if !l.background.reserve(step.Key()) {
			return false
		}
		s.ledger.Begin(&step, at)
		s.limit(ctx, l, &step)
		return true
	})
}

// stop returns the function that stops a task for a step.
func (s *loopState) stop(l *Loop, step *qos.Step) func(ctx context.Context) error {
	m, task := l.actor(step), s.find(step.Key())
	if m != nil && m.Actions.Evict != nil && task != nil {
		return func(ctx context.Context) error { return m.Actions.Evict(ctx, task, step.Grace, step.Reason) }
	}
	return func(ctx context.Context) error {
		return l.deps.Evict(ctx, step.Task, step.Attempt, step.Grace, step.Reason)
	}
}
