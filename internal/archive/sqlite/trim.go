package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// Trim implements archive.Writer.
func (w *Writer) Trim(
	ctx context.Context, epoch uint64, keep archive.Retention, now int64, most int,
) (removed int, more bool, err error) {
	_, err = w.change(ctx, epoch, func(s *state) (bool, error) {
		t := &trimmer{w: w, s: s, keep: keep, now: now, most: most, jobs: s.jobs, bytes: s.bytes - s.early, ctx: ctx}
		if err := t.choose(); err != nil {
			return false, err
		}
		forgotten, moreUIDs, err := w.forget(s, now, most)
		if err != nil {
			return false, err
		}
		removed, more = len(t.chosen), t.full || moreUIDs
		if removed == 0 && len(t.stray) == 0 {
			return forgotten > 0, nil
		}
		if err := w.unlist(s, t.stray); err != nil {
			return false, err
		}
		return true, w.remove(ctx, s, t.chosen)
	})
	if err != nil {
		return 0, false, fmt.Errorf("trim: %w", err)
	}
	if removed > 0 {
		w.oldest = -1
	}
	if more {
		return removed, more, nil
	}
	return removed, false, w.file.GiveBack(ctx) //nolint:wrapcheck // it says what was done
}

// trimmer chooses the jobs that go.
type trimmer struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one call
	w    *Writer
	s    *state
	keep archive.Retention
	now  int64
	most int

	jobs, bytes int64 // without the chosen ones, and without attempts of jobs that are not there
	chosen      []plimsoll.UID
	size        int64    // bytes of the chosen ones
	stray       []recent // entries of the lists whose jobs are gone or damaged
	full        bool     // as much was chosen as one Trim removes, and another one would go
}

// choose takes those that are too old, then from the oldest on as many as are too many.
func (t *trimmer) choose() error {
	x, err := t.w.c.index(&budget{t.ctx, t.w.c.sizes.work + t.most})
	if err != nil {
		return err
	}
	d := direction{order: byFinish}
	type class struct {
		word   word
		age    time.Duration
		next   entry
		behind bool
	}
	classes := []*class{{word: wordGood, age: t.keep.Age}, {word: wordBad, age: t.keep.FailedAge}}
	walk := func(c *class, goes func(entry) bool) error {
		l, err := x.of(d, c.word)
		if err != nil {
			return err
		}
		for {
			e, ok, err := l.from(c.next, c.behind)
			if errors.Is(err, errBudget) {
				t.full = true
				return nil
			}
			if !ok || err != nil || !goes(e) {
				return err
			}
			if len(t.chosen)+len(t.stray) >= t.most || t.size >= t.w.c.sizes.trim {
				t.full = true
				return nil
			}
			if err := t.take(e, c.word); err != nil {
				return err
			}
			c.next, c.behind = e, true
		}
	}
	for _, c := range classes {
		tooOld := func(e entry) bool { return c.age > 0 && int64(e.finished) < t.now-int64(c.age) }
		if err := walk(c, tooOld); err != nil || t.full {
			return err
		}
	}
	tooMany := func(entry) bool {
		return t.keep.Jobs > 0 && t.jobs > t.keep.Jobs || t.keep.Bytes > 0 && t.bytes > t.keep.Bytes
	}
	for _, c := range classes {
		if err := walk(c, tooMany); err != nil || t.full {
			return err
		}
	}
	return nil
}

// take chooses the job of an entry.
func (t *trimmer) take(e entry, of word) error {
	uid := e.uid()
	j, err := t.w.c.job(uid, false)
	if err == nil && j == nil {
		t.stray = append(t.stray, recent{e, []word{of}})
		return nil
	}
	size, failed := t.w.c.attemptsOf(uid)
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, errJobDamaged):
		t.stray = append(t.stray, recent{e, []word{of}})
	case err != nil:
		return err
	default:
		size += int64(j.bytes)
	}
	t.jobs--
	t.bytes -= size
	t.size += size
	t.chosen = append(t.chosen, uid)
	return kind.Ended(t.ctx)
}

// forget forgets deleted uids that are too old, at most most, and as many that are too many. It
// reports whether there may be more of them.
func (w *Writer) forget(s *state, now int64, most int) (forgotten int64, more bool, err error) {
	old, err := w.c.Exec("DELETE FROM deleted WHERE uid IN (SELECT uid FROM deleted WHERE at < ? ORDER BY at LIMIT ?)",
		now-int64(archive.DeletedAge), int64(most))
	if err != nil {
		return 0, false, err
	}
	s.tombstones -= old
	more = old == int64(most)
	if s.tombstones <= w.c.sizes.uids {
		return old, more, nil
	}
	tooMany, err := w.c.Exec("DELETE FROM deleted WHERE uid IN (SELECT uid FROM deleted ORDER BY at LIMIT ?)",
		min(s.tombstones-w.c.sizes.uids, int64(most)))
	s.tombstones -= tooMany
	return old + tooMany, more || s.tombstones > w.c.sizes.uids, err
}
