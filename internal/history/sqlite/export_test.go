package sqlite

import (
	"context"
	"time"
)

// SmallWriter makes a writer remove little at once, and keep a small log.
func SmallWriter(w *Writer) {
	w.sizes.trim, w.sizes.trimmed = 3, 1
	w.file.Hasten(1<<20, 0)
}

// SmallReader makes a reader end its pages early for the work that they took.
func SmallReader(r *Reader) { r.sizes.timeline, r.sizes.jobs = 150, 3 }

// Disk bounds the file of a writer to a number of pages, like a disk that is full then.
func Disk(w *Writer, pages string) error {
	return w.c.Run(context.Background(), "PRAGMA max_page_count="+pages)
}

// Pages returns the number of pages of the file.
func Pages(w *Writer) (int64, error) {
	row, err := w.c.First("PRAGMA page_count")
	if err != nil {
		return 0, err
	}
	n, _ := row[0].(int64)
	return n, nil
}

// HastyGate makes a writer wait only for a moment for processes that pass the gate.
func HastyGate(w *Writer) { w.file.Hasten(0, time.Millisecond) }

// Hold keeps a transaction of a reader open until do has returned.
func Hold(r *Reader, do func() error) error {
	return r.view(context.Background(), func(_ context.Context, c *conn) error {
		if _, err := c.readState(); err != nil {
			return err
		}
		return do()
	})
}

// Run runs a statement.
func Run(w *Writer, statement string) error { return w.c.Run(context.Background(), statement) }

// Thin makes a writer keep few folds.
func Thin(w *Writer, age time.Duration, distance int64, count int, bytes int64) {
	w.sizes.folds = thinning{age: int64(age), distance: distance, count: count, bytes: bytes}
}

// Folds returns how many folds are kept.
func Folds(w *Writer) (int64, error) {
	row, err := w.c.First("SELECT count(*) FROM fold")
	if err != nil {
		return 0, err
	}
	n, _ := row[0].(int64)
	return n, nil
}
