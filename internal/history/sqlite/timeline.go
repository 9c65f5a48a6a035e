package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// chunkWork is the part of sizes.timeline that a chunk takes beside its events.
const chunkWork = 100

// Timeline implements history.Reader.
func (r *Reader) Timeline(ctx context.Context, q history.TimelineQuery) (page history.Page[history.Record], err error) {
	if err := q.Check(); err != nil {
		return page, err //nolint:wrapcheck // it names the field
	}
	err = r.view(ctx, func(ctx context.Context, c *conn) error {
		s, err := c.readState()
		if err != nil {
			return err
		}
		v := &visit{ctx: ctx, c: c, s: s, q: &q, left: r.sizes.timeline, page: &page}
		return v.run()
	})
	if err != nil {
		return history.Page[history.Record]{}, err
	}
	return page, nil
}

// visit is a walk over the chunks of one page.
type visit struct {
	ctx   context.Context //nolint:containedctx // it lives as long as one call
	c     *conn
	s     *state
	q     *history.TimelineQuery
	left  int // events that may still be unpacked
	page  *history.Page[history.Record]
	bytes int
	lists []list
}

func (v *visit) run() error {
	if err := v.find(); err != nil {
		return err
	}
	n := max(v.q.After.Chunk, 1)
	if v.q.From > 0 {
		row, err := v.c.First("SELECT n FROM chunk WHERE peak >= ? ORDER BY peak, n LIMIT 1", v.q.From)
		if row == nil || err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		first, _ := row[0].(int64)
		n = max(n, first)
	}
	for {
		var err error
		if n, err = v.next(n); n == 0 || err != nil {
			return err
		}
		if v.left <= 0 {
			v.page.Next = history.Cursor{Chunk: n}
			return nil
		}
		over, err := v.chunk(n)
		if over || err != nil {
			return err
		}
		n++
	}
}

// list has the numbers of the chunks with events of one object, in their order and in parts.
type list struct {
	query  string
	values []driver.Value // before the first chunk and the number of rows
	chunks []int64        // read already
	ended  bool           // none is behind those
}

// listRows is how many numbers of chunks are read at once.
const listRows = 128

// find makes the lists of the object. Without an object there is one of all chunks.
func (v *visit) find() error {
	const byObject = "SELECT chunk FROM event WHERE object = ? AND chunk >= ? ORDER BY chunk LIMIT ?"
	o := v.q.Object
	if o == (history.Object{}) {
		v.lists = []list{{query: "SELECT n FROM chunk WHERE n >= ? ORDER BY n LIMIT ?"}}
		return nil
	}
	if o.Life > 0 {
		j, err := v.c.job(o.Life)
		if err != nil {
			return err
		}
		if j == nil || j.ID != o.ID {
			return plimsoll.Errorf(plimsoll.CodeNotFound, "the history has no job %q with the life %d", o.ID, o.Life)
		}
		v.lists = []list{{query: byObject, values: []driver.Value{lifeNumber(o.Life)}}}
		return nil
	}
	n, err := v.c.name(object{o.Kind, o.ID})
	if err != nil {
		return err
	}
	if n > 0 {
		v.lists = append(v.lists, list{query: byObject, values: []driver.Value{nameNumber(o.Kind, n)}})
	}
	if o.Kind == history.KindJob {
		row, err := v.c.First("SELECT life FROM job WHERE id = ? LIMIT 1", o.ID)
		if err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		if row != nil { // the lives of an id follow each other, and so do their chunks
			v.lists = append(v.lists, list{
				query: `SELECT event.chunk FROM job CROSS JOIN event ON event.object = job.life*4+1
					WHERE job.id = ? AND event.chunk >= ? ORDER BY job.life, event.chunk LIMIT ?`,
				values: []driver.Value{o.ID},
			})
		}
	}
	if len(v.lists) == 0 {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "the history knows nothing of %q", o.ID)
	}
	return nil
}

// next returns the first chunk from a number on that any list has; 0 if there is none.
func (v *visit) next(from int64) (int64, error) {
	first := int64(0)
	for i := range v.lists {
		l := &v.lists[i]
		for len(l.chunks) > 0 && l.chunks[0] < from {
			l.chunks = l.chunks[1:]
		}
		if len(l.chunks) == 0 && !l.ended {
			err := v.c.Rows(func(row []driver.Value) error {
				n, _ := row[0].(int64)
				l.chunks = append(l.chunks, n)
				return nil
			}, l.query, append(l.values[:len(l.values):len(l.values)], from, int64(listRows))...)
			if err != nil {
				return 0, err //nolint:wrapcheck // it says what was done
			}
			l.ended = len(l.chunks) < listRows
		}
		if len(l.chunks) > 0 && (first == 0 || l.chunks[0] < first) {
			first = l.chunks[0]
		}
	}
	return first, nil
}

// chunk adds the events of a chunk to the page. It reports whether the page is complete.
func (v *visit) chunk(n int64) (over bool, err error) {
	if err := kind.Ended(v.ctx); err != nil {
		return false, err //nolint:wrapcheck // it says what was done
	}
	v.left -= chunkWork
	row, err := v.c.First("SELECT head FROM chunk WHERE n = ?", n)
	if err != nil {
		return false, err //nolint:wrapcheck // it says what was done
	}
	if row == nil {
		return false, v.c.Damaged("chunk %d is missing", n)
	}
	h, err := v.c.decodeHead(n, row[0], false)
	if err != nil {
		return false, err
	}
	switch {
	case v.q.Until > 0 && h.peak-v.s.behind >= v.q.Until: // no chunk behind it has an event before Until
		return true, nil
	case h.high < v.q.From, v.q.Until > 0 && h.low >= v.q.Until:
		return false, nil
	}
	row, err = v.c.First("SELECT data FROM chunk WHERE n = ?", n)
	if err != nil {
		return false, err //nolint:wrapcheck // it says what was done
	}
	events, err := v.c.events(h, row[0])
	if err != nil {
		return false, err
	}
	v.left -= int(h.count)
	found, err := v.matching(h, events.Data)
	if err != nil {
		return false, err
	}
	for i := range found {
		r := &found[i]
		v.bytes += r.Bytes()
		if len(v.page.Rows) >= v.q.Limit || len(v.page.Rows) > 0 && v.bytes > history.MaxPageBytes {
			v.page.Next = history.Cursor{Chunk: n, ID: r.ID}
			return true, nil
		}
		v.page.Rows = append(v.page.Rows, *r)
	}
	return false, nil
}

// matching returns the events of a chunk that meet the query and are not before the cursor.
func (v *visit) matching(h *head, data []byte) (found []history.Record, err error) {
	o := v.q.Object
	begun := []int{} // for each event in found: how many lives of the job had begun in the chunk
	begins, id := 0, h.first
	for ev, err := range ring.Decode(data) {
		if err != nil {
			return nil, v.c.Damaged("the events of chunk %d (%v)", h.n, err)
		}
		at := id
		id++
		if o.Life > 0 && ev.Object == o.ID && history.Begins(&ev) {
			begins++
		}
		if h.n == v.q.After.Chunk && at < v.q.After.ID || ev.Time < v.q.From && v.q.From > 0 ||
			v.q.Until > 0 && ev.Time >= v.q.Until || !v.q.Meets(&ev) {
			continue
		}
		found = append(found, history.Record{Instance: h.instance, ID: at, Event: ev})
		if o.Life > 0 {
			begun = append(begun, begins)
		}
	}
	if o.Life == 0 || len(found) == 0 {
		return found, nil
	}
	later, err := v.later(h.n)
	if err != nil {
		return nil, err
	}
	kept := found[:0]
	for i := range found {
		if begins-begun[i] == later {
			kept = append(kept, found[i])
		}
	}
	return kept, nil
}

// later returns how many lives of the job behind the one of the query have events in a chunk.
func (v *visit) later(chunk int64) (count int, err error) {
	for life := v.q.Object.Life; ; count++ {
		row, err := v.c.First("SELECT life FROM job WHERE id = ? AND life > ? ORDER BY life LIMIT 1",
			v.q.Object.ID, life)
		if row == nil || err != nil {
			return count, err //nolint:wrapcheck // it says what was done
		}
		life, _ = row[0].(int64)
		row, err = v.c.First("SELECT 1 FROM event WHERE object = ? AND chunk = ?", lifeNumber(life), chunk)
		if row == nil || err != nil {
			return count, err //nolint:wrapcheck // it says what was done
		}
	}
}

// job returns a life of a job; nil if it is not there.
func (c *conn) job(life int64) (*history.Job, error) {
	row, err := c.First("SELECT value FROM job WHERE life = ?", life)
	if row == nil || err != nil {
		return nil, err //nolint:wrapcheck // it says what was done
	}
	return c.decodeJob(life, row[0])
}
