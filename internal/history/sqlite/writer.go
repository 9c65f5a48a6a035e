package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

const (
	writerCache = 32 << 20 // bytes of pages
	// maxNameBytes bounds the numbers of nodes and queues that a Writer remembers. When they take
	// more it forgets them, and reads them again.
	maxNameBytes = 8 << 20
)

// Writer is a history.Writer in an SQLite file.
type Writer struct {
	path  string
	file  *sqlitefile.Owner
	c     *conn // of file; nil once it is closed
	sizes sizes

	names     map[object]int64
	nameBytes int
}

// object is a key of table name.
type object struct {
	kind history.Kind
	id   string
}

var _ history.Writer = (*Writer)(nil)

// OpenWriter opens a history, and makes the file if it is not there. The directory must be there.
func OpenWriter(ctx context.Context, path string) (*Writer, error) {
	file, err := kind.Own(ctx, path, writerCache)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was done
	}
	p, err := newPacking(true)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	w := &Writer{path: path, file: file, sizes: usual, names: map[object]int64{}}
	w.c = &conn{file.Conn, p, &w.sizes}
	return w, nil
}

// Close gives up the file.
func (w *Writer) Close() error {
	if w.c == nil {
		return nil
	}
	w.c.packing.close()
	w.c = nil
	return w.file.Close() //nolint:wrapcheck // it names the file
}

func (w *Writer) closed() error {
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the history %s is closed", w.path)
}

// view runs do with the state, from one moment of the file.
func (w *Writer) view(ctx context.Context, do func(*state) error) error {
	if w.c == nil {
		return w.closed()
	}
	//nolint:wrapcheck // it says what was done
	return w.c.View(ctx, func() error {
		s, err := w.c.readState()
		if err != nil {
			return err
		}
		return do(s)
	})
}

// change runs do in a transaction, and stores the state that it leaves. Without a change there is
// no commit.
func (w *Writer) change(ctx context.Context, do func(*state) (changed bool, err error)) error {
	if w.c == nil {
		return w.closed()
	}
	err := w.c.Change(ctx, func() error {
		s, err := w.c.readState()
		if err != nil {
			return err
		}
		changed, err := do(s)
		if !changed || err != nil {
			return err
		}
		return w.c.writeState(s)
	})
	if err != nil { // numbers that the transaction gave to names are not theirs
		w.forgetNames()
	}
	return err //nolint:wrapcheck // it says what was done
}

// Name implements history.Writer.
func (w *Writer) Name(ctx context.Context) (name string, err error) {
	err = w.view(ctx, func(*state) error {
		row, err := w.c.First("SELECT name FROM state")
		if err == nil {
			name, _ = row[0].(string) // readState has read the row
		}
		return err //nolint:wrapcheck // it says what was done
	})
	return name, err
}

// Position implements history.Writer.
func (w *Writer) Position(ctx context.Context) (at history.Position, err error) {
	err = w.view(ctx, func(s *state) error {
		at = history.Position{Instance: s.instance, Next: s.next}
		return nil
	})
	return at, err
}

// Write implements history.Writer.
func (w *Writer) Write(ctx context.Context, b *history.Batch) error {
	low, high, err := b.Check()
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	if w.c == nil {
		return w.closed()
	}
	if err := w.file.CheckLog(ctx); err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	err = w.change(ctx, func(s *state) (bool, error) {
		there, err := b.Follows(history.Position{Instance: s.instance, Next: s.next})
		if there || err != nil {
			return false, err
		}
		return true, w.write(ctx, s, b, low, high)
	})
	if err != nil {
		return fmt.Errorf("write %d events from %d on: %w", b.Count, b.First, err)
	}
	return nil
}

// write writes the parts of a batch. low and high are its earliest and its latest time.
func (w *Writer) write(ctx context.Context, s *state, b *history.Batch, low, high int64) error {
	if s.chunks == 0 {
		s.since, s.peak = b.From, high
		if b.Gap != nil || b.First > 0 {
			s.partial = 1
		}
	}
	s.peak = max(s.peak, high)
	s.behind = max(s.behind, s.peak-low)
	s.chunks++
	s.total += int64(b.Count)
	s.events += int64(b.Count)
	s.instance, s.next, s.newest = b.Instance, b.First+b.Count, b.To
	objects, err := w.numbers(b.Objects)
	if err != nil {
		return err
	}
	h := &head{
		n: s.chunks, instance: b.Instance, first: b.First, count: b.Count, from: b.From, to: b.To, low: low, high: high,
		peak: s.peak, gapped: b.Gap != nil, total: s.total, objects: objects,
	}
	for _, step := range []func() error{
		func() error { return w.writeChunk(h, b.Data) },
		func() error { return w.writeJobs(s, b.Jobs) },
		func() error { return w.writeRollups(b.Rollups) },
		func() error { return w.writeGap(b.Gap) },
		func() error { return w.writeFold(h, b.Fold) },
	} {
		if err := kind.Ended(ctx); err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) writeChunk(h *head, data []byte) error {
	data, h.compressed = w.c.packing.pack(data)
	h.sum = crc32.Checksum(data, castagnoli)
	_, err := w.c.Exec("INSERT INTO chunk VALUES (?, ?, ?, ?)", h.n, h.peak, h.encode(), data)
	for _, number := range h.objects {
		if err != nil {
			break
		}
		_, err = w.c.Exec("INSERT INTO event VALUES (?, ?)", number, h.n)
	}
	return err //nolint:wrapcheck // it says what was done
}

// The number of an object has a kind in its last two bits. Before them it has the life of a job, or
// the number of a name.
const (
	kindBits = 2
	unlived  = 0 // kind of a job without a life: its name has a number
)

func lifeNumber(life int64) int64 { return life<<kindBits | int64(history.KindJob) }

func nameNumber(kind history.Kind, n int64) int64 {
	if kind == history.KindJob {
		kind = unlived
	}
	return n<<kindBits | int64(kind)
}

// numbers returns the sorted numbers of objects, and gives one to each that has none.
func (w *Writer) numbers(objects []history.Object) ([]int64, error) {
	found := make([]int64, 0, len(objects))
	for i := range objects {
		o := &objects[i]
		if o.Life > 0 {
			found = append(found, lifeNumber(o.Life))
			continue
		}
		n, err := w.name(object{o.Kind, o.ID})
		if err != nil {
			return nil, err
		}
		found = append(found, nameNumber(o.Kind, n))
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// nameOverhead is the memory for a name that is remembered, beside its text, in bytes.
const nameOverhead = 64

// name returns the number of a name.
func (w *Writer) name(o object) (int64, error) {
	if n, known := w.names[o]; known {
		return n, nil
	}
	n, err := w.c.name(o)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		if _, err := w.c.Exec("INSERT INTO name (kind, id) VALUES (?, ?)", int64(o.kind), o.id); err != nil {
			return 0, err //nolint:wrapcheck // it says what was done
		}
		if n, err = w.c.name(o); err != nil {
			return 0, err
		}
	}
	if w.nameBytes > maxNameBytes {
		w.forgetNames()
	}
	w.names[o] = n
	w.nameBytes += len(o.id) + nameOverhead
	return n, nil
}

func (w *Writer) forgetNames() {
	clear(w.names)
	w.nameBytes = 0
}

// name returns the number of a name; 0 if it has none.
func (c *conn) name(o object) (int64, error) {
	row, err := c.First("SELECT n FROM name WHERE id = ? AND kind = ?", o.id, int64(o.kind))
	if row == nil || err != nil {
		return 0, err //nolint:wrapcheck // it says what was done
	}
	n, _ := row[0].(int64)
	return n, nil
}

// writeJobs writes the rows of lives, in their order.
func (w *Writer) writeJobs(s *state, jobs []history.Job) error {
	jobs = slices.Clone(jobs)
	slices.SortStableFunc(jobs, func(a, b history.Job) int { return cmp.Compare(a.Life, b.Life) })
	for i := range jobs {
		if err := w.writeJob(s, &jobs[i]); err != nil {
			return fmt.Errorf("job %s: %w", jobs[i].ID, err)
		}
	}
	return nil
}

// noteTimes keeps how far the submits of lives may be out of order, and how long a life may last.
// was is the life as it was before; nil: it is new.
func (s *state) noteTimes(j, was *history.Job) {
	if was == nil || was.Submitted != j.Submitted {
		if s.lives == 0 {
			s.submitPeak, s.submitFirst = j.Submitted, j.Submitted
		}
		s.submitBehind = max(s.submitBehind, s.submitPeak-j.Submitted)
		if j.Life <= s.lives { // higher ones may have any submit
			s.submitBehind = max(s.submitBehind, j.Submitted-s.submitFirst)
		}
		s.submitPeak, s.submitFirst = max(s.submitPeak, j.Submitted), min(s.submitFirst, j.Submitted)
	}
	if j.Ended > 0 {
		s.longest = max(s.longest, j.Ended-j.Submitted)
	}
}

// writeJob writes the row of a life. Only the indexes of facts that have changed are touched.
func (w *Writer) writeJob(s *state, j *history.Job) error {
	var was *history.Job
	value := encodeJob(j)
	if j.Life <= s.lives {
		row, err := w.c.First("SELECT value FROM job WHERE life = ?", j.Life)
		if err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		if row != nil {
			if old, _ := row[0].([]byte); bytes.Equal(old, value) {
				return nil
			}
			if was, err = w.c.decodeJob(j.Life, row[0]); err != nil {
				return err
			}
		}
	}
	if was == nil {
		s.jobs++
	}
	s.noteTimes(j, was)
	s.lives = max(s.lives, j.Life)
	var err error
	switch same := was != nil && was.ID == j.ID && was.Owner == j.Owner && was.Queue == j.Queue; {
	case same && was.Ended == j.Ended:
		_, err = w.c.Exec("UPDATE job SET value = ? WHERE life = ?", value, j.Life)
	case same:
		_, err = w.c.Exec("UPDATE job SET ended = ?, value = ? WHERE life = ?", j.Ended, value, j.Life)
	default:
		_, err = w.c.Exec("INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?, ?)", j.Life, j.ID, j.Owner, j.Queue,
			j.Ended, value)
	}
	return err //nolint:wrapcheck // it says what was done
}

// writeGap writes a gap, and joins the oldest two if there are more than Status tells.
func (w *Writer) writeGap(g *history.Gap) error {
	if g == nil {
		return nil
	}
	if _, err := w.c.Exec("INSERT INTO gap (value) VALUES (?)", encodeGap(g)); err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	row, err := w.c.First("SELECT count(*) FROM gap")
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	if n, _ := row[0].(int64); n <= history.MaxGaps {
		return nil
	}
	var oldest []history.Gap
	last := int64(0)
	err = w.c.Rows(func(row []driver.Value) error {
		g, err := w.c.decodeGap(row[1])
		oldest = append(oldest, g)
		last, _ = row[0].(int64)
		return err
	}, "SELECT n, value FROM gap ORDER BY n LIMIT 2")
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	joined := oldest[0].Joined(oldest[1])
	if _, err := w.c.Exec("DELETE FROM gap WHERE n < ?", last); err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	_, err = w.c.Exec("UPDATE gap SET value = ? WHERE n = ?", encodeGap(&joined), last)
	return err //nolint:wrapcheck // it says what was done
}
