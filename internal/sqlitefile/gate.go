package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// gate is the lock of an empty file beside the database. The owner shuts it while it empties the
// log. Otherwise readers that follow on each other would keep it from that: there would always be
// one in the log. Answers under way go on. New ones wait at the gate, for the rest of their time at
// most.
type gate struct {
	kind Kind
	file *os.File      // nil: the file has no gate, and is always open
	wait time.Duration // how long shut waits for processes that pass
}

const (
	gateSuffix = "-gate"
	// gatePause is the time between two looks at a gate that is shut.
	gatePause = 2 * time.Millisecond
)

// openGate opens the gate of the file at a path. With write it makes one that is not there.
func (k Kind) openGate(path string, write bool) (gate, error) {
	flags := os.O_RDONLY
	if write {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(path+gateSuffix, flags, fileMode)
	if err != nil && !write && errors.Is(err, os.ErrNotExist) {
		return gate{}, nil // as a file that was restored without it
	}
	if err != nil {
		return gate{}, fmt.Errorf("open the gate of the %s: %w", k.Noun, err)
	}
	return gate{k, file, busyTimeout}, nil
}

func (g gate) close() error {
	if g.file == nil {
		return nil
	}
	return g.file.Close() //nolint:wrapcheck // it names the file
}

// lock takes the lock, or waits for it until the context ends.
func (g gate) lock(ctx context.Context, how int) error {
	for {
		err := syscall.Flock(int(g.file.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", g.file.Name(), err)
		default:
			if err := g.pause(ctx); err != nil {
				return err
			}
		}
	}
}

// pause waits for a gatePause.
func (g gate) pause(ctx context.Context) error {
	timer := time.NewTimer(gatePause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return g.kind.Ended(ctx)
	case <-timer.C:
		return nil
	}
}

func (g gate) unlock() error {
	if err := syscall.Flock(int(g.file.Fd()), syscall.LOCK_UN); err != nil {
		return fmt.Errorf("unlock %s: %w", g.file.Name(), err)
	}
	return nil
}

// pass waits while the gate is shut.
func (g gate) pass(ctx context.Context) error {
	if g.file == nil {
		return nil
	}
	if err := g.lock(ctx, syscall.LOCK_SH); err != nil {
		return err
	}
	return g.unlock()
}

// errGateHeld says that the gate could not be shut: passing it takes no time, so a process stands
// still in it.
var errGateHeld = errors.New("a process holds the gate of the file")

// shut runs do while the gate is shut. It fails with errGateHeld if it cannot shut it in time.
func (g gate) shut(ctx context.Context, do func() error) error {
	limited, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	err := g.lock(limited, syscall.LOCK_EX)
	switch {
	case err == nil:
		return errors.Join(do(), g.unlock())
	case limited.Err() != nil && ctx.Err() == nil:
		return errGateHeld
	}
	return err
}
