package nodeqos

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// act carries out the plan. All steps are in the ledger, and the ledger is on disk, before the
// first step is done. If the process ends in between, the next one can give everything back.
func (s *loopState) act(ctx context.Context, l *Loop, at int64) {
	var steps []*qos.Step
	for i := range s.result.Steps {
		step := &s.result.Steps[i]
		if step.Preview {
			s.reporter.preview(step, s.now)
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
	// for all steps together, so that the next sample is on time
	soon, cancel := context.WithTimeout(ctx, l.cfg.interval()/2)
	defer cancel()
	for _, step := range steps {
		s.do(ctx, soon, l, step)
	}
	l.saveLedger(at)
}

// ready reports whether a step can be done as planned. A step that is not done is planned anew from
// the next sample.
func (s *loopState) ready(l *Loop, step *qos.Step) bool {
	switch {
	case step.OwnLimit, step.Verb == qos.Evict, step.Verb == qos.Reclaim:
		return l.background.reserve(step.Key())
	case step.Verb == qos.Freeze, step.Verb == qos.Thaw:
		return true
	}
	g := s.groups[step.Key()]
	if g == nil || g.control == nil {
		return true // the step will fail, with an event
	}
	if g.readAt == s.number {
		return true
	}
	quota, weight := g.quota, g.weight
	if err := g.read(s.number); err != nil {
		s.groupError(l, g, step.Key(), TroubleRead, err)
		return !g.gone
	}
	return quota == g.quota && weight == g.weight // otherwise another program has changed the group
}

// do does one step: an immediate one within soon, any other in the background.
func (s *loopState) do(ctx, soon context.Context, l *Loop, step *qos.Step) {
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

// change does an immediate step: any but stopping a task and reclaiming memory.
func (s *loopState) change(ctx context.Context, step *qos.Step) error {
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
	return plimsoll.Errorf(plimsoll.CodeInternal, "there is no way to %s a task", step.Verb)
}

// finish records the outcome of a step. A task that has gone meanwhile is no failure, and there is
// nothing to report.
func (s *loopState) finish(l *Loop, step *qos.Step, err error) {
	s.dirty = true
	at := l.at(l.deps.Now())
	if errors.Is(err, cgroup.ErrGone) {
		if g := s.groups[step.Key()]; g != nil && !g.gone {
			s.groupError(l, g, step.Key(), "", err)
		}
		s.ledger.Done(step, nil, at)
		return
	}
	s.ledger.Done(step, err, at)
	if err != nil {
		if step.Verb != qos.Thaw || s.reportStuck(l, step.Key()) {
			s.reporter.failed(l, step, err)
		}
		return
	}
	if !step.OwnLimit || step.Before != step.After { // otherwise the same limit was set once more
		s.reporter.done(l, step)
	}
}

// stuckAgain is the pause between two reports that a task cannot be thawed. Thawing is tried at
// each sample.
const stuckAgain = time.Minute

// reportStuck reports whether the failure to thaw a task is to be reported now.
func (s *loopState) reportStuck(l *Loop, key qos.Key) bool {
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

// thawFirst thaws a task before it is stopped, or before the loop ends.
func (s *loopState) thawFirst(l *Loop, key qos.Key, reason string) {
	step := &qos.Step{Verb: qos.Thaw, Task: key.Task, Attempt: key.Attempt, Reason: reason}
	s.finish(l, step, s.change(context.Background(), step))
}

// evict stops a task in the background.
func (s *loopState) evict(ctx context.Context, l *Loop, step *qos.Step) {
	key := step.Key()
	if s.ledger.FrozenUntil(key) != 0 {
		s.thawFirst(l, key, "it is being stopped, and must hear that")
	}
	s.evicting[key] = true
	s.reporter.done(l, step)
	stop := s.stop(l, step)
	l.background.start(ctx, *step, step.Grace+evictTime, func(ctx context.Context) (int64, error) {
		return 0, stop(ctx)
	})
}

// reclaim asks the kernel for memory in the background, since it may take its time.
func (s *loopState) reclaim(ctx context.Context, l *Loop, step *qos.Step) {
	g := s.groups[step.Key()]
	if g == nil || g.control == nil {
		l.background.release(step.Key())
		s.finish(l, step, s.change(ctx, step))
		return
	}
	control, bytes := g.control, step.Bytes
	l.background.start(ctx, *step, qos.ReclaimTime, func(ctx context.Context) (int64, error) {
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

// collectFinished records the outcomes of background steps. A step that failed because ctx has
// ended is not recorded as a failure.
func (l *Loop) collectFinished(ctx context.Context) {
	s := &l.state
	s.Lock()
	defer s.Unlock()
	for _, e := range l.background.take() {
		if ctx.Err() != nil && e.err != nil {
			continue // its outcome is unknown
		}
		if e.step.Verb == qos.Evict {
			s.evicted(l, &e)
			continue
		}
		e.step.Bytes = e.freed
		s.finish(l, &e.step, e.err)
	}
	l.saveLedger(l.at(l.deps.Now()))
	s.reporter.flush(l, s)
}

func (s *loopState) evicted(l *Loop, e *finished) {
	s.dirty = true
	s.ledger.Done(&e.step, e.err, l.at(l.deps.Now()))
	if e.err != nil {
		delete(s.evicting, e.step.Key())
		s.reporter.failed(l, &e.step, e.err)
	}
}
