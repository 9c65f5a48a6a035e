package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
)

// Archive configures the archive of ended jobs. Its zero value is none.
type Archive struct {
	// Open opens the archive for writing. A term opens it beside its work, so an archive that
	// cannot be opened keeps nobody from leading. Nil: there is no archive.
	Open func(ctx context.Context) (archive.Writer, error)
	// Read opens it for reading, to find jobs that are to be deleted. Required with Open.
	Read func() archive.Reader
	// Retention bounds what the archive keeps.
	Retention archive.Retention
	// Accept is the id of an archive that is used in any case: it may lack jobs that have left the
	// store, and a later leader may have written it.
	Accept string
}

const (
	// archivePause is the pause before a round that would not be full. A Write costs as much as
	// some 20 jobs, and one more wait for the disk: few rounds cost less than early ones.
	archivePause   = 100 * time.Millisecond
	archiveWait    = time.Second      // pause of a round without work
	trimInterval   = 10 * time.Second // between two checks of the retention
	trimJobs       = 500              // jobs that one step of the retention removes
	archiveRounds  = 4                // rounds of which the engine may not know yet
	maxHeldRounds  = 128              // rounds that wait for the check of the archive; some 10 MiB of names
	maxDeletions   = 64               // deletions of archived jobs that may wait
	maxRepetitions = 1024             // tokens of such deletions that are remembered
)

// defaultArchivePauses are the pauses after errors of the archive.
var defaultArchivePauses = plimsoll.Backoff{First: time.Second, Longest: 30 * time.Second}

// archiver writes the jobs that have ended into the archive, in rounds, and tells the engine. It
// belongs to a term.
//
// A round takes jobs from one published snapshot, so everything in it is durable. The engine lets a
// job go only after Archived, which follows a Write that has returned. Each step can be repeated: a
// Write leaves out what is there, and Archived jobs that do not wait. So a crash between any two
// steps only repeats them. After an error the archiver closes the archive and begins anew with all
// ended jobs of the snapshot.
type archiver struct {
	cfg      *Archive
	pauses   plimsoll.Backoff
	epoch    uint64
	now      func() int64 // time of the term, as that of the ends of jobs; Unix nanoseconds
	snapshot func() *replica.Snapshot
	inbox    *inbox
	metrics  *archiveMetrics
	tell     func(trouble string)
	step     func(step ArchiveStep)

	most      int            // jobs that may wait before submits are refused
	ended     *keyList       // ids of jobs that have ended
	crowded   *keyList       // keys of tasks with attempts that leave their record
	dropped   uint64         // attempts that were dropped in this term; only note uses it
	rounds    chan struct{}  // a token for each round that the engine has not drained
	deletions chan *deletion // of jobs that the state does not know

	trouble string          // that the engine knows
	passed  bool            // the archive has passed its check in this term
	damaged bool            // it was found damaged, and has not passed a check since
	repeats deletedRecently // deletions of archived jobs that were done
	trimmed time.Time       // time of the last check of the retention; zero: there is more to remove
}

// ArchiveStep is a step of archiving.
type ArchiveStep string

// The steps, in their order.
const (
	StepOpened  ArchiveStep = "opened"  // the archive is open and this leader writes it
	StepWritten ArchiveStep = "written" // jobs or attempts are in the archive, before the engine is told
	StepTold    ArchiveStep = "told"    // a round is in the inbox of the engine
	StepDeleted ArchiveStep = "deleted" // jobs were deleted in the archive, before anybody is told
	StepTrimmed ArchiveStep = "trimmed" // the retention has removed jobs
)

func newArchiver(cfg *Config, t *term) *archiver {
	t.metrics.archive.setUp(false)
	return &archiver{
		cfg: &cfg.Archive, pauses: defaultArchivePauses, epoch: t.epoch, now: t.now, snapshot: t.source.Snapshot,
		inbox: t.inbox, metrics: t.metrics.archive, tell: cfg.Events.Archive, step: cfg.Events.ArchiveStep,
		most: t.engine.State().MaxToArchive(), ended: newKeyList(), crowded: newKeyList(),
		rounds:    make(chan struct{}, archiveRounds),
		deletions: make(chan *deletion, maxDeletions),
	}
}

// note notes the jobs of a published turn that have ended, and its tasks with many attempts.
func (a *archiver) note(b *engine.Batch) {
	if a == nil {
		return
	}
	a.metrics.attemptsDropped.Add(float64(b.Totals.AttemptsDropped - a.dropped))
	a.dropped = b.Totals.AttemptsDropped
	c := &b.Changes
	a.noteAttempts(c.Tasks)
	for i := range c.JobStatuses {
		if st := &c.JobStatuses[i]; slices.Contains(endedStates(), st.State) {
			a.ended.add(st.ID)
		}
	}
}

// run archives until ctx ends.
func (a *archiver) run(ctx context.Context) {
	for failures := 0; ; {
		began := time.Now()
		err := a.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > a.pauses.Longest {
			failures = 0
		}
		if plimsoll.CodeOf(err) == plimsoll.CodeCorrupt {
			a.passed, a.damaged = false, true
		}
		failures++
		a.metrics.failed()
		a.setTrouble(strings.ReplaceAll(err.Error(), "\n", "; "))
		a.wait(ctx, a.pauses.Jittered(failures, rand.Int64N), err)
	}
}

// setTrouble tells the engine why the archive takes no jobs; an empty text says that it takes them.
func (a *archiver) setTrouble(why string) {
	if why != a.trouble {
		a.trouble = why
		a.inbox.pushAlways(request{do: &engine.ArchiveTrouble{Why: why}, bytes: commandBytes + len(why)})
		a.tell(why)
	}
	a.metrics.setUp(why == "")
}

// wait waits, and refuses deletions meanwhile.
func (a *archiver) wait(ctx context.Context, pause time.Duration, why error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case d := <-a.deletions:
			d.done(plimsoll.Errorf(plimsoll.CodeUnavailable, "the archive cannot be changed now: %v", why))
		}
	}
}

// session opens the archive and works until there is an error or ctx ends.
func (a *archiver) session(ctx context.Context) (err error) {
	w, err := a.cfg.Open(ctx)
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	r := a.cfg.Read()
	defer func() { err = errors.Join(err, w.Close(), r.Close()) }()
	g, ctx := errgroup.WithContext(ctx)
	s := &archiveSession{archiver: a, writer: w, reader: r, checked: make(chan struct{}), scanning: true}
	if s.mark, err = s.fence(ctx); err != nil {
		return err
	}
	a.step(StepOpened)
	g.Go(func() error {
		if !a.passed {
			if err := w.Check(ctx); err != nil {
				return fmt.Errorf("check the archive: %w", err)
			}
		}
		close(s.checked)
		return nil
	})
	g.Go(func() error { return s.work(ctx) })
	return g.Wait() //nolint:wrapcheck // both say what they were doing
}
