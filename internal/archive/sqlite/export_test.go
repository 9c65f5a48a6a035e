package sqlite

import (
	"context"
	"time"
)

// small has sizes with which a few jobs fill many blocks and use up the work of an answer.
var small = sizes{fold: 7, block: 4, work: 100, gather: 1000, trim: 64 << 20, uids: 1000}

// SmallWriter makes a writer cut its lists into small blocks, and keep a small log.
func SmallWriter(w *Writer) {
	w.c.sizes = small
	w.file.Hasten(1<<20, 0)
}

// SmallReader makes a reader end its pages early for the work that they took.
func SmallReader(r *Reader) { r.sizes = small }

// SmallTrim bounds the bytes that a Trim removes, and the uids of deleted jobs.
func SmallTrim(w *Writer, bytes, uids int64) { w.c.sizes.trim, w.c.sizes.uids = bytes, uids }

// Deleted returns how many uids of deleted jobs are remembered.
func Deleted(w *Writer) (int64, error) {
	row, err := w.c.First("SELECT count(*) FROM deleted")
	if err != nil {
		return 0, err
	}
	n, _ := row[0].(int64)
	return n, nil
}

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
