package coordinator

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

const (
	diskInterval = time.Second // between two looks at the disk
	// readFor is how long a term only reads before the store is opened for writing again with less
	// free than there should be.
	readFor = time.Minute
)

// noSpace reports whether something failed because the disk is full.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// diskWatch tells the engine of a term when the disk of the store has no room for more state.
type diskWatch struct {
	measure func() (disk.Space, error) // nil: it is not known, and there is room
	tell    func(shortage string)
	inbox   *inbox
	gate    disk.Gate
	told    string // shortage that the engine knows of
}

func newDiskWatch(cfg *Config, to *inbox) *diskWatch {
	return &diskWatch{measure: cfg.Disk, tell: cfg.Events.Disk, inbox: to}
}

// look returns what is missing; empty: nothing. ok is false if that is not known.
func (w *diskWatch) look() (shortage string, ok bool) {
	if w.measure == nil {
		return "", true
	}
	space, err := w.measure()
	if err != nil {
		return "", false
	}
	if !w.gate.Shut(space) {
		return "", true
	}
	return fmt.Sprintf("%s (the smaller of 5%% and 2Gi), so nothing is taken in that makes the state larger: free some, or give it a larger disk; "+
		"it is taken again with %s, and kills and reports go on", space.Shortage(), space.Enough()), true
}

// first looks before the first turn.
func (w *diskWatch) first(s *state.State) error {
	shortage, ok := w.look()
	if !ok {
		return nil // the next look may tell more
	}
	s.SetShortage(shortage)
	w.note(shortage)
	return nil
}

// note remembers what the engine knows, and tells whoever runs this process if it has begun or
// ended.
func (w *diskWatch) note(shortage string) {
	if (shortage == "") != (w.told == "") {
		w.tell(shortage)
	}
	w.told = shortage
}

// run looks every second until ctx ends.
func (w *diskWatch) run(ctx context.Context) {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if shortage, ok := w.look(); ok && shortage != w.told {
			w.inbox.insist(request{do: &engine.DiskShortage{Why: shortage}})
			w.note(shortage)
		}
	}
}

// readOn serves what a store holds that cannot be written, because of cause, until there is reason
// to try again. It returns an error if the store cannot be read either and that lasts.
func (c *Coordinator) readOn(ctx context.Context, cause error) (err error) {
	st, err := c.cfg.OpenReadOnly(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if lasts(err) {
			return errors.Join(cause, err)
		}
		pause := c.pauses.failure.Longest
		c.status.failed(err, pause, time.Now())
		c.cfg.Events.Failed(err, pause)
		sleep(ctx, pause)
		return nil
	}
	defer func() {
		if closeErr := st.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close the store that was only read: %w", closeErr))
		}
	}()
	c.status.loading()
	epoch, err := st.Lead(ctx)
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	t, err := c.enter(ctx, st, max(epoch, c.seen+1))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	t.refuses = &plimsoll.Error{Code: plimsoll.CodeUnavailable, Msg: c.full()}
	c.status.reading(t, cause)
	c.cfg.Events.Reading(cause)
	t.read(ctx, c.tryAgain())
	c.status.ended()
	return nil
}

// tryAgain returns what says, after so long, whether the store may be opened for writing again: as
// soon as there is as much room as there should be; and after a minute if there is some, or if the
// measure says nothing, as with a quota.
func (c *Coordinator) tryAgain() func(after time.Duration) bool {
	measure := func() (free, least int64, ok bool) {
		if c.cfg.Disk == nil {
			return 0, 0, false
		}
		space, err := c.cfg.Disk()
		return space.Free, space.Least(), err == nil && space.Size > 0
	}
	free, least, ok := measure()
	blind := !ok || free >= least
	return func(after time.Duration) bool {
		free, least, ok := measure()
		switch {
		case blind || !ok:
			return after >= readFor
		case free >= least:
			return true
		}
		return after >= readFor && free >= least/8
	}
}

// full says why nothing can be written.
func (c *Coordinator) full() string {
	text := "there is no space left on the disk of the store"
	if c.cfg.Disk != nil {
		if space, err := c.cfg.Disk(); err == nil {
			text = "the disk of " + space.Path + " is full"
		}
	}
	return text + ", so nothing can be written: free some space and try again; reads are answered, and nothing that was acknowledged is lost"
}

// read answers reads and questions until enough says so, or ctx ends.
func (t *term) read(ctx context.Context, enough func(after time.Duration) bool) {
	began := time.Now()
	ctx, end := context.WithCancel(ctx)
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	for range t.workers {
		g.Go(func() error {
			t.questions.work(ctx)
			return nil
		})
	}
	g.Go(func() error {
		defer t.source.Close(nil)
		ticker := time.NewTicker(diskInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				if enough(time.Since(began)) {
					end()
				}
			case <-t.inbox.wake:
				t.copyUnchanged()
			}
		}
	})
	_ = g.Wait() // nothing in it fails
}

// copyUnchanged makes a copy for questions of a state that no turn changes.
func (t *term) copyUnchanged() {
	c := t.questions.begin(t.engine)
	if c == nil {
		return
	}
	for t.questions.proceed() {
	}
	t.questions.published(c, t.source.Snapshot())
}
