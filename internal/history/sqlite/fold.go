package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// thinning says which folds stay.
type thinning struct {
	age      int64 // nanoseconds; folds up to this age all stay
	distance int64 // events between older ones
	count    int
	bytes    int64
}

// foldHead has the facts about a fold beside its content.
type foldHead struct {
	chunk, time, total, bytes int64
	gap                       bool // the first state behind a gap
}

// drop returns which of the folds go; they are in the order of their chunks. The newest stays.
// Those behind a gap are the last to go, because none can take their place.
func (t *thinning) drop(folds []foldHead) (gone []foldHead) {
	if len(folds) == 0 {
		return nil
	}
	newest := folds[len(folds)-1]
	kept := folds[:1:1]
	for i, f := range folds[1:] {
		last := kept[len(kept)-1]
		next := i+2 < len(folds) && folds[i+2].total-last.total <= t.distance && newest.time-folds[i+2].time > t.age
		if next && !f.gap {
			gone = append(gone, f)
			continue
		}
		kept = append(kept, f)
	}
	sum := int64(0)
	for _, f := range kept {
		sum += f.bytes
	}
	for len(kept) > 1 && (len(kept) > t.count || sum > t.bytes) {
		at := t.leastNeeded(kept[:len(kept)-1], newest)
		sum -= kept[at].bytes
		gone = append(gone, kept[at])
		kept = slices.Delete(kept, at, at+1)
	}
	return gone
}

// writeFold writes the state behind a chunk, and drops folds that are not needed any more.
func (w *Writer) writeFold(h *head, fold []byte) error {
	if fold == nil {
		return nil
	}
	data, compressed := w.c.packing.pack(fold)
	method := byte(0)
	if compressed {
		method = 1
	}
	data = sqlitefile.Sealed(append(slices.Grow([]byte{method}, len(data)+sqlitefile.ChecksumBytes), data...))
	gap := int64(0)
	if h.gapped {
		gap = 1
	}
	_, err := w.c.Exec("INSERT INTO fold VALUES (?, ?, ?, ?, ?, ?)", h.n, h.peak, h.total, gap, int64(len(data)), data)
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	_, _, err = w.thin(&w.sizes.folds)
	return err
}

// thin drops the folds that a rule does not keep, in a bounded step.
func (w *Writer) thin(rule *thinning) (changed, more bool, err error) {
	folds := []foldHead{}
	err = w.c.Rows(func(row []driver.Value) error {
		folds = append(folds, foldHeadOf(row))
		return nil
	}, "SELECT time, chunk, total, gap, bytes FROM fold INDEXED BY fold_time ORDER BY time, chunk")
	if err != nil {
		return false, false, err //nolint:wrapcheck // it says what was done
	}
	freed := int64(0)
	for _, f := range rule.drop(folds) {
		if freed >= w.sizes.trimmed {
			return true, true, nil
		}
		if _, err := w.c.Exec("DELETE FROM fold WHERE chunk = ?", f.chunk); err != nil {
			return false, false, err //nolint:wrapcheck // it says what was done
		}
		freed += f.bytes
	}
	return freed > 0, false, nil
}

// leastNeeded returns which of the folds before the newest leaves the least distance when it goes.
func (*thinning) leastNeeded(folds []foldHead, newest foldHead) (at int) {
	onlyGaps := !slices.ContainsFunc(folds, func(f foldHead) bool { return !f.gap })
	least := int64(math.MaxInt64)
	for i, f := range folds {
		if f.gap && !onlyGaps {
			continue
		}
		after, before := newest.total, int64(0) // without one before it, all up to the next becomes unknown
		if i+1 < len(folds) {
			after = folds[i+1].total
		}
		if i > 0 {
			before = folds[i-1].total
		}
		if after-before < least {
			least, at = after-before, i
		}
	}
	return at
}

func foldHeadOf(row []driver.Value) (f foldHead) {
	var gap int64
	for i, field := range []*int64{&f.time, &f.chunk, &f.total, &gap, &f.bytes} {
		*field, _ = row[i].(int64)
	}
	f.gap = gap != 0
	return f
}

// fold returns the content of the fold behind a chunk.
func (c *conn) fold(chunk int64) ([]byte, error) {
	row, err := c.First("SELECT data FROM fold WHERE chunk = ?", chunk)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was done
	}
	if row == nil {
		return nil, c.Damaged("the fold behind chunk %d is missing", chunk)
	}
	data, _ := row[0].([]byte)
	content, ok := sqlitefile.Unsealed(data)
	if !ok || len(content) == 0 || content[0] > 1 {
		return nil, c.Damaged("the fold behind chunk %d", chunk)
	}
	if content[0] == 0 {
		return content[1:], nil
	}
	fold, err := c.packing.unpack(content[1:], history.MaxFoldBytes)
	if err != nil {
		return nil, c.Damaged("the fold behind chunk %d (%v)", chunk, err)
	}
	return fold, nil
}

// chunk reads a chunk with its events; nil if it is not there.
func (c *conn) chunk(n int64) (*head, history.Events, error) {
	row, err := c.First("SELECT head, data FROM chunk WHERE n = ?", n)
	if row == nil || err != nil {
		return nil, history.Events{}, err //nolint:wrapcheck // it says what was done
	}
	h, err := c.decodeHead(n, row[0], false)
	if err != nil {
		return nil, history.Events{}, err
	}
	events, err := c.events(h, row[1])
	return h, events, err
}

// Resume implements history.Writer.
func (w *Writer) Resume(ctx context.Context) (
	fold []byte, behind history.Position, replay func(fn func(history.Events) error) error, err error,
) {
	chunk, last := int64(0), int64(0)
	err = w.view(ctx, func(s *state) error {
		last = s.chunks
		row, err := w.c.First("SELECT chunk FROM fold ORDER BY chunk DESC LIMIT 1")
		if row == nil || err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		chunk, _ = row[0].(int64)
		if fold, err = w.c.fold(chunk); err != nil {
			return err
		}
		h, _, err := w.c.chunk(chunk)
		switch {
		case err != nil:
			return err
		case h == nil:
			return w.c.Damaged("chunk %d is missing", chunk)
		}
		behind = history.Position{Instance: h.instance, Next: h.first + h.count}
		return nil
	})
	if err != nil {
		return nil, history.Position{}, nil, fmt.Errorf("resume: %w", err)
	}
	return fold, behind, func(fn func(history.Events) error) error {
		for n := chunk + 1; n <= last; n++ {
			if w.c == nil {
				return w.closed()
			}
			if err := kind.Ended(ctx); err != nil {
				return err //nolint:wrapcheck // it says what was done
			}
			h, events, err := w.c.chunk(n)
			if err == nil && h == nil {
				err = w.c.Damaged("chunk %d is missing", n)
			}
			if err == nil {
				err = fn(events)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// At implements history.Reader.
func (r *Reader) At(ctx context.Context, t int64) (
	fold []byte, replay func(fn func(history.Events) error) error, err error,
) {
	var id string
	var from, last int64 // chunks
	err = r.view(ctx, func(_ context.Context, c *conn) error {
		s, err := c.readState()
		if err != nil {
			return err
		}
		id = s.id
		if from, last, err = c.span(s, t); err != nil || from == 0 {
			return err
		}
		fold, err = c.fold(from)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return fold, func(fn func(history.Events) error) error {
		for n := from + 1; n <= last; n++ {
			events, err := r.stored(ctx, id, n, t)
			if err == nil {
				err = fn(events)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// stored returns the events of a chunk of the file with an id, to replay them up to a time.
func (r *Reader) stored(ctx context.Context, id string, n, t int64) (events history.Events, err error) {
	err = r.view(ctx, func(_ context.Context, c *conn) error {
		s, err := c.readState()
		if err != nil {
			return err
		}
		h, found, err := c.chunk(n)
		events = found
		switch {
		case err != nil:
			return err
		case h == nil || s.id != id:
			return plimsoll.Errorf(
				plimsoll.CodeUnavailable, "the history %s was trimmed or replaced while it was read; try again",
				c.Path(),
			)
		case h.gapped && n > 1: // its fold was dropped
			return notKnown(t, "events before it were lost")
		}
		return nil
	})
	return events, err
}

// span returns behind which chunk the newest fold is that is not behind a time, and the last chunk
// to replay. from is 0 if there is no such fold, and nothing was before the first chunk.
func (c *conn) span(s *state, t int64) (from, last int64, err error) {
	if s.chunks == 0 || t < s.since {
		return 0, 0, notKnown(t, "the history begins later")
	}
	row, err := c.First("SELECT chunk FROM fold WHERE time <= ? ORDER BY time DESC, chunk DESC LIMIT 1", t)
	if err != nil {
		return 0, 0, err //nolint:wrapcheck // it says what was done
	}
	switch {
	case row != nil:
		from, _ = row[0].(int64)
	case s.partial != 0:
		return 0, 0, notKnown(t, "what is known of the time before is trimmed, or begins later")
	}
	row, err = c.First("SELECT n, head FROM chunk WHERE peak > ? ORDER BY peak, n LIMIT 1", t)
	if row == nil || err != nil {
		return from, s.chunks, err //nolint:wrapcheck // it says what was done
	}
	last, _ = row[0].(int64)
	h, err := c.decodeHead(last, row[1], false)
	if err != nil {
		return 0, 0, err
	}
	if h.gapped && last > 1 {
		before, _, err := c.chunk(last - 1)
		if err != nil {
			return 0, 0, err
		}
		if before == nil || before.peak < t {
			return 0, 0, notKnown(t, "events of this time were lost")
		}
	}
	if h.gapped || h.from > t {
		last--
	}
	return from, last, nil
}

func notKnown(t int64, why string) error {
	return plimsoll.Errorf(plimsoll.CodeNotFound, "the history does not know how it was at %s: %s",
		time.Unix(0, t).UTC().Format(time.RFC3339Nano), why)
}
