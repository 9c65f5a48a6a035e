package nodeqos

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
)

// stall and stallWindow are how much waiting on the machine is a reason to sample at once. The kernel may allow only a wider window
// (cgroup.WatchMachinePressure).
const (
	stall       = 100 * time.Millisecond
	stallWindow = time.Second
)

// watchPressure wakes the loop when tasks of the machine wait for a resource. The machine's pressure is only a reason to look: what counts is that of the
// protected groups. Where the kernel has no triggers the loop samples at its intervals.
func (l *Loop) watchPressure(ctx context.Context, what cgroup.Resource) error {
	trigger, err := cgroup.WatchMachinePressure(l.cfg.Proc, cgroup.Watch{Resource: what, Kind: cgroup.Some, Stall: stall, Window: stallWindow})
	if err != nil {
		l.log.Debug("the kernel tells no pressure at once; it is read at every sample", "resource", string(what), "error", err)
		return nil
	}
	for {
		err := trigger.Wait(ctx)
		if err != nil {
			if err = errors.Join(ignoreEnd(ctx, err), trigger.Close()); err != nil {
				l.log.Warn("the kernel tells pressure no more at once; it is read at every sample", "resource", string(what), "error", err)
			}
			return nil
		}
		poke(l.wake)
	}
}

// ignoreEnd leaves out the error that only says that ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
