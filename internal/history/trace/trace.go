package trace

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// Bounds of one window.
const (
	MaxTasks    = 1_000_000
	MaxAttempts = 2_000_000
	MaxStates   = 1_000_000 // of all nodes, and of all queues
)

// Query chooses a window.
type Query struct {
	// Since returns the beginning of the window, for the time of the newest event.
	Since func(newest time.Time) (time.Time, error)
	Span  time.Duration // of the window; 0: up to the newest event
}

// Trace is a window of a history.
type Trace struct {
	From, Until int64 // Unix nanoseconds
	Workload    *simulate.Workload
	// Queues is the tree of all queues of the window, with their resources at its beginning;
	// Changes are later resources.
	Queues  plimsoll.QueueConfig
	Changes []simulate.QueueChange
	Counts  Counts
}

// Counts says what is not as it was, and how much of it there is.
type Counts struct {
	RanBefore    int // tasks that ran at the beginning
	WaitedBefore int // tasks that waited at the beginning
	Unfinished   int // tasks that ran at the end
	Waiting      int // tasks that waited at the end
	Killed       int // tasks that were stopped while they ran
	Interrupted  int // attempts that ended with their node
	Again        int // attempts behind another one
	Refused      int // jobs that were refused
	Gaps         int
	InGaps       int           // tasks that came, began or ended in a gap
	GapTime      time.Duration // of all gaps
	NoOwner      int           // jobs without a known owner
	NoQueue      int           // jobs whose queue is no leaf, or is not known
	Strange      int           // events that cannot be after those before them
	Shortened    bool          // the history knows less than was asked for
}

// Read reads a window.
func Read(ctx context.Context, r history.Reader, q Query) (*Trace, error) {
	status, err := r.Status(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	if status.Events == 0 {
		return nil, plimsoll.Errorf(plimsoll.CodeNotFound, "the history has no events yet")
	}
	since, err := q.Since(time.Unix(0, status.Newest))
	if err != nil {
		return nil, err
	}
	from, until := since.UnixNano(), status.Newest+1
	if from >= until {
		return nil, plimsoll.Invalid("history", "begins at %s, and the newest event is of %s; begin earlier",
			clock(from), clock(status.Newest))
	}
	t := &Trace{}
	if least := max(status.Since, status.Oldest); from < least {
		from, t.Counts.Shortened = least, true
	}
	if q.Span > 0 && q.Span < time.Duration(until-from) {
		until = from + int64(q.Span)
	}
	p := newReading(t, r, until)
	if q.Span == 0 {
		p.end = status.Position
	}
	known, moment, err := p.firstKnown(ctx, from)
	if err != nil {
		return nil, err
	}
	t.Counts.Shortened = t.Counts.Shortened || known > from
	t.From, t.Until, p.now = known, until, known
	p.enter(moment)
	p.behind = history.Position{} // the first event is any that is later
	if err := p.follow(ctx); err != nil {
		return nil, err
	}
	t.Until = max(t.Until, p.now+1)
	p.finish()
	return t, nil
}

func clock(nanos int64) string { return time.Unix(0, nanos).UTC().Format(time.RFC3339) }
