package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// Trim implements history.Writer.
func (w *Writer) Trim(ctx context.Context, keep history.Retention, now int64) (more bool, err error) {
	err = w.change(ctx, func(s *state) (bool, error) {
		t := &trimmer{ctx: ctx, w: w, s: s, keep: keep, now: now}
		for _, step := range []func() error{t.thinFolds, t.trimChunks, t.trimFolds, t.trimSums, t.trimJobs} {
			if err := step(); err != nil {
				return false, err
			}
		}
		more = t.more
		return t.changed, nil
	})
	if err != nil {
		return false, fmt.Errorf("trim the history: %w", err)
	}
	if more {
		return true, nil
	}
	return false, w.file.GiveBack(ctx) //nolint:wrapcheck // it says what was done
}

// trimmer is one Trim.
type trimmer struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one call
	w    *Writer
	s    *state
	keep history.Retention
	now  int64

	changed bool
	more    bool
}

// foldPart is the part of the bytes of a history that its folds may take.
const foldPart = 4

// thinFolds drops folds if they take too large a part: they are larger than the events between
// them.
func (t *trimmer) thinFolds() error {
	if t.keep.Bytes == 0 {
		return nil
	}
	rule := t.w.sizes.folds
	rule.bytes = min(rule.bytes, t.keep.Bytes/foldPart)
	changed, more, err := t.w.thin(&rule)
	t.changed, t.more = t.changed || changed, t.more || more
	return err
}

// trimChunks removes the oldest chunks, up to the one of the newest fold.
func (t *trimmer) trimChunks() error {
	row, err := t.w.c.First("SELECT chunk FROM fold ORDER BY chunk DESC LIMIT 1")
	if row == nil || err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	needed, _ := row[0].(int64)
	removed := int64(0)
	for count := 0; ; count++ {
		if err := kind.Ended(t.ctx); err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		row, err := t.w.c.First("SELECT n, head, length(data) FROM chunk WHERE n < ? ORDER BY n LIMIT 1", needed)
		if row == nil || err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		n, _ := row[0].(int64)
		h, err := t.w.c.decodeHead(n, row[1], true)
		if err != nil {
			return err
		}
		goes, err := t.goes(h)
		if !goes || err != nil {
			return err
		}
		if count >= t.w.sizes.trim || removed >= t.w.sizes.trimmed {
			t.more = true
			return nil
		}
		if err := t.remove(h); err != nil {
			return err
		}
		size, _ := row[2].(int64)
		removed += size + int64(len(h.objects))*eventBytes
	}
}

// eventBytes is about what a row of table event takes in the file.
const eventBytes = 24

// goes reports whether the oldest chunk goes.
func (t *trimmer) goes(h *head) (bool, error) {
	if t.keep.Age > 0 && h.high < t.now-int64(t.keep.Age) {
		return true, nil
	}
	if t.keep.Bytes == 0 {
		return false, nil
	}
	used, err := t.w.c.used()
	return used > t.keep.Bytes, err
}

func (t *trimmer) remove(h *head) error {
	for _, number := range h.objects {
		if _, err := t.w.c.Exec("DELETE FROM event WHERE object = ? AND chunk = ?", number, h.n); err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
	}
	if _, err := t.w.c.Exec("DELETE FROM chunk WHERE n = ?", h.n); err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	t.s.events -= int64(h.count)
	t.s.partial, t.changed = 1, true
	return nil
}

// trimFolds removes the folds behind which events are missing.
func (t *trimmer) trimFolds() error {
	oldest, err := t.w.c.oldest()
	if oldest == nil || err != nil {
		return err
	}
	n, err := t.w.c.Exec("DELETE FROM fold WHERE chunk < ?", oldest.n-1)
	t.changed = t.changed || n > 0
	return err //nolint:wrapcheck // it says what was done
}

// oldest returns the head of the oldest chunk; nil if there is none.
func (c *conn) oldest() (*head, error) {
	row, err := c.First("SELECT n, head FROM chunk ORDER BY n LIMIT 1")
	if row == nil || err != nil {
		return nil, err //nolint:wrapcheck // it says what was done
	}
	n, _ := row[0].(int64)
	return c.decodeHead(n, row[1], false)
}

const secondsPerHour = 3600

// cutoff returns the beginning of the first hour whose usage stays, in Unix seconds.
func (t *trimmer) cutoff() int64 {
	seconds := (t.now - int64(t.keep.Usage)) / int64(time.Second)
	return seconds - seconds%secondsPerHour
}

func (t *trimmer) trimSums() error {
	if t.keep.Usage == 0 {
		return nil
	}
	for _, table := range sumTables {
		n, err := t.w.c.Exec(table.trim, t.cutoff(), int64(t.w.sizes.trim))
		if err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		t.changed = t.changed || n > 0
		t.more = t.more || n == int64(t.w.sizes.trim)
	}
	return nil
}

// trimJobs removes jobs that have ended before the hours that stay, and before the oldest event.
func (t *trimmer) trimJobs() error {
	if t.keep.Usage == 0 {
		return nil
	}
	before := t.cutoff() * int64(time.Second)
	oldest, err := t.w.c.oldest()
	if err != nil {
		return err
	}
	if oldest != nil {
		before = min(before, oldest.from)
	}
	var lives []int64
	err = t.w.c.Rows(func(row []driver.Value) error {
		life, _ := row[0].(int64)
		lives = append(lives, life)
		return nil
	}, "SELECT life FROM job WHERE ended > 0 AND ended < ? ORDER BY ended, life LIMIT ?", before, int64(t.w.sizes.trim))
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	slices.Sort(lives)
	for _, life := range lives {
		if _, err := t.w.c.Exec("DELETE FROM job WHERE life = ?", life); err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
	}
	t.s.jobs -= int64(len(lives))
	t.changed = t.changed || len(lives) > 0
	t.more = t.more || len(lives) == t.w.sizes.trim
	return nil
}
