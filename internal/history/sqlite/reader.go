package sqlite

import (
	"context"
	"database/sql/driver"
	"sync"

	"github.com/plimsoll-dev/plimsoll/internal/history"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// Reader is a history.Reader of an SQLite file, which another process may write.
type Reader struct {
	pool  *sqlitefile.Pool
	sizes sizes

	mu struct {
		sync.Mutex
		packing *packing // nil: not needed yet
	}
}

var _ history.Reader = (*Reader)(nil)

// OpenReader returns a reader of a file. The file may come later, and may be replaced: each call
// sees the one that has the name then.
func OpenReader(path string) *Reader { return &Reader{pool: kind.Read(path), sizes: usual} }

// Close waits for the calls under way and closes the file.
func (r *Reader) Close() error {
	err := r.pool.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.packing != nil {
		r.mu.packing.close()
		r.mu.packing = nil
	}
	return err //nolint:wrapcheck // it names the file
}

// view answers a question from one moment of the file.
func (r *Reader) view(ctx context.Context, answer func(ctx context.Context, c *conn) error) error {
	//nolint:wrapcheck // it says what was done
	return r.pool.View(ctx, func(ctx context.Context, v sqlitefile.View) error {
		p, err := r.packing()
		if err != nil {
			return err
		}
		return answer(ctx, &conn{v.Conn, p, &r.sizes})
	})
}

func (r *Reader) packing() (*packing, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.packing == nil {
		p, err := newPacking(false)
		if err != nil {
			return nil, err
		}
		r.mu.packing = p
	}
	return r.mu.packing, nil
}

// Status implements history.Reader.
func (r *Reader) Status(ctx context.Context) (status history.Status, err error) {
	err = r.view(ctx, func(_ context.Context, c *conn) error {
		s, err := c.readState()
		if err != nil {
			return err
		}
		status = history.Status{
			Position: history.Position{Instance: s.instance, Next: s.next}, Since: s.since, Newest: s.newest,
			Events: uint64(s.events), Jobs: uint64(s.jobs),
		}
		oldest, err := c.oldest()
		if err != nil {
			return err
		}
		if oldest != nil {
			status.Oldest = oldest.from
		}
		if status.Bytes, err = c.used(); err != nil {
			return err
		}
		//nolint:wrapcheck // it says what was done
		return c.Rows(func(row []driver.Value) error {
			g, err := c.decodeGap(row[0])
			status.Gaps = append(status.Gaps, g)
			return err
		}, "SELECT value FROM gap ORDER BY n")
	})
	if err != nil {
		return history.Status{}, err
	}
	return status, nil
}
