package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"hash/crc32"
	"os"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// chunkWork is the part of sizes.work that a chunk of tasks takes.
const chunkWork = 4

// Reader is an archive.Reader of an SQLite file, which another process may write.
type Reader struct {
	pool  *sqlitefile.Pool
	sizes sizes

	mu struct {
		sync.Mutex
		marked *marked // nil: Mark has told of no file
	}
}

// marked is the file that Mark has told of last. A file of the same name may be another one, or an
// older copy.
type marked struct {
	file     os.FileInfo
	id       string
	sequence int64
}

var _ archive.Reader = (*Reader)(nil)

// OpenReader returns a reader of a file. The file may come later, and may be replaced: each call
// sees the one that has the name then, or fails with CodeStale if Mark has told of another one.
func OpenReader(path string) *Reader { return &Reader{pool: kind.Read(path), sizes: usual} }

// Close waits for the calls under way and closes the file.
func (r *Reader) Close() error { return r.pool.Close() } //nolint:wrapcheck // it names the file

// view answers a question from one moment of the file that the last Mark told of.
func (r *Reader) view(ctx context.Context, answer func(ctx context.Context, c *conn) error) error {
	return r.viewAny(ctx, func(ctx context.Context, c *conn, file os.FileInfo) error {
		if err := r.isMarked(c, file); err != nil {
			return err
		}
		return answer(ctx, c)
	})
}

// viewAny is view of the file that has the name now.
func (r *Reader) viewAny(
	ctx context.Context, answer func(ctx context.Context, c *conn, file os.FileInfo) error,
) error {
	//nolint:wrapcheck // it says what was done
	return r.pool.View(ctx, func(ctx context.Context, v sqlitefile.View) error {
		return answer(ctx, &conn{v.Conn, r.sizes}, v.File)
	})
}

// isMarked fails if the last Mark told of another file. The file may be replaced between the look
// at its name and its opening, so its content is compared too.
func (r *Reader) isMarked(c *conn, file os.FileInfo) error {
	r.mu.Lock()
	m := r.mu.marked
	r.mu.Unlock()
	if m == nil {
		return nil
	}
	same := os.SameFile(m.file, file)
	if same {
		state, err := c.readState()
		if err != nil {
			return err
		}
		same = state.id == m.id && state.sequence >= m.sequence
	}
	if !same {
		return plimsoll.Errorf(plimsoll.CodeStale, "another file has replaced the archive %s; try again", r.pool.Path())
	}
	return nil
}

// Mark implements archive.Reader.
func (r *Reader) Mark(ctx context.Context) (mark archive.Mark, err error) {
	var told *marked
	err = r.viewAny(ctx, func(_ context.Context, c *conn, file os.FileInfo) error {
		state, err := c.readState()
		if err != nil {
			return err
		}
		oldest, err := c.oldest()
		mark, told = state.mark(oldest), &marked{file, state.id, state.sequence}
		return err
	})
	if err != nil {
		return archive.Mark{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.marked = told
	return mark, nil
}

// Job implements archive.Reader.
func (r *Reader) Job(ctx context.Context, id string, uid plimsoll.UID) (job archive.Stored, err error) {
	err = r.view(ctx, func(_ context.Context, c *conn) error {
		wanted := uid
		if uid.IsZero() {
			found, err := c.First("SELECT uid FROM job WHERE id = ? ORDER BY uid DESC LIMIT 1", id)
			if err != nil {
				return err
			}
			if found != nil {
				wanted = uidOf(found[0])
			}
		}
		s, err := c.job(wanted, true)
		switch {
		case err != nil:
			return err
		case s == nil || id != "" && s.ID != id:
			return notFound(id, uid)
		}
		job = archive.Stored{Head: s.Head, Spec: s.spec, Status: s.status}
		return nil
	})
	return job, err
}

func notFound(id string, uid plimsoll.UID) error {
	switch {
	case uid.IsZero():
		return plimsoll.Errorf(plimsoll.CodeNotFound, "the archive has no job %q", id)
	case id == "":
		return plimsoll.Errorf(plimsoll.CodeNotFound, "the archive has no job with uid %s", uid)
	}
	return plimsoll.Errorf(plimsoll.CodeNotFound, "the archive has no job %q with uid %s", id, uid)
}

func uidOf(v driver.Value) (uid plimsoll.UID) {
	data, _ := v.([]byte)
	copy(uid[:], data)
	return uid
}

// stored is a job as its row has it, without its tasks.
type stored struct {
	row
	n            int64
	spec, status []byte
}

// errJobDamaged is in errors about the rows of jobs that are not as they were written.
var errJobDamaged = errors.New("a job's row is damaged")

// job reads the row of a job; nil if there is none.
func (c *conn) job(uid plimsoll.UID, whole bool) (*stored, error) {
	query := "SELECT n, id, head FROM job WHERE uid = ?"
	if whole {
		query = "SELECT n, id, head, spec, status FROM job WHERE uid = ?"
	}
	got, err := c.First(query, uid[:])
	if got == nil || err != nil {
		return nil, err
	}
	n, _ := got[0].(int64)
	id, _ := got[1].(string)
	data, _ := got[2].([]byte)
	r, err := decodeRow(uid, id, data)
	if err != nil {
		return nil, errors.Join(c.Damaged("the row of job %s", uid), errJobDamaged)
	}
	s := &stored{row: *r, n: n}
	if !whole {
		return s, nil
	}
	s.spec, _ = got[3].([]byte)
	s.status, _ = got[4].([]byte)
	if crc32.Update(crc32.Checksum(s.spec, castagnoli), castagnoli, s.status) != s.body {
		return nil, errors.Join(c.Damaged("the specification or status of job %s", uid), errJobDamaged)
	}
	return s, nil
}

// Attempts implements archive.Reader.
func (r *Reader) Attempts(
	ctx context.Context, uid plimsoll.UID, taskKey string, after int32,
) (chunks []archive.Attempts, err error) {
	err = r.view(ctx, func(_ context.Context, c *conn) error {
		bytes := 0
		return c.Rows(func(row []driver.Value) error {
			first, _ := row[0].(int64)
			data, _ := row[1].([]byte)
			value, ok := sqlitefile.Unsealed(data)
			if !ok {
				return c.Damaged("the attempts from %d of a task of job %s", first, uid)
			}
			bytes += len(value)
			if len(chunks) > 0 && bytes > archive.MaxPageBytes {
				return sqlitefile.ErrStop
			}
			chunks = append(chunks, archive.Attempts{UID: uid, TaskKey: taskKey, First: int32(first), Value: value})
			return nil
		}, "SELECT first, value FROM attempts WHERE uid = ? AND task = ? AND first > ? ORDER BY first LIMIT 10000",
			uid[:], taskKey, int64(after))
	})
	return chunks, err
}
