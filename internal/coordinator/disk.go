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
	diskInterval = time.Second // interval between two measurements of the disk
	// readFor is the time after which a read-only term ends even if the disk has less free space
	// than it should.
	readFor = time.Minute
)

// noSpace reports whether an error says that the disk is full.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// diskWatch tells the engine of a term when the disk of the store has no room for more records, and
// when it has room again.
type diskWatch struct {
	measure func() (disk.Space, error) // nil: the disk is assumed to have room
	tell    func(shortage string)
	inbox   *inbox
	gate    disk.Gate
	known   string // shortage that the engine knows; empty: none
}

func newDiskWatch(cfg *Config, to *inbox) *diskWatch {
	return &diskWatch{measure: cfg.Disk, tell: cfg.Events.Disk, inbox: to}
}

// shortage measures the disk and returns a text about the missing space; empty if there is room. ok
// is false if the disk could not be measured.
func (w *diskWatch) shortage() (shortage string, ok bool) {
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

// first sets the shortage before the first turn.
func (w *diskWatch) first(s *state.State) error {
	shortage, ok := w.shortage()
	if !ok {
		return nil // a later measurement may succeed
	}
	s.SetShortage(shortage)
	w.note(shortage)
	return nil
}

// note remembers the shortage that the engine knows. It calls Events.Disk when a shortage begins or
// ends.
func (w *diskWatch) note(shortage string) {
	if (shortage == "") != (w.known == "") {
		w.tell(shortage)
	}
	w.known = shortage
}

// run measures the disk every second until ctx ends.
func (w *diskWatch) run(ctx context.Context) {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if shortage, ok := w.shortage(); ok && shortage != w.known {
			w.inbox.pushAlways(request{do: &engine.DiskShortage{Why: shortage}})
			w.note(shortage)
		}
	}
}

// serveReadOnly runs a read-only term, because of cause, until a term that leads may be tried
// again. It returns an error if the store can permanently not be read either.
func (c *Coordinator) serveReadOnly(ctx context.Context, cause error) (err error) {
	st, err := c.cfg.OpenReadOnly(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if permanent(err) {
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
	epoch, err := st.Lead(ctx, nil)
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	t, err := c.enter(ctx, st, stored{read: st.Load}, max(epoch, c.lastEpoch+1))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	t.refusal = &plimsoll.Error{Code: plimsoll.CodeUnavailable, Msg: c.fullDiskText()}
	c.status.reading(t, cause)
	c.cfg.Events.Reading(cause)
	t.serveReads(ctx, c.writeRetry())
	t.reads.end()
	c.status.starting()
	return nil
}

// writeRetry returns a function that reports, after a time of reading, whether the store may be
// opened for writing again. That is as soon as the disk has the least free space. It is after a
// minute if the disk has some space, or if the measurement says nothing, as with a quota.
func (c *Coordinator) writeRetry() func(after time.Duration) bool {
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

// fullDiskText returns the message for commands that are refused because of a full disk.
func (c *Coordinator) fullDiskText() string {
	text := "there is no space left on the disk of the store"
	if c.cfg.Disk != nil {
		if space, err := c.cfg.Disk(); err == nil {
			text = "the disk of " + space.Path + " is full"
		}
	}
	return text + ", so nothing can be written: free some space and try again; reads are answered, and nothing that was acknowledged is lost"
}

// serveReads answers reads and questions until enough returns true or ctx ends.
func (t *term) serveReads(ctx context.Context, enough func(after time.Duration) bool) {
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
	g.Go(func() error { return t.proofs.run(ctx) })
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
	_ = g.Wait() // at most a proof failed; the next term finds out whether the store can be used
}

// copyUnchanged makes a copy for questions in a read-only term, which makes no turns.
func (t *term) copyUnchanged() {
	c := t.questions.begin(t.engine)
	if c == nil {
		return
	}
	for t.questions.proceed() {
	}
	t.questions.published(c, t.source.Snapshot())
}
