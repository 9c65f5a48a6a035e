package historian

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/history/fold"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

const (
	// flushAfter is the longest time that an event waits for others of its batch.
	flushAfter = 200 * time.Millisecond
	// maxBatchBytes bounds the events of a batch, by eventBytes. The fold makes at most half of
	// history.MaxWriteBytes of them.
	maxBatchBytes = history.MaxWriteBytes / 4
	// checkpointEvents and checkpointAfter are the distances of the stored states of the fold: a
	// question about the past replays at most so many events.
	checkpointEvents = 100_000
	checkpointAfter  = 10 * time.Minute
	// trimEvery is the interval at which old events are removed, and trimPause the time between two
	// steps.
	trimEvery = time.Minute
	// writeTimeout bounds the time of a write.
	writeTimeout = 30 * time.Second
)

// session is one run of the writer, from the position in the file on.
type session struct {
	h       *Historian
	w       history.Writer
	fold    *fold.Fold // nil: the history has no events yet
	at      history.Position
	newest  int64 // time of the last event; Unix nanoseconds
	encoder ring.Encoder

	waiting   []plimsoll.Event // to be written, with ids from at.Next on
	bytes     int64            // of waiting
	gap       *history.Gap     // before the first of them
	unsaved   int              // events since the last stored state of the fold
	saved     time.Time        // when it was stored
	lastTrim  time.Time
	trimAgain bool
	failed    error // of a write, behind which the session ends
}

// resume reads where to go on, and the fold there.
func (s *session) resume(ctx context.Context) error {
	at, err := s.w.Position(ctx)
	if err != nil {
		return err
	}
	state, behind, replay, err := s.w.Resume(ctx)
	if err != nil {
		return err
	}
	s.at, s.saved, s.lastTrim = at, s.h.cfg.Now(), s.h.cfg.Now()
	if at.Instance == "" {
		return nil
	}
	s.fold, err = replayed(ctx, state, replay, math.MaxInt64, func(run *history.Events) {
		s.unsaved += int(run.Count)
		s.newest = run.To
		behind = history.Position{Instance: run.Instance, Next: run.First + run.Count}
	})
	if err != nil {
		return err
	}
	s.newest = s.fold.Time()
	if behind != at {
		return plimsoll.Errorf(plimsoll.CodeCorrupt, "the history ends at event %d of %s, and its position is %d of %s",
			behind.Next, behind.Instance, at.Next, at.Instance)
	}
	return nil
}

// run writes what arrives until writing fails or ctx ends.
func (s *session) run(ctx context.Context, pages <-chan client.EventPage, room *room) error {
	flush := time.NewTimer(time.Hour)
	defer flush.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var err error
		select {
		case p, open := <-pages:
			if !open {
				return s.finish(ctx)
			}
			if len(s.waiting) == 0 {
				flush.Reset(flushAfter)
			}
			err = s.take(ctx, &p)
			room.giveBack(pageBytes(&p))
		case <-flush.C:
			err = s.write(ctx)
		case <-tick.C:
			err = s.keepHouse(ctx)
		case <-ctx.Done():
			return s.finish(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return s.finish(ctx)
		case err != nil:
			return err
		}
	}
}

// finish stores what has arrived when the historian is told to stop. Behind a failure nothing is
// written: the fold has taken events that the file may not have.
func (s *session) finish(ctx context.Context) error {
	if s.failed != nil {
		return s.failed
	}
	return s.write(ctx)
}

// take adds the events of a page, and writes what is enough for a batch.
func (s *session) take(ctx context.Context, p *client.EventPage) error {
	for i := range p.Records {
		r := &p.Records[i]
		next := s.at.Next + uint64(len(s.waiting))
		if p.InstanceUUID == s.at.Instance && r.ID < next {
			continue // it was taken before a break
		}
		if p.InstanceUUID != s.at.Instance || r.ID != next {
			if err := s.write(ctx); err != nil {
				return err
			}
			if err := s.begin(ctx, p.InstanceUUID, r); err != nil {
				return err
			}
		}
		n := eventBytes(&r.Event)
		if len(s.waiting) == history.MaxWriteEvents || len(s.waiting) > 0 && s.bytes+n > maxBatchBytes {
			if err := s.write(ctx); err != nil {
				return err
			}
		}
		s.waiting, s.bytes = append(s.waiting, r.Event), s.bytes+n
	}
	return nil
}

// keepHouse does what is to be done now and then.
func (s *session) keepHouse(ctx context.Context) error {
	now := s.h.cfg.Now()
	if !s.trimAgain && now.Sub(s.lastTrim) < trimEvery {
		return nil
	}
	more, err := s.w.Trim(ctx, s.h.cfg.Keep, now.UnixNano())
	if err != nil {
		return fmt.Errorf("remove old events: %w", err)
	}
	s.lastTrim, s.trimAgain = now, more
	return nil
}

// begin prepares for an event that does not follow the one before: there is a gap. The fold goes on
// from the lists, which are read after the event has come.
func (s *session) begin(ctx context.Context, instance string, r *client.EventRecord) error {
	was := s.at
	gap := &history.Gap{Instance: instance, From: s.newest, To: r.Event.Time}
	snapshot := fold.NewSnapshot()
	if beginsStore(r) {
		gap.Reason = "The store was replaced by a new one."
	} else {
		gap.Reason = "Events were lost, or counted anew, before the history had them."
		if err := s.h.list(ctx, snapshot); err != nil {
			return err
		}
	}
	switch {
	case was.Instance == "" && beginsStore(r):
		s.fold, gap = fold.New(), nil
	case was.Instance == "":
		gap.Next, gap.Reason = r.ID, "The history began later."
		s.fold = fold.Begin(snapshot, r.Event.Time)
	default:
		if was.Instance == instance {
			gap.First, gap.Next, gap.Reason = was.Next, r.ID, "The gateway no longer had the events."
		}
		s.fold.Gap(snapshot, r.Event.Time)
	}
	s.at, s.gap = history.Position{Instance: instance, Next: r.ID}, gap
	if gap != nil {
		s.h.metrics.gap(gap)
		if s.h.cfg.Events.Gap != nil {
			s.h.cfg.Events.Gap(*gap)
		}
	}
	return nil
}

// beginsStore reports whether an event is the first one of a store: that of its first queue.
func beginsStore(r *client.EventRecord) bool {
	e := &r.Event
	return r.ID == 0 && e.Type == plimsoll.EventQueue && e.Change == plimsoll.ChangeAdd &&
		e.Detail == plimsoll.DetailNone && e.Object == plimsoll.RootQueue
}

// write writes the events that wait, if there are any.
func (s *session) write(ctx context.Context) error {
	if len(s.waiting) == 0 {
		return nil
	}
	for len(s.waiting) > 0 {
		made := s.fold.Apply(s.waiting[:min(len(s.waiting), history.MaxWriteEvents)])
		if s.failed = s.writeBatch(ctx, s.waiting[:made.Taken], &made); s.failed != nil {
			return s.failed
		}
		s.waiting = s.waiting[made.Taken:]
	}
	s.waiting, s.bytes = nil, 0 // a large batch does not keep its memory
	return nil
}

// writeBatch writes events that the fold has taken.
func (s *session) writeBatch(ctx context.Context, events []plimsoll.Event, made *fold.Result) error {
	for i := range events {
		s.encoder.Append(&events[i])
	}
	b := &history.Batch{
		Instance: s.at.Instance, First: s.at.Next, Count: uint64(len(events)),
		From: events[0].Time, To: events[len(events)-1].Time, Data: s.encoder.Finish(nil),
		Objects: made.Objects, Jobs: made.Jobs, Rollups: made.Rollups, Gap: s.gap, FoldBytes: s.fold.Memory(),
	}
	now := s.h.cfg.Now()
	if s.unsaved += len(events); s.gap != nil || s.unsaved >= checkpointEvents || now.Sub(s.saved) >= checkpointAfter {
		b.Fold = s.fold.AppendState(nil)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout) // a stop waits for it
	defer cancel()
	if err := s.w.Write(ctx, b); err != nil {
		return err
	}
	if b.Fold != nil {
		s.unsaved, s.saved = 0, now
	}
	s.at.Next, s.gap, s.newest = s.at.Next+b.Count, nil, b.To
	s.h.setPosition(s.at)
	s.h.setTrouble(nil)
	s.h.metrics.wrote(b, made.Unexpected)
	return nil
}
