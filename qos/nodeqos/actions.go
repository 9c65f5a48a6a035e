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

// Actions are what a Go program does itself about a task for a metric of its own. They are called
// beside the loop, for several tasks at once but for one task one after the other, and must end
// with ctx. An error is told, and the task is left alone for a while; ErrGone is no error.
type Actions struct {
	// Throttle holds a task to a limit in the metric's unit, and Restore to a higher one;
	// math.Inf(1) is none. Both go with qos.Metric.Limit, which plans the limits. They have
	// Metric.Timeout. A limit may be set again: after a failure, and when the loop is started anew.
	Throttle func(ctx context.Context, task *Task, limit float64) error
	Restore  func(ctx context.Context, task *Task, limit float64) error
	// Evict stops a task for this metric. It has the grace and half a minute. nil: Deps.Evict.
	Evict func(ctx context.Context, task *Task, grace time.Duration, reason string) error
}

// ErrGone is the error of an action whose task does not exist any more.
var ErrGone = cgroup.ErrGone

func (m *Metric) validateActions() error {
	limited := m.Limit != nil
	switch {
	case limited != (m.Actions.Throttle != nil) || limited != (m.Actions.Restore != nil):
		return plimsoll.Invalid("metric",
			"%s: Limit plans what Actions.Throttle and Actions.Restore do; give all three, or none", m.Name)
	case limited && m.Limit.Throttle == nil && !m.PerTask:
		return plimsoll.Invalid("metric",
			"%s: a limit goes by the tasks' own values; set PerTask, or give Limit.Throttle", m.Name)
	case m.Actions.Evict != nil && !m.Evictable:
		return plimsoll.Invalid("metric", "%s: it has Actions.Evict and is not evictable; say that it is", m.Name)
	}
	return nil
}

// actor returns the user-defined metric by whose functions a step is done; nil if there is none.
func (l *Loop) actor(step *qos.Step) *Metric {
	i := slices.IndexFunc(l.cfg.Metrics, func(m Metric) bool { return m.Name == step.By() })
	if i < 0 {
		return nil
	}
	return &l.cfg.Metrics[i]
}

// find returns a copy of a task of the sample; nil if it is not there any more.
func (s *state) find(key qos.Key) *Task {
	i := slices.IndexFunc(s.tasks, func(t Task) bool { return t.Key() == key })
	if i < 0 {
		return nil
	}
	t := s.tasks[i]
	return &t
}

// limit has a metric's own limit of a task changed, beside the loop.
func (s *state) limit(ctx context.Context, l *Loop, step *qos.Step) {
	m, task := l.actor(step), s.find(step.Key())
	if m == nil || task == nil {
		l.errands.drop(step.Key())
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
	l.errands.start(ctx, *step, m.timeout(), func(ctx context.Context) (int64, error) {
		return 0, set(ctx, task, limit)
	})
}

// reassert sets the limits of metrics' own once more that an earlier Run has recorded: the program
// that keeps them may have been started anew. One change of a task is under way at a time.
func (s *state) reassert(ctx context.Context, l *Loop, at int64) {
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
		if !l.errands.room(step.Key()) {
			return false
		}
		s.ledger.Begin(&step, at)
		s.limit(ctx, l, &step)
		return true
	})
}

// stop returns the function that stops a task for a step.
func (s *state) stop(l *Loop, step *qos.Step) func(ctx context.Context) error {
	m, task := l.actor(step), s.find(step.Key())
	if m != nil && m.Actions.Evict != nil && task != nil {
		return func(ctx context.Context) error { return m.Actions.Evict(ctx, task, step.Grace, step.Reason) }
	}
	return func(ctx context.Context) error {
		return l.deps.Evict(ctx, step.Task, step.Attempt, step.Grace, step.Reason)
	}
}
