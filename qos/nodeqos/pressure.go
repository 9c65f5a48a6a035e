package nodeqos

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// stall and stallWindow are the amount of waiting on the machine that asks for a sample at once.
// The kernel may allow only a wider window (cgroup.WatchMachinePressure).
const (
	stall       = 100 * time.Millisecond
	stallWindow = time.Second
)

// watchPressure wakes the loop when tasks of the machine wait for a resource, as long as some rule
// asks for pressure. The machine's pressure only asks for a sample; the pressure of the protected
// groups decides. On kernels without triggers the loop samples at its intervals.
func (l *Loop) watchPressure(ctx context.Context, what cgroup.Resource) error {
	for {
		changed := l.changed.wait()
		if _, asked := l.currentPolicies(); asked && !l.awaitPressure(ctx, what) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// awaitPressure keeps a trigger until no rule asks for pressure any more. It returns false if
// triggers do not work, or ctx has ended.
func (l *Loop) awaitPressure(ctx context.Context, what cgroup.Resource) bool {
	trigger, err := cgroup.WatchMachinePressure(
		l.cfg.Proc, cgroup.Watch{Resource: what, Kind: cgroup.Some, Stall: stall, Window: stallWindow},
	)
	if err != nil {
		l.deps.Events.Trouble(Trouble{Kind: TroubleNoPressure, Resource: string(what), Err: err})
		return false
	}
	for {
		if err = trigger.Wait(ctx); err != nil {
			break
		}
		if _, asked := l.currentPolicies(); !asked {
			break
		}
		signal(l.wake)
	}
	if closeErr := errors.Join(ignoreEnd(ctx, err), trigger.Close()); closeErr != nil {
		l.deps.Events.Trouble(Trouble{Kind: TroublePressureEnded, Resource: string(what), Err: closeErr})
	}
	return err == nil
}

// ignoreEnd returns nil if ctx has ended: the error says nothing else.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
