package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"hash/crc32"
	"os"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

const (
	maxReads    = 4       // questions that are answered at once; more wait
	readerCache = 4 << 20 // bytes of pages, for each of them
	// readTimeout bounds one answer: as long as it lasts, the log cannot be moved into the file.
	readTimeout = 2 * time.Second

	// chunkWork is the part of sizes.work that a chunk of tasks takes.
	chunkWork = 4
)

// Reader is an archive.Reader of an SQLite file, which another process may write.
type Reader struct {
	path  string
	sizes sizes
	slots chan *slot // Invariant: maxReads of them are here or with a call
	once  sync.Once
	done  chan struct{}

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

// slot is a connection that is opened when it is used.
type slot struct {
	c    *conn       // nil: not open
	file os.FileInfo // of the file that c has open
	gate gate
}

var _ archive.Reader = (*Reader)(nil)

// OpenReader returns a reader of a file. The file may come later, and may be replaced: each call
// sees the one that has the name then, or fails with CodeStale if Mark has told of another one.
func OpenReader(path string) *Reader {
	r := &Reader{path: path, sizes: usual, slots: make(chan *slot, maxReads), done: make(chan struct{})}
	for range maxReads {
		r.slots <- &slot{}
	}
	return r
}

// Close waits for the calls under way and closes the file.
func (r *Reader) Close() error {
	var failed []error
	r.once.Do(func() {
		close(r.done)
		for range maxReads {
			failed = append(failed, (<-r.slots).close())
		}
	})
	return errors.Join(failed...)
}

func (s *slot) close() error {
	if s.c == nil {
		return nil
	}
	c := s.c
	s.c = nil
	return errors.Join(c.close(), s.gate.close())
}

// view answers a question from one moment of the file that the last Mark told of.
func (r *Reader) view(ctx context.Context, answer func(ctx context.Context, c *conn) error) error {
	return r.viewAny(ctx, func(ctx context.Context, s *slot) error {
		if err := r.isMarked(s); err != nil {
			return err
		}
		return answer(ctx, s.c)
	})
}

// isMarked fails if the last Mark told of another file. The file may be replaced between the look
// at its name and its opening, so its content is compared too.
func (r *Reader) isMarked(s *slot) error {
	r.mu.Lock()
	m := r.mu.marked
	r.mu.Unlock()
	if m == nil {
		return nil
	}
	same := os.SameFile(m.file, s.file)
	if same {
		state, err := s.c.readState()
		if err != nil {
			return err
		}
		same = state.id == m.id && state.sequence >= m.sequence
	}
	if !same {
		return plimsoll.Errorf(plimsoll.CodeStale, "another file has replaced the archive %s; try again", r.path)
	}
	return nil
}

// viewAny is view of the file that has the name now.
func (r *Reader) viewAny(ctx context.Context, answer func(ctx context.Context, s *slot) error) error {
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case <-r.done:
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "the archive %s is closed", r.path)
	default:
	}
	select {
	case <-r.done:
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "the archive %s is closed", r.path)
	case <-limited.Done():
		return r.tooLong(ctx, ended(limited))
	case s := <-r.slots:
		defer func() { r.slots <- s }()
		err := s.open(r.path)
		if err == nil {
			err = s.gate.pass(limited)
		}
		if err == nil {
			s.c.sizes = r.sizes
			err = s.c.view(limited, func() error { return answer(limited, s) })
		}
		switch plimsoll.CodeOf(err) {
		case plimsoll.CodeNotFound, plimsoll.CodeInvalid, plimsoll.CodeExhausted:
		case plimsoll.CodeDeadline:
			return r.tooLong(ctx, err)
		default:
			if err != nil { // the next call opens the file again
				err = errors.Join(err, s.close())
			}
		}
		return err
	}
}

// tooLong returns the error for an answer that was not made in time: that of the caller's context,
// if it has ended.
func (r *Reader) tooLong(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Op: "read the archive " + r.path,
		Msg: "it took longer than " + readTimeout.String() + "; try again", Err: err,
	}
}

// open opens the file that has the name now, unless it is open.
func (s *slot) open(path string) error {
	file, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.Join(plimsoll.Errorf(
			plimsoll.CodeUnavailable, "the archive %s is not there yet; the coordinator makes it when it leads", path,
		), s.close())
	case err != nil:
		return errors.Join(&plimsoll.Error{
			Code: plimsoll.CodeUnavailable, Op: "read the archive " + path,
			Msg: "look at the owner and the mode of the file and its directory", Err: err,
		}, s.close())
	case s.c != nil && os.SameFile(file, s.file):
		if s.gate.file == nil {
			s.gate, err = openGate(path, false) // it may have come since
		}
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	c, err := openConn(path, false, readerCache)
	if err != nil {
		return err
	}
	made, err := c.made()
	if err == nil && !made {
		err = plimsoll.Errorf(plimsoll.CodeUnavailable, "the archive %s is being made; try again", path)
	}
	if err == nil {
		err = sameFile(path, file)
	}
	var g gate
	if err == nil {
		g, err = openGate(path, false)
	}
	if err != nil {
		return errors.Join(err, c.close())
	}
	s.c, s.file, s.gate = c, file, g
	return nil
}

// sameFile fails if another file has the name now. A connection to it would be taken for one to the
// file that had the name before.
func sameFile(path string, before os.FileInfo) error {
	now, err := os.Stat(path)
	if err == nil && os.SameFile(before, now) {
		return nil
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Op: "read the archive " + path, Err: err,
		Msg: "it is being replaced; try again",
	}
}

// Mark implements archive.Reader.
func (r *Reader) Mark(ctx context.Context) (mark archive.Mark, err error) {
	var told *marked
	err = r.viewAny(ctx, func(_ context.Context, s *slot) error {
		state, err := s.c.readState()
		if err != nil {
			return err
		}
		oldest, err := s.c.oldest()
		mark, told = state.mark(oldest), &marked{s.file, state.id, state.sequence}
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
			found, err := c.first("SELECT uid FROM job WHERE id = ? ORDER BY uid DESC LIMIT 1", id)
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
	got, err := c.first(query, uid[:])
	if got == nil || err != nil {
		return nil, err
	}
	n, _ := got[0].(int64)
	id, _ := got[1].(string)
	data, _ := got[2].([]byte)
	r, err := decodeRow(uid, id, data)
	if err != nil {
		return nil, errors.Join(damaged(c.path, "the row of job %s", uid), errJobDamaged)
	}
	s := &stored{row: *r, n: n}
	if !whole {
		return s, nil
	}
	s.spec, _ = got[3].([]byte)
	s.status, _ = got[4].([]byte)
	if crc32.Update(crc32.Checksum(s.spec, castagnoli), castagnoli, s.status) != s.body {
		return nil, errors.Join(damaged(c.path, "the specification or status of job %s", uid), errJobDamaged)
	}
	return s, nil
}

// Attempts implements archive.Reader.
func (r *Reader) Attempts(
	ctx context.Context, uid plimsoll.UID, taskKey string, after int32,
) (chunks []archive.Attempts, err error) {
	err = r.view(ctx, func(_ context.Context, c *conn) error {
		bytes := 0
		return c.rows(func(row []driver.Value) error {
			first, _ := row[0].(int64)
			data, _ := row[1].([]byte)
			value, ok := unsealed(data)
			if !ok {
				return damaged(c.path, "the attempts from %d of a task of job %s", first, uid)
			}
			bytes += len(value)
			if len(chunks) > 0 && bytes > archive.MaxPageBytes {
				return errStop
			}
			chunks = append(chunks, archive.Attempts{UID: uid, TaskKey: taskKey, First: int32(first), Value: value})
			return nil
		}, "SELECT first, value FROM attempts WHERE uid = ? AND task = ? AND first > ? ORDER BY first LIMIT 10000",
			uid[:], taskKey, int64(after))
	})
	return chunks, err
}
