package nodeqos

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// act does what was planned. All steps are noted, and the ledger is on disk, before the first of
// them is done: whatever happens to this process in between, the next one knows what to give back.
func (s *state) act(ctx context.Context, l *Loop, at int64) {
	var steps []*qos.Step
	for i := range s.result.Steps {
		step := &s.result.Steps[i]
		if step.Preview {
			s.voice.preview(step, s.now)
			continue
		}
		if !s.ready(l, step) {
			continue
		}
		s.ledger.Begin(step, at)
		s.dirty = true
		steps = append(steps, step)
	}
	l.saveLedger(at)
	soon, cancel := context.WithTimeout(ctx, l.cfg.interval()/2) // for all of them: the next sample is to be on time
	defer cancel()
	for _, step := range steps {
		s.do(ctx, soon, l, step)
	}
	l.saveLedger(at)
}

// ready reports whether a step can be done as it was planned. What is not done is planned anew from
// the next sample.
func (s *state) ready(l *Loop, step *qos.Step) bool {
	switch {
	case step.OwnLimit, step.Verb == qos.Evict, step.Verb == qos.Reclaim:
		return l.errands.room(step.Key())
	case step.Verb == qos.Freeze, step.Verb == qos.Thaw:
		return true
	}
	g := s.groups[step.Key()]
	if g == nil || g.control == nil {
		return true // the error is told
	}
	if g.readAt == s.number {
		return true
	}
	quota, weight := g.quota, g.weight
	if err := g.read(s.number); err != nil {
		s.lose(l, g, step.Key(), TroubleRead, err)
		return !g.gone
	}
	return quota == g.quota && weight == g.weight // else somebody else has changed it since it was read
}

// do does one step: what is over at once within soon, the rest beside the loop.
func (s *state) do(ctx, soon context.Context, l *Loop, step *qos.Step) {
	switch {
	case step.OwnLimit:
		s.limit(ctx, l, step)
		return
	case step.Verb == qos.Evict:
		s.evict(ctx, l, step)
		return
	case step.Verb == qos.Reclaim:
		s.reclaim(ctx, l, step)
		return
	}
	s.finish(l, step, s.change(soon, step))
}

// change does a step that is over when it returns: everything but stopping a task and reclaiming
// memory.
func (s *state) change(ctx context.Context, step *qos.Step) error {
	g := s.groups[step.Key()]
	switch {
	case g == nil || g.gone:
		return cgroup.ErrGone
	case g.control == nil:
		return errNoGroup
	}
	switch step.Verb {
	case qos.Throttle, qos.Restore:
		return g.setQuota(step.After)
	case qos.Reweight, qos.Unweight:
		return g.setWeight(step.NewWeight)
	case qos.Freeze:
		return g.freeze(ctx)
	case qos.Thaw:
		return g.thaw()
	}
	return plimsoll.Errorf(plimsoll.CodeInternal, "nobody knows how to %s a task", step.Verb)
}

// finish notes how a step ended. A task that has gone meanwhile is no failure: there is nothing
// left to act on, nor to tell.
func (s *state) finish(l *Loop, step *qos.Step, err error) {
	s.dirty = true
	at := l.at(l.deps.Now())
	if errors.Is(err, cgroup.ErrGone) {
		if g := s.groups[step.Key()]; g != nil && !g.gone {
			s.lose(l, g, step.Key(), "", err)
		}
		s.ledger.Done(step, nil, at)
		return
	}
	s.ledger.Done(step, err, at)
	if err != nil {
		if step.Verb != qos.Thaw || s.stuck(l, step.Key()) {
			s.voice.failed(l, step, err)
		}
		return
	}
	if !step.OwnLimit || step.Before != step.After { // else it was set once more
		s.voice.done(l, step)
	}
}

// stuckAgain is after how long it is told once more that a task cannot be thawed. That is tried at
// each sample.
const stuckAgain = time.Minute

// stuck reports whether it is to be told that a task cannot be thawed.
func (s *state) stuck(l *Loop, key qos.Key) bool {
	g, now := s.groups[key], l.deps.Now()
	if g == nil {
		return true
	}
	if now.Sub(g.stuckAt) < stuckAgain {
		return false
	}
	g.stuckAt = now
	return true
}

// thawFirst lets a task go on before it is stopped, or before the loop ends.
func (s *state) thawFirst(l *Loop, key qos.Key, reason string) {
	step := &qos.Step{Verb: qos.Thaw, Task: key.Task, Attempt: key.Attempt, Reason: reason}
	s.finish(l, step, s.change(context.Background(), step))
}

// evict has a task stopped, beside the loop.
func (s *state) evict(ctx context.Context, l *Loop, step *qos.Step) {
	key := step.Key()
	if s.ledger.FrozenUntil(key) != 0 {
		s.thawFirst(l, key, "it is being stopped, and must hear that")
	}
	s.evicting[key] = true
	s.voice.done(l, step)
	stop := s.stop(l, step)
	l.errands.start(ctx, *step, step.Grace+evictTime, func(ctx context.Context) (int64, error) { return 0, stop(ctx) })
}

// reclaim asks the kernel for memory, beside the loop: it may take its time.
func (s *state) reclaim(ctx context.Context, l *Loop, step *qos.Step) {
	g := s.groups[step.Key()]
	if g == nil || g.control == nil {
		l.errands.drop(step.Key())
		s.finish(l, step, s.change(ctx, step))
		return
	}
	control, bytes := g.control, step.Bytes
	l.errands.start(ctx, *step, qos.ReclaimTime, func(ctx context.Context) (int64, error) {
		freed, err := control.Reclaim(ctx, bytes)
		if errors.Is(err, cgroup.ErrUnsupported) { // v1 can only take all page cache, which does no harm
			freed, err = control.Reclaim(ctx, cgroup.Everything)
		}
		if plimsoll.CodeOf(err) == plimsoll.CodeDeadline && freed > 0 {
			err = nil
		}
		return freed, err
	})
}

// collectErrands notes how what was done beside the loop has ended. What was given up because ctx
// has ended is noted as nothing.
func (l *Loop) collectErrands(ctx context.Context) {
	s := &l.state
	s.Lock()
	defer s.Unlock()
	for _, e := range l.errands.take() {
		if ctx.Err() != nil && e.err != nil {
			continue // it was given up, so nothing is known of it
		}
		if e.step.Verb == qos.Evict {
			s.evicted(l, &e)
			continue
		}
		e.step.Bytes = e.freed
		s.finish(l, &e.step, e.err)
	}
	l.saveLedger(l.at(l.deps.Now()))
	s.voice.flush(l, s)
}

func (s *state) evicted(l *Loop, e *errand) {
	s.dirty = true
	s.ledger.Done(&e.step, e.err, l.at(l.deps.Now()))
	if e.err != nil {
		delete(s.evicting, e.step.Key())
		s.voice.failed(l, &e.step, e.err)
	}
}
