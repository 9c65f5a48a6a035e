package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// errSeen ends a watch after the first round.
var errSeen = errors.New("seen")

// Retire ends the supervisor if no attempt runs, and returns the number of running attempts. The
// caller must make sure that no other process starts attempts in the directory. Retire returns when
// the supervisor has released its directory, or ctx ends.
func (c *Client) Retire(ctx context.Context) (running int, err error) {
	err = c.Watch(ctx, func(attempts []Status, snapshotEnd bool) error {
		for i := range attempts {
			if !attempts[i].Ended() {
				running++
			}
		}
		if snapshotEnd {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		return 0, err
	}
	if running > 0 {
		return running, nil
	}
	// The capabilities are read anew, because another supervisor may have replaced the one of
	// Connect.
	var now Capabilities
	if _, err := readJSON(filepath.Join(c.cfg.Dir, supervisorFile), &now); err != nil {
		return 0, err
	}
	if now.PID <= 1 { // a signal to 0 or less would reach a group, or every process
		return 0, plimsoll.Errorf(
			plimsoll.CodeCorrupt, "%s does not say which process the supervisor is; end it by hand",
			filepath.Join(c.cfg.Dir, supervisorFile),
		)
	}
	if err := syscall.Kill(now.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return 0, fmt.Errorf("end the supervisor: %w", err)
	}
	tick := time.NewTicker(connectEvery)
	defer tick.Stop()
	for {
		held, err := lockHeld(filepath.Join(c.cfg.Dir, supervisorLock))
		if err != nil || !held {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for the supervisor to end: %w", ctx.Err())
		case <-tick.C:
			c.reapLast()
		}
	}
}
